"""The progress of jobs, by the bytes that tasks have read, so that the end of one job is not the end of all."""

from __future__ import annotations

import contextlib
import shutil
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.spark import Logs
from cleanerd.spark.task_runner import RESULT_COLUMNS, queries, result_row, results, results_in, spread
from cleanerd.spark.watch import POLL_SECONDS, ConnectSession
from tests.spark.rich_log import RichLog
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession


def report_done(item: Any) -> Iterator[pa.RecordBatch]:
    yield result_row((item["number"], "done"))


def until(reported: Callable[[], int], wanted: int) -> None:
    """Wait for this much progress, and three polls more, which must not find more."""
    started = time.monotonic()
    while reported() < wanted and time.monotonic() - started < PATIENCE_SECONDS:
        time.sleep(0.05)
    time.sleep(3 * POLL_SECONDS)
    assert reported() == wanted


@pytest.mark.long
def test_one_job_of_several(spark: SparkSession) -> None:
    """After the first of three steps a third is reported, whatever its tasks report; in the end all, and no more."""
    reported: list[int] = []
    items = [(100 * (number + 1), {"number": number}) for number in range(3)]
    with queries(spark, "test", 600, reported.append, steps=3):
        assert set(dict(results(spark, items, report_done))) == {0, 1, 2}
        until(lambda: sum(reported), 200)
        results(spark, items[2:], report_done)
        until(lambda: sum(reported), 300)
        for _ in range(3):
            results(spark, items, report_done)
        until(lambda: sum(reported), 600)
    assert sum(reported) == 600


@pytest.mark.parametrize("fails", [False, True])
def test_the_properties_of_later_jobs(spark: SparkSession, fails: bool) -> None:
    """A notebook's own jobs get back their earlier group and description, if any."""
    context = spark.sparkContext
    keys = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    for mine in (("mine", "my jobs"), None):
        if mine is not None:
            context.setJobGroup(*mine, interruptOnCancel=True)
        before = [context.getLocalProperty(key) for key in keys]
        with contextlib.suppress(ZeroDivisionError), queries(spark, "test", 10):
            assert context.getLocalProperty(keys[1]) == "cleanerd test"
            results(spark, [(10, {"number": 1 // (not fails)})], report_done)
        assert [context.getLocalProperty(key) for key in keys] == before
        for key in keys:
            context.setLocalProperty(key, None)


def test_outside_of_a_block(spark: SparkSession) -> None:
    """Nothing is counted there, and tasks run as usual: a frame may be computed after its block."""
    reported: list[int] = []
    with queries(spark, "test", 10, reported.append):
        pass
    frame = spread(spark, [(10, {"number": 7})], report_done, result_row(None).schema, RESULT_COLUMNS)
    assert results_in(frame) == [(7, "done")]
    assert sum(reported) == 10


@pytest.mark.long
@pytest.mark.parametrize("command", ["profile", "audit", "snapshot", "find", "clean"])
def test_all_is_reported_in_the_end(spark: SparkSession, tmp_path: Path, command: str) -> None:
    """As many bytes as the bar has, whatever the command reads how often."""
    path = RichLog(3).write(tmp_path / "logs", 4, 20)
    before = shutil.copytree(path, tmp_path / "before")
    reported: list[int] = []
    logs = Logs(spark, path)
    run = {
        "profile": lambda: logs.profile(advance=reported.append),
        "audit": lambda: logs.audit(before, advance=reported.append),
        "snapshot": lambda: logs.latest().write_parquet(tmp_path / "out", advance=reported.append),
        "find": lambda: logs.find_keys([b"key-1"], advance=reported.append),
        "clean": lambda: logs.clean(
            tmp_path / "copy", ["topics.orders.cleanup.policy=compact"], advance=reported.append
        ),
    }
    run[command]()
    read = {"audit": 2}.get(command, 1) * logs.size_bytes
    assert sum(reported) == pytest.approx(
        read, rel=0.6 if command in ("find", "clean") else 0
    )  # the former read more files
    assert min(reported) > 0


def test_operations_of_connect() -> None:
    """Each operation is a step: the end of the first is no more than its part, and progress never falls."""
    reported: list[int] = []
    heard = ConnectSession(
        SimpleNamespace(registerProgressHandler=id, removeProgressHandler=id), reported.append, 100, 2
    )

    def stage(done: int, tasks: int) -> Any:
        return SimpleNamespace(num_completed_tasks=done, num_tasks=tasks)

    with heard:
        heard._hear(stages=[stage(1, 4)], operation_id="a", inflight_tasks=1, done=False)
        assert sum(reported) == 12
        heard._hear(stages=[stage(4, 4)], operation_id="a", inflight_tasks=0, done=True)
        assert sum(reported) == 50
        heard._hear(stages=[], operation_id="b", inflight_tasks=0, done=False)
        heard._hear(stages=[stage(2, 2), stage(0, 2)], operation_id="b", inflight_tasks=2, done=False)
        assert sum(reported) == 75
        heard._hear(stages=[stage(2, 2), stage(0, 6)], operation_id="b", inflight_tasks=2, done=False)
        assert sum(reported) == 75
    assert sum(reported) == 100
