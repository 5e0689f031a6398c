"""The Helm chart, rendered by helm itself: Kubernetes' schemas, the alerts, and its settings as cleanerd reads them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from cleanerd.config.load import load_settings

REPOSITORY = Path(__file__).parents[2]
CHART = REPOSITORY / "deploy" / "helm"
ALERTS = REPOSITORY / "config" / "prometheus" / "cleanerd.rules.yml"
RELEASES = ("1.29", "1.37")

needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm: the workflow check has it")


def _render(*words: str) -> list[dict[str, Any]]:
    command = ["helm", "template", "kafka", CHART, "--kube-version", "1.29.0", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def _only(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def test_the_chart_uses_the_alerts_unchanged() -> None:
    """A link, not a copy."""
    assert (CHART / "files" / "cleanerd.rules.yml").resolve() == ALERTS.resolve()


@needs_helm
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["claims", "hosts"])
def test_kubernetes_accepts_it(kind: str) -> None:
    """By its schemas, strictly; and the restricted profile: no user root, no capability, no privilege."""
    documents = _render("--set", f"kind={kind}", "--set", "claims.brokers=3")
    for document in documents:
        for release in RELEASES:
            kubernetes_validate.validate(document, release, strict=True)
    sets = [document for document in documents if document["kind"] in {"StatefulSet", "DaemonSet"}]
    assert len(sets) == (3 if kind == "claims" else 1)
    for document in sets:
        pod = document["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["enableServiceLinks"] is False
        assert (
            document["spec"]["selector"]["matchLabels"].items()
            <= document["spec"]["template"]["metadata"]["labels"].items()
        )
        (container,) = pod["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
        assert {mount["name"] for mount in container["volumeMounts"]} <= {
            *(volume["name"] for volume in pod["volumes"]),
            *(claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", ())),
        }


@needs_helm
@pytest.mark.slow
def test_each_broker_has_its_own_pod_and_claim() -> None:
    """Strimzi's names, by the broker's id."""
    documents = _render("--set", "claims.brokers=2", "--set", "claims.firstId=7")
    claims = []
    for document in (each for each in documents if each["kind"] == "StatefulSet"):
        pod = document["spec"]["template"]["spec"]
        (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "data")
        (variable,) = pod["containers"][0]["env"]
        claims.append((document["metadata"]["name"], volume["persistentVolumeClaim"]["claimName"], variable["value"]))
    assert claims == [
        ("kafka-cleanerd-7", "data-0-my-cluster-broker-7", "/var/lib/kafka/data-0/kafka-log7"),
        ("kafka-cleanerd-8", "data-0-my-cluster-broker-8", "/var/lib/kafka/data-0/kafka-log8"),
    ]


@needs_helm
@pytest.mark.slow
def test_the_settings_are_read_unchanged(tmp_path: Path) -> None:
    """Every type of value; Kubernetes shows a file of a ConfigMap through links."""
    given = ("cleanerd\\.mode=auto", "cleanerd\\.threads\\.per\\.log\\.dir=3", "cleanerd\\.topics\\.exclude={a,b*}")
    documents = _render(*(word for each in given for word in ("--set", f"settings.{each}")))
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "..2026/cleanerd.toml").write_text(_only(documents, "ConfigMap")["data"]["cleanerd.toml"])
    (tmp_path / "cleanerd.toml").symlink_to("..data/cleanerd.toml")
    loaded = load_settings([tmp_path], environ={})
    assert loaded.stray == ()
    assert loaded.value("cleanerd.mode") == "auto"
    assert loaded.value("cleanerd.threads.per.log.dir") == 3
    assert list(loaded.value("cleanerd.topics.exclude")) == ["a", "b*"]
    assert loaded.value("cleanerd.http.listen")[1] == 10280


@needs_helm
@pytest.mark.slow
def test_prometheus_gets_metrics_and_alerts() -> None:
    """Each alert as it is in config/, and a job with the name that the alerts use."""
    documents = _render("--set", "serviceMonitor.enabled=true", "--set", "prometheusRule.enabled=true")
    assert _only(documents, "PrometheusRule")["spec"] == yaml.safe_load(ALERTS.read_text())
    monitor, service = _only(documents, "ServiceMonitor"), _only(documents, "Service")
    assert "cleanerd" in service["metadata"]["labels"][monitor["spec"]["jobLabel"]]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


@needs_helm
@pytest.mark.slow
def test_only_peers_reach_the_page() -> None:
    """By default pods of the namespace, and cleanerd connects to nothing."""
    policy = _only(_render(), "NetworkPolicy")["spec"]
    assert policy["ingress"][0]["from"] == [{"podSelector": {}}]
    assert policy["egress"] == []
    assert policy["policyTypes"] == ["Ingress", "Egress"]
