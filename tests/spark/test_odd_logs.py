"""Logs that must not break a Spark cleaning: wrong indexes, growing groups, unreadable tails, leftovers."""

from __future__ import annotations

import os
import pickle
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.manifest import STAGING
from cleanerd.errors import CleanerdError, LogDirBusyError, UnsupportedLogError
from cleanerd.spark import rewrite, work
from cleanerd.spark.plan import plan_of
from cleanerd.swap.files import PartitionFiles
from tests.cleaner.driver import NAME, config, resources
from tests.cleaner.keyed_log import lopsided, tail
from tests.cleaner.strategy_cases import NOW, batches, many_tombstones, rec
from tests.spark.both_engines import PLAN_ID, all_dirty, assert_same_staged, stage_inline, stage_locally
from tests.spark.inline import InlineJobs
from tests.spark.rich_log import BY_HEADER, NOW_MS, RichLog
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cleanerd.spark.jobs import Stage
    from cleanerd.spark.rows import Row


def test_groups_that_grow(tmp_path: Path) -> None:
    """U-17: an output larger than estimated is split at the edge of a source, at the same one."""
    logs = {10 * row: lopsided(10 * row, f"k{row}", 1950) for row in range(4)}
    make_log_dir(tmp_path / "logs", {NAME: Partition({**logs, 40: tail(40), 50: b""})})
    topic = config(segment_bytes=2000)
    local = stage_locally(tmp_path / "logs", all_dirty(NOW_MS), topic)
    jobs = InlineJobs()
    assert_same_staged(local, stage_inline(tmp_path / "logs", all_dirty(NOW_MS), topic, jobs=jobs))
    assert jobs.names.count("rewrite") > 1


def test_a_false_index(tmp_path: Path) -> None:
    """No batch begins where the index has an entry: the segment is read in one piece, and is not damaged."""
    path = RichLog(5).write(tmp_path / "logs", 3, 60)
    local = stage_locally(path, all_dirty(NOW_MS))
    for index in sorted((path / NAME).glob("*.index"))[:-1]:
        entries = bytearray(index.read_bytes())
        for at in range(7, len(entries), 8):
            entries[at] ^= 1
        status = index.stat()
        index.write_bytes(bytes(entries))
        os.utime(index, ns=(status.st_atime_ns, status.st_mtime_ns))
    jobs = InlineJobs()
    found = stage_inline(path, all_dirty(NOW_MS), jobs=jobs, split_bytes=900)
    assert_same_staged(local, found)
    assert jobs.names.count("scan") == 2


@pytest.mark.parametrize("split_bytes", [100, 1 << 20])
def test_a_tail_that_cannot_be_read(tmp_path: Path, split_bytes: int) -> None:
    """U-1: the records behind the damage are unknown, so no tombstone is removed.

    The partition is cleaned nevertheless.
    """
    segments = many_tombstones(9)
    data = bytearray(batches(rec("x", 1), rec("y", 1), first=18))
    data[-1] ^= 1
    path = make_log_dir(tmp_path / "logs", {NAME: Partition({**segments, 18: bytes(data)})})
    local = stage_locally(path, all_dirty(NOW), BY_HEADER)
    assert local.result.tombstones_waiting == 9
    found = stage_inline(path, all_dirty(NOW), BY_HEADER, split_bytes=split_bytes)
    assert_same_staged(local, found)
    assert "cannot be read" in str(found.result.notes)


@pytest.mark.parametrize("map_load", [0.85, 0.02, 0.005])
def test_a_proof_in_shards(tmp_path: Path, map_load: float) -> None:
    """U-1: the keys of tombstones are cut into shards when they do not fit; the same ones are removed and recorded."""
    path = make_log_dir(tmp_path / "logs", {NAME: Partition(many_tombstones(90))})
    given = resources(map_bytes=1, map_load=map_load)
    local = stage_locally(path, all_dirty(NOW), BY_HEADER, given)
    assert local.result.removed.tombstone == 60
    assert_same_staged(local, stage_inline(path, all_dirty(NOW), BY_HEADER, given))


@pytest.mark.parametrize("first_dirty", [None, 95])
@pytest.mark.parametrize("map_load", [0.85, 0.005])
def test_a_proof_below_kafkas_checkpoint(tmp_path: Path, map_load: float, first_dirty: int | None) -> None:
    """U-50: of 60 tombstones those without an older record are removed; those that --first-dirty skips all stay."""
    older = [rec(f"k{number}") for number in range(0, 60, 3)]
    dead = [replace(rec(f"k{number}", value=None), offset_delta=number) for number in range(60)]
    late = [replace(rec(f"late{number}", value=None), offset_delta=number) for number in range(10)]
    log = {
        0: batches(*older),
        20: encode_batch(dead, base_offset=20, delete_horizon=NOW),
        80: encode_batch(late, base_offset=80, delete_horizon=NOW),
        90: batches(*[rec("x") for _ in range(10)], first=90),
        100: b"",
    }
    path = make_log_dir(tmp_path / "logs", {NAME: Partition(log, cleaner_offset=80)})
    topic, given = config(), resources(map_bytes=1, map_load=map_load)
    options = all_dirty(NOW, from_start=False, first_dirty_offset=first_dirty)
    local = stage_locally(path, options, topic, given)
    gone, waiting = (50, 20) if first_dirty is None else (40, 30)
    assert (local.result.removed.tombstone, local.result.tombstones_waiting) == (gone, waiting)
    assert_same_staged(local, stage_inline(path, options, topic, given, split_bytes=300))


def test_the_guard_forever(tmp_path: Path) -> None:
    """U-4: no tombstone is removed, and nothing is proved."""
    topic = config(compaction_strategy="header", compaction_strategy_header="version", tombstone_guard="forever")
    path = make_log_dir(tmp_path / "logs", {NAME: Partition(many_tombstones(30))})
    jobs = InlineJobs()
    local = stage_locally(path, all_dirty(NOW), topic)
    assert local.result.tombstones_waiting == 30
    assert_same_staged(local, stage_inline(path, all_dirty(NOW), topic, jobs=jobs))
    assert "check which tombstones can be removed" not in jobs.names


def test_the_driver_sees_no_records(tmp_path: Path) -> None:
    """Tasks send it a few numbers per segment; a split's shuffle has one row per key."""
    reported, shuffled = [], []
    for batches_a_segment in (20, 400):
        log = RichLog(9, keys=30)
        path = log.write(tmp_path / str(batches_a_segment) / "logs", 4, batches_a_segment)
        jobs = InlineJobs(attempts=1)
        stage_inline(path, all_dirty(NOW_MS), BY_HEADER, jobs=jobs)
        reported.append(sum(len(row.payload) for row in jobs.results))
        shuffled.append(jobs.shuffled_bytes / log.offset)
    assert reported[1] < 1.2 * reported[0]
    assert shuffled[1] < shuffled[0] / 3, "20 times the records of the same keys"


def test_leftovers_of_other_runs(tmp_path: Path) -> None:
    """Work directories are named by plan id: all are deleted while our claim excludes others, and nothing else is."""
    path = RichLog(1).write(tmp_path / "logs", 2, 5)
    place = path / NAME / STAGING
    (place / "spark-20200101t000000-00000000" / "attempt").mkdir(parents=True)
    (place / "other").mkdir()
    with pytest.raises(AssertionError):  # the comparison with the local engine finds the other one
        stage_inline(path, all_dirty(NOW_MS))
    assert sorted(each.name for each in place.iterdir()) == [PLAN_ID, "other"]


def test_the_driver_alone(tmp_path: Path) -> None:
    """A small partition is cleaned without any job, leftovers are removed nevertheless; with ``--shards`` by jobs."""
    path = RichLog(1).write(tmp_path / "logs", 3, 10)
    local = stage_locally(path, all_dirty(NOW_MS))
    size_bytes = sum(file.stat().st_size for file in sorted((path / NAME).glob("*.log"))[:-1])
    for alone_bytes, shards, alone in ((size_bytes + 1, None, True), (size_bytes, None, False), (1 << 40, 1, False)):
        (path / NAME / STAGING / "spark-20200101t000000-00000000").mkdir(parents=True)
        jobs = InlineJobs()
        found = stage_inline(path, all_dirty(NOW_MS), jobs=jobs, alone_bytes=alone_bytes, shards=shards)
        assert_same_staged(local, found)
        assert (jobs.names == []) == alone


def test_sweeping_by_age(tmp_path: Path) -> None:
    """Where no claim excludes others, leftovers of a day ago are removed."""
    old, young = (tmp_path / STAGING / f"spark-20200101t00000{number}-00000000" for number in (1, 2))
    old.mkdir(parents=True)
    young.mkdir()
    long_ago = time.time() - 2 * 86_400
    os.utime(old, (long_ago, long_ago))
    assert work.sweep(tmp_path, alone=False) == [old.name]
    assert work.sweep(tmp_path, alone=True) == [young.name]


class Zombie(InlineJobs):
    """Runs the last rewrite once more when the run is over."""

    def run(
        self, name: str, tasks: Sequence[Any], function: Callable[[Any], Iterator[Row]], *stages: Stage, work_bytes: int
    ) -> list[Row]:
        self.late = lambda: [list(function(task)) for task in tasks]
        return super().run(name, tasks, function, *stages, work_bytes=work_bytes)


def test_an_attempt_that_outlives_its_run(tmp_path: Path) -> None:
    """It fails, and leaves nothing: its directory was deleted with the run."""
    path = RichLog(1).write(tmp_path / "logs", 3, 10)
    jobs = Zombie()
    assert stage_inline(path, all_dirty(NOW_MS), jobs=jobs).result.outcome == "staged"
    with pytest.raises(CleanerdError, match="cannot be"):
        jobs.late()
    assert not (path / NAME / STAGING).exists()


def test_one_at_a_time(tmp_path: Path) -> None:
    """Another cleanerd is running there: refused, and its staging directory is not touched."""
    path = RichLog(1).write(tmp_path / "logs", 2, 5)
    theirs = path / NAME / STAGING / "spark-20200101t000000-00000000"
    theirs.mkdir(parents=True)
    with PartitionFiles(path / NAME) as files:
        files.claim()
        with pytest.raises(AssertionError):
            stage_inline(path, all_dirty(NOW_MS))
        assert theirs.is_dir()
    assert LogDirBusyError.exit_code == 4


def test_a_staged_cleaning_of_another_release() -> None:
    """Executors with another release of cleanerd do not guess."""
    with pytest.raises(ValueError, match="this is"):
        plan_of(pickle.dumps(("0.0.1", b"")))


def test_a_task_that_cannot_continue_reports_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of ours keeps its type, whatever Spark makes of it; the partition is refused, the log complete."""

    def refuse(*_arguments: object) -> None:
        raise UnsupportedLogError("grows past 2 GiB", where="segment 0")

    monkeypatch.setattr(rewrite, "stage_group", refuse)  # two gigabytes would take minutes
    path = RichLog(1).write(tmp_path / "logs", 3, 10)
    found = stage_inline(path, all_dirty(NOW_MS))
    assert isinstance(found.result.error, UnsupportedLogError)
    assert "grows past 2 GiB" in found.result.reason
    assert not (path / NAME / STAGING).exists()
