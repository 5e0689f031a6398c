"""The data source's columns from decoded keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cleanerd.spark.source.columns import TYPES
from cleanerd.spark.source.plan import find_requested
from cleanerd.spark.values.decode_options import EXTRA
from cleanerd.spark.values.decoding import BatchDecoder, Decoding, resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cleanerd.spark.source.options import Options

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_SPARK: dict[str, DataType] = {
    each.simpleString(): each
    for each in (
        BinaryType(), StringType(), IntegerType(), LongType(), BooleanType(), TimestampType(), ArrayType(_HEADER)
    )
}  # fmt: skip


def decoding_of(options: Options) -> Decoding | None:
    """The decoding, with the readers' current schemas.

    Raises:
        ConfigError: a schema does not exist, or the topics have different ones.
        CleanerdError: a registry does not answer, or a directory cannot be read.
    """
    if options.decode is None:
        return None
    return resolved(options.decode, {log.name.topic for log in find_requested(options)})


def types_of(columns: Iterable[str], decoding: Decoding | None) -> StructType:
    """The columns in Spark's types."""
    extra = {} if decoding is None else {field.name: from_arrow_type(field.type) for field in decoding.fields()}
    return StructType([StructField(each, extra.get(each) or _SPARK[TYPES[each]]) for each in columns])


def before(schema: pa.Schema) -> pa.Schema:
    """The columns to read for those of ``schema``: the log's own, and the inputs of the decoded ones."""
    fields = [field for field in schema if field.name not in EXTRA]
    needed = sorted({EXTRA[field.name] for field in schema if field.name in EXTRA} - {field.name for field in fields})
    return pa.schema([*fields, *(pa.field(name, pa.binary()) for name in needed)])


def completed(batches: Iterable[pa.RecordBatch], decoding: Decoding, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Convert ``batches`` of :func:`before` to ``schema``.

    Raises:
        CorruptionError: more is undecodable than allowed.
        CleanerdError: a registry does not answer; and what ``batches`` raises.
    """
    for batch in BatchDecoder(decoding).batches(batches):
        columns = [batch.column(field.name).cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
