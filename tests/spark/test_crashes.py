"""A driver that dies, deleted partitions, directories in use: the log unchanged, and the next run right."""

from __future__ import annotations

import errno
import functools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from cleanerd.broker.claim import CLAIM
from cleanerd.cleaner.manifest import MANIFEST, READY, STAGING
from cleanerd.cli.main import run
from cleanerd.errors import LogDirBusyError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.spark import work
from cleanerd.spark.clean import stage_by_jobs
from cleanerd.spark.work import WorkDirectory
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap import deferred_swap
from cleanerd.swap.round import stage_partition
from tests.cleaner.driver import NAME, Silent, config, resources
from tests.spark.both_engines import PLAN_ID, all_dirty, assert_same_staged, stage_by_spark, stage_inline, stage_locally
from tests.spark.faults import Vanishing
from tests.spark.inline import InlineJobs
from tests.spark.rich_log import NOW_MS, RichLog
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.patience import PATIENCE_SECONDS
from tests.support.root import needs_root
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.spark.rows import Row

TOPIC = {
    "compaction_strategy": "header",
    "compaction_strategy_header": "version",
    "segment_bytes": 4000,
    "delete_retention_ms": 100,
}
OTHER_UID = 65534
PLACES = {
    "nothing is staged": (deferred_swap, "drop_plans"),
    "nothing is moved": (WorkDirectory, "move"),
    "one group is moved": (WorkDirectory, "move"),
    "all are moved": (deferred_swap, "stage_removed_keys"),
    "all but the manifest's rename": (deferred_swap, "write_manifest"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return RichLog(3, transactions=True, keys=900).write(tmp_path / "logs", 5, 25)


def staged(path: Path, stager: Any) -> CleaningResult:
    """Staged by ``stager``, and left there."""
    store = StateStore(path.parent / "state")
    topic = config(**TOPIC)
    log_dir, name, options = read_log_dir(path), TopicPartition("orders", 0), all_dirty(NOW_MS)
    result: CleaningResult = stager(log_dir, store, resources(), name, topic, options, Silent())
    return result


def files_of(path: Path) -> dict[str, bytes]:
    """The partition's files, without staged ones."""
    return {each.name: each.read_bytes() for each in (path / NAME).iterdir() if each.is_file()}


def killed(path: Path, where: str) -> None:
    """A driver that exits without cleaning up; runs in a new process."""
    owner, name = PLACES[where]
    real, after = getattr(owner, name), int(where.startswith("one"))
    calls = []

    def dying(*arguments: Any, **named: Any) -> Any:
        if len(calls) >= after:
            os._exit(77)
        calls.append(None)
        return real(*arguments, **named)

    with mock.patch.object(owner, name, dying):  # the driver dies exactly there
        staged(path, functools.partial(stage_by_jobs, jobs_of=InlineJobs(), alone_bytes=0))


@pytest.mark.long
@pytest.mark.parametrize("where", PLACES)
def test_a_driver_that_dies(path: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    """OP-2: ``apply`` ignores its leftovers, and the next run removes them and stages the same bytes."""
    local = stage_locally(path, all_dirty(NOW_MS), config(**TOPIC))
    before = files_of(path)
    process = multiprocessing.get_context("spawn").Process(target=killed, args=(path, where))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == 77
    left = sorted({each.name for each in (path / NAME / STAGING).iterdir()} - {CLAIM})
    assert left[-1].startswith("spark-")
    assert len(left) == 1 + (where != "nothing is staged")
    assert bool(list((path / NAME / STAGING / left[0]).glob("*.log"))) == (not where.startswith("nothing"))
    settings = ("--set", f"cleanerd.state.dir={path.parent / 'state'}", "--set", "topics.orders.cleanup.policy=compact")
    assert run(["apply", str(path), "--quiet", *settings]) == 0
    assert "cleaned" not in capsys.readouterr().out
    assert files_of(path) == before
    assert_same_staged(local, stage_inline(path, all_dirty(NOW_MS), config(**TOPIC)))


class Meanwhile(InlineJobs):
    """While each job of a cleaning runs, another process runs ``command``."""

    def __init__(self, command: list[str]) -> None:
        super().__init__()
        self._command = command
        self.reported: list[tuple[int, str]] = []

    def run(self, name: str, *arguments: Any, **options: Any) -> list[Row]:
        done = subprocess.run(self._command, capture_output=True, text=True, timeout=240, check=False)
        self.reported.append((done.returncode, done.stdout))
        return super().run(name, *arguments, **options)


@pytest.mark.long
def test_two_at_once(path: Path) -> None:
    """A second ``spark clean`` of a partition is refused in every phase of the first, and does no harm."""
    local = stage_locally(path, all_dirty(NOW_MS), config(**TOPIC))
    command = [sys.executable, "-m", "cleanerd", "spark", "clean", str(path), "--force", "--json", "--quiet"]
    command += ["--set", f"cleanerd.state.dir={path.parent / 'other'}", "--set", "cleanerd.disk.reserve=0"]
    jobs = Meanwhile([*command, "--set", "topics.orders.cleanup.policy=compact"])
    assert_same_staged(local, stage_inline(path, all_dirty(NOW_MS), config(**TOPIC), jobs=jobs))
    assert set(jobs.names) >= {"scan", "rewrite"}
    assert len(jobs.reported) == len(jobs.names)
    for code, text in jobs.reported:
        (partition,) = json.loads(text)["partitions"]
        assert (code, partition["outcome"]) == (4, "busy")
        assert "another cleanerd works on this partition" in str(partition)


@pytest.mark.parametrize("first", ["local", "spark"])
def test_a_waiting_staged_cleaning(path: Path, first: str) -> None:
    """A ready cleaning staged locally is replaced by Spark's, and the other way round: there are never two."""
    by_spark = functools.partial(stage_by_jobs, jobs_of=InlineJobs(), alone_bytes=0)
    stagers = [stage_partition, by_spark] if first == "local" else [by_spark, stage_partition]
    for stager in stagers:
        assert staged(path, stager).outcome == "staged"
        plans = list((path / NAME / STAGING).iterdir())
        assert len(plans) == 1
        assert {READY, MANIFEST} < {each.name for each in plans[0].iterdir()}
    assert plans[0].name != PLAN_ID


def test_the_staging_directory_is_a_file(path: Path) -> None:
    """``.kstage`` is another file: reported, and left as it is."""
    (path / NAME / STAGING).write_text("mine")
    result = staged(path, functools.partial(stage_by_jobs, jobs_of=InlineJobs(), alone_bytes=0))
    assert result.outcome == "refused"
    assert STAGING in result.reason
    assert (path / NAME / STAGING).read_text() == "mine"


@pytest.mark.parametrize("where", ["driver", "executors"])
def test_a_staging_directory_that_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A share that is mounted read-only, on the driver's host or on an executor's: reported, and nothing is left."""
    before = files_of(path)

    def refuse(name: str, *_arguments: object, **_named: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)

    if where == "driver":  # root, who runs these tests, may write to anything except such a mount
        system_call(monkeypatch, "mkdir", refuse)
        result = staged(path, functools.partial(stage_by_jobs, jobs_of=InlineJobs(), alone_bytes=0))
    else:
        # On executors alone: the driver, in this process, may write.
        monkeypatch.setattr("cleanerd.spark.settle.write_file", functools.partial(read_only, refuse))
        result = staged(path, functools.partial(stage_by_jobs, jobs_of=InlineJobs(), alone_bytes=0))
    monkeypatch.undo()
    assert result.outcome == "failed", "the log is not at fault"
    assert "Read-only file system" in result.reason
    assert not (path / NAME / STAGING).exists()
    assert files_of(path) == before


@pytest.mark.long
@needs_root
@pytest.mark.parametrize("where", ["nothing is staged", "nothing is moved"])
def test_leftovers_belong_to_the_brokers_user(path: Path, where: str) -> None:
    """S-60: a driver that runs as root and is killed leaves nothing that the broker could not remove with the topic."""
    shutil.chown(path / NAME, OTHER_UID, OTHER_UID)
    process = multiprocessing.get_context("spawn").Process(target=killed, args=(path, where))
    process.start()
    process.join(PATIENCE_SECONDS)
    directories = [each for each in (path / NAME / STAGING).rglob("*") if each.is_dir()]
    assert directories
    assert {each.stat().st_uid for each in [path / NAME / STAGING, *directories]} == {OTHER_UID}


@pytest.mark.long
@pytest.mark.parametrize("stage", ["settle", "rewrite"])
def test_the_partition_is_deleted(spark: SparkSession, path: Path, stage: str) -> None:
    """Its topic is deleted while executors run: reported, and none of its files comes back."""
    found = stage_by_spark(spark, path, all_dirty(NOW_MS), config(**TOPIC), around=Vanishing(stage, path / NAME))
    assert found.result.outcome == "refused"
    assert "No such file or directory" in found.result.reason
    assert not (path / NAME).exists()


@pytest.mark.long
def test_the_partition_is_another_one(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """Its topic was deleted and created again, under the same path: nothing is written to the new one."""
    other = RichLog(4, keys=900).write(tmp_path / "other", 2, 5)
    new = files_of(other)
    around = Vanishing("rewrite", path / NAME, other / NAME)
    found = stage_by_spark(spark, path, all_dirty(NOW_MS), config(**TOPIC), around=around)
    assert found.result.outcome == "quarantined"
    assert files_of(path) == new
    assert not (path / NAME / STAGING).exists()


def test_another_driver_is_running(spark: SparkSession, path: Path) -> None:
    """A second driver reports it and touches nothing; the first one, in its last stage, succeeds nevertheless."""
    local = stage_locally(path, all_dirty(NOW_MS), config(**TOPIC))
    reported: list[CleaningResult] = []

    class Meanwhile(InlineJobs):
        def run(self, name: str, *arguments: Any, **named: Any) -> Any:
            if name == "rewrite" and not reported:
                reported.append(stage_by_spark_again(spark, path))
            return super().run(name, *arguments, **named)

    found = stage_inline(path, all_dirty(NOW_MS), config(**TOPIC), jobs=Meanwhile())
    assert isinstance(reported[0].error, LogDirBusyError)
    assert_same_staged(local, found)


def stage_by_spark_again(session: SparkSession, path: Path) -> CleaningResult:
    from cleanerd.spark.clean import spark_stage_partition  # noqa: PLC0415

    return staged(path, functools.partial(spark_stage_partition, session, alone_bytes=0))


@pytest.mark.parametrize("kind", ["no records", "one segment", "nothing"])
def test_partitions_with_nothing_to_clean(tmp_path: Path, kind: str) -> None:
    """Without records, with an active segment alone, without any: as the local engine, and no job is run."""
    log = RichLog(1)
    log.write(tmp_path / "model", 0, 20)
    path = make_log_dir(tmp_path / "logs", {NAME: Partition(log.segments if kind == "one segment" else {0: b""})})
    if kind == "nothing":
        for file in (path / NAME).glob("0*"):
            file.unlink()
    jobs = InlineJobs()
    local = stage_locally(path, all_dirty(NOW_MS))
    found = stage_inline(path, all_dirty(NOW_MS), jobs=jobs)
    assert (found.result.outcome, found.result.reason) == (local.result.outcome, local.result.reason)
    assert found.result.outcome != "staged"
    assert jobs.names == []
    assert not (path / NAME / STAGING).exists()


def read_only(refuse: Any, plan: Any, name: str, data: bytes) -> str:
    """``write_file`` on a read-only file system."""
    with mock.patch.object(work.os, "open", refuse):  # no test may mount a file system read-only
        return work.write_file(plan, name, data)
