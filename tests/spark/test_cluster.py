"""A standalone master with two workers, and logs of more than 500 MB: what ``make test-all`` runs once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.manifest import STAGING
from cleanerd.format.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import CHECKPOINTS
from cleanerd.spark.launch import environment
from cleanerd_lab.bench.generate import PARTITION, VERSION_HEADER, make_log
from tests.cleaner.driver import config, resources
from tests.spark import both_engines
from tests.spark.cluster import OPTIONS, SHAPE, Cluster, executor_killed, started_cluster
from tests.spark.faults import SlowAttempts
from tests.spark.matrix import enough, in_a_child, pairwise
from tests.spark.sessions import ON_A_CLUSTER, QUIET
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cleanerd.cleaner.resources import Resources

pytestmark = pytest.mark.long

MIB = 1 << 20
SIZE_BYTES = int(os.environ.get("CLUSTER_MIB", "520")) * MIB
PORT = 17077
DRIVER = """
import json, os, pickle, sys
from pathlib import Path
from pyspark.sql import SparkSession
from cleanerd.spark.session import REQUIRED
from tests.spark import both_engines
master, given = sys.argv[1], sys.argv[2]
builder = SparkSession.builder.master(master)
for key, value in {**REQUIRED, **json.loads(sys.argv[3])}.items():
    builder = builder.config(key, value)
session = builder.getOrCreate()
(log_dir, wishes, values, means), options = pickle.loads(Path(given).read_bytes())
found = both_engines.stage_by_spark(session, log_dir, wishes, both_engines.config("bench", **values), means, **options)
Path(given + ".found").write_bytes(pickle.dumps(found))
session.stop()
"""


TOPICS: dict[str, dict[str, object]] = {
    "offset": {"segment_bytes": 64 * MIB},
    "timestamp": {"segment_bytes": 64 * MIB, "compaction_strategy": "timestamp", "tombstone_mode": "flag"},
    "header": {
        "segment_bytes": 64 * MIB,
        "compaction_strategy": "header",
        "compaction_strategy_header": VERSION_HEADER,
    },
}
RESOURCES = resources(map_bytes=256 * MIB, chunk_bytes=4 * MIB)
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.python.task.killTimeout": "60s",  # losing attempts continue during the next step
}


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("cluster") / "logs"
    return make_log(place, SHAPE, unpacked_bytes=SIZE_BYTES, segment_bytes=64 * MIB).log_dir


@pytest.fixture(scope="module")
def local(log_dir: Path) -> both_engines.Staged:
    found = staged_locally(log_dir, "header")
    assert found.result.removed.superseded > found.result.records_read // 3
    return found


def staged_locally(log_dir: Path, strategy: str) -> both_engines.Staged:
    with named():
        return both_engines.stage_locally(log_dir, OPTIONS, config("bench", **TOPICS[strategy]), RESOURCES)


@contextmanager
def named() -> Iterator[None]:
    """The partition of these logs."""
    before, both_engines.NAME = both_engines.NAME, str(PARTITION)
    try:
        yield
    finally:
        both_engines.NAME = before


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all of these tests."""
    with started_cluster(tmp_path_factory.mktemp("spark"), PORT) as running:
        yield running


def on_cluster(
    master: str,
    place: Path,
    log_dir: Path,
    given: Resources = RESOURCES,
    *,
    strategy: str = "header",
    more: Mapping[str, str] | None = None,
    **options: Any,
) -> both_engines.Staged:
    """In a new driver: one process has one session."""
    import pickle  # noqa: PLC0415

    settings = {**QUIET, **ON_A_CLUSTER, "spark.log.level": "ERROR", **(more or {})}
    request = place / "request"
    request.write_bytes(pickle.dumps(((log_dir, OPTIONS, TOPICS[strategy], given), options)))
    code = f"from tests.spark import both_engines; both_engines.NAME = {str(PARTITION)!r}\n{DRIVER}"
    command = [sys.executable, "-c", code, master, str(request), json.dumps(settings)]
    subprocess.run(command, check=True, timeout=900, env=environment(os.environ, tasks=None))
    found: both_engines.Staged = pickle.loads((place / "request.found").read_bytes())  # noqa: S301 - our own
    return found


def test_two_workers(cluster: Cluster, log_dir: Path, local: both_engines.Staged, tmp_path: Path) -> None:
    """Versions that have nothing to do with offsets, a tenth of them ties: the local engine's bytes."""
    both_engines.assert_same_staged(local, on_cluster(cluster.url, tmp_path, log_dir, split_bytes=16 * MIB))


@pytest.mark.parametrize("strategy", ["offset", "timestamp"])
def test_the_other_strategies(cluster: Cluster, log_dir: Path, tmp_path: Path, strategy: str) -> None:
    """The same log with other strategies."""
    local = staged_locally(log_dir, strategy)
    assert local.result.removed.superseded
    both_engines.assert_same_staged(
        local, on_cluster(cluster.url, tmp_path, log_dir, strategy=strategy, split_bytes=16 * MIB)
    )


def test_cells_of_the_matrix(cluster: Cluster, tmp_path: Path) -> None:
    """OP-2: any two of strategy, tombstones, codec, transactions, shards together."""
    cells = [cell for _, cell in pairwise()]
    assert {cell.strategy for cell in cells} == set(TOPICS)
    enough(cells, in_a_child(cluster.url, cells, tmp_path, 900))


def test_an_executor_is_killed(cluster: Cluster, log_dir: Path, local: both_engines.Staged, tmp_path: Path) -> None:
    """Its shuffle files are lost with it, and its staged files stay behind: the same bytes nevertheless."""
    with executor_killed(lambda: cluster.executors() if is_staging(log_dir) else []):
        found = on_cluster(cluster.url, tmp_path, log_dir, split_bytes=8 * MIB)
    both_engines.assert_same_staged(local, found)


def is_staging(log_dir: Path) -> bool:
    """Whether a task has begun a file."""
    return any((log_dir / str(PARTITION) / STAGING).glob("spark-*/*"))


def test_speculation(cluster: Cluster, log_dir: Path, local: both_engines.Staged, tmp_path: Path) -> None:
    """Slow tasks are started a second time, on the other executor, and one of the two is used: the same bytes."""
    (tmp_path / "attempts").mkdir()
    around = SlowAttempts(tmp_path / "attempts", PATIENCE_SECONDS)
    found = on_cluster(cluster.url, tmp_path, log_dir, split_bytes=16 * MIB, around=around, more=SPECULATION)
    both_engines.assert_same_staged(local, found)
    attempts = {file.name for file in (tmp_path / "attempts").iterdir()}
    again = {name.split("-")[0] for name in attempts if name.endswith("-1.done")}
    assert again >= {"scan", "rewrite"}, attempts


def test_one_task_cleans_it(cluster: Cluster, log_dir: Path, local: both_engines.Staged, tmp_path: Path) -> None:
    """Its keys fit one map. The executor is killed while it stages: another one does all of it again."""
    with executor_killed(lambda: cluster.executors() if is_staging(log_dir) else []):
        found = on_cluster(cluster.url, tmp_path, log_dir, whole_bytes=2 * SIZE_BYTES)
    assert found.result.passes == 1
    both_engines.assert_same_staged(local, found)


def test_speculation_on_its_only_task(
    cluster: Cluster, log_dir: Path, local: both_engines.Staged, tmp_path: Path
) -> None:
    """Two attempts at all of it, on two executors: each stages its own files, and the one that ends first is used."""
    (tmp_path / "attempts").mkdir()
    around = SlowAttempts(tmp_path / "attempts", PATIENCE_SECONDS)
    more = {**SPECULATION, "spark.speculation.task.duration.threshold": "2s"}
    found = on_cluster(cluster.url, tmp_path, log_dir, whole_bytes=2 * SIZE_BYTES, around=around, more=more)
    both_engines.assert_same_staged(local, found)
    attempts = {file.name.rsplit("-", 1)[1] for file in (tmp_path / "attempts").iterdir()}
    assert {"0", "1", "1.done"} <= attempts, attempts


def test_partitions_side_by_side(cluster: Cluster, tmp_path: Path) -> None:
    """The command, on four partitions that are too large for the driver: the results of ``cleanerd stage``."""
    place = tmp_path / "logs"
    made = make_log(place, SHAPE, unpacked_bytes=96 * MIB, segment_bytes=64 * MIB)
    names = [str(PARTITION), *(f"{PARTITION.topic}-{number}" for number in range(1, 4))]
    for name in names[1:]:
        shutil.copytree(made.log_dir / str(PARTITION), made.log_dir / name, copy_function=shutil.copy2)
    for file in (each for each in CHECKPOINTS if (made.log_dir / each).exists()):
        offsets = read_offset_checkpoint((made.log_dir / file).read_bytes(), file)
        each = {TopicPartition(PARTITION.topic, number): offsets[PARTITION] for number in range(4)}
        (made.log_dir / file).write_bytes(write_offset_checkpoint(each if PARTITION in offsets else {}))
    given = ["--force", "--from-start", "--now-ms", str(OPTIONS.now_ms), "--json", "--set", "cleanerd.disk.reserve=0"]
    given += [
        "--set",
        f"cleanerd.state.dir={tmp_path / 'state'}",
        "--set",
        f"topics.{PARTITION.topic}.cleanup.policy=compact",
    ]
    conf = [f"--conf={key}={value}" for key, value in ON_A_CLUSTER.items()]
    by_spark = reported("spark", "clean", made.log_dir, "--master", cluster.url, *conf, *given)
    files = {name: staged_files(made.log_dir / name) for name in names}
    by_one = reported("stage", made.log_dir, *given)
    assert files == {name: staged_files(made.log_dir / name) for name in names}
    assert all(files.values())
    for ours, theirs in zip(by_spark, by_one, strict=True):
        assert [ours[key] for key in ("partition", "outcome", "records_kept")] == [
            theirs[key] for key in ("partition", "outcome", "records_kept")
        ]
    assert {each["outcome"] for each in by_spark} == {"staged"}


def reported(*arguments: object) -> list[dict[str, Any]]:
    """A command's report about the partitions."""
    command = [sys.executable, "-m", "cleanerd", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["partitions"]
    return found


def staged_files(partition: Path) -> dict[str, bytes]:
    """The files of a staged cleaning except its documents; asserts that there are no others."""
    (plan,) = (partition / STAGING).iterdir()
    return {file.name: file.read_bytes() for file in plan.iterdir() if file.suffix != ".json"}


def test_more_keys_than_all_maps(cluster: Cluster, log_dir: Path, local: both_engines.Staged, tmp_path: Path) -> None:
    """U-20: two executors whose maps together hold a fraction of the keys; more shards, one after the other."""
    map_bytes = SIZE_BYTES // 128
    given = resources(map_bytes=map_bytes, chunk_bytes=4 * MIB)
    found = on_cluster(cluster.url, tmp_path, log_dir, given)
    keys = local.result.records_read - local.result.removed.superseded
    assert keys * 24 > 2 * map_bytes
    assert found.result.passes > 4
    assert {name: facts for name, facts in found.files.items() if name.endswith(".log")} == {
        name: facts for name, facts in local.files.items() if name.endswith(".log")
    }
