"""The examples for Kubernetes: its own schemas, strictly, and rules that no schema has."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cleanerd import __version__
from cleanerd.config.load import load_settings

EXAMPLES = Path(__file__).parents[2] / "config" / "kubernetes"
RELEASES = ("1.29", "1.37")
"""The first with side-cars, and the newest that has schemas."""
IMAGES = {f"cleanerd:{__version__}", "apache/kafka:4.3.1"}


def _documents(name: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((EXAMPLES / name).read_text()) if document]


def _all() -> list[dict[str, Any]]:
    return [document for path in sorted(EXAMPLES.glob("*.yml")) for document in _documents(path.name)]


def _containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    pod = document["spec"]["template"]["spec"]
    return [*pod.get("initContainers", ()), *pod["containers"]]


def _sets() -> list[dict[str, Any]]:
    return [document for document in _all() if document["kind"] == "StatefulSet"]


@pytest.mark.parametrize("release", RELEASES)
def test_the_schemas_of_kubernetes(release: str) -> None:
    """Strict: a field that does not exist is an error, as with kubeconform -strict."""
    checked = [document for document in _all() if not document["apiVersion"].startswith("kafka.strimzi.io/")]
    kinds = [document["kind"] for document in checked]
    spark = ["ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Job"]
    assert kinds == [*spark, "Service", "StatefulSet", "StatefulSet"]
    for document in checked:
        kubernetes_validate.validate(document, release, strict=True)


def test_the_schemas_notice() -> None:
    """The schemas are in the package, and strict."""
    assert importlib.resources.files(kubernetes_validate).is_dir()
    document = _sets()[0]
    document["spec"]["template"]["spec"]["containers"][0]["imagePullPolitics"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, RELEASES[0], strict=True)


@pytest.mark.parametrize("at", range(2))
def test_the_manifests_fit_together(at: int) -> None:
    """Every mount has its volume, the selector its labels, every probe its port; images are pinned."""
    document = _sets()[at]
    spec = document["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    for container in _containers(document):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert container["image"] in IMAGES
        ports = {port["name"] for port in container.get("ports", ())}
        for probe in ("livenessProbe", "readinessProbe"):
            for kind in ("httpGet", "tcpSocket"):
                if kind in container.get(probe, {}):
                    assert container[probe][kind]["port"] in ports
        # A restart of the daemon does not make a disk readable.
        alive = container.get("livenessProbe", {}).get("httpGet")
        assert alive is None or alive["path"] == "/livez"


@pytest.mark.parametrize("at", range(2))
def test_no_more_rights_than_needed(at: int) -> None:
    """Kubernetes' restricted profile, and the one user that the agent answers (A-28)."""
    document = _sets()[at]
    pod = document["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in _containers(document):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert "runAsUser" not in container["securityContext"]


@pytest.mark.parametrize("at", range(2))
def test_services_put_no_variables_into_the_pods(at: int) -> None:
    """A Service named cleanerd would set CLEANERD_SERVICE_HOST in them, which is a warning at every start."""
    assert _sets()[at]["spec"]["template"]["spec"]["enableServiceLinks"] is False
    (reported,) = load_settings([], environ={"CLEANERD_SERVICE_HOST": "10.0.0.1"}).stray
    assert "CLEANERD_SERVICE_HOST" in reported, "this is its purpose"


def test_side_car_and_broker_share_the_log_directory() -> None:
    """By the same path; and the jar is where the broker expects it."""
    (document,) = (each for each in _documents("statefulset.yml") if each["kind"] == "StatefulSet")
    containers = {container["name"]: container for container in _containers(document)}
    variables = {
        name: {entry["name"]: entry["value"] for entry in container.get("env", ())}
        for name, container in containers.items()
    }
    log_dir = variables["kafka"]["KAFKA_LOG_DIRS"]
    assert variables["cleanerd"]["CLEANERD_CLEANERD_LOG_DIRS"] == log_dir
    assert log_dir in containers["apply"]["command"][-1]
    jar = variables["kafka"]["KAFKA_OPTS"].removeprefix("-javaagent:")
    assert jar == containers["agent"]["command"][-1] + "cleanerd-agent.jar"
    data = {
        name: {
            mount["mountPath"]
            for mount in container["volumeMounts"]
            if mount["name"] == "data" and "subPath" not in mount
        }
        for name, container in containers.items()
    }
    assert data["kafka"] == data["cleanerd"] == data["apply"]
    # A failing hook must not keep the broker from starting (S-26).
    assert "||" in containers["apply"]["command"][-1]
    # A side-car: it starts before the broker and does not keep the pod from becoming ready.
    assert containers["cleanerd"]["restartPolicy"] == "Always"


def test_strimzi_gets_only_allowed_fields() -> None:
    """No container and no init container in the broker's pod; mounts below /mnt; no variable of Kafka's own."""
    pool, beside = _documents("strimzi.yml")
    template = pool["spec"]["template"]
    assert template.keys() == {"pod", "kafkaContainer"}
    assert template["pod"].keys() == {"securityContext", "volumes"}
    (mount,) = template["kafkaContainer"]["volumeMounts"]
    assert mount["mountPath"].startswith("/mnt/")
    (variable,) = template["kafkaContainer"]["env"]
    assert not variable["name"].startswith("KAFKA_")
    assert variable["value"] == f"-javaagent:{mount['mountPath']}/cleanerd-agent.jar"
    pod = beside["spec"]["template"]["spec"]
    assert {key: pod["securityContext"][key] for key in template["pod"]["securityContext"]} == template["pod"][
        "securityContext"
    ]
    broker = beside["spec"]["template"]["metadata"]["labels"]["cleanerd/broker"]
    (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {"strimzi.io/pod-name": broker}
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == f"data-0-{broker}"
