"""An executor that is killed under a reading command: Spark tries its tasks again, and the outcome is the same.

``test_cluster.py`` has the same for a cleaning, ``test_table_kills.py`` for tables.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
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
SCANS: Final = 100
SCAN_SECONDS: Final = 0.002
"""The interval of the checks of a worker's open files: less than the time to read a segment."""

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
    """A log directory, and a cleaned copy of it."""
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
    values = {
        "cleanerd.state.dir": place / "state", "cleanerd.disk.reserve": 0, f"topics.{PARTITION.topic}.cleanup.policy":
        "compact", "cleanerd.delegation": "assumed",
    }  # fmt: skip
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "cleanerd", *map(str, words)]


@pytest.mark.parametrize("subcommand", ["audit", "profile", "divergence", "erasure", "source"])
def test_the_same_outcome(subcommand: str, dirs: tuple[Path, Path], cluster: Cluster, tmp_path: Path) -> None:
    """An executor is killed while its worker reads a segment, as Spark's log shows: the outcome is the same."""
    conf = [word for key, value in ON_A_CLUSTER.items() for word in ("--conf", f"{key}={value}")]
    on_cluster, alone = words_of(subcommand, *dirs, tmp_path, ["--master", cluster.url, *conf])
    expected = ran(alone)
    with executor_killed(lambda: executor_that_reads(cluster, dirs)):
        found = ran(on_cluster, "Lost executor")
    assert found == expected


def words_of(
    subcommand: str, before: Path, after: Path, place: Path, master: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The command by executors of the cluster, and the same by this machine alone."""
    if subcommand == "source":
        script = place / "read.py"
        script.write_text(READ)
        submit = str(require_spark())
        log = ["--conf", "spark.log.level=ERROR"]
        return [submit, *master, *log, str(script), str(before)], [submit, *log, str(script), str(before)]
    given = {
        "audit": [before, after, "--digest-key", "07" * 16],
        "profile": [before, "--strategy", "header:version"],
        "divergence": [before, after],
        "erasure": [before, "--key", "nothing", "--expect-absent"],
    }[subcommand]
    words = command("spark", "audit" if subcommand == "erasure" else subcommand, *given, "--json", *settings(place))
    return [*words, *master], words


def ran(words: list[str], reported: str = "") -> Any:
    """The command's output; asserts that Spark's log contains ``reported``."""
    inherited = {"PYSPARK_PYTHON": sys.executable, **os.environ}
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False, env=inherited)
    assert done.returncode in (0, 5), done.stderr
    assert reported in done.stderr
    return json.loads(done.stdout)


def executor_that_reads(cluster: Cluster, places: Sequence[Path]) -> list[int]:
    """The Java of an executor whose Python worker has a segment below ``places`` open; that worker is stopped.

    So its task cannot end before the executor is killed.
    """
    workers = {worker: java for java in cluster.executors() for worker in children(*children(java))}
    for _ in range(SCANS if workers else 0):
        for worker, java in workers.items():
            if is_stopped_as_it_reads(worker, places):
                return [java]
        time.sleep(SCAN_SECONDS)
    return []


def is_stopped_as_it_reads(pid: int, places: Sequence[Path]) -> bool:
    """Stop a process if it has a segment below ``places`` open; otherwise let it continue.

    A process that ended has none.
    """
    try:
        os.kill(pid, signal.SIGSTOP)
        if any(path.suffix == ".log" and path.is_relative_to(place) for path in opened(pid) for place in places):
            return True
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass
    return False


def opened(pid: int) -> list[Path]:
    """The open files of a process."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for each in Path("/proc", str(pid), "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(each.readlink())
    return found
