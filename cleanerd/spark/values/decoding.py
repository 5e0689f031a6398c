"""Which columns are decoded with which schemas, in options and for tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from cleanerd.errors import ConfigError, CorruptionError
from cleanerd.spark.values.column import ValueColumn, reader_of
from cleanerd.spark.values.decode_options import CONFLUENT, SOURCES, Decode, decoded_name, error_name
from cleanerd.spark.values.folder import SchemaFolder
from cleanerd.spark.values.registry import registry_at
from cleanerd.spark.values.schemas import Schema, Schemas, UndecodableError

SIDE: Final = pa.schema([
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("column", pa.string()),
    ("bytes", pa.binary()),
    ("reason", pa.string()),
])  # fmt: skip
"""Columns of the side table. ``column``: key or value. ``bytes``: its complete content in the log."""


def undecoded_rows(batch: pa.RecordBatch, topic: str | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of the side table from ``batch``; ``topic``: the topic of all rows, if they have no such column."""
    for source in SOURCES:
        name = error_name(source)
        if name not in batch.schema.names:
            continue
        found = batch.filter(pc.is_valid(batch.column(name)))
        if len(found):
            topics = pa.repeat(pa.scalar(topic), len(found)) if topic is not None else found.column("topic")
            columns = [
                topics.cast(pa.string()),
                found.column("partition").cast(pa.int32()),
                found.column("offset"),
                pa.repeat(pa.scalar(source), len(found)),
                found.column(source).cast(pa.binary()),
                found.column(name).cast(pa.string()),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=SIDE)


def schemas_at(place: str) -> Schemas:
    """A registry by its URL, or a directory.

    Raises:
        ConfigError: the URL has credentials in it, or no such directory.
        CleanerdError: the directory cannot be read.
    """
    return registry_at(place) if place.startswith(("http://", "https://")) else SchemaFolder.read(place)


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """A column: ``source``: key or value. ``schema``: the reader's, named ``label`` in messages."""

    source: str
    schema: Schema
    label: str
    message: str | None

    def kind(self) -> pa.DataType:
        """The type of the column.

        Raises:
            ConfigError: the schema does not give a column, or an extra is missing.
        """
        try:
            return reader_of(self.schema, self.label, self.message).kind
        except UndecodableError as error:
            raise ConfigError(str(error), where=f"{self.source}Schema") from None


@dataclass(frozen=True, slots=True)
class Decoding:
    """The decoding for tasks. ``framed``: values contain the id of their writer's schema."""

    columns: tuple[DecodedColumn, ...]
    schemas: Schemas
    framed: bool
    limit: int

    def fields(self) -> list[pa.Field]:
        """The further columns, in their order."""
        return [
            field
            for each in self.columns
            for field in (
                pa.field(decoded_name(each.source), each.kind()),
                pa.field(error_name(each.source), pa.string()),
            )
        ]

    def added_to(self, schema: pa.Schema) -> pa.Schema:
        """``schema`` with the additional columns at the end."""
        return pa.schema([*schema, *self.fields()])


def resolved(decode: Decode, topics: Collection[str]) -> Decoding:
    """The decoding for tasks, with the readers' current schemas.

    Raises:
        ConfigError: a schema does not exist or does not give a column, ``topics`` have different ones, or an extra is
            not installed.
        CleanerdError: the registry does not answer.
    """
    schemas = schemas_at(decode.schemas)
    columns = tuple(_column(decode, schemas, source, sorted(topics)) for source in decode.sources)
    return Decoding(columns, schemas, decode.framing == CONFLUENT, decode.limit)


def _column(decode: Decode, schemas: Schemas, source: str, topics: list[str]) -> DecodedColumn:
    name = decode.value_schema if source == "value" else decode.key_schema
    message = decode.value_message if source == "value" else decode.key_message
    names = [name] if name is not None else [f"{topic}-{source}" for topic in topics]
    if not names:
        raise ConfigError(f"the schema of {source}s is unknown without a topic", where=f"{source}Schema")
    found = [schemas.named(name) for name in names]
    other = next((name for name, each in zip(names, found, strict=True) if each.schema != found[0].schema), None)
    if other is not None:
        raise ConfigError(
            f"{names[0]} and {other} are different schemas",
            where=schemas.where,
            hint=f"read one topic, or name the schema of all (option {source}Schema, --{source}-schema)",
        )
    column = DecodedColumn(source, found[0].schema, found[0].label, message)
    column.kind()
    return column


class BatchDecoder:
    """Decodes batches of a task, and counts undecodable values; None: there is nothing to decode."""

    def __init__(self, decoding: Decoding | None) -> None:
        self._limit = 0 if decoding is None else decoding.limit
        self._columns: list[tuple[str, ValueColumn]] = []
        if decoding is not None:
            schemas = decoding.schemas if decoding.framed else None
            self._columns = [
                (each.source, ValueColumn(each.schema, each.label, each.message, schemas)) for each in decoding.columns
            ]
        self.failed = 0

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each batch with the columns of :meth:`Decoding.fields` after its own.

        Raises:
            CorruptionError: more than the limit is undecodable.
            CleanerdError: a registry does not answer; and what ``batches`` raises.
        """
        for batch in batches:
            arrays, fields = list(batch.columns), list(batch.schema)
            for source, column in self._columns:
                found = column.decode(batch.column(source))
                arrays += [found.values, found.reasons]
                fields += [pa.field(decoded_name(source), column.kind), pa.field(error_name(source), pa.string())]
                self.failed += found.failed
                if self.failed > self._limit:
                    reason = next(each for each in found.reasons.to_pylist() if each is not None)
                    raise over_limit(self._limit, f"the last one: {reason}")
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def require_within(limit: int, failed: int) -> None:
    """Check that this number of failures is allowed.

    Raises:
        CorruptionError: it is not.
    """
    if failed > limit:
        raise over_limit(limit, f"it is {failed}")


def over_limit(limit: int, more: str) -> CorruptionError:
    """The error if too much is undecodable."""
    return CorruptionError(
        f"more than {limit} keys or values cannot be decoded; {more}",
        where="undecodedLimit",
        hint="check the schema, or raise undecodedLimit, --undecoded-limit",
    )
