"""Readers of the Spark code that need no session, for hostile bytes: schemas, values, registry responses, tables."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2

from cleanerd._kernel import crc32c
from cleanerd.format.names import TopicPartition
from cleanerd.spark import stores
from cleanerd.spark.rows import pack, unpack
from cleanerd.spark.source.options import options_from
from cleanerd.spark.source.places import batch_at
from cleanerd.spark.tables.remembered import TableState, Topic, Watermark
from cleanerd.spark.values import protobuf
from cleanerd.spark.values.column import ValueColumn
from cleanerd.spark.values.folder import SchemaFolder
from cleanerd.spark.values.registry import Registry
from cleanerd.spark.values.schemas import AVRO, JSON, PROTOBUF, Schema, UndecodableError
from cleanerd.verify.listing import SegmentFile
from cleanerd.verify.record_places import record_places
from cleanerd.verify.rules import KeyRules
from tests.torture.more_readers import writer

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.spark.values.schemas import Schemas
    from tests.torture.more_readers import Found

_FIELDS: Final = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
        {"name": "sku", "type": "string"}, {"name": "count", "type": "int"}]}}},
    {"name": "tags", "type": {"type": "map", "values": ["null", "double"]}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
    {"name": "either", "type": ["int", "string", "boolean"]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
]  # fmt: skip
_AVRO: Final = json.dumps({"type": "record", "name": "Order", "fields": _FIELDS})
_AVRO_VALUE: Final = (
    b"\x0e\x02\x04ab\x80\x01\x04\x01\x02\x02\x06abc\x04\x00\x02\x02k\x02" + bytes(8) + b"\x00\x02wxyz\x02\x04hi\x0a"
)
_JSON: Final = json.dumps({
    "title": "Order", "type": "object",
    "$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    "properties": {
        "id": {"type": "integer"}, "price": {"type": ["number", "null"]}, "name": {"type": "string"},
        "ok": {"type": "boolean"}, "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "tags": {"type": "object", "additionalProperties": {"type": "number"}},
        "one": {"oneOf": [{"type": "null"}, {"type": "string"}]}, "any": {},
    },
})  # fmt: skip
_JSON_VALUE: Final = json.dumps({
    "id": 5, "price": 1.5, "name": "n", "ok": True, "lines": [{"sku": "a"}, None], "tags": {"a": 1}, "one": None,
    "any": [1, {"b": 2}],
}).encode()  # fmt: skip


def _descriptor() -> bytes:
    """An order in Protobuf: scalars, a nested message, a list, a map, a oneof, Google's types."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.extend([timestamp_pb2.DESCRIPTOR.name, wrappers_pb2.DESCRIPTOR.name])
    order = file.message_type.add(name="Order")

    def add(
        message: Any, name: str, number: int, kind: int, of: str = "", *, repeated: bool = False, one: bool = False
    ) -> None:
        label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
        made = message.field.add(name=name, number=number, type=kind, label=label)
        if of:
            made.type_name = of
        if one:
            made.oneof_index = 0

    line = order.nested_type.add(name="Line")
    add(line, "sku", 1, kinds.TYPE_STRING)
    add(line, "count", 2, kinds.TYPE_SINT64)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, kinds.TYPE_STRING)
    add(entry, "value", 2, kinds.TYPE_DOUBLE)
    kind = order.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="ONE", number=1)
    for number, (name, scalar) in enumerate(
        (("id", kinds.TYPE_UINT64), ("small", kinds.TYPE_INT32), ("data", kinds.TYPE_BYTES), ("ok", kinds.TYPE_BOOL)), 1
    ):
        add(order, name, number, scalar)
    add(order, "lines", 5, kinds.TYPE_MESSAGE, ".shop.Order.Line", repeated=True)
    add(order, "tags", 6, kinds.TYPE_MESSAGE, ".shop.Order.TagsEntry", repeated=True)
    add(order, "kind", 7, kinds.TYPE_ENUM, ".shop.Order.Kind")
    add(order, "at", 8, kinds.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add(order, "note", 9, kinds.TYPE_MESSAGE, ".google.protobuf.StringValue")
    order.oneof_decl.add(name="one")
    add(order, "name", 10, kinds.TYPE_STRING, one=True)
    add(order, "line", 11, kinds.TYPE_MESSAGE, ".shop.Order.Line", one=True)
    return bytes(file.SerializeToString())


PROTOBUF_DESCRIPTOR: Final = _descriptor()
_PROTOBUF_VALUE: Final = bytes.fromhex(
    "08ffffffffffffffffff0110051a02abcd20012a050a01611004320c0a016b110000000000000840"
)


class _Known:
    """The registered schemas by number; 0 is the attacked one."""

    where = "x"

    def __init__(self, *found: Schema) -> None:
        self._found = found

    def by_id(self, number: int) -> Schema | None:
        return self._found[number] if number < len(self._found) else None


def _column(*, values: tuple[bytes, ...], schema: Schema, writers: Schemas | None = None) -> None:
    with contextlib.suppress(UndecodableError):
        column = ValueColumn(schema, "x", None, writers)
        found = column.decode(pa.array(values, pa.binary()))
        found.values.validate(full=True)


def values() -> list[Found]:
    """Schemas and values that clients may write."""
    value_of = {
        AVRO: (_AVRO_VALUE, b"\2", b""),
        JSON: (_JSON_VALUE, b"5", b'"x"'),
        PROTOBUF: (_PROTOBUF_VALUE, b"", b"\x08\1"),
    }
    own = {AVRO: _AVRO, JSON: _JSON, PROTOBUF: base64.standard_b64encode(PROTOBUF_DESCRIPTOR).decode()}
    framed = {kind: _Known(*(Schema(each, own[each]) for each in (AVRO, JSON, PROTOBUF))) for kind in own}

    def as_schema(kind: str, data: bytes) -> None:
        text = base64.standard_b64encode(data).decode() if kind == PROTOBUF else data.decode(errors="replace")
        with patch.object(protobuf, "_from_text", _no_compiler):  # a million processes would take days
            _column(values=value_of[kind], schema=Schema(kind, text))

    def as_writers(data: bytes) -> None:
        # for values written with the attacked schema, by the column's type
        known: Any = _Known(Schema(AVRO, data.decode(errors="replace")))
        _column(values=(bytes(5) + _AVRO_VALUE, bytes(5) + b"\2"), schema=Schema(AVRO, _AVRO), writers=known)

    @functools.cache
    def column_of(kind: str, *, with_frame: bool) -> ValueColumn:
        known: Any = framed[kind] if with_frame else None
        return ValueColumn(Schema(kind, own[kind]), "x", None, known)

    def as_value(kind: str, data: bytes) -> None:
        found = column_of(kind, with_frame=False).decode(pa.array([data, None], pa.binary()))
        found.values.validate(full=True)

    def as_framed(data: bytes) -> None:
        for kind in own:
            column_of(kind, with_frame=True).decode(pa.array([data], pa.binary()))

    heads = tuple(b"\0" + number.to_bytes(4, "big") for number in range(3))
    return [
        (
            "Avro schema",
            (_AVRO.encode(), b'["null","long"]', b'{"type":"array","items":"int"}'),
            functools.partial(as_schema, AVRO),
        ),
        ("Avro schema of a writer", (_AVRO.encode(),), as_writers),
        ("Avro value", (_AVRO_VALUE,), functools.partial(as_value, AVRO)),
        ("JSON schema", (_JSON.encode(),), functools.partial(as_schema, JSON)),
        ("JSON value", (_JSON_VALUE,), functools.partial(as_value, JSON)),
        ("Protobuf descriptor", (PROTOBUF_DESCRIPTOR,), functools.partial(as_schema, PROTOBUF)),
        ("Protobuf value", (_PROTOBUF_VALUE,), functools.partial(as_value, PROTOBUF)),
        (
            "framed value",
            (heads[0] + _AVRO_VALUE, heads[1] + _JSON_VALUE, heads[2] + b"\2\0" + _PROTOBUF_VALUE),
            as_framed,
        ),
    ]


def _no_compiler(_schema: Schema, label: str) -> Any:
    """Replaces the compiler of ``.proto`` texts, a process of its own."""
    raise UndecodableError(f"{label} cannot be compiled")


_STATUS: Final = (200, 404, 500, 401, 429, 302)


def around_tables(root: Path, partition: Path, trash: bytes) -> list[Found]:
    """Registry responses, a table's stored state, source options, shuffle rows, replaced segments."""
    root.mkdir()
    segment, kept = root / "00000000000000000000.log", root / "trash" / "20260101t000000-0123abcd.json"
    kept.parent.mkdir()
    put_segment, put_kept = writer(segment), writer(kept)
    remembered = TableState(
        {"a": Topic("00ff", KeyRules(strategy="header", header=b"v"), keep_deleted=True)},
        {TopicPartition("a", 0): Watermark(0, 5, 7)},
    )
    columns = {"a": np.arange(5, dtype=np.uint64), "b": np.zeros(3, np.int32)}
    packed = tuple(pack({"n": 5}, columns, dense=dense) for dense in (False, True))
    options = {
        "path": "/a",
        "view": "raw",
        "topics": "a,b",
        "startingOffsets": '{"a":{"0":5}}',
        "endingOffsets": "latest",
        "splitBytes": "64m",
        "decode": "value",
        "schemas": "http://h:1",
        "strategies": '{"a":"header:v"}',
        "columns": "topic,offset",
    }
    more = {"paths": '["/a"]', "partitions": "a-0", "maxOffsetsPerTrigger": "5", "startingTimestamp": "1790000000000"}
    answer = {
        "schema": _AVRO,
        "schemaType": "AVRO",
        "references": [{"name": "a", "subject": "b", "version": 1}],
        "version": 3,
    }
    files = {"a.avsc": _AVRO, "b.1.json": _JSON, "b.2.json": "{}", "7.proto": "x", "c.proto": "y"}

    def answers(data: bytes) -> None:
        status, body = _STATUS[data[0] % len(_STATUS)] if data else 200, data[1:]
        left = [(status, body, "5")]

        def get(*_: Any) -> tuple[int, bytes, str]:
            return left.pop(0) if left else (200, b'{"schema":"int"}', "")

        requested = Registry("http://h:1", get, sleep=lambda _seconds: None)
        requested.by_id(1)
        left[:] = [(status, body, "")]
        requested.named("a:1")

    def columns_of(data: bytes) -> None:
        unpack(data[:-4] + crc32c(np.frombuffer(data[:-4], np.uint8)).to_bytes(4, "little"), "x")

    def reported(data: bytes) -> None:
        try:
            given = json.loads(data)
        except (ValueError, RecursionError):
            return
        if isinstance(given, dict) and all(isinstance(value, str) for value in given.values()):
            options_from(given)

    def batch(data: bytes) -> None:
        put_segment(data)
        for position in (0, len(data) // 2, len(data) + 1):
            batch_at(SegmentFile(segment, 0, None, len(data), sealed=True), position)

    def kept_segments(data: bytes) -> None:
        put_kept(data)
        record_places(root, [], [])

    def moment(data: bytes) -> None:
        with contextlib.suppress(ValueError):
            stores._time(data.decode("latin-1"))

    def folder(data: bytes) -> None:
        known = SchemaFolder("x", files)
        text = data.decode(errors="replace")
        known.named(text)

    return [
        (
            "answer of a schema registry",
            (b"\0" + json.dumps(answer).encode(), b'\1{"error_code":40401}', b"\2oh"),
            answers,
        ),
        (
            "stored state of a table",
            (remembered.to_text().encode(),),
            lambda data: TableState.from_text(data.decode(errors="replace"), "x"),
        ),
        ("packed columns", packed, columns_of),
        ("options of the source", tuple(json.dumps(each).encode() for each in (options, more)), reported),
        ("batch at a place", tuple(path.read_bytes() for path in sorted(partition.glob("*.log"))[:2]), batch),
        ("kept segments, for audit", (trash,), kept_segments),
        ("time of a store", (b"Wed, 25 Nov 2026 10:00:00 GMT", b"2026-11-25T10:00:00.5+02:00"), moment),
        ("name of a schema", (b"a", b"b", b"b:2", b"7"), folder),
    ]
