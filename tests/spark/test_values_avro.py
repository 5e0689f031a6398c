"""Avro values as columns: compared with Confluent's serializer, through changes of the schema, and hostile bytes."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.errors import ConfigError
from cleanerd.spark.values.avro import AvroReader
from cleanerd.spark.values.schemas import AVRO, Schema, UndecodableError
from tests.spark.avro_values import EVERYTHING, ID, ORDER
from tests.spark.decoding import avro, batch_of, decoded, record

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.registry_server import RegistryServer


def test_values_of_confluents_serializer(registry: RegistryServer) -> None:
    """Values of all types and logical types come back as Confluent's serializer got them; null stays null."""
    kind, values, reasons = decoded(registry, [*avro(registry, EVERYTHING, ORDER), None])
    assert reasons == [None, None]
    assert values[1] is None
    expected = {**ORDER, "id": str(ID), "either": {"long": None, "string": "text"}, "tags": [("x", 1)]}
    assert values[0] == expected
    types = {kind.field(at).name: kind.field(at).type for at in range(kind.num_fields)}
    assert types["price"] == pa.decimal128(10, 2)
    assert types["at"] == types["exactly"] == pa.timestamp("us", "UTC")
    assert types["here"] == pa.timestamp("us")
    assert types["day"] == pa.date32()
    assert types["first"] == types["lines"].value_type == pa.struct([("sku", pa.string()), ("count", pa.int32())])


BASE = [("id", "long"), ("name", "string")]
EVOLUTIONS = {
    "added": (record(*BASE), record(*BASE, {"name": "age", "type": "int", "default": 18}), {"age": 18}),
    "added, nullable": (
        record(*BASE), record(*BASE, {"name": "age", "type": ["null", "int"], "default": None}), {"age": None}
    ),
    "removed": (record(*BASE, ("old", "string")), record(*BASE), {}),
    "renamed": (
        record(("nr", "long"), ("name", "string")),
        record({"name": "id", "type": "long", "aliases": ["nr"]}, ("name", "string")),
        {},
    ),
    "promoted": (record(("id", "int"), ("name", "string")), record(*BASE), {}),
    "int to double": (
        record(("id", "int"), ("name", "string")), record(("id", "double"), ("name", "string")), {"id": 7.0}
    ),
    "bytes to string": (record(("id", "long"), ("name", "bytes")), record(*BASE), {}),
    "to a union": (record(*BASE), record(("id", ["null", "long"]), ("name", "string")), {}),
    "from a union": (record(("id", ["null", "long"]), ("name", "string")), record(*BASE), {}),
    "reordered": (record(("name", "string"), ("id", "long")), record(*BASE), {}),
    "enum with a default": (
        record(*BASE, ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]})),
        record(*BASE, ("e", {"type": "enum", "name": "E", "symbols": ["A", "OTHER"], "default": "OTHER"})),
        {"e": "OTHER"},
    ),
    "inner": (
        record(*BASE, ("in", record(("a", "int"), name="In"))),
        record(*BASE, ("in", record(("a", "long"), {"name": "b", "type": "string", "default": "?"}, name="In"))),
        {"in": {"a": 1, "b": "?"}},
    ),
}  # fmt: skip
DATUM: dict[str, Any] = {"id": 7, "nr": 7, "name": "x", "old": "gone", "e": "B", "in": {"a": 1}}


@pytest.mark.long
@pytest.mark.parametrize("name", EVOLUTIONS)
def test_evolution(registry: RegistryServer, name: str) -> None:
    """Records of the old schema are read as the newest one defines them, and those of the newest as they are."""
    old, new, more = EVOLUTIONS[name]
    names = {field["name"] for field in old["fields"]}
    datum = {each: DATUM[each] for each in names}
    if name == "bytes to string":
        datum["name"] = b"x"
    (value,) = avro(registry, old, datum)
    assert registry.register("orders-value", json.dumps(new)) == 2
    _, values, reasons = decoded(registry, [value])
    assert reasons == [None]
    assert values == [{"id": 7, "name": "x", **more}]


BYTE = "\u00ff"
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
INNER = record(("at", MILLIS), name="Inner")
EPOCH = datetime.fromtimestamp(0.005, UTC)
DEFAULTS: dict[str, tuple[Any, Any, Any]] = {
    "bytes": ("bytes", BYTE, b"\xff"),
    "fixed": ({"type": "fixed", "name": "F", "size": 1}, BYTE, b"\xff"),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001", Decimal("0.01")),
    "a whole number for a double": ("double", 0, 0.0),
    "no number": ("double", "NaN", None),
    "bytes or null": (["bytes", "null"], BYTE, b"\xff"),
    "not the first of a union": (["int", "null"], None, None),
    "double or text": (["double", "string"], 7, {"double": 7.0, "string": None}),
    "bytes or a number": (["bytes", "int"], BYTE, {"bytes": b"\xff", "int": None}),
    "a record": (INNER, {"at": 5}, {"at": EPOCH}),
    "records": ({"type": "array", "items": INNER}, [{"at": 5}], [{"at": EPOCH}]),
    "times by name": ({"type": "map", "values": MILLIS}, {"x": 5}, [("x", EPOCH)]),
    "a record with a default of its own": (
        record(("b", "bytes"), {"name": "c", "type": "int", "default": 3}, name="Inner"),
        {"b": BYTE}, {"b": b"\xff", "c": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults(registry: RegistryServer, name: str) -> None:
    """Of a field that was added, as in Avro 1.12.1 for Java: the same for every record, and no text for bytes."""
    kind, default, expected = DEFAULTS[name]
    values = avro(registry, record(("id", "long")), {"id": 7}, {"id": 8}, {"id": 9})
    registry.register(
        "orders-value", json.dumps(record(("id", "long"), {"name": "w", "type": kind, "default": default}))
    )
    _, found, reasons = decoded(registry, values)
    assert reasons == [None] * 3
    assert [row["id"] for row in found] == [7, 8, 9]
    for row in found:
        assert row["w"] == expected or (name == "no number" and row["w"] != row["w"])


def test_defaults_of_the_writer(registry: RegistryServer) -> None:
    """They do not affect a record; defaults of the column's schema have to be values."""
    old = record(("id", "long"), {"name": "w", "type": "long", "default": "?"})
    number = registry.register("orders-value", json.dumps(old))
    registry.register("orders-value", json.dumps(record(("id", "long"))))
    _, found, reasons = decoded(registry, [b"\x00" + number.to_bytes(4, "big") + b"\x0e\x02"])
    assert (found, reasons) == ([{"id": 7}], [None])
    registry.register("orders-value", json.dumps(old))
    with pytest.raises(ConfigError, match=r"the default of w is not a value of its type: \?"):
        decoded(registry, [], value_schema="orders-value:1")


REFUSED = {
    "no default": (record(("id", "long")), record(*BASE), "name"),
    "other type": (record(("id", "string")), record(("id", "long")), "long"),
    "enum without default": (
        record(("id", {"type": "enum", "name": "E", "symbols": ["A", "B"]})),
        record(("id", {"type": "enum", "name": "E", "symbols": ["A"]})),
        "B",
    ),
    "other unit": (
        record(("id", {"type": "long", "logicalType": "timestamp-millis"})),
        record(("id", {"type": "long", "logicalType": "timestamp-micros"})),
        "schema 1 has timestamp-millis where the column's schema has timestamp-micros",
    ),
    "other unit in a union": (
        record(("id", ["null", MILLIS, "string"])),
        record(("id", ["null", {"type": "long", "logicalType": "timestamp-micros"}, "string"])),
        "timestamp-millis where the column's schema has timestamp-micros",
    ),
    "other unit in a union in a map": (
        record(("id", {"type": "map", "values": MILLIS})),
        record(("id", {"type": "map", "values": [{"type": "long", "logicalType": "timestamp-micros"}, "string"]})),
        "timestamp-millis where",
    ),
    "days as milliseconds": (
        record(("id", {"type": "int", "logicalType": "date"})), record(("id", MILLIS)), "date where",
    ),
    "other scale in a union": (
        record(("id", ["int", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}])),
        record(("id", ["int", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 3}])),
        "another scale",
    ),
    "other scale": (
        record(("id", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2})),
        record(("id", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 3})),
        "another scale",
    ),
    "recursive": (
        record(("id", "long"), ("next", ["null", "Order"])), record(("id", "long")), "Order contains itself"
    ),
    "array of nothing": (
        record(("id", "long"), ("many", {"type": "array", "items": "null"})), record(("id", "long")), "no bytes"
    ),
    "array of empty records": (
        record(("id", "long"), ("many", {"type": "array", "items": record(("n", "null"), name="E")})),
        record(("id", "long")), "no bytes",
    ),
    "another format": (record(("id", "long")), None, "schema 1 is avro, and the column's schema is json"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_records_that_the_newest_schema_cannot_read(registry: RegistryServer, name: str) -> None:
    """A record that does not resolve goes to the side table with the reason, and never comes as another value."""
    old, new, why = REFUSED[name]
    number = registry.register("orders-value", json.dumps(old))
    if new is None:
        registry.register("orders-value", '{"properties": {"id": {"type": "integer"}}}', "JSON")
    else:
        registry.register("orders-value", json.dumps(new))
    data = (
        b"\x00"
        + number.to_bytes(4, "big")
        + {"other type": b"\x02x", "enum without default": b"\x02"}.get(name, b"\x0e\x02\x02")
    )
    _, values, reasons = decoded(registry, [data])
    assert values == [None]
    assert reasons[0] is not None
    assert why in reasons[0]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record(("next", ["null", "Order"])), "Order contains itself"),
        (record(("a", ["string", {"type": "enum", "name": "E", "symbols": ["A"]}])), "do not show which"),
        (record(("a", "int"), ("A", "int")), "treats as equal"),
        (record(("a", [{"type": "int", "logicalType": "date"}, MILLIS])), "do not show which"),
        ({"type": "record"}, "is not an Avro schema"),
        ({"type": "nonsense"}, "is not an Avro schema"),
        (
            record(("a", record(("b", "int"), name="double")), ("c", ["int", "double"])),
            "is not an Avro schema: it names a type double, as one of Avro's own",
        ),
        ("null", "always null"),
        ({"type": "record", "__fastavro_parsed__": True, "fields": [{}]}, "is not an Avro schema"),
    ],
)
def test_schemas_that_cannot_be_columns(tmp_path: Path, schema: Any, why: str) -> None:
    """A schema that cannot be a column is refused with a clear message before anything is read."""
    (tmp_path / "orders-value.avsc").write_text(json.dumps(schema))
    with pytest.raises(ConfigError, match=why):
        decoded(str(tmp_path), [])


def test_named_types_of_other_schemas(registry: RegistryServer) -> None:
    """A schema's references are fetched, and their references first."""
    registry.register("country", json.dumps({"type": "enum", "name": "Country", "symbols": ["DE", "FR"]}))
    of = [{"name": "Country", "subject": "country", "version": 1}]
    registry.register("address", json.dumps(record(("country", "Country"), name="Address")), references=of)
    to = [{"name": "Address", "subject": "address", "version": 1}]
    number = registry.register("orders-value", json.dumps(record(("to", "Address"))), references=to)
    _, values, reasons = decoded(registry, [b"\x00" + number.to_bytes(4, "big") + b"\x02"])
    assert (values, reasons) == ([{"to": {"country": "FR"}}], [None])


def test_without_framing(registry: RegistryServer, tmp_path: Path) -> None:
    """The named schema is the writer's too."""
    (tmp_path / "mine.avsc").write_text(json.dumps(record(*BASE)))
    (value,) = avro(registry, record(*BASE), {"id": 1, "name": "x"})
    _, values, reasons = decoded(str(tmp_path), [value[5:], value], framing="none", value_schema="mine")
    assert values == [{"id": 1, "name": "x"}, None]
    assert reasons[1] is not None


def test_a_schema_that_is_not_a_record(registry: RegistryServer) -> None:
    """The column has that type itself."""
    kind, values, _ = decoded(registry, avro(registry, '"long"', 5, -1))
    assert (kind, values) == (pa.int64(), [5, -1])


def test_decimals_and_times_beyond_the_ranges_of_spark(tmp_path: Path) -> None:
    """More digits than Spark has become text; a time after the year 9999 is a time.

    A value that does not fit is reported.
    """
    fields = [
        ("big", {"type": "bytes", "logicalType": "decimal", "precision": 45, "scale": 5}),
        ("two", {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ]
    (tmp_path / "orders-value.avsc").write_text(json.dumps(record(*fields)))

    def written(big: int, two: int, at: int) -> bytes:
        file = io.BytesIO()
        datum = {"big": big.to_bytes(19, "big", signed=True), "two": two.to_bytes(2, "big", signed=True), "at": at}
        fastavro.schemaless_writer(file, record(("big", "bytes"), ("two", "bytes"), ("at", "long")), datum)
        return file.getvalue()

    rows = [written(-(10**44), 99, 300_000_000_000_000), written(1, 100, 0), written(1, 1, 2**62)]
    out = batch_of(str(tmp_path), rows, framing="none")
    fields_of = out.column("value_decoded").flatten()
    assert fields_of[0].to_pylist()[0] == "-1" + "0" * 39 + ".00000"
    assert fields_of[1].to_pylist() == [Decimal(99), None, None]
    assert fields_of[2].cast(pa.int64()).to_pylist()[0] == 300_000_000_000_000_000
    assert out.column("value_error").to_pylist() == [
        None,
        "a decimal of more than 2 digits",
        f"{2**62} is beyond all times in microseconds",
    ]


def test_a_decimal_with_too_many_digits_for_pythons_text() -> None:
    """A schema may have any precision; comparing with ten to that power, or writing so many digits, would never end."""
    for precision in (4001, 2**31, 2**63):
        values = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}
        with pytest.raises(UndecodableError, match="more than 4000 digits"):
            AvroReader(Schema("avro", json.dumps(values)), "x")


@pytest.fixture(scope="module")
def reader() -> AvroReader:
    return AvroReader(Schema(AVRO, json.dumps(EVERYTHING)), "it")


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_reason(reader: AvroReader, data: bytes) -> None:
    """No bytes make the decoder do anything else, and its result fits the column."""
    try:
        value = reader.decoder(None, "it")(data, ())
    except UndecodableError:
        return
    pa.array([value], reader.kind).validate(full=True)
