"""An executor that is killed under a verb that only reads: Spark tries its tasks again, and the outcome is the same.

How a cleaning takes it is in ``test_cluster.py``, of tables in ``test_table_kills.py``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cleanerd.spark.launch import require_spark
from cleanerd_lab.bench.generate import PARTITION, make_log
from cleanerd_lab.demo.ports import free_port
from tests.spark.cluster import OPTIONS, SHAPE, Cluster, children, executor_killed, started_cluster
from tests.spark.sessions import ON_A_CLUSTER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.long

MIB: Final = 1 << 20
SIZE_BYTES: Final = 160 * MIB
BUSY_SECONDS: Final = 0.8
"""Of CPU, a worker's: more than it takes to start."""

READ: Final = """
import json, sys
from pyspark.sql import SparkSession, functions as F
from cleanerd.spark import register
session = SparkSession.builder.getOrCreate()
register(session)
source = session.read.format("kafka-segments").option("view", "raw").option("columns", "key,value,offset")
rows = source.load(sys.argv[1])
(found,) = rows.agg(F.count("*"), F.sum("offset"), F.sum(F.xxhash64("key", "value") % 1000003)).collect()
print(json.dumps(list(found)))
session.stop()
"""


@pytest.fixture(scope="module")
def dirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A log directory, and what a cleaning made of it."""
    place = tmp_path_factory.mktemp("lost")
    before = make_log(place / "before", SHAPE, unpacked_bytes=SIZE_BYTES, segment_bytes=32 * MIB).log_dir
    after = place / "after"
    shutil.copytree(before, after, copy_function=shutil.copy2)
    words = ["clean", after, "--yes", "--force", "--from-start", "--now-ms", OPTIONS.now_ms, *settings(place)]
    subprocess.run(command(*words), check=True, capture_output=True)
    return before, after


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started_cluster(tmp_path_factory.mktemp("spark"), free_port()) as running:
        yield running


def settings(place: Path) -> list[str]:
    said = {
        "cleanerd.state.dir": place / "state", "cleanerd.disk.reserve": 0, f"topics.{PARTITION.topic}.cleanup.policy":
        "compact", "cleanerd.delegation": "assumed",
    }  # fmt: skip
    return [word for key, value in said.items() for word in ("--set", f"{key}={value}")]


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "cleanerd", *map(str, words)]


@pytest.mark.parametrize("verb", ["audit", "profile", "divergence", "erasure", "source"])
def test_the_same_outcome(verb: str, dirs: tuple[Path, Path], cluster: Cluster, tmp_path: Path) -> None:
    """Killed while its worker reads, which Spark's log tells: what is said is what is said without it."""
    conf = [word for key, value in ON_A_CLUSTER.items() for word in ("--conf", f"{key}={value}")]
    on_cluster, alone = words_of(verb, *dirs, tmp_path, ["--master", cluster.url, *conf])
    expected = ran(alone)
    with executor_killed(lambda: at_work(cluster)):
        found = ran(on_cluster, "Lost executor")
    assert found == expected


def words_of(verb: str, before: Path, after: Path, place: Path, master: Sequence[str]) -> tuple[list[str], list[str]]:
    """The command by executors of the cluster, and the same by this machine alone."""
    if verb == "source":
        script = place / "read.py"
        script.write_text(READ)
        submit = str(require_spark())
        log = ["--conf", "spark.log.level=ERROR"]
        return [submit, *master, *log, str(script), str(before)], [submit, *log, str(script), str(before)]
    given = {
        "audit": [before, after, "--digest-key", "07" * 16],
        "profile": [before, "--strategy", "header:version"],
        "divergence": [before, after],
        "erasure": [before, "--key", "nobody", "--expect-absent"],
    }[verb]
    words = command("spark", "audit" if verb == "erasure" else verb, *given, "--json", *settings(place))
    return [*words, *master], words


def ran(words: list[str], told: str = "") -> Any:
    """What the command says, and that Spark's log had ``told``."""
    inherited = {"PYSPARK_PYTHON": sys.executable, **os.environ}
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False, env=inherited)
    assert done.returncode in (0, 5), done.stderr
    assert told in done.stderr
    return json.loads(done.stdout)


def at_work(cluster: Cluster) -> list[int]:
    """Executors' Javas, a Python worker of which does something."""
    return [
        java
        for java in cluster.executors()
        for worker in children(*children(java))
        if cpu_seconds(worker) > BUSY_SECONDS
    ]


def cpu_seconds(pid: int) -> float:
    """Of a process; 0 when it is gone."""
    try:
        fields = Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
