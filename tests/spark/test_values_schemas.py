"""Sources of schemas: a registry that fails, hangs and returns wrong data; a directory; and the reports about both."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cleanerd.errors import CleanerdError, ConfigError, CorruptionError, MachineError
from cleanerd.spark import retries
from cleanerd.spark.values import registry as schema_registry
from cleanerd.spark.values import schemas
from cleanerd.spark.values.decode_options import Decode
from cleanerd.spark.values.decoding import BatchDecoder, resolved
from tests.spark.decoding import TOPIC, avro, decoded, record

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.registry_server import RegistryServer

ID = record(("id", "long"))
VALUE = {"id": 7}


def test_each_schema_is_requested_once(registry: RegistryServer) -> None:
    """A task requests an id once, for any number of records, and the next task of the process does not."""
    (value,) = avro(registry, ID, VALUE)
    registry.requests.clear()
    for _ in range(3):
        assert decoded(registry, [value] * 1000)[1] == [VALUE] * 1000
    assert registry.requested("/schemas/ids/1") == 1
    assert registry.requested("/subjects/orders-value/versions/latest") == 3


@pytest.mark.long
@pytest.mark.parametrize("fault", ["slow", "broken", "drop", "cut", "noise"])
def test_a_passing_error_of_the_registry_is_retried(registry: RegistryServer, fault: str) -> None:
    """Throttling, errors and broken answers, two of three: everything is decoded, and nothing has a reason."""
    values = avro(registry, ID, VALUE)
    registry.requests.clear()
    registry.fault = lambda number, _path: fault if number % 3 else None
    assert decoded(registry, values)[1:] == ([VALUE], [None])


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "why"),
    [("slow", "answers 429"), ("broken", "answers 500"), ("drop", "no answer"), ("cut", "no answer"),
     ("noise", "not a JSON object"), ("hang", "no answer within"), ("drip", "no answer within"), ("huge", "more than")],
)  # fmt: skip
def test_a_registry_that_stays_down_ends_the_task(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch, fault: str, why: str
) -> None:
    """It is an error after a timeout, and never a reason for the side table: the record may be right."""
    values = avro(registry, ID, VALUE)
    monkeypatch.setenv(schema_registry.ANSWER_SECONDS, "1" if fault in ("hang", "drip") else "30")
    monkeypatch.setenv(retries.TRIES, "2")
    registry.fault = lambda _number, path: fault if path.startswith("/schemas/ids") else None
    with pytest.raises(MachineError, match=why) as caught:
        decoded(registry, values)
    assert "tried 2 times" in str(caught.value)


@pytest.mark.parametrize(("fault", "why"), [("denied", "credentials"), ("elsewhere", "as a schema registry does")])
def test_a_lasting_error_of_the_registry_is_reported_at_once(registry: RegistryServer, fault: str, why: str) -> None:
    """Wrong credentials, and a server that is not a registry, are not retried; nothing counts as unknown."""
    values = avro(registry, ID, VALUE)
    registry.requests.clear()
    registry.fault = lambda _number, path: fault if path.startswith("/schemas/ids") else None
    with pytest.raises(ConfigError, match=why):
        decoded(registry, values)
    assert registry.requested("/schemas/ids/1") == 1


def test_credentials(registry: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come from the environment alone; a URL with credentials is refused, and the message does not show them."""
    monkeypatch.setenv(schema_registry.USER, "me")
    monkeypatch.setenv(schema_registry.PASSWORD, "a:secret")
    registry.register("orders-value", json.dumps(ID))
    decoded(registry, [])
    assert registry.seen[-1] == "Basic " + base64.b64encode(b"me:a:secret").decode()
    monkeypatch.setenv(schema_registry.USER, "")
    registry.register("orders-value", json.dumps(ID))
    decoded(registry.url, [])
    assert registry.seen[-1] is None, "Docker Compose sets variables without a value"
    with pytest.raises(ConfigError, match="contains credentials") as caught:
        decoded(registry.url.replace("//", "//me:hidden@"), [])
    assert "hidden" not in str(caught.value)


@pytest.mark.long
def test_unknown_ids(registry: RegistryServer) -> None:
    """An unknown id, and a deleted one, are reasons; each is requested once, none hides a right one."""
    kept, gone = avro(registry, ID, VALUE)[0], avro(registry, record(("x", "long")), {"x": 1})[0]
    registry.forget(2)
    registry.subjects["orders-value"].remove(2)
    _, values, reasons = decoded(registry, [kept, gone, kept])
    assert values == [VALUE, None, VALUE]
    assert reasons[1] == f"schema 2 is not known to {registry.url}"
    registry.requests.clear()
    made_up = [b"\x00" + number.to_bytes(4, "big") + b"\x02" for number in range(1000, 1200)]
    _, values, reasons = decoded(registry, [*made_up, *made_up, kept])
    assert values == [None] * 400 + [VALUE]
    assert all(reasons[:-1])
    assert len(registry.requests) == 201


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x01\x0e", b"{}{}{}"])
def test_a_value_without_framing(registry: RegistryServer, data: bytes) -> None:
    """A value that does not begin with the magic byte and an id is a reason."""
    registry.register("orders-value", json.dumps(ID))
    _, values, reasons = decoded(registry, [data])
    assert values == [None]
    assert "framing" in str(reasons[0])


def test_names_and_versions(registry: RegistryServer) -> None:
    """The newest, or the named version; a subject's name may contain any character."""
    old, new = record(("a", "long")), record(("a", "long"), {"name": "b", "type": "int", "default": 5})
    (value,) = avro(registry, old, {"a": 1})
    registry.register("orders-value", json.dumps(new))
    registry.register("of/all kinds", json.dumps(new))
    assert decoded(registry, [value])[1] == [{"a": 1, "b": 5}]
    assert decoded(registry, [value], value_schema="orders-value:1")[1] == [{"a": 1}]
    assert decoded(registry, [value], value_schema="of/all kinds")[1] == [{"a": 1, "b": 5}]
    for name in ("nobody", "orders-value:9"):
        with pytest.raises(ConfigError, match=f"no schema {name}"):
            decoded(registry, [], value_schema=name)


@pytest.mark.long
def test_references_in_a_cycle_and_out_of_the_registry(registry: RegistryServer) -> None:
    """Neither takes forever."""
    cycle = [{"name": "A", "subject": "a", "version": 1}]
    registry.register("a", '{"type": "record", "name": "A", "fields": []}', references=cycle)
    registry.register("orders-value", '"A"', references=cycle)
    with pytest.raises(ConfigError, match="a cycle of them"):
        decoded(registry, [])
    registry.register("orders-value", '"B"', references=[{"name": "B", "subject": "b", "version": 1}])
    with pytest.raises(ConfigError, match="b version 1 does not exist"):
        decoded(registry, [])
    registry.register("orders-value", '"B"', references=[{"name": "B"}])
    with pytest.raises(ConfigError, match="not exactly a name, a subject and a version"):
        decoded(registry, [])


def test_in_a_notebook(registry: RegistryServer) -> None:
    """In a process with a running event loop."""
    values = avro(registry, ID, VALUE)

    async def cell() -> Any:
        return decoded(registry, values)[1]

    assert asyncio.run(cell()) == [VALUE]


def test_a_directory(registry: RegistryServer, tmp_path: Path) -> None:
    """Files by id and by subject, with versions; tasks need no directory."""
    values = [*avro(registry, record(("a", "int")), {"a": 1}), *avro(registry, record(("a", "long")), {"a": 2})]
    for number, schema in registry.schemas.items():
        (tmp_path / f"{number}.avsc").write_text(schema["schema"])
    for version, kind in ((2, "int"), (10, "long")):
        (tmp_path / f"orders-value.{version}.avsc").write_text(json.dumps(record(("a", kind))))
    (tmp_path / "notes.txt").write_bytes(b"\xff")
    kind, found, reasons = decoded(str(tmp_path), [*values, b"\x00\x00\x00\x00\x63\x02"])
    assert kind.field("a").type == pa.int64()
    assert found == [{"a": 1}, {"a": 2}, None]
    assert reasons[2] == f"schema 99 is not known to {tmp_path}"
    assert decoded(str(tmp_path), values, value_schema="orders-value:2")[0].field("a").type == pa.int32()
    (tmp_path / "orders-value.avsc").write_text('"string"')
    assert decoded(f"file://{tmp_path}", [])[0] == pa.string()
    sent = pickle.dumps(resolved(Decode(str(tmp_path)), [TOPIC]))
    for path in tmp_path.iterdir():
        path.unlink()
    column = pa.array([values[0]], pa.binary())
    copied = pickle.loads(sent)  # noqa: S301 - as a task gets it
    (out,) = BatchDecoder(copied).batches([pa.RecordBatch.from_arrays([column], ["value"])])
    assert out.column("value_error").to_pylist() != [None]  # "string" reads no records, but the id was found
    assert "not known" not in str(out.column("value_error"))


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "has no .avsc"),
        ({"other.avsc": '"int"'}, "no schema orders-value"),
        ({"orders-value.avsc": '"int"', "orders-value.json": "{}"}, "define the same schema"),
        ({"orders-value.avsc": "x" * (schemas.MOST_BYTES + 1)}, "bytes of schemas"),
    ],
)
def test_incomplete_and_ambiguous_directories(tmp_path: Path, files: dict[str, str], why: str) -> None:
    """A missing file, or two for the same id."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=why):
        decoded(str(tmp_path), [])


def test_invalid_directories(tmp_path: Path) -> None:
    """No such directory; a store; a file that is not text."""
    for place, why in ((str(tmp_path / "gone"), "no such directory"), ("s3://bucket/schemas", "local directory")):
        with pytest.raises(ConfigError, match=why):
            decoded(place, [])
    (tmp_path / "orders-value.avsc").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        decoded(str(tmp_path), [])


def test_several_topics(registry: RegistryServer) -> None:
    """One column has one schema: topics with different ones are refused, unless the schema is named."""
    registry.register("orders-value", '"long"')
    registry.register("users-value", '"string"')
    with pytest.raises(ConfigError, match="orders-value and users-value are different schemas"):
        resolved(Decode(registry.url), ["users", "orders"])
    (column,) = resolved(Decode(registry.url, value_schema="users-value"), ["users", "orders"]).columns
    assert column.label == "users-value version 1"
    registry.register("users-value", '"long"')
    assert resolved(Decode(registry.url), ["users", "orders"]).columns[0].kind() == pa.int64()


def test_the_limit(registry: RegistryServer) -> None:
    """Exactly this many values may fail; a tombstone is not a failure."""
    registry.register("orders-value", '"long"')
    decoded(registry, [b"x"] * 3 + [None] * 5, limit=3)
    with pytest.raises(CorruptionError, match=r"more than 3 keys or values .* undecodedLimit"):
        decoded(registry, [b"x"] * 4, limit=3)
    with pytest.raises(CorruptionError, match="framing"):
        decoded(registry, [b"x"], limit=0)


@pytest.mark.parametrize(
    "message", [{"columns": "values"}, {"columns": ""}, {"framing": "glue"}, {"limit": -1}, {"value_message": "A"}]
)
def test_options_that_contradict_are_refused(registry: RegistryServer, message: dict[str, Any]) -> None:
    """It is refused before anything is read."""
    registry.register("orders-value", '"long"')
    with pytest.raises(ConfigError):
        decoded(registry, [], **message)


def test_without_the_extra(registry: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra, and its missing packages; JSON needs none."""
    registry.register("orders-value", '"bytes"')
    monkeypatch.setitem(schemas.NEEDED, "avro", ("no_such_package", "no_such_package.within"))
    with pytest.raises(ConfigError, match=r"no_such_package, no_such_package\.within.*\[spark,values\]"):
        decoded(registry, [])
    registry.register("orders-value", "{}", "JSON")
    assert decoded(registry, [])[0] == pa.string()


def test_a_kind_of_schema_without_a_decoder(registry: RegistryServer) -> None:
    """A registry may hold other formats."""
    registry.register("orders-value", "x", "THRIFT")
    with pytest.raises(CleanerdError, match="thrift"):
        decoded(registry, [])
