"""A standalone cluster whose executors have only the cleanerd that ``--archives`` ships."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import cleanerd.cli
from cleanerd.cleaner.manifest import STAGING
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.launch import DRIVER_VARIABLE, require_spark
from cleanerd_lab.demo.ports import free_port
from tests.cleaner.driver import NAME
from tests.spark import shipped
from tests.spark.both_engines import staged_files
from tests.spark.cluster import Cluster, started_cluster
from tests.spark.rich_log import NOW_MS, RichLog
from tests.spark.sessions import ON_A_CLUSTER, QUIET

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.long


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started_cluster(tmp_path_factory.mktemp("spark"), free_port()) as found:
        yield found


def submitted(
    cluster: Cluster, place: Path, conf: Mapping[str, str], *arguments: object
) -> subprocess.CompletedProcess[str]:
    """``spark-submit`` of our main, to executors whose interpreter has no cleanerd."""
    driver = Path(cleanerd.cli.__file__).parent / "submitted" / "cleanerd_driver.py"
    command = [str(require_spark()), "--master", cluster.url]
    for key, value in {**QUIET, **ON_A_CLUSTER, **conf}.items():
        command += ["--conf", f"{key}={value}"]
    settings = [
        f"cleanerd.state.dir={place / 'state'}",
        "topics.orders.cleanup.policy=compact",
        "cleanerd.disk.reserve=0",
    ]
    command += [str(driver), *map(str, arguments), "--json", "--quiet"]
    for each in settings:
        command += ["--set", each]
    python = {"PYSPARK_PYTHON": str(place / "python"), "PYSPARK_DRIVER_PYTHON": sys.executable}
    inherited = {key: value for key, value in os.environ.items() if key != DRIVER_VARIABLE} | python
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=inherited)


def test_the_shipped_archive_is_enough(cluster: Cluster, tmp_path: Path) -> None:
    """``--archives`` brings cleanerd to executors without it: a snapshot, and a cleaning with the usual bytes."""
    shipped.bare_python(tmp_path)
    path = RichLog(3, transactions=True).write(tmp_path / "logs", 4, 20)
    clean = ("spark", "clean", path, "--force", "--from-start", "--now-ms", NOW_MS, "--shards", 2)
    without = submitted(cluster, tmp_path, {}, *clean)
    assert without.returncode == 1
    assert "No module named 'cleanerd" in without.stdout
    assert "install cleanerd" in without.stdout
    conf = {
        "spark.archives": f"{shipped.archive_of(shipped.packages(tmp_path))}#packages",
        "spark.executorEnv.PYTHONPATH": "packages",
    }
    done = submitted(cluster, tmp_path, conf, "spark", "snapshot", path, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    ReadableLogs(None, path).latest().write_parquet(tmp_path / "here")
    found, expected = (
        pq.read_table(tmp_path / name / "topic=orders", columns=["offset", "key", "value"])
        .sort_by("offset")
        .to_pylist()
        for name in ("out", "here")
    )
    assert found == expected != []
    done = submitted(cluster, tmp_path, conf, *clean)
    assert done.returncode == 0, done.stderr
    by_spark = staged_files(path)
    shutil.rmtree(path / NAME / STAGING)
    alone = [sys.executable, "-m", "cleanerd", *map(str, clean[:-2]), "--quiet"]
    alone += ["--set", f"cleanerd.state.dir={tmp_path / 'state'}", "--set", "topics.orders.cleanup.policy=compact"]
    subprocess.run([*alone, "--set", "cleanerd.disk.reserve=0"], check=True, timeout=600)
    assert by_spark == staged_files(path) != {}
