"""Decodes a column of bytes, keys or values, into a column with fields.

Undecodable values become null, with the reason beside them. A null value, a tombstone, stays null without one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

import pyarrow as pa

from cleanerd.errors import CleanerdError
from cleanerd.spark.values.schemas import AVRO, JSON, PROTOBUF, Schema, Schemas, UndecodableError, require_installed

_MAGIC: Final = 0
_HEAD_BYTES: Final = 5
_MOST_INDEXES: Final = 64

_READERS: Final = {
    AVRO: ("cleanerd.spark.values.avro", "AvroReader"),
    PROTOBUF: ("cleanerd.spark.values.protobuf", "ProtobufReader"),
    JSON: ("cleanerd.spark.values.json_values", "JsonReader"),
}


class SchemaReader(Protocol):
    """A reader's schema: the type of the column, and decoders for other writers' schemas."""

    kind: pa.DataType

    def decoder(self, writer: Schema | None, label: str) -> Callable[[bytes, Sequence[int]], Any]:
        """A decoder for values written with ``writer``; it gets the bytes, and message indexes.

        Raises:
            UndecodableError: values of that schema cannot be decoded.
        """


@lru_cache(maxsize=64)
def reader_of(schema: Schema, label: str, message: str | None) -> SchemaReader:
    """The decoder for the reader's schema ``schema``, named ``label`` in messages.

    Raises:
        ConfigError: the extra that it needs is missing.
        UndecodableError: it does not give a column.
    """
    require_installed(schema.kind)
    module, name = _READERS[schema.kind]
    made = getattr(importlib.import_module(module), name)
    with _undecodable_on_error(label):
        found: SchemaReader = made(schema, label, message)
    return found


@contextmanager
def _undecodable_on_error(label: str) -> Iterator[None]:
    """Convert a library's exceptions for a strange schema to :class:`UndecodableError`."""
    try:
        yield
    except (UndecodableError, CleanerdError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - three libraries, and any schema
        raise UndecodableError(f"{label} makes no column: {type(error).__name__}: {str(error)[:200]}") from None


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """``values`` [n] of the reader's type; ``reasons`` [n]: a text if a value is null because it is undecodable."""

    values: pa.Array
    reasons: pa.Array
    failed: int


class ValueColumn:
    """Decodes columns with one reader's schema. ``schemas``: finds the writers' schemas; None: without framing."""

    def __init__(self, schema: Schema, label: str, message: str | None, schemas: Schemas | None) -> None:
        self._reader = reader_of(schema, label, message)
        self._is_protobuf = schema.kind == PROTOBUF
        self._kind = schema.kind
        self._schemas = schemas
        self._known: dict[int, Callable[[bytes, Sequence[int]], Any] | str] = {}
        self._own: Callable[[bytes, Sequence[int]], Any] | None = None
        if schemas is None:
            with _undecodable_on_error(label):
                self._own = self._reader.decoder(None, label)
        self.kind = self._reader.kind

    def decode(self, column: pa.Array) -> DecodedValues:
        """``column`` [n] of bytes.

        Raises:
            CleanerdError: the registry does not answer.
        """
        values: list[Any] = []
        reasons: list[str | None] = []
        for data in column.to_pylist():
            value, reason = None, None
            if data is not None:
                try:
                    value = self._one(data)
                except UndecodableError as error:
                    # A name in a schema may contain half a character, which a text column cannot.
                    reason = str(error).strip().encode(errors="replace").decode()
            values.append(value)
            reasons.append(reason)
        found = self._arrow(values, reasons)
        return DecodedValues(found, pa.array(reasons, pa.string()), sum(reason is not None for reason in reasons))

    def _arrow(self, values: list[Any], reasons: list[str | None]) -> pa.Array:
        try:
            return _array(values, self.kind)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            pass
        # One of them is out of its type's range: find it.
        for row, value in enumerate(values):
            try:
                _array([value], self.kind)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                values[row], reasons[row] = None, f"does not fit its column: {str(error)[:200]}"
        return _array(values, self.kind)

    def _one(self, data: bytes) -> Any:
        if self._own is not None:
            return self._own(data, ())
        if len(data) < _HEAD_BYTES or data[0] != _MAGIC:
            raise UndecodableError("does not begin with the framing of a schema registry: a zero byte and an id")
        number = int.from_bytes(data[1:_HEAD_BYTES], "big")
        decoder = self._known.get(number)
        if decoder is None:
            decoder = self._known[number] = self._find(number)
        if isinstance(decoder, str):
            raise UndecodableError(decoder)
        indexes, at = _indexes(data) if self._is_protobuf else ((), _HEAD_BYTES)
        return decoder(data[at:], indexes)

    def _find(self, number: int) -> Callable[[bytes, Sequence[int]], Any] | str:
        """The decoder of a writer's schema, or why there is none."""
        assert self._schemas is not None  # noqa: S101 - called only with framing
        label = f"schema {number}"
        writer = self._schemas.by_id(number)
        if writer is None:
            return f"{label} is not known to {self._schemas.where}"
        if writer.kind != self._kind:
            return f"{label} is {writer.kind}, and the column's schema is {self._kind}"
        try:
            with _undecodable_on_error(label):
                return self._reader.decoder(writer, label)
        except UndecodableError as error:
            return str(error)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    found = pa.array(values, kind)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Protobuf's message indexes, and where they end. A single 0 means the first message."""
    count, at = _varint(data, _HEAD_BYTES)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise UndecodableError(f"{count} message indexes")
    found = []
    for _ in range(count):
        index, at = _varint(data, at)
        found.append(index)
    return tuple(found), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number of at most 32 bits, and where it ends."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise UndecodableError("ends in the middle of its message indexes")
