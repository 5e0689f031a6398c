"""What goes to a task, and what of the options goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from cleanerd.spark.source.decoded import before, completed
from cleanerd.spark.source.read import read_split
from cleanerd.spark.source.reading import How
from cleanerd.spark.values.said import EXTRA

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from cleanerd.spark.source.options import Options
    from cleanerd.spark.source.plan import Split
    from cleanerd.spark.values.decoding import Decoding


class SplitPartition(InputPartition):
    """A split, as Spark carries it to a task; None: there is nothing to read."""

    value: Split | None


def batches_of(
    partition: InputPartition, options: Options, decoding: Decoding | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """What a task makes of its partition.

    Raises:
        CleanerdError: see :func:`~cleanerd.spark.source.read.read_split` and
            :func:`~cleanerd.spark.source.decoded.completed`.
    """
    how = How(options.view, options.skip_damage, options.tombstones, options.map_bytes)
    if partition.value is None:
        return iter(())
    if decoding is None or not any(name in EXTRA for name in schema.names):
        return read_split(partition.value, how, schema)
    return completed(read_split(partition.value, how, before(schema)), decoding, schema)
