"""Protobuf values as columns: compared with Confluent's serializer, across schema changes, and hostile bytes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.errors import ConfigError
from cleanerd.spark.values import protobuf
from cleanerd.spark.values.protobuf import ProtobufReader
from cleanerd.spark.values.schemas import PROTOBUF, Schema, UndecodableError
from tests.spark.decoding import VALUE, client, decoded

if TYPE_CHECKING:
    from tests.spark.registry_server import RegistryServer

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Order {
  enum State { OPEN = 0; CLOSED = 1; }
  message Line { string sku = 1; int32 count = 2; message Part { bool spare = 1; } repeated Part parts = 3; }
  int64 id = 1; uint64 big = 2; uint32 medium = 3; sint32 small = 4; double price = 5; float rate = 6;
  bool flag = 7; string text = 8; bytes raw = 9; State state = 10; optional int32 maybe = 11;
  repeated Line lines = 12; map<string, int64> tags = 13; map<int32, Line> by_number = 14;
  google.protobuf.Timestamp at = 15; google.protobuf.StringValue note = 16;
  google.protobuf.Struct free = 17; oneof one { string name = 18; Line line = 19; }
  repeated double numbers = 20; fixed64 sum = 21; Empty nothing = 22;
}
message Empty {}
message Customer { string name = 1; }
"""


def classes(text: str, *names: str) -> list[Any]:
    """Generated classes, as protoc's Python output would have them."""
    _, pool = protobuf._compiled(Schema(PROTOBUF, text), "it")
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names]


class Writer:
    """Confluent's serializer of the messages of a schema text.

    It registers them compiled, and so a simple registry has them. Confluent's own registry returns them as text, as
    ``as_text`` does here.
    """

    def __init__(self, registry: RegistryServer, text: str, *, as_text: bool = True) -> None:
        self._registry = registry
        self._text = text
        self._as_text = as_text
        self._pool = protobuf._compiled(Schema(PROTOBUF, text), "it")[1]

    def make(self, name: str) -> Any:
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))

    def write(self, message: Any) -> bytes:
        """As the serializer frames it, with message indexes."""
        write = ProtobufSerializer(type(message), client(self._registry), {"use.deprecated.format": False})
        data = write(message, VALUE)
        assert data is not None
        number = int.from_bytes(data[1:5], "big")
        if self._as_text:
            self._registry.schemas[number] = {"schema": self._text, "schemaType": "PROTOBUF"}
        return bytes(data)


def order(make: Any) -> Any:
    found = make(
        id=-5, big=2**64 - 1, medium=2**32 - 1, small=-3, price=1.5, rate=0.5, flag=True, text="grün", raw=b"\x00\xff",
        state=1, tags={"a": 1}, numbers=[1.0, 2.0], sum=2**63, name="x",
    )  # fmt: skip
    line = found.lines.add(sku="a", count=2)
    line.parts.add(spare=True)
    found.by_number[7].sku = "seven"
    found.at.seconds, found.at.nanos = -1, 999_999_999
    found.note.value = "note"
    found.free.update({"k": [1, None]})
    found.nothing.SetInParent()
    return found


@pytest.mark.long
@pytest.mark.parametrize("as_text", [True, False])
def test_values_of_confluents_serializer(registry: RegistryServer, *, as_text: bool) -> None:
    """All types come back as they were written; a missing field with presence is null, any other its default."""
    writer = Writer(registry, TEXT, as_text=as_text)
    make = writer.make("shop.Order")
    kind, values, reasons = decoded(registry, [writer.write(order(make)), writer.write(make()), None])
    assert reasons == [None, None, None]
    line = {"sku": "a", "count": 2, "parts": [{"spare": True}]}
    first = values[0]
    at = first.pop("at")
    assert at.timestamp() == -0.000001
    assert first.pop("free").replace(" ", "") == '{"k":[1.0,null]}'
    assert first == {
        "id": -5, "big": Decimal(2**64 - 1), "medium": 2**32 - 1, "small": -3, "price": 1.5, "rate": 0.5, "flag": True,
        "text": "grün", "raw": b"\x00\xff", "state": "CLOSED", "maybe": None, "lines": [line], "tags": [("a", 1)],
        "by_number": [(7, {"sku": "seven", "count": 0, "parts": []})], "note": "note", "name": "x", "line": None,
        "numbers": [1.0, 2.0], "sum": Decimal(2**63), "nothing": True,
    }  # fmt: skip
    assert values[1]["id"] == 0
    assert values[1]["state"] == "OPEN"
    assert [values[1][name] for name in ("maybe", "at", "note", "name", "line", "free", "nothing")] == [None] * 7
    assert values[1]["lines"] == []
    assert values[2] is None
    assert kind.field("big").type == pa.decimal128(20, 0)
    assert kind.field("by_number").type.key_type == pa.int32()


def test_message_indexes(registry: RegistryServer) -> None:
    """The message is the one that the indexes name in the writer's schema.

    Another one than the column's is reported.
    """
    writer = Writer(registry, TEXT)
    customer = writer.write(writer.make("shop.Customer")(name="c"))
    line = writer.write(writer.make("shop.Order.Line")(sku="s"))
    assert customer[5:7] == b"\x02\x04"
    assert line[5:8] == b"\x04\x00\x00"
    _, values, reasons = decoded(registry, [customer, line], value_message="shop.Customer")
    assert values == [{"name": "c"}, None]
    assert reasons[1] == "it is a shop.Order.Line, and the column is shop.Customer"
    _, values, _ = decoded(registry, [customer, line], value_message="shop.Order.Line")
    assert values[1] == {"sku": "s", "count": 0, "parts": []}
    with pytest.raises(ConfigError, match=r"no message shop\.Nobody; there are shop\.Order, shop\.Empty"):
        decoded(registry, [], value_message="shop.Nobody")
    head = customer[:5]
    for indexes in (b"\x02\x40", b"\x02\x01", b"\x01", b"\xff" * 9, b"\x80", b"\x80\x80\x04" + b"\x00" * 300, b""):
        _, values, reasons = decoded(registry, [head + indexes], value_message="shop.Customer")
        assert values == [None]
        assert reasons[0] is not None
        assert "message" in reasons[0]


OLD = 'syntax = "proto3"; package shop; message Order { int64 id = 1; string name = 2; string gone = 3; int32 n = 4; }'
NEW = """
syntax = "proto3"; package shop;
message Before {}
message Order { int64 id = 1; string called = 2; optional string more = 5; int64 n = 4; }
"""


@pytest.mark.long
def test_evolution(registry: RegistryServer) -> None:
    """Numbers resolve: a field that was renamed, removed, added or widened is read by the newest schema."""
    old = Writer(registry, OLD)
    value = old.write(old.make("shop.Order")(id=1, name="x", gone="g", n=5))
    new = Writer(registry, NEW)
    newer = new.write(new.make("shop.Order")(id=2, called="y", more="m", n=2**40))
    _, values, reasons = decoded(registry, [value, newer], value_message="shop.Order")
    assert reasons == [None, None]
    assert values == [
        {"id": 1, "called": "x", "more": None, "n": 5}, {"id": 2, "called": "y", "more": "m", "n": 2**40}
    ]  # fmt: skip
    # As protobuf itself reads the older record with the newer message.
    (message,) = classes(NEW, "shop.Order")
    assert message.FromString(value[6:]).called == "x"


@pytest.mark.long
def test_imports(registry: RegistryServer, tmp_path: Path) -> None:
    """By reference from a registry, by path from a directory; a name that leads out of it is refused."""
    line = 'syntax = "proto3"; package shop; message Line { string sku = 1; }'
    text = 'syntax = "proto3"; import "parts/line.proto"; message Order { repeated shop.Line lines = 1; }'
    registry.register("line", line, "PROTOBUF")
    of = [{"name": "parts/line.proto", "subject": "line", "version": 1}]
    number = registry.register("orders-value", text, "PROTOBUF", of)
    data = b"\x0a\x03\x0a\x01a"
    expected = {"lines": [{"sku": "a"}]}
    _, values, reasons = decoded(registry, [b"\x00" + number.to_bytes(4, "big") + b"\x00" + data])
    assert (values, reasons) == ([expected], [None])
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "line.proto").write_text(line)
    (tmp_path / "orders-value.proto").write_text(text)
    _, values, _ = decoded(str(tmp_path), [data], framing="none")
    assert values == [expected]
    for name in ("../line.proto", "/tmp/line.proto", "a//b.proto", "./line.proto"):  # noqa: S108 - nothing is there
        registry.register("orders-value", text + f"// {name}", "PROTOBUF", [{**of[0], "name": name}])
        with pytest.raises(ConfigError, match="which is not a file name"):
            decoded(registry, [])
    assert not Path("/tmp/line.proto").exists()  # noqa: S108


ENUMS = """syntax = "proto2";
message Order {
  enum State { OPEN = 0; CLOSED = 1; }
  optional State state = 1 [default = CLOSED];
  repeated State many = 2;
  map<string, State> named = 3;
  repeated State packed = 4 [packed = true];
  oneof either { State one = 5; string other = 6; }
  optional Inner inner = 7;
  message Inner { optional State state = 1; }
}
"""


def test_enums_without_a_name(tmp_path: Path) -> None:
    """In proto2 a number without a name gave a null field, a shorter list, a missing entry; now as in proto3."""
    (tmp_path / "orders-value.proto").write_text(ENUMS)
    rows = [b"\x08\x05", b"\x10\x00\x10\x05\x10\x01", b"\x1a\x05\x0a\x01k\x10\x05", b"\x22\x02\x01\x05",
            b"\x28\x05", b"\x3a\x02\x08\x05", b"\x08" + b"\xff" * 9 + b"\x01", b"\x08\x01"]  # fmt: skip
    _, values, reasons = decoded(str(tmp_path), rows, framing="none")
    assert reasons == [None] * len(rows)
    assert values[0]["state"] == "5"
    assert values[1]["many"] == ["OPEN", "5", "CLOSED"]
    assert values[2]["named"] == [("k", "5")]
    assert values[3]["packed"] == ["CLOSED", "5"]
    assert (values[4]["one"], values[4]["other"]) == ("5", None)
    assert values[5]["inner"] == {"state": "5"}
    assert values[6]["state"] == "-1"
    assert values[7]["state"] == "CLOSED"
    assert values[3]["state"] is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('syntax = "proto3"; message Order { Order next = 1; }', "Order contains itself"),
        ('syntax = "proto3"; message Order { map<string, Order> next = 1; }', "Order contains itself"),
        ('syntax = "proto3"; message Order { int32 a = 1; int32 A = 2; }', "treats as equal"),
        ('syntax = "proto3"; message Order {}', "has no fields"),
        ('syntax = "proto3"; enum Only { A = 0; }', "has no message"),
        ("message Order { nonsense", "cannot be compiled"),
        ('syntax = "proto3"; import "gone.proto"; message Order { int32 a = 1; }', "gone.proto"),
    ],
)
def test_schemas_that_cannot_be_columns(tmp_path: Path, text: str, why: str) -> None:
    """A schema that cannot be a column, or that the compiler rejects, is refused before anything is read."""
    (tmp_path / "orders-value.proto").write_text(text)
    with pytest.raises(ConfigError, match=why):
        decoded(str(tmp_path), [])


def test_required_fields(tmp_path: Path) -> None:
    """A proto2 message without its required fields is not a value."""
    (tmp_path / "orders-value.proto").write_text(
        'syntax = "proto2"; message Order { required int32 id = 1; optional string s = 2 [default = "d"]; }'
    )
    _, values, reasons = decoded(str(tmp_path), [b"\x08\x07", b""], framing="none")
    assert values == [{"id": 7, "s": None}, None]
    assert reasons == [None, "required fields are missing: id"]


@pytest.mark.parametrize(
    "data",
    [b"\x0a\xff\xff\xff\xff\x0f", b"\x62" * 3, b"\xff" * 30, b"\x0a\x05ab", b"\x42\x02\xff\xfe", b"\x08"],
)
def test_impossible_lengths(tmp_path: Path, data: bytes) -> None:
    """Huge lengths, truncated fields, and bytes that are not text are reasons."""
    (tmp_path / "orders-value.proto").write_text(TEXT)
    _, values, reasons = decoded(str(tmp_path), [data], framing="none")
    assert values == [None]
    assert reasons[0]


@pytest.fixture(scope="module")
def reader() -> ProtobufReader:
    return ProtobufReader(Schema(PROTOBUF, TEXT), "it")


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=100))
def test_any_bytes_give_a_value_or_a_reason(reader: ProtobufReader, data: bytes) -> None:
    """No bytes make the decoder do anything else, and its result fits the column."""
    try:
        value = reader.decoder(None, "it")(data, ())
    except UndecodableError:
        return
    pa.array([value], reader.kind).validate(full=True)


def test_deep_nesting(tmp_path: Path) -> None:
    """Bytes nested deeper than protobuf allows are a reason, wherever they are."""
    (tmp_path / "orders-value.proto").write_text(TEXT)
    value = b""
    for _ in range(300):
        value = field(6, field(1, value))
    _, values, reasons = decoded(str(tmp_path), [field(17, field(1, field(1, b"k") + field(2, value)))], framing="none")
    assert values == [None]
    assert reasons[0]


def field(number: int, data: bytes) -> bytes:
    """A field with a length."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
