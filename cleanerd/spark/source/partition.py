"""The value that Spark sends to a task, and how the task uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from cleanerd.errors import CleanerdError, SegmentChangedError
from cleanerd.spark.source.decoded import before, completed
from cleanerd.spark.source.read import read_split
from cleanerd.spark.source.reading import ReadOptions
from cleanerd.spark.values.decode_options import EXTRA

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from cleanerd.spark.source.options import Options
    from cleanerd.spark.source.plan import TaskSplit
    from cleanerd.spark.values.decoding import Decoding


PLANNED_ONCE: Final = (
    "Spark plans a DataFrame and a temporary view of this source once, so a retry fails too: call load() again, "
    "or use a table (CREATE TABLE ... USING `kafka-segments`), which is planned for each query"
)
PLANNED_BY_BATCH: Final = "start the query again: it continues from its checkpoint"
"""SP-4: the fix for a log that changed after the reading was planned."""


class SplitPartition(InputPartition):
    """A split that Spark sends to a task; None: nothing to read."""

    value: TaskSplit | None


def batches_of(
    partition: InputPartition, options: Options, decoding: Decoding | None, schema: pa.Schema, cure: str
) -> Iterator[pa.RecordBatch]:
    """The batches of a task's partition. ``cure``: the fix for a log that changed since it was planned.

    Raises:
        CleanerdError: see :func:`~cleanerd.spark.source.read.read_split` and
            :func:`~cleanerd.spark.source.decoded.completed`.
    """
    how = ReadOptions(options.view, options.skip_damage, options.tombstones, options.map_bytes)
    if partition.value is None:
        return
    try:
        if decoding is None or not any(name in EXTRA for name in schema.names):
            yield from read_split(partition.value, how, schema)
        else:
            yield from completed(read_split(partition.value, how, before(schema)), decoding, schema)
    except CleanerdError as error:
        if isinstance(error, SegmentChangedError):
            raise SegmentChangedError(error.message, where=error.where, hint=cure) from error
        if isinstance(error.__cause__, FileNotFoundError):
            what = f"the log changed after this reading was planned: {error.message}"
            raise SegmentChangedError(what, where=error.where, hint=cure) from error
        raise
