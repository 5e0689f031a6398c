"""Runs one Spark job: tasks, a function for each, further stages for their output; the last rows go to the driver."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from cleanerd.errors import CleanerdError, MachineError
from cleanerd.humanize import counted
from cleanerd.spark.launch import SAME_WORKERS
from cleanerd.spark.rows import SCHEMA, Row, RowFunction, for_spark
from cleanerd.spark.session_info import cores_of, job_group
from cleanerd.spark.spark_errors import hint_of, reason_of, require_java, spark_errors
from cleanerd.spark.watch import PATIENCE_SECONDS, ProgressWatch, by_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from cleanerd.cleaner.cleaner import Progress
    from cleanerd.cleaner.plan import CleaningPlan

_IS_NOT_THE_LOG: Final = re.compile(r"cleanerd\.errors\.(?:MachineError|NoSpaceError): |SPARK_JOB_CANCELLED")
"""Errors that failed again on another executor, or cancellations: not a fault of the log."""

Around: TypeAlias = "Callable[[str, RowFunction], RowFunction]"
"""Wraps a stage's function, given its name: tests use it to make tasks fail."""


@dataclass(frozen=True, slots=True)
class Stage:
    """``function`` receives the rows of each partition by their targets, sorted by the columns of ``order``."""

    name: str
    function: RowFunction
    partitions: int
    order: tuple[str, ...]


class Jobs:
    """Runs the jobs of one plan, reports their progress, and cancels running ones when an exception leaves it."""

    def __init__(
        self, session: SparkSession, plan: CleaningPlan, progress: Progress, around: Around | None = None
    ) -> None:
        self._session = session
        self._plan_id = plan.plan_id
        self._partition = str(plan.name)
        self._progress = progress
        self._around = around
        self._number = 0

    @property
    def cores(self) -> int:
        """The number of parallel tasks."""
        with require_java():
            return cores_of(self._session)

    def run(
        self, name: str, tasks: Sequence[Any], function: Callable[[Any], Iterator[Row]], *stages: Stage, work_bytes: int
    ) -> list[Row]:
        """Run ``function`` for each task, then the ``stages``; returns the rows of the last one, in no order.

        ``work_bytes``: the total of the progress.

        Raises:
            CleanerdError: Spark gave up; MachineError: for lack of space or similar, or it was stopped.
        """
        if not tasks:
            return []
        with require_java():
            return self._rows(name, tasks, function, *stages, work_bytes=work_bytes)

    def _rows(
        self, name: str, tasks: Sequence[Any], function: Callable[[Any], Iterator[Row]], *stages: Stage, work_bytes: int
    ) -> list[Row]:
        context = self._session.sparkContext
        self._number += 1
        group = f"{self._plan_id}-{self._number}"
        parts = [(name, len(tasks)), *((each.name, each.partitions) for each in stages)]
        phases = ", ".join(f"{phase} by {counted(count, 'task')}" for phase, count in parts)
        description = f"cleanerd clean {self._partition}: {phases}"
        self._progress.phase(name, work_bytes)
        try:
            with (
                job_group(context, group, description),
                ProgressWatch(by_tasks(self._session, group), self._progress.advance, work_bytes),
            ):
                return self._collected(name, tasks, function, stages)
        except spark_errors() as error:
            reason = reason_of(error)
            kind = MachineError if _IS_NOT_THE_LOG.search(reason) else CleanerdError
            raise kind(f"Spark gave up: {reason}", hint=hint_of(reason)) from error
        except BaseException:
            in_time(functools.partial(context.cancelJobGroup, group))
            raise

    def _collected(
        self, name: str, tasks: Sequence[Any], function: Callable[[Any], Iterator[Row]], stages: Sequence[Stage]
    ) -> list[Row]:
        first = self._wrapped(name, _Of(function))
        context = self._session.sparkContext
        if not stages and SAME_WORKERS in context.environment:
            # This costs half of a DataFrame, which is planned and compiled each time: 0.15 CPU seconds per job.
            numbers = context.parallelize(range(len(tasks)), len(tasks))  # a range alone is not written to a file
            return numbers.mapPartitions(functools.partial(_of_numbers, tuple(tasks), first)).collect()
        frame = self._session.range(0, len(tasks), 1, len(tasks)).mapInArrow(
            functools.partial(_first, tuple(tasks), first), SCHEMA
        )
        for stage in stages:
            frame = frame.repartitionById(stage.partitions, "target").sortWithinPartitions(*stage.order)
            frame = frame.mapInArrow(for_spark(self._wrapped(stage.name, stage.function)), SCHEMA)
        return [Row._make((*row[:-1], bytes(row[-1]))) for row in frame.collect()]

    def _wrapped(self, name: str, function: RowFunction) -> RowFunction:
        return function if self._around is None else self._around(name, function)


class _Of:
    """Adapts a function of tasks to rows, whose payload is a task."""

    def __init__(self, function: Callable[[Any], Iterator[Row]]) -> None:
        self._function = function

    def __call__(self, tasks: Iterator[Any]) -> Iterator[Row]:
        for task in tasks:
            yield from self._function(task)


def _of_numbers(tasks: Sequence[Any], function: RowFunction, numbers: Iterable[int]) -> Iterator[Row]:
    """Run ``function`` for the tasks with these numbers."""
    return function(iter([tasks[number] for number in numbers]))


def _first(tasks: Sequence[Any], function: RowFunction, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first stage, whose input is the numbers of tasks."""
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    return for_spark(lambda _: _of_numbers(tasks, function, numbers))(iter(()))


def in_time(call: Callable[[], object]) -> None:
    """Call Java when the result does not matter any more: after a signal Java may be missing or slow."""

    def wait_for_java() -> None:
        with contextlib.suppress(Exception):
            call()

    thread = threading.Thread(target=wait_for_java, name="cleanerd-cancel", daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
