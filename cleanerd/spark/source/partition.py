"""What goes to a task, and what of the options goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from cleanerd.spark.source.read import read_split
from cleanerd.spark.source.reading import How

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from cleanerd.spark.source.options import Options
    from cleanerd.spark.source.plan import Split


class SplitPartition(InputPartition):
    """A split, as Spark carries it to a task; None: there is nothing to read."""

    value: Split | None


def batches_of(partition: InputPartition, options: Options, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What a task makes of its partition.

    Raises:
        CleanerdError: see :func:`~cleanerd.spark.source.read.read_split`.
    """
    how = How(options.view, options.skip_damage, options.tombstones, options.map_bytes)
    return iter(()) if partition.value is None else read_split(partition.value, how, schema)
