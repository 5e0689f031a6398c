"""Decoded keys and values in the data source, in snapshots as Parquet, in Delta and Iceberg, and by the command."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable

from cleanerd.cli.main import run
from cleanerd.errors import CleanerdError, ConfigError, CorruptionError, RefusedError
from cleanerd.spark import Decode, Delta, Logs, api
from cleanerd.spark.latest_by_tasks import LARGE_BYTES
from cleanerd.spark.source.data_source import KafkaSegments
from tests.spark.avro_values import EVERYTHING, ORDER
from tests.spark.decoding import KEY, avro, record
from tests.spark.growing_logs import Growing
from tests.spark.tables import NAME, Tables
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.registry_server import RegistryServer

USER = record(("id", "long"), ("name", "string"))
BROKEN = b"\x00\x00\x00\x00\x01\x02"


def users(registry: RegistryServer, **names: str | None) -> list[Record]:
    """Records by key; None: a tombstone, ``!``: an invalid value."""
    found = []
    for at, (key, name) in enumerate(names.items()):
        value = None if name is None else BROKEN if name == "!" else avro(registry, USER, {"id": at, "name": name})[0]
        found.append(Record(key.encode(), value))
    return found


@pytest.fixture
def log(registry: RegistryServer, tmp_path: Path) -> Growing:
    """Of five keys two are right, one is deleted, one broken, one was broken and is right now."""
    found = Growing(tmp_path, "orders-0")
    found.add("orders-0", *users(registry, a="old", e="!"), *users(registry, a="A", b="B", c="!", d=None, e="E"))
    return found


def path_of(log: Growing) -> Path:
    (path,) = {each.log_dir for each in log.write()}
    return path


def names_in(rows: list[dict[str, Any]]) -> dict[str, str | None]:
    """Key -> decoded name; None: not decoded, and its reason is there."""
    assert all((row["value_decoded"] is None) == (row["value_error"] is not None) for row in rows)
    return {row["key"].decode(): row["value_decoded"] and row["value_decoded"]["name"] for row in rows}


SIDE = {
    "topic": "orders", "partition": 0, "offset": 4, "column": "value", "bytes": BROKEN,
    "reason": "it ends in the middle of a value",
}  # fmt: skip


def test_source_without_a_session(registry: RegistryServer, log: Growing) -> None:
    """Spark's calls, with a pickle between driver and tasks: the raw value is optional, tombstones have no reason."""
    given = {"path": str(path_of(log)), "decode": "value", "schemas": registry.url}
    source = KafkaSegments(CaseInsensitiveDict({**given, "columns": "offset,value_decoded,value_error"}))
    schema = source.schema()
    assert schema.simpleString() == (
        "struct<offset:bigint,value_decoded:struct<id:bigint,name:string>,value_error:string>"
    )
    registry.register("orders-value", json.dumps(record(("id", "long"))))  # comes too late for this query
    reader = source.reader(schema)
    rows = []
    for split in reader.partitions():
        task, piece = pickle.loads(pickle.dumps((reader, split)))  # noqa: S301 - our own
        rows += [row for batch in task.read(piece) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(7))
    assert [row["value_decoded"] and row["value_decoded"]["name"] for row in rows] == [
        "old", None, "A", "B", None, None, "E"
    ]  # fmt: skip
    assert [row["value_error"] is None for row in rows] == [True, False, True, True, False, True, True]


def test_a_stream(registry: RegistryServer, log: Growing) -> None:
    """A stream decodes the records that it reads, and a running one keeps its columns when a newer schema comes."""
    given = {"path": str(path_of(log)), "decode": "value", "schemas": registry.url, "columns": "offset,value_decoded"}
    source = KafkaSegments(CaseInsensitiveDict(given))
    reader = source.streamReader(source.schema())
    registry.register("orders-value", json.dumps(record(("id", "long"))))
    start = reader.initialOffset()
    splits = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    rows = [row for split in splits for found in reader.read(split) for row in found.to_pylist()]
    assert [(row["offset"], row["value_decoded"] and row["value_decoded"]["name"]) for row in rows] == [
        (0, "old"), (1, None), (2, "A"), (3, "B")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"schemas": "http://127.0.0.1:1"}, "schemas without decode"),
        ({"valueSchema": "x"}, "valueSchema without decode"),
        ({"decode": "value"}, "decode without schemas"),
        ({"decode": "headers", "schemas": "x"}, "'headers' is none of key, value"),
        ({"decode": "value", "schemas": "x", "undecodedLimit": "many"}, "is not a number"),
        ({"decode": "value", "schemas": "x", "framing": "glue"}, "is none of confluent, none"),
        ({"columns": "value_decoded"}, "it needs the option decode=value"),
        ({"decode": "key", "schemas": "x", "columns": "value_error"}, "it needs the option decode=value"),
        ({"decode": "value", "schemas": "/nowhere"}, "no such directory"),
    ],
)
def test_invalid_options(tmp_path: Path, options: dict[str, str], why: str) -> None:
    """They are refused when the schema is requested."""
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: b""})})
    with pytest.raises(CleanerdError, match=why):
        KafkaSegments(CaseInsensitiveDict({"path": str(path), **options})).schema()


@pytest.mark.long
def test_source_in_a_session(spark: SparkSession, registry: RegistryServer, log: Growing) -> None:
    """Fields are columns to filter by; ``Logs`` reads the same; too many failures end the query with a message."""
    path = path_of(log)
    reader = spark.read.format("kafka-segments").options(decode="value", schemas=registry.url)
    df = reader.load(str(path))
    assert df.columns[-2:] == ["value_decoded", "value_error"]
    assert [row.name for row in df.where("value_decoded.id = 0").select("value_decoded.*").collect()] == ["old", "A"]
    assert df.where("value_error IS NOT NULL").count() == 2
    logs = Logs(spark, path, decode=Decode(registry.url))
    rows = [row.asDict(recursive=True) for row in logs.latest().dataframe().collect()]
    assert names_in([{**row, "key": bytes(row["key"])} for row in rows]) == {"a": "A", "b": "B", "c": None, "e": "E"}
    assert logs.read(columns="offset,value_error").columns == ["offset", "value_error"]
    with pytest.raises(PySparkException, match="more than 1 keys or values cannot be decoded"):
        reader.option("undecodedLimit", 1).load(str(path)).count()


@pytest.mark.long
def test_all_types_in_a_session(spark: SparkSession, registry: RegistryServer, tmp_path: Path) -> None:
    """For every type, Spark's value equals the written one."""
    data = encode_batch([Record(b"k", avro(registry, EVERYTHING, ORDER)[0])])
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: data})})
    df = spark.read.format("kafka-segments").options(decode="value", schemas=registry.url).load(str(path))
    (row,) = df.select("value_decoded.*").collect()
    assert (row.small, row.price, row.day, row.tags) == (-7, ORDER["price"], ORDER["day"], {"x": 1})
    assert (row.here, row.either.string, row.lines[1].sku, bytes(row.hash)) == (ORDER["here"], "text", "b", b"abcd")
    assert df.selectExpr("unix_micros(value_decoded.exactly) AS t").first()[0] % 1_000_000 == 250_001


def as_parquet(by: SparkSession | None, registry: RegistryServer, log: Growing, out: Path) -> None:
    path = path_of(log)
    (taken,) = Logs(by, path, decode=Decode(registry.url)).latest().write_parquet(out)
    assert (taken.keys, taken.undecoded) == (4, 1)
    rows = pq.read_table(out / "topic=orders").to_pylist()
    assert names_in(rows) == {"a": "A", "b": "B", "c": None, "e": "E"}
    assert pq.read_table(out / "_undecoded").to_pylist() == [SIDE]
    assert (out / "_cleanerd").is_dir()
    too_many = out.with_name("too-many")
    with pytest.raises(CorruptionError, match=r"more than 0 keys or values .* --undecoded-limit"):
        Logs(by, path, decode=Decode(registry.url, limit=0)).latest().write_parquet(too_many)
    assert not (too_many / "_cleanerd").exists()
    assert by is not None or not too_many.exists()


def test_parquet(registry: RegistryServer, log: Growing, tmp_path: Path) -> None:
    """The columns, and next to them the undecodable values, with reasons; over the limit no files are written."""
    as_parquet(None, registry, log, tmp_path / "out")


@pytest.mark.long
def test_parquet_by_tasks(spark: SparkSession, registry: RegistryServer, log: Growing, tmp_path: Path) -> None:
    """The same, and readers of the directory ignore the side files."""
    as_parquet(spark, registry, log, tmp_path / "out")
    assert spark.read.parquet(str(tmp_path / "out")).count() == 4


def side_of(tables: Tables) -> list[dict[str, Any]]:
    """The rows of the side table."""
    if tables.kind == "delta":
        found = DeltaTable(f"{tables.uri}_undecoded").to_pyarrow_table()
    else:
        found = tables.iceberg_table(f"{NAME}_undecoded").scan().to_arrow()
    return sorted(found.to_pylist(), key=lambda row: row["offset"])


def side_commits(tables: Tables) -> int:
    if tables.kind == "delta":
        return DeltaTable(f"{tables.uri}_undecoded").version() + 1
    return len(tables.iceberg_table(f"{NAME}_undecoded").snapshots())


def test_tables(tables: Tables, registry: RegistryServer, log: Growing) -> None:
    """A broken value that is overwritten or deleted leaves the side table with its row.

    A repeated run changes nothing.
    """
    decode = Decode(registry.url)
    (taken,) = Logs(None, path_of(log), decode=decode).latest().write_table(tables.target)
    assert (taken.keys, taken.undecoded) == (4, 1)
    assert names_in(tables.rows()) == {"a": "A", "b": "B", "c": None, "e": "E"}
    assert side_of(tables) == [SIDE]
    log.add("orders-0", *users(registry, b="!", c="C", f="F", g="!"))
    latest = Logs(None, path_of(log), decode=decode).latest()
    (merged,) = latest.merge_into(tables.target)
    assert (merged.written, merged.removed, merged.undecoded) == (4, 2, 2)
    assert names_in(tables.rows()) == {"a": "A", "b": None, "c": "C", "e": "E", "f": "F", "g": None}
    assert [row["offset"] for row in side_of(tables)] == [7, 10]
    before = (tables.commits(), side_commits(tables), tables.files())
    latest.merge_into(tables.target)
    assert (tables.commits(), side_commits(tables), tables.files()) == before
    log.add("orders-0", *users(registry, b=None, g=None))
    Logs(None, path_of(log), decode=decode).latest().merge_into(tables.target)
    assert side_of(tables) == []
    latest = Logs(None, path_of(log), decode=decode).latest()
    latest.write_table(tables.target, replace=True)
    assert names_in(tables.rows()) == {"a": "A", "c": "C", "e": "E", "f": "F"}


def test_killed_between_a_table_and_its_side(
    delta: Tables, registry: RegistryServer, log: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run makes the side table, although it finds nothing new in the log."""
    latest = Logs(None, path_of(log), decode=Decode(registry.url)).latest()
    with monkeypatch.context() as killing:
        killing.setattr(api, "write_undecoded", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            latest.write_table(delta.target)
    assert len(delta.rows()) == 4
    latest.merge_into(delta.target)
    assert side_of(delta) == [SIDE]
    assert delta.commits() == 1


@pytest.mark.long
def test_a_table_is_written_again_with_another_schema(tables: Tables, registry: RegistryServer, log: Growing) -> None:
    """Of the same log, as of the same offsets and time: the side table kept the failures of the earlier schema."""
    path = path_of(log)
    wrong = Logs(None, path, decode=Decode(registry.url, framing="none")).latest()
    (taken,) = wrong.write_table(tables.target)
    assert (taken.undecoded, len(side_of(tables))) == (4, 4)
    right = Logs(None, path, decode=Decode(registry.url)).latest()
    right.write_table(tables.target, replace=True)
    assert side_of(tables) == [SIDE]
    commits = side_commits(tables)
    right.merge_into(tables.target)
    assert side_commits(tables) == commits


def test_a_side_table_that_another_writer_changed(delta: Tables, registry: RegistryServer, log: Growing) -> None:
    """It is ours, and derived from the table: it is made again."""
    latest = Logs(None, path_of(log), decode=Decode(registry.url)).latest()
    latest.write_table(delta.target)
    DeltaTable(f"{delta.uri}_undecoded").delete()
    latest.merge_into(delta.target)
    assert side_of(delta) == [SIDE]


@pytest.mark.long
def test_too_many_change_nothing(tables: Tables, registry: RegistryServer, log: Growing) -> None:
    """Over the limit a table is neither created nor changed, and no file is left."""
    Logs(None, path_of(log), decode=Decode(registry.url)).latest().write_table(tables.target)
    before = (tables.commits(), tables.files(), side_of(tables))
    log.add("orders-0", *users(registry, x="!", y="!"))
    latest = Logs(None, path_of(log), decode=Decode(registry.url, limit=1)).latest()
    with pytest.raises(CorruptionError, match="undecodedLimit"):
        latest.merge_into(tables.target)
    with pytest.raises(CorruptionError, match="undecodedLimit"):
        latest.write_table(tables.target, replace=True)
    assert (tables.commits(), tables.files(), side_of(tables)) == before


def test_the_limit_counts_over_all_tasks(registry: RegistryServer, tmp_path: Path) -> None:
    """Each partition has one failure, which a single task accepts; together there are too many."""
    log = Growing(tmp_path, "orders-0", "orders-1")
    for name in ("orders-0", "orders-1"):
        log.add(name, *users(registry, a="A", b="!"))
    latest = Logs(None, path_of(log), decode=Decode(registry.url, limit=1)).latest()
    with pytest.raises(CorruptionError, match="it is 2"):
        latest.write_table(Delta(str(tmp_path / "table")))
    assert not list((tmp_path / "table").glob("*.parquet"))
    with pytest.raises(CorruptionError, match="it is 2"):
        latest.write_parquet(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_newer_schema(tables: Tables, registry: RegistryServer, log: Growing) -> None:
    """With other columns than the table's it is refused, and the message names them.

    The table's own version continues.
    """
    Logs(None, path_of(log), decode=Decode(registry.url)).latest().write_table(tables.target)
    newer = {**USER, "fields": [*USER["fields"], {"name": "age", "type": ["null", "int"], "default": None}]}
    log.add("orders-0", Record(b"n", avro(registry, newer, {"id": 9, "name": "N", "age": 3})[0]))
    path = path_of(log)
    with pytest.raises(RefusedError, match=r"other columns than a snapshot has: value_decoded.*--value-schema"):
        Logs(None, path, decode=Decode(registry.url)).latest().merge_into(tables.target)
    Logs(None, path, decode=Decode(registry.url, value_schema="orders-value:1")).latest().merge_into(tables.target)
    assert names_in(tables.rows())["n"] == "N"
    with pytest.raises(RefusedError, match="other columns than a snapshot has: value_decoded, value_error"):
        Logs(None, path).latest().merge_into(tables.target)


@pytest.mark.long
def test_all_types_in_tables(tables: Tables, registry: RegistryServer, tmp_path: Path) -> None:
    """A merge rewrites files: no value of any type is lost by it."""
    log = Growing(tmp_path, "orders-0")
    (value,) = avro(registry, EVERYTHING, ORDER)
    log.add("orders-0", Record(b"a", value), Record(b"b", value), Record(b"c", None))
    logs = Logs(None, path_of(log), decode=Decode(registry.url))
    logs.latest().write_table(tables.target)
    log.add("orders-0", Record(b"b", value))
    Logs(None, path_of(log), decode=Decode(registry.url)).latest().merge_into(tables.target)
    expected = {**ORDER, "id": str(ORDER["id"]), "either": {"long": None, "string": "text"}, "tags": [("x", 1)]}
    assert [row["value_decoded"] for row in tables.rows()] == [expected, expected]


def test_keys_and_values(registry: RegistryServer, tmp_path: Path) -> None:
    """Keys by their own subject; a key's and a value's failure are rows of their own."""
    (key,) = avro(registry, '"long"', 7, context=KEY)
    (value,) = avro(registry, USER, {"id": 1, "name": "x"})
    data = encode_batch([Record(key, value), Record(b"plain", value), Record(key[:5], b"!")])
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: data})})
    decode = Decode(registry.url, ("value", "key"))
    Logs(None, path, decode=decode).latest().write_parquet(tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "topic=orders").to_pylist()
    assert [row["key_decoded"] for row in rows] == [7, None, None]
    assert [row["value_decoded"] and row["value_decoded"]["name"] for row in rows] == ["x", "x", None]
    side = pq.read_table(tmp_path / "out" / "_undecoded").to_pylist()
    assert sorted((row["offset"], row["column"], row["bytes"]) for row in side) == [
        (1, "key", b"plain"), (2, "key", key[:5]), (2, "value", b"!")
    ]  # fmt: skip


@pytest.mark.long
def test_tasks_and_this_process_write_the_same(
    spark: SparkSession, delta: Tables, registry: RegistryServer, log: Growing
) -> None:
    """A session's tasks and this process write the same: one task per partition, and many for a large one."""
    path, decode = path_of(log), Decode(registry.url)
    Logs(None, path, decode=decode).latest().write_table(delta.target)
    for kind, large in (("task", LARGE_BYTES), ("tasks", 0)):
        target = Delta(f"{delta.uri}-{kind}")
        (taken,) = Logs(spark, path, decode=decode).latest().write_table(target, large_bytes=large)
        assert taken.undecoded == 1
        rows = DeltaTable(target.uri).to_pyarrow_table().to_pylist()
        assert sorted(rows, key=lambda row: row["offset"]) == delta.rows()
        assert DeltaTable(target.undecoded().uri).to_pyarrow_table().to_pylist() == [SIDE]


def test_the_command(
    registry: RegistryServer, log: Growing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its options are those of ``Decode``; undecodable values are counted and listed."""
    state = ("--set", f"cleanerd.state.dir={tmp_path / 'state'}")
    arguments = ["spark", "snapshot", str(path_of(log)), *state, "--decode", "value", "--schemas", registry.url]
    assert run([*arguments, "--out", str(tmp_path / "out")]) == 0
    assert f"not decoded: 1 value, with the reasons in {tmp_path / 'out'}/_undecoded" in capsys.readouterr().out
    table = ["--format", "delta", "--out", str(tmp_path / "table")]
    assert run([*arguments, *table, "--json", "--value-schema", "orders-value:1", "--framing", "confluent"]) == 0
    assert json.loads(capsys.readouterr().out)["partitions"][0]["undecoded"] == 1
    assert len(DeltaTable(str(tmp_path / "table_undecoded")).to_pyarrow_table()) == 1
    assert run([*arguments, "--out", str(tmp_path / "no"), "--undecoded-limit", "0"]) == 5
    assert "more than 0 keys or values cannot be decoded" in capsys.readouterr().err
    assert run(["spark", "snapshot", str(tmp_path), "--out", "x", "--schemas", "y"]) == 2
    assert "--schemas needs --decode" in capsys.readouterr().err
    assert run(["spark", "snapshot", str(tmp_path), "--out", "x", "--decode", "value"]) == 2
    assert "--decode needs --schemas" in capsys.readouterr().err


def test_the_newest_schema_is_of_another_record_type(registry: RegistryServer, log: Growing) -> None:
    """Without a subject for the topic, the message names the missing one."""
    with pytest.raises(ConfigError, match="no schema orders-key"):
        Logs(None, path_of(log), decode=Decode(registry.url, "key")).latest().write_parquet(log.path / "out")
