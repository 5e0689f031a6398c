"""``spark.read.format("kafka-segments")``: what Spark calls, in the driver's workers and in the tasks.

``pushFilters`` is not there on purpose: with Spark 4.3.0 a second query on the same DataFrame keeps the filters of the
first one, and gives too few rows. What is to be left out is said by options.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.pandas.types import to_arrow_schema

from cleanerd.errors import ConfigError
from cleanerd.spark.source.columns import TYPES, ddl
from cleanerd.spark.source.options import LATEST, SKIP, checked_columns, options_from
from cleanerd.spark.source.partition import SplitPartition, batches_of
from cleanerd.spark.source.plan import find_asked, plan_splits
from cleanerd.spark.source.stream import SegmentsStream, require_streamable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from cleanerd.spark.source.options import Options

FORMAT: Final = "kafka-segments"


class KafkaSegments(DataSource):
    """The data source ``kafka-segments``: log directories of Kafka brokers, or copies of them, as a DataFrame."""

    @classmethod
    def name(cls) -> str:
        """What ``format()`` is given."""
        return FORMAT

    def schema(self) -> str:
        """By the option ``columns``.

        Raises:
            ConfigError: an option is not known, or has no such value.
        """
        return ddl(options_from(self.options).columns)

    def reader(self, schema: StructType) -> SegmentsReader:
        """Whoever gives a ``schema`` of his own asks for these columns alone.

        Raises:
            ConfigError: an option or a column is not known, or a column has another type.
        """
        return SegmentsReader(*_asked(self.options, schema))

    def streamReader(self, schema: StructType) -> SegmentsStream:  # noqa: N802 - Spark's name
        """The same for a stream.

        Raises:
            ConfigError: as :meth:`reader`, or an option that no stream can keep.
        """
        options, arrow = _asked(self.options, schema)
        require_streamable(options, LATEST)
        return SegmentsStream(options, arrow)


def _asked(given: Mapping[str, str], schema: StructType) -> tuple[Options, pa.Schema]:
    options = options_from(given)
    columns = checked_columns(schema.fieldNames())
    for name, field in zip(columns, schema.fields, strict=True):
        if field.name != name or field.dataType.simpleString() != TYPES[name]:
            raise ConfigError(
                f"column {field.name} is {field.dataType.simpleString()}", where="schema", hint=f"{name} {TYPES[name]}"
            )
    options = replace(options, columns=columns)
    if "damaged" in columns and not (options.skip_damage and options.view != LATEST):
        raise ConfigError(f"column damaged goes with onCorruption={SKIP}, and not with view={LATEST}", where=FORMAT)
    return options, _arrow_schema(schema)


def _arrow_schema(schema: StructType) -> pa.Schema:
    """As Spark wants our batches; before 4.2 times are UTC without being asked for."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


class SegmentsReader(DataSourceReader):
    """Reads once what was asked for, a piece a task."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[SplitPartition]:
        """A task each.

        Raises:
            CleanerdError: a directory or file cannot be read, or is damaged.
        """
        found = plan_splits(find_asked(self._options), self._options)
        return [SplitPartition(split) for split in found] or [SplitPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one split.

        Raises:
            CleanerdError: see :func:`~cleanerd.spark.source.read.read_split`.
        """
        return batches_of(partition, self._options, self._schema)
