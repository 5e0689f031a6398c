"""The example for Spark on Kubernetes uses only what Spark, cleanerd and the image have.

``tests/spark/test_kubernetes.py`` tests that it runs.
"""

from __future__ import annotations

import importlib.util
import re
import zipfile
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from cleanerd import __version__
from cleanerd.cli.spark_snapshot import snapshot

TOP = Path(__file__).parents[2]
TEXT = (TOP / "config" / "kubernetes" / "spark.yml").read_text()
DRIVER = "local:///opt/cleanerd/driver.py"


def _documents() -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in yaml.safe_load_all(TEXT)}


def _pod() -> dict[str, Any]:
    found: dict[str, Any] = _documents()["Job"]["spec"]["template"]["spec"]
    return found


def _words() -> list[str]:
    found: list[str] = _pod()["containers"][0]["args"]
    return found


def _settings() -> dict[str, str]:
    words = _words()
    messages = [words[at + 1] for at, word in enumerate(words) if word == "--conf"]
    found = dict(each.split("=", 1) for each in messages)
    assert len(found) == len(messages), "nothing is given twice"
    return found


def _options_of_spark() -> str:
    """All option names in the classes of Spark that read options."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    jars = Path(str(spec.origin)).parent / "jars"
    text = ""
    for pattern, names in (
        ("spark-kubernetes_*.jar", r"org/apache/spark/deploy/k8s/Config\$\.class"),
        ("spark-core_*.jar", r"org/apache/spark/internal/config/package\$\.class"),
    ):
        (jar,) = jars.glob(pattern)
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.fullmatch(names, name):
                    text += archive.read(name).decode("latin-1")
    return text


def test_its_options_are_sparks() -> None:
    """Each is an option of this release, by its whole name or as the prefix of a family."""
    text = _options_of_spark()
    families = ("secretKeyRef.", "driverEnv.")
    for key in _settings():
        known = next((key[: key.index(each) + len(each)] for each in families if each in key), key)
        prefix, _, last = known.rpartition(".")  # some are composed of these two
        assert key.startswith("spark.executorEnv.") or known in text or (prefix in text and f".{last}" in text), key
    assert "spark.kubernetes.no.such.option" not in text


def test_its_command_is_cleanerds() -> None:
    """A command line of cleanerd follows the driver's program, which is the one that the image links."""
    words = _words()
    assert words[0] == "spark-submit"
    assert words[words.index("--deploy-mode") + 1] == "cluster"
    command = words[words.index(DRIVER) + 1 :]
    assert command[:2] == ["spark", "snapshot"]
    names = {name for each in snapshot.params if isinstance(each, click.Option) for name in each.opts}
    assert {word for word in command if word.startswith("--")} <= names
    target = re.search(r"ln -s (\S+cleanerd_driver\.py) /opt/cleanerd/driver\.py", (TOP / "Dockerfile").read_text())
    assert target is not None
    assert (TOP / target[1].removeprefix("lib/python3.11/site-packages/")).is_file()


def test_the_manifests_fit_together() -> None:
    """Account, template, secret and image have the same name everywhere."""
    documents, settings, pod = _documents(), _settings(), _pod()
    account = documents["ServiceAccount"]["metadata"]["name"]
    assert pod["serviceAccountName"] == account
    assert settings["spark.kubernetes.authenticate.driver.serviceAccountName"] == account
    namespace = settings["spark.kubernetes.namespace"]
    assert documents["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]
    assert documents["RoleBinding"]["roleRef"]["name"] == documents["Role"]["metadata"]["name"]
    images = {pod["containers"][0]["image"], settings["spark.kubernetes.container.image"]}
    assert images == {f"cleanerd-spark:{__version__}"}
    assert f"--target spark --tag cleanerd-spark:{__version__} ." in TEXT
    (volume,) = pod["volumes"]
    assert volume["configMap"]["name"] == documents["ConfigMap"]["metadata"]["name"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    (name,) = documents["ConfigMap"]["data"]
    for who in ("driver", "executor"):
        assert settings[f"spark.kubernetes.{who}.podTemplateFile"] == f"{mount['mountPath']}/{name}"
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            assert settings[f"spark.kubernetes.{who}.secretKeyRef.{key}"].startswith("cleanerd-store:")


@pytest.mark.parametrize("release", ["1.29", "1.37"])
def test_the_template_is_a_pod(release: str) -> None:
    """By Kubernetes' schema, with the container whose name Spark has, for the image's user, restricted."""
    (text,) = _documents()["ConfigMap"]["data"].values()
    template = yaml.safe_load(text)
    kubernetes_validate.validate({**template, "metadata": {"name": "x"}}, release, strict=True)
    (container,) = template["spec"]["containers"]
    assert container["name"] == _settings()["spark.kubernetes.driver.podTemplateContainerName"]
    assert container["name"] == _settings()["spark.kubernetes.executor.podTemplateContainerName"]
    for pod in (template["spec"], _pod()):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["enableServiceLinks"] is False
        for each in pod["containers"]:
            assert each["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    user = template["spec"]["securityContext"]
    stage = (TOP / "Dockerfile").read_text().partition(" AS spark\n")[2].partition("\nFROM ")[0]
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}" in stage
    assert f"useradd --uid {user['runAsUser']} " in stage, "Java needs the name of its user"
