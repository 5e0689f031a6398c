"""JSON values as columns: compared with Confluent's serializer, and data that are not a value of their schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.errors import ConfigError
from cleanerd.spark.values.json_values import JsonReader
from cleanerd.spark.values.schemas import JSON, Schema, UndecodableError
from tests.spark.decoding import VALUE, client, decoded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.registry_server import RegistryServer

ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "flag": {"type": "boolean"},
        "text": {"type": "string"},
        "maybe": {"type": ["null", "string"]},
        "other": {"oneOf": [{"type": "null"}, {"type": "integer"}]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/Line"}},
        "first": {"$ref": "#/definitions/Line"},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
        "anything": {},
        "either": {"type": ["string", "integer"]},
        "a/b~c": {"type": "integer"},
    },
    "definitions": {
        "Line": {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}}
    },
}
VALUE_OF: dict[str, Any] = {
    "id": 2**53, "price": 1, "flag": True, "text": "grün", "maybe": None, "other": 5,
    "lines": [{"sku": "a", "count": 1}, {"sku": "b"}], "first": {"sku": "c", "count": 2, "unknown": 1},
    "tags": {"x": 1}, "anything": [1, {"a": None}], "either": "e", "a/b~c": 1, "surplus": 1,
}  # fmt: skip


def values_of(registry: RegistryServer, schema: Any, *data: Any) -> list[bytes]:
    write = JSONSerializer(json.dumps(schema), client(registry))
    return [write(each, VALUE) for each in data]


def test_values_of_confluents_serializer(registry: RegistryServer) -> None:
    """Fields of the schema are columns; parts that it leaves open are JSON text, and unnamed ones are left out."""
    kind, values, reasons = decoded(registry, [*values_of(registry, ORDER, VALUE_OF, {"id": 1}), None])
    assert reasons == [None, None, None]
    expected = {name: value for name, value in VALUE_OF.items() if name != "surplus"} | {
        "price": 1.0, "lines": [{"sku": "a", "count": 1}, {"sku": "b", "count": None}],
        "first": {"sku": "c", "count": 2}, "tags": [("x", 1)], "anything": '[1,{"a":null}]', "either": '"e"',
    }  # fmt: skip
    assert values[0] == expected
    assert values[1] == {**dict.fromkeys(expected), "id": 1}
    assert values[2] is None
    assert kind.field("price").type == pa.float64()
    assert kind.field("tags").type == pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"id": "7"}', 'id is not a value of type integer: "7"'),
        ('{"id": true}', "id is not a value of type integer: true"),
        ('{"id": 1.5}', "id is not a value of type integer: 1.5"),
        ('{"id": 9223372036854775808}', "id has more than 64 bits"),
        ('{"price": NaN}', "is not JSON: NaN is not a number there"),
        ('{"price": "x"}', 'price is not a value of type number: "x"'),
        ('{"lines": [{"sku": 5}]}', "lines.sku is not a value of type string: 5"),
        ('{"lines": {}}', "lines is not a value of type array: {}"),
        ('{"first": []}', "first is not a value of type object: []"),
        ('{"text": "\\ud800"}', "text has half a character in its text"),
        ("[]", "is not a value of type object: []"),
        ('{"id": 1', "is not JSON"),
        ("", "is not JSON"),
        ("[" * 200_000, "is not JSON"),
        ('{"price": 1' + "0" * 400 + "}", "price is beyond all numbers"),
        ('{"id": 1' + "0" * 5000 + "}", "is not JSON"),
        ('{"price": -1e400}', "price is beyond all numbers"),
        ('{"anything": {"a": [1e400]}}', "anything has a number beyond all"),
    ],
)
def test_data_that_are_not_a_value(tmp_path: Path, text: str, why: str) -> None:
    """The reason names the field."""
    (tmp_path / "orders-value.json").write_text(json.dumps(ORDER))
    _, values, reasons = decoded(str(tmp_path), [text.encode()], framing="none")
    assert values == [None]
    assert reasons[0] is not None
    assert reasons[0].startswith(why)


def test_deep_nesting(reader: JsonReader) -> None:
    """A few levels could be read and not be written again, and one such record ended the query."""
    decode = reader.decoder(None, "it")
    for depth in range(700, 1100):
        try:
            decode(b'{"anything": ' + b"[" * depth + b"]" * depth + b"}", ())
        except UndecodableError as error:
            reason = str(error)
            break
    assert reason.startswith(("anything is nested too deeply", "is not JSON"))
    with pytest.raises(UndecodableError):
        decode(b'{"anything": ' + b"[" * 5000 + b"]" * 5000 + b"}", ())


def test_values_at_the_edge(tmp_path: Path) -> None:
    """1.0 is an integer to JSON Schema; null is null, with no reason; bytes that are not UTF-8 are not a value."""
    (tmp_path / "orders-value.json").write_text(json.dumps(ORDER))
    _, values, reasons = decoded(str(tmp_path), [b'{"id": 1.0}', b"null", b'{"text": "\xff"}'], framing="none")
    assert values[0]["id"] == 1
    assert (values[1], reasons[1]) == (None, None)
    assert (values[2], reasons[2]) == (None, "is not UTF-8")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"properties": {"next": {"$ref": "#"}}}, "contains itself"),
        ({"$ref": "#/definitions/A", "definitions": {"A": {"$ref": "#/definitions/A"}}}, "contains itself"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "nothing is at the reference"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "nothing is at the reference"),
        ({"properties": {"a": {}, "A": {}}}, "treats as equal"),
    ],
)
def test_schemas_that_cannot_be_columns(tmp_path: Path, schema: Any, why: str) -> None:
    """A schema that cannot be a column is refused with a clear message before anything is read."""
    (tmp_path / "orders-value.json").write_text(json.dumps(schema))
    with pytest.raises(ConfigError, match=why):
        decoded(str(tmp_path), [])


def test_other_documents_and_older_schemas(registry: RegistryServer) -> None:
    """References to other subjects; a record of an older schema is read by the newest, with null for missing fields."""
    registry.register("line", json.dumps(ORDER["definitions"]["Line"]), "JSON")
    old = registry.register("orders-value", '{"properties": {"id": {"type": "integer"}, "gone": {}}}', "JSON")
    new = {"properties": {"id": {"type": "number"}, "line": {"$ref": "line.json"}}}
    of = [{"name": "line.json", "subject": "line", "version": 1}]
    number = registry.register("orders-value", json.dumps(new), "JSON", of)
    rows = [(old, b'{"id": 1, "gone": 2}'), (number, b'{"id": 1.5, "line": {"sku": "a"}}')]
    _, values, reasons = decoded(registry, [b"\x00" + each.to_bytes(4, "big") + text for each, text in rows])
    assert reasons == [None, None]
    assert values == [{"id": 1.0, "line": None}, {"id": 1.5, "line": {"sku": "a", "count": None}}]


@pytest.fixture(scope="module")
def reader() -> JsonReader:
    return JsonReader(Schema(JSON, json.dumps(ORDER)), "it")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(VALUE_OF)) | st.text(), inner),
)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(value=PLAIN)
def test_any_json_gives_a_value_or_a_reason(reader: JsonReader, value: Any) -> None:
    """No JSON makes the decoder do anything else, and its result fits the column."""
    try:
        found = reader.decoder(None, "it")(json.dumps(value).encode(), ())
    except UndecodableError:
        return
    pa.array([found], reader.kind).validate(full=True)
