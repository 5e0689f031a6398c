"""Jobs without a shuffle: an RDD if its workers are those of DataFrames, otherwise a DataFrame; both fail alike."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.cleaner import NoProgress
from cleanerd.errors import CleanerdError
from cleanerd.spark.jobs import Jobs
from cleanerd.spark.launch import SAME_WORKERS
from cleanerd.spark.rows import RESULT, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


class Plan:
    """The part of a plan that a job reads."""

    plan_id = "plan"
    name = "orders-0"


def parents(_task: Any) -> Iterator[Row]:
    """The process that forks this worker."""
    yield Row(0, RESULT, payload=str(os.getppid()).encode())


def failing(_task: Any) -> Iterator[Row]:
    """A task that fails on every attempt."""
    raise ValueError("always fails")
    yield Row(0, RESULT)


@pytest.fixture(params=["rdd", "frame"])
def jobs(request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """The jobs of a session as we start one here, and as a user may have one."""
    if request.param == "frame":
        monkeypatch.delitem(spark.sparkContext.environment, SAME_WORKERS)
    return Jobs(spark, Plan(), NoProgress())  # type: ignore[arg-type]


def test_one_kind_of_workers(jobs: Jobs) -> None:
    """All workers have one parent: a second kind would cost a process that imports everything, and its workers."""
    arguments = [jobs.run("look", [None], parents, work_bytes=1) for _ in range(2)]
    assert len({row.payload for rows in arguments for row in rows} | {_of_a_frame(jobs)}) == 1


def _of_a_frame(jobs: Jobs) -> bytes:
    def reported(batches: Any) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - in the worker

        for _ in batches:
            yield pa.RecordBatch.from_arrays([pa.array([os.getppid()])], ["parent"])

    (row,) = jobs._session.range(0, 1, 1, 1).mapInArrow(reported, "parent long").collect()
    return str(row.parent).encode()


def test_rows_of_all_tasks(jobs: Jobs) -> None:
    """Each task's rows in their order: more tasks than cores, none twice."""

    def message(task: Any) -> Iterator[Row]:
        yield Row(task, RESULT, 1, 2, 3, bytes([task]) * task)

    found = sorted(jobs.run("say", list(range(5)), message, work_bytes=1))
    assert found == [Row(task, RESULT, 1, 2, 3, bytes([task]) * task) for task in range(5)]
    assert {type(row.payload) for row in found} == {bytes}


@pytest.mark.long
def test_an_exception_of_a_task(jobs: Jobs) -> None:
    """It is reported in one line, without Java's stack."""
    with pytest.raises(CleanerdError, match=r"^Spark gave up: ValueError: always fails") as raised:
        jobs.run("fail", [None], failing, work_bytes=1)
    assert "\n" not in raised.value.message
