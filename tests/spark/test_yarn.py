"""Spark on a real YARN: the commands in client mode, their driver in cluster mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cleanerd
from cleanerd.spark.launch import DRIVER_VARIABLE, require_spark
from tests.spark.archives import make_archive
from tests.spark.yarn.cluster import started_yarn
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.spark.yarn.cluster import YarnCluster

pytestmark = pytest.mark.long

TOP = Path(cleanerd.__file__).parents[1]
DRIVER = TOP / "cleanerd" / "cli" / "submitted" / "cleanerd_driver.py"


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[YarnCluster]:
    with started_yarn(tmp_path / "yarn") as found:
        yield found


def settings_of(yarn: YarnCluster) -> list[str]:
    """``--conf`` for both ways: two small executors, and nothing in the home directory."""
    values = {
        "spark.executor.instances": "2",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.yarn.am.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.yarn.stagingDir": f"file://{yarn.place}/staging",
    }
    return [word for key, value in values.items() for word in ("--conf", f"{key}={value}")]


def called(yarn: YarnCluster, command: Sequence[object]) -> subprocess.CompletedProcess[str]:
    given = {key: value for key, value in os.environ.items() if key != DRIVER_VARIABLE}
    given |= {"HADOOP_CONF_DIR": str(yarn.settings), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    words = [str(each) for each in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=8 * PATIENCE_SECONDS, check=False, env=given)


def profile_of(text: str) -> Any:
    return json.loads(text[text.index("{") :])["partitions"]


def submitted(yarn: YarnCluster, *command: object) -> subprocess.CompletedProcess[str]:
    """The driver on the cluster, as docs/spark-deploy.md has it."""
    python = {
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": sys.executable,
        "spark.yarn.appMasterEnv.PYTHONPATH": TOP,
        "spark.executorEnv.PYTHONPATH": TOP,
        "spark.yarn.maxAppAttempts": 1,
    }
    messages = [word for key, value in python.items() for word in ("--conf", f"{key}={value}")]
    start = [require_spark(), "--master", "yarn", "--deploy-mode", "cluster", *settings_of(yarn), *messages]
    return called(yarn, [*start, DRIVER, "spark", *command])


def test_client_and_cluster_mode(yarn: YarnCluster, tmp_path: Path) -> None:
    """The profile of this process alone, both ways; a command's failure is one of the application, and in its log."""
    logs = make_archive(tmp_path / "data", "offset-0", "transactions-1")
    state = ("--set", f"cleanerd.state.dir={tmp_path / 'state'}", "--json")
    cleanerd_command = (sys.executable, "-m", "cleanerd", "spark", "profile", logs, *state)
    alone = called(yarn, cleanerd_command)
    assert alone.returncode == 0, alone.stderr
    client = called(yarn, [*cleanerd_command, "--master", "yarn", *settings_of(yarn)])
    assert client.returncode == 0, client.stderr
    assert profile_of(client.stdout) == profile_of(alone.stdout)
    assert yarn.outputs("stdout"), "it ran in containers"

    cluster = submitted(yarn, "profile", logs, *state)
    assert cluster.returncode == 0, cluster.stderr
    (reported,) = [text for text in yarn.outputs("stdout") if "partitions" in text]
    assert profile_of(reported) == profile_of(alone.stdout)

    wrong = submitted(yarn, "profile", tmp_path / "nowhere", *state)
    assert wrong.returncode == 1
    (failed,) = [text for text in yarn.outputs("stderr") if "User application exited with status 3" in text]
    assert "nowhere" in failed + "".join(yarn.outputs("stdout"))
