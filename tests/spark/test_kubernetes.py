"""The example for Spark on Kubernetes, run: its Job submits, driver and executors run, and a table is created."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from deltalake import DeltaTable

import cleanerd
from cleanerd.cli.main import run
from cleanerd_lab.demo.ports import free_port
from tests.spark import s3
from tests.spark.archives import make_archive
from tests.spark.kubernetes import Kubernetes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.s3 import Store

pytestmark = pytest.mark.long

TOP = Path(cleanerd.__file__).parents[1]
KUBERNETES = TOP / "config" / "kubernetes"
DRIVER = "local:///opt/cleanerd/driver.py"


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((KUBERNETES / "spark.yml").read_text()))


def image() -> tuple[str, dict[str, str]]:
    """The files of the Dockerfile's stage below /opt, of this virtual environment, and its ENV."""
    venv = Path(sys.prefix)
    text = (TOP / "Dockerfile").read_text()
    stage = text[text.index("AS spark\n") :]
    stage = stage[: stage.index("\nFROM ")].replace("\\\n", " ")
    lines = [f"mkdir /opt/cleanerd; cp {shlex.quote(str(KUBERNETES / 'spark-entrypoint.sh'))} /opt/cleanerd"]
    lines += [f"ln -s {shlex.quote(str(venv / name))} /opt/cleanerd/{name}" for name in ("bin", "lib", "pyvenv.cfg")]
    links = re.findall(r"&& (ln -s \S+ /opt/\S+)", stage)
    assert len(links) == 2
    # An editable install: the package is in the source tree; the image has it next to pyspark.
    package = "lib/python3.11/site-packages/cleanerd"
    links = [each.replace(package, shlex.quote(str(TOP / "cleanerd"))) for each in links]
    (variables,) = re.findall(r"^ENV (.*)$", stage, re.MULTILINE)
    environment = dict(word.split("=", 1) for word in variables.split())
    return "; ".join([*lines, *links]), environment


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubernetes]:
    made, environment = image()
    environment["PATH"] = environment["PATH"].replace("$PATH", "/usr/local/bin:/usr/bin:/bin")
    (tmp_path / "pods").mkdir()
    found = Kubernetes(tmp_path / "pods", made, environment, "/opt/cleanerd/spark-entrypoint.sh")
    yield found
    found.close()


def job_for(kubernetes: Kubernetes, name: str, variables: dict[str, str]) -> dict[str, Any]:
    """The example's Job with our addresses, ports, sizes and ends."""
    (job,) = [each for each in documents() if each["kind"] == "Job"]
    spec: dict[str, Any] = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    words = container["args"]
    words[words.index("--master") + 1] = f"k8s://{kubernetes.url}"
    at = words.index(DRIVER)
    for key, value in {
        "spark.kubernetes.driver.master": kubernetes.url,
        "spark.driver.port": str(free_port()),
        "spark.driver.blockManager.port": str(free_port()),
        "spark.blockManager.port": "0",
        "spark.ui.enabled": "false",
        "spark.executor.instances": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        **{f"spark.kubernetes.driverEnv.{key}": value for key, value in variables.items()},
        **{f"spark.executorEnv.{key}": value for key, value in variables.items()},
    }.items():
        words[at:at] = ["--conf", f"{key}={value}"]
    return {"kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_the_example_runs(
    kubernetes: Kubernetes, server: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unchanged except for addresses and sizes; and its Role allows all requests."""
    logs = make_archive(tmp_path / "data", "offset-0", "transactions-1")
    server.client.create_bucket(Bucket="backups")
    server.client.create_bucket(Bucket="lake")
    for path in sorted(each for each in logs.rglob("*") if each.is_file()):
        server.client.upload_file(str(path), "backups", f"broker-1/data/{path.relative_to(logs)}")
    secret = {"metadata": {"name": "cleanerd-store"}, "stringData": {"key": "test", "secret": s3.SECRET}}
    kubernetes.put("secrets", secret)
    for each in documents():
        if each["kind"] == "ConfigMap":
            kubernetes.put("configmaps", each)
    kubernetes.question.clear()
    variables = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_EC2_METADATA_DISABLED": "true"}
    kubernetes.put("pods", job_for(kubernetes, "submit", variables))
    code = kubernetes.wait("submit", 900)
    reported = {name: path.read_text(errors="replace") for name, path in kubernetes.outputs.items()}
    (driver,) = [name for name in reported if name.endswith("-driver")]
    executors = [name for name in reported if "-exec-" in name]
    assert code == 0, reported["submit"]
    assert kubernetes.wait(driver, 60) == 0, reported[driver]
    assert len(executors) == 2
    assert not [path for path in kubernetes.objects if "-exec-" in path], "the driver removes its executors"
    (role,) = [each for each in documents() if each["kind"] == "Role"]
    allowed = {(verb, kind) for rule in role["rules"] for verb in rule["verbs"] for kind in rule["resources"]}
    assert kubernetes.question <= allowed
    for name in (driver, *executors):
        assert kubernetes.specs[name]["securityContext"]["runAsNonRoot"] is True
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ALLOW_HTTP", "true")
        there = DeltaTable("s3://lake/kafka/orders").to_pyarrow_table()
    assert run(["spark", "snapshot", str(logs), "--format", "delta", "--out", str(tmp_path / "table")]) == 0
    capsys.readouterr()
    order = [(name, "ascending") for name in ("topic", "partition", "offset")]
    assert there.sort_by(order).equals(DeltaTable(str(tmp_path / "table")).to_pyarrow_table().sort_by(order))
    assert there.num_rows > 50

    kubernetes.put("pods", job_for(kubernetes, "again", variables))
    again = kubernetes.wait("again", 900)
    (second,) = [name for name in kubernetes.outputs if name.endswith("-driver") and name != driver]
    assert kubernetes.wait(second, 60) == 3
    assert "exists already" in kubernetes.outputs[second].read_text(errors="replace")
    assert again == 0, "spark-submit does not report that its driver failed: docs/spark-deploy.md"
