"""The data source ``spark.read.format("kafka-segments")``, called by Spark in the driver's workers and in tasks.

``pushFilters`` is missing on purpose: with Spark 4.3.0 a second query on the same DataFrame keeps the filters of the
first one, and returns too few rows. Options select the records instead.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from cleanerd.errors import ConfigError
from cleanerd.spark.source.decoded import decoding_of, types_of
from cleanerd.spark.source.options import (
    LATEST,
    SKIP,
    checked_columns,
    options_from,
    require_batch,
    require_streamable,
)
from cleanerd.spark.source.partition import PLANNED_ONCE, SplitPartition, batches_of
from cleanerd.spark.source.plan import find_requested, plan_splits
from cleanerd.spark.source.stream import HAS_LIMITS, SegmentsStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from cleanerd.spark.source.options import Options
    from cleanerd.spark.values.decoding import Decoding

FORMAT: Final = "kafka-segments"


class KafkaSegments(DataSource):
    """The data source ``kafka-segments``: log directories of Kafka brokers, or copies of them, as a DataFrame."""

    has_limits = HAS_LIMITS
    """Whether this Spark queries a stream for its limits."""

    _decoding: Decoding | None = None

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns from the option ``columns``; with ``decode`` also those from the schemas of keys and values.

        Raises:
            ConfigError: an option is unknown, or has an invalid value, or a schema does not exist.
            CleanerdError: a registry does not answer.
        """
        options = options_from(self.options)
        # Stored for the reader: a newer schema may be registered in between.
        self._decoding = decoding_of(options)
        found = types_of(options.columns, self._decoding)
        if "provider" in self.options:
            # A table in Spark's catalog: its queries get these columns but no options (SP-3).
            found.fields[0].metadata = {FORMAT: json.dumps(dict(self.options))}
        return found

    def reader(self, schema: StructType) -> SegmentsReader:
        """Reads the columns of ``schema``, which may be the caller's own.

        Raises:
            ConfigError: an option or a column is unknown, a column has another type, or nothing would be read.
        """
        options, decoding, arrow = self._read_options(schema)
        require_batch(options)
        return SegmentsReader(options, decoding, arrow)

    def streamReader(self, schema: StructType) -> SegmentsStream:  # noqa: N802 - Spark's name
        """The same for a stream.

        Raises:
            ConfigError: as :meth:`reader`, or an option that no stream can keep.
        """
        options, decoding, arrow = self._read_options(schema)
        require_streamable(options)
        return SegmentsStream(options, decoding, arrow, has_limits=self.has_limits)

    def _read_options(self, schema: StructType) -> tuple[Options, Decoding | None, pa.Schema]:
        options = options_from(self._given(schema))
        decoding = self._decoding if self._decoding is not None else decoding_of(options)
        columns = checked_columns(schema.fieldNames(), options.decode)
        for field, own in zip(schema.fields, types_of(columns, decoding).fields, strict=True):
            if field.name != own.name or field.dataType.simpleString() != own.dataType.simpleString():
                raise ConfigError(
                    f"column {field.name} is {field.dataType.simpleString()}",
                    where="schema",
                    hint=f"{own.name} {own.dataType.simpleString()}",
                )
        options = replace(options, columns=columns)
        if "damaged" in columns and not (options.skip_damage and options.view != LATEST):
            raise ConfigError(
                f"column damaged needs onCorruption={SKIP}, and cannot be used with view={LATEST}", where=FORMAT
            )
        return options, decoding, _arrow_schema(schema)

    def _given(self, schema: StructType) -> Mapping[str, str]:
        """The options: a table's are in its first column, and those of a query (``WITH (...)``) override them."""
        kept = schema.fields[0].metadata.get(FORMAT) if schema.fields else None
        if kept is None:
            return self.options
        return {**json.loads(kept), **{f"option.{name}": text for name, text in self.options.items()}}


def _arrow_schema(schema: StructType) -> pa.Schema:
    """The types that Spark expects; before 4.2 times are always UTC."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


class SegmentsReader(DataSourceReader):
    """Reads a batch, one task per split."""

    def __init__(self, options: Options, decoding: Decoding | None, schema: pa.Schema) -> None:
        self._options = options
        self._decoding = decoding
        self._schema = schema

    def partitions(self) -> list[SplitPartition]:
        """A task per split.

        Raises:
            CleanerdError: a directory or file cannot be read, or is damaged.
        """
        found = plan_splits(find_requested(self._options), self._options)
        return [SplitPartition(split) for split in found] or [SplitPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one split.

        Raises:
            CleanerdError: see :func:`~cleanerd.spark.source.read.read_split`.
        """
        return batches_of(partition, self._options, self._decoding, self._schema, PLANNED_ONCE)
