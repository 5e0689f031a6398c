"""Distributes work to Python workers: weighted items, packed into tasks, whose results are Arrow batches.

A Python task costs some 80 ms even when it does nothing, so small segments share one; a segment is never cut.
"""

from __future__ import annotations

import contextlib
import heapq
import io
import pickle
import re
from contextvars import ContextVar
from dataclasses import is_dataclass
from enum import Enum
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from cleanerd import errors
from cleanerd.spark.session_info import cores_of, named_jobs
from cleanerd.spark.spark_errors import hint_of, is_javas, is_other_release, reason_of, spark_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

TASK_BYTES: Final = 128 * 1024 * 1024
"""About how much one task reads, if there is enough for all."""

Worker: TypeAlias = "Callable[[Any], Iterator[pa.RecordBatch]]"
"""A worker's function for an item: any value that can be pickled."""

ROWS_AN_ARROW_BATCH: Final = 8
"""For rows of up to some megabytes: Spark's default of 10,000 of them would not fit the memory."""

RESULT_COLUMNS: Final = "found binary"
"""The columns of :func:`result_row`."""

_RAISED: Final = re.compile(r"^cleanerd\.errors\.(\w+): (.*)$", re.MULTILINE)
_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "true",  # few keys need few tasks
}


def ignore_progress(_bytes: int) -> None:
    """Ignore all progress reports."""


_read_bytes: Final[ContextVar[Accumulator[int] | None]] = ContextVar("read_bytes", default=None)
"""Counts the bytes read by the tasks in a block of :func:`queries`."""


@contextlib.contextmanager
def queries(
    session: SparkSession | None,
    what: str,
    size_bytes: int,
    advance: Callable[[int], None] = ignore_progress,
    *,
    steps: int = 2,
    rows_a_batch: int = 65536,
) -> Iterator[None]:
    """Settings for cleanerd's jobs; the session's own are restored afterwards. Reports their progress.

    ``what``: the name on Spark's pages: the command, and its object. ``advance`` receives ``size_bytes`` in total while
    the jobs of the block run; ``steps``: how often these bytes are processed, by tasks that read them or that receive
    these tasks' rows. ``rows_a_batch``: how many rows a task receives at once. Without a session there are no jobs, and
    this has no effect.

    Raises:
        CleanerdError: a task's error, without Spark's wrapping.
    """
    if session is None:
        yield
        return
    try:
        with (
            _settings(session, size_bytes, rows_a_batch),
            named_jobs(session, f"cleanerd {what}", advance, size_bytes, steps) as read,
        ):
            counted = _read_bytes.set(read)
            try:
                yield
            finally:
                _read_bytes.reset(counted)
    except spark_errors() as error:
        raised = _RAISED.search(str(error))
        if raised is None:
            reason = reason_of(error)
            if is_javas(error) or is_other_release(reason):
                raise errors.CleanerdError(f"Spark gave up: {reason}", hint=hint_of(reason)) from error
            raise
        kind = getattr(errors, raised[1], errors.CleanerdError)
        raise (kind if issubclass(kind, errors.CleanerdError) else errors.CleanerdError)(raised[2]) from error


@contextlib.contextmanager
def _settings(session: SparkSession, size_bytes: int, rows_a_batch: int) -> Iterator[None]:
    wanted = {
        **_SETTINGS,
        "spark.sql.shuffle.partitions": str(max(cores_of(session), -(-size_bytes // TASK_BYTES))),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows_a_batch),
    }
    before = {key: session.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, old)


def spread(
    session: SparkSession, items: Sequence[tuple[int, Any]], worker: Worker, schema: pa.Schema, columns: str
) -> DataFrame:
    """Call ``worker`` with each of ``items`` (bytes, work) in a task; its batches, of ``schema``, as a DataFrame.

    ``columns``: the schema in Spark's notation. ``worker`` must be importable on the executors.
    """
    packed = _pack(items, tasks_for(session, [size for size, _ in items]))
    bins = tuple((sum(size for size, _ in each), pickle.dumps([item for _, item in each])) for each in packed)
    # The work is sent with the function: a DataFrame made of a list would start a second Python daemon.
    numbers = session.range(0, len(bins), 1, max(len(bins), 1))
    return numbers.mapInArrow(partial(_run, worker, schema, bins, _read_bytes.get()), columns)


def results(
    session: SparkSession | None,
    items: Sequence[tuple[int, Any]],
    worker: Worker,
    advance: Callable[[int], None] = ignore_progress,
) -> list[Any]:
    """The values of :func:`result_row` from ``worker`` for each of ``items``, by tasks as :func:`spread`, in no order.

    Without a ``session`` this process does it, one item after the other, and reports progress to ``advance``.
    """
    if session is not None:
        return results_in(spread(session, items, worker, result_row(None).schema, RESULT_COLUMNS)) if items else []
    found: list[Any] = []
    for size_bytes, item in items:
        for batch in worker(item):
            found += map(received, batch.column(0).to_pylist())
        advance(size_bytes)
    return found


def results_in(frame: DataFrame) -> list[Any]:
    """The values in rows of :func:`result_row`."""
    return [received(row.found) for row in frame.collect()]


def result_row(value: Any) -> pa.RecordBatch:
    """A task's result, which can be pickled."""
    import pyarrow as pa  # noqa: PLC0415 - who starts no task of these needs none

    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(value)], pa.binary())], ["found"])


class _Values(pickle.Unpickler):
    """Makes nothing but values (SP-6): the tasks may be those of another's Spark Connect server."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" in {"collections.Counter", "pathlib.PosixPath"}:
            return super().find_class(module, name)
        found = super().find_class(module, name) if module.startswith("cleanerd.") else None
        if isinstance(found, type) and (is_dataclass(found) or issubclass(found, tuple | Enum | PurePath)):
            return found
        raise errors.CleanerdError(
            f"a Spark task answered with {module}.{name}, which is not a value",
            hint="use a Spark server that you trust, with this release of cleanerd on its workers",
        )


def received(data: bytes) -> Any:
    """A value that one of this run's tasks has pickled.

    Raises:
        CleanerdError: it has functions or other objects in it.
    """
    return _Values(io.BytesIO(data)).load()


def tasks_for(session: SparkSession, sizes: Sequence[int]) -> int:
    """The number of useful tasks for items of ``sizes`` bytes: at most one per item, 0 without any."""
    return min(len(sizes), max(cores_of(session), -(-sum(sizes) // TASK_BYTES)))


def _pack(items: Sequence[tuple[int, Any]], count: int) -> list[list[tuple[int, Any]]]:
    """Distribute the largest first to the emptiest of ``count`` tasks: at least one item in each."""
    bins: list[list[tuple[int, Any]]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for size, item in sorted(items, key=lambda each: -each[0]):
        filled, number = heapq.heappop(heap)
        bins[number].append((size, item))
        heapq.heappush(heap, (filled + size + 1, number))
    return bins


def _run(
    worker: Worker,
    schema: pa.Schema,
    bins: Sequence[tuple[int, bytes]],
    read_bytes: Accumulator[int] | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            size_bytes, items = bins[number]
            for item in pickle.loads(items):  # noqa: S301 - the driver sent it, as the function
                for found in worker(item):
                    yield found.cast(schema)
            if read_bytes is not None:
                read_bytes.add(size_bytes)
