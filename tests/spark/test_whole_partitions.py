"""Partitions that one task cleans with the local engine: its bytes, nothing shuffled, and side by side."""

from __future__ import annotations

import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.manifest import STAGING
from cleanerd.errors import BatchTooLargeError, CleanerdError, CorruptionError, LogTooLargeError, MachineError
from cleanerd.spark import Logs
from cleanerd.spark.clean import SparkStager, spark_stage_partition
from cleanerd.spark.jobs import Jobs
from cleanerd.spark.plan import SINGLE_TASK_BYTES
from cleanerd.spark.task_runner import queries
from tests.cleaner.driver import NAME, config, resources
from tests.cleaner.keyed_log import lopsided, tail
from tests.cleaner.strategy_cases import NOW, many_tombstones
from tests.spark.both_engines import all_dirty, assert_same_staged, stage_by_spark, stage_inline, stage_locally
from tests.spark.cluster import until
from tests.spark.faults import FirstAttempts, Killed, killed, let_go
from tests.spark.inline import InlineJobs
from tests.spark.matrix import CELLS, CODECS, MODES, STRATEGIES, Cell
from tests.spark.rich_log import BY_HEADER, NOW_MS, RichLog
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch
from tests.support.overflow import overflowed
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.spark.rows import Row

ANY = 1 << 40


@pytest.mark.parametrize("cell", CELLS[5::11], ids=str)
def test_the_local_engines_bytes(cell: Cell, tmp_path: Path) -> None:
    """OP-2: for all strategies and tombstones, codecs and transactions.

    Each task runs twice, and either may be used.
    """
    topic = config(**STRATEGIES[cell.strategy], **MODES[cell.mode], segment_bytes=12_000, delete_retention_ms=100)
    log = RichLog(cell.number, codec=CODECS[cell.codec], transactions=cell.transactions, legacy=not cell.number % 3)
    path = log.write(tmp_path / "logs", 4, 30)
    first = log.offset // 2 if cell.number % 2 else 0
    options = all_dirty(NOW_MS, from_start=not first, first_dirty_offset=first or None)
    local = stage_locally(path, options, topic)
    jobs = InlineJobs(seed=cell.number)
    found = stage_inline(path, options, topic, jobs=jobs, whole_bytes=ANY)
    assert_same_staged(local, found)
    assert min(found.result.seconds.values()) >= 0
    assert local.result.removed.superseded
    assert (jobs.names, jobs.shuffled_bytes) == (["clean"], 0)


def test_groups_that_grow(tmp_path: Path) -> None:
    """U-17: an output larger than estimated is split at the edge of a source, at the same one."""
    logs = {10 * row: lopsided(10 * row, f"k{row}", 1950) for row in range(4)}
    path = make_log_dir(tmp_path / "logs", {NAME: Partition({**logs, 40: tail(40), 50: b""})})
    topic = config(segment_bytes=2000)
    local = stage_locally(path, all_dirty(NOW_MS), topic)
    assert local.result.groups > 1
    assert_same_staged(local, stage_inline(path, all_dirty(NOW_MS), topic, whole_bytes=ANY))


def test_keys_of_removed_tombstones(tmp_path: Path) -> None:
    """U-1: the keys that ``apply`` searches in newer records are those of the local engine."""
    path = make_log_dir(tmp_path / "logs", {NAME: Partition(many_tombstones(90))})
    local = stage_locally(path, all_dirty(NOW), BY_HEADER)
    assert local.result.removed.tombstone == 60
    assert_same_staged(local, stage_inline(path, all_dirty(NOW), BY_HEADER, whole_bytes=ANY))


@pytest.mark.parametrize("what", ["overflowed", "damaged"])
def test_refusals(tmp_path: Path, what: str) -> None:
    """C-67, damage: with the message of the local engine, and nothing is left."""
    if what == "overflowed":
        path = make_log_dir(tmp_path / "logs", {NAME: overflowed()})
    else:
        path = RichLog(3).write(tmp_path / "logs", 3, 20)
        file = sorted((path / NAME).glob("*.log"))[1]
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(bytes(data))
    local = stage_locally(path, all_dirty(NOW_MS))
    found = stage_inline(path, all_dirty(NOW_MS), whole_bytes=ANY)
    assert local.result.error is not None
    assert (type(found.result.error), found.result.reason) == (type(local.result.error), local.result.reason)
    assert what == "overflowed" or isinstance(found.result.error, CorruptionError)
    assert not (path / NAME / STAGING).exists()


@pytest.mark.parametrize("split_bytes", [1, 1 << 20])
def test_offsets_that_do_not_rise(tmp_path: Path, split_bytes: int) -> None:
    """U-45: no shuffle sees all of such a log; one task does, with the local engine's bytes."""
    one, other = (keyed_batch(2, [("k", value), (key, value)]) for key, value in (("b", "1"), ("c", "9")))
    logs = {0: keyed_batch(0, [("a", "0"), ("k", "0")]) + one + other + one, 4: keyed_batch(4, [("c", "10")]), 5: b""}
    path = make_log_dir(tmp_path / "logs", {NAME: Partition(logs)})
    local = stage_locally(path, all_dirty(NOW_MS))
    assert local.result.removed.superseded == 2
    assert_same_staged(local, stage_inline(path, all_dirty(NOW_MS), shards=2, split_bytes=split_bytes))


@pytest.mark.parametrize("shards", [None, 1])
def test_a_batch_that_is_too_large(tmp_path: Path, shards: int | None) -> None:
    """U-35: that partition is refused with the local engine's message; before, it ended the run of all partitions."""
    path = RichLog(3, codec=1).write(tmp_path / "logs", 2, 5)
    given = resources(max_unpacked_bytes=10)
    local = stage_locally(path, all_dirty(NOW_MS), None, given)
    found = stage_inline(path, all_dirty(NOW_MS), None, given, whole_bytes=ANY, shards=shards)
    assert isinstance(local.result.error, BatchTooLargeError)
    assert type(found.result.error) is BatchTooLargeError
    assert (found.result.outcome, found.result.reason) == ("quarantined", local.result.reason)
    assert not (path / NAME / STAGING).exists()


def test_a_log_too_large_for_a_task_is_shuffled(tmp_path: Path) -> None:
    """U-35: the data about all its batches and records fit no task; a shuffle handles one segment at a time."""
    path = RichLog(1, transactions=True).write(tmp_path / "logs", 4, 30)
    local = stage_locally(path, all_dirty(NOW_MS))
    given, jobs = resources(facts_bytes=2500), InlineJobs()
    assert isinstance(stage_locally(path, all_dirty(NOW_MS), None, given).result.error, LogTooLargeError)
    found = stage_inline(path, all_dirty(NOW_MS), None, given, jobs=jobs, whole_bytes=ANY)
    assert_same_staged(local, found)
    assert jobs.names[:2] == ["clean", "scan"]


def test_logs_that_fit_no_map_are_shuffled(tmp_path: Path) -> None:
    """And logs above a task's limit, and those with a requested number of shards."""
    path = RichLog(1, keys=900).write(tmp_path / "logs", 5, 60)
    size_bytes = sum(file.stat().st_size for file in sorted((path / NAME).glob("*.log"))[:-1])
    for given, options, is_whole in (
        (resources(), {"whole_bytes": size_bytes}, True),
        (resources(), {"whole_bytes": size_bytes - 1}, False),
        (resources(), {"whole_bytes": ANY, "shards": 1}, False),
        (resources(map_bytes=1, map_load=0.01), {"whole_bytes": ANY}, False),
    ):
        local, jobs = stage_locally(path, all_dirty(NOW_MS), None, given), InlineJobs()
        assert_same_staged(local, stage_inline(path, all_dirty(NOW_MS), None, given, jobs=jobs, **options))
        assert ("scan" not in jobs.names) == is_whole, options


@pytest.mark.long
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_task_that_fails_is_tried_again(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """At its end, when all is staged: the second attempt's files are used, the first one's are deleted."""
    path = RichLog(2, transactions=True).write(tmp_path / "logs", 4, 30)
    local = stage_locally(path, all_dirty(NOW_MS))
    (tmp_path / "attempts").mkdir()
    around = FirstAttempts(tmp_path / "attempts", how)
    assert_same_staged(local, stage_by_spark(spark, path, all_dirty(NOW_MS), around=around, whole_bytes=ANY))
    assert len(list((tmp_path / "attempts").glob("clean-*"))) == 1


@pytest.mark.long
def test_a_task_that_kills_its_worker_each_time(spark: SparkSession, tmp_path: Path) -> None:
    """U-35: the needed memory is missing. Reported for that partition; it was an error of Java's that ended the run."""
    path = RichLog(2).write(tmp_path / "logs", 2, 5)
    found = stage_by_spark(spark, path, all_dirty(NOW_MS), around=Killed("clean"), whole_bytes=ANY)
    assert found.result.reason.startswith("Spark gave up: org.apache.spark.SparkException: Job aborted")
    assert (found.result.outcome, found.files) == ("quarantined", {})
    with (
        pytest.raises(CleanerdError, match=r"^Spark gave up: .*SparkException: Job aborted"),
        queries(spark, "a test", 1),
    ):
        spark.range(1).mapInArrow(killed, "id long").collect()


@pytest.mark.long
def test_a_full_disk(spark: SparkSession, tmp_path: Path) -> None:
    """U-16: the log is not at fault, and no state directory stores it, whichever process has met the disk."""
    path = RichLog(2).write(tmp_path / "logs", 2, 5)
    given = resources(disk_reserve_bytes=1 << 60)
    local = stage_locally(path, all_dirty(NOW_MS), None, given)
    found = stage_by_spark(spark, path, all_dirty(NOW_MS), None, given, whole_bytes=ANY)
    assert local.result.outcome == found.result.outcome == "failed", found.result.reason
    assert found.result.reason.startswith("Spark gave up: cleanerd.errors.NoSpaceError: ")
    assert isinstance(found.result.error, MachineError)


@pytest.mark.long
def test_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    """Two partitions run at once, on the two cores of the session; a damaged one stops no other."""
    names = [f"orders-{number}" for number in range(5)]
    path = make_log_dir(
        tmp_path / "logs", {name: Partition(segments_of(number, tmp_path)) for number, name in enumerate(names)}
    )
    broken = min((path / names[3]).glob("*.log"))
    broken.write_bytes(broken.read_bytes()[:-20] + bytes(20))
    met, runs = threading.Barrier(2), itertools.count()
    at_once: list[int] = []

    class Meeting(Jobs):
        def run(self, name: str, *arguments: Any, **named: Any) -> list[Row]:
            if next(runs) < 2:
                at_once.append(met.wait(PATIENCE_SECONDS))
            return super().run(name, *arguments, **named)

    stage_one = partial(spark_stage_partition, alone_bytes=0, jobs_of=partial(Meeting, spark))
    settings = [f"cleanerd.state.dir={tmp_path / 'state'}", "topics.orders.cleanup.policy=compact"]
    results = Logs(spark, path).stage(settings, force=True, from_start=True, now_ms=NOW_MS, stage_one=stage_one)
    assert [str(result.name) for result in results] == names
    outcomes = [result.outcome for result in results]
    assert outcomes == ["staged", "staged", "staged", "quarantined", "staged"], results[3].reason
    assert sorted(at_once) == [0, 1]
    left = {name: sorted(each.name for each in (path / name).glob(f"{STAGING}/*")) for name in names}
    assert [len(plans) for plans in left.values()] == [1, 1, 1, 0, 1], left


@pytest.mark.long
def test_only_its_own_jobs_are_ended(spark: SparkSession, tmp_path: Path) -> None:
    """When one partition ends the run, the others' jobs end, and no others: a notebook's session has its own."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"

    def job(session: SparkSession, place: Path, **_given: object) -> Any:
        return session.sparkContext.parallelize([str(place)], 1).map(let_go).collect()

    stager = SparkStager(spark, None, ANY, job)
    with ThreadPoolExecutor(2) as threads:
        both = threads.submit(stager, ours), threads.submit(job, spark, theirs)
        try:
            until(lambda: ours.exists() and theirs.exists())
            stager.cancel()
            reported = str(both[0].exception(PATIENCE_SECONDS))
        finally:
            for place in (ours, theirs):
                place.unlink(missing_ok=True)
        assert both[1].result(PATIENCE_SECONDS) == ["let go"]
    assert "SPARK_JOB_CANCELLED" in reported


def segments_of(seed: int, place: Path) -> dict[int, bytes]:
    """A log's segments, by their first offsets."""
    path = RichLog(seed).write(place / f"model-{seed}", 3, 20) / NAME
    return {int(file.stem): file.read_bytes() for file in sorted(path.glob("*.log"))}


def test_the_limit_of_one_task(spark: SparkSession, tmp_path: Path) -> None:
    """1 GB, or its core's share of all bytes to read; a requested shuffle takes all cores, one by one."""
    for name in ("orders-0", "orders-1"):
        (tmp_path / name).mkdir()
        os.truncate(os.open(tmp_path / name / f"{0:020d}.log", os.O_CREAT | os.O_RDWR), 3 << 30)
    both = SparkStager.of(spark, None, [tmp_path / "orders-0", tmp_path / "orders-1"])
    assert (both.whole_bytes, both.at_once) == (3 << 30, 2)
    assert SparkStager.of(spark, None, [tmp_path / "orders-0"]).whole_bytes == 3 << 29
    assert SparkStager.of(spark, None, []).whole_bytes == SINGLE_TASK_BYTES
    assert SparkStager.of(spark, 4, [tmp_path / "orders-0"]).at_once == 1
