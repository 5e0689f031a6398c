"""The data source in a session: found by itself, its schema, DataFrames and SQL over it, errors with their place."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from cleanerd.spark import register
from cleanerd.spark.logs import find_logs
from cleanerd.spark.snapshot import write_snapshot
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from tests.spark.reading import EVERYTHING, read_rows
from tests.spark.rich_log import RichLog
from tests.support.log_dirs import Partition, make_log_dir, write_segment
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = RichLog(7, codec=4, transactions=True, legacy=True).write(tmp_path_factory.mktemp("x") / "data", 6, 30)
    for snapshot in made.glob("*/*.snapshot"):
        snapshot.unlink()  # it does not know of an open transaction
    return made


def test_three_lines(spark: SparkSession, path: Path) -> None:
    """Without registration the top-level module is found; names and types are those of Spark's own kafka source."""
    df = spark.read.format("kafka-segments").load(str(path))
    assert [(field.name, field.dataType.simpleString()) for field in df.schema] == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint"),
        ("timestamp", "timestamp"), ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip
    expected = read_rows(path)
    assert len(expected) > 200
    found = df.orderBy("offset").collect()
    assert [row.offset for row in found] == [row["offset"] for row in expected]
    for row, known in zip(found, expected, strict=True):
        assert (None if row.key is None else bytes(row.key)) == known["key"]
        assert (None if row.value is None else bytes(row.value)) == known["value"]
        headers = None if row.headers is None else tuple((h.key, h.value and bytes(h.value)) for h in row.headers)
        assert headers == known["headers"]


@pytest.mark.long
def test_the_same_frame_twice(spark: SparkSession, path: Path) -> None:
    """A filter of one query does not apply to the next: pushed filters get this wrong in 4.3.0."""
    df = spark.read.format("kafka-segments").load(str(path))
    every = df.count()
    some = df.filter("offset >= 100").count()
    assert 0 < some < every == df.count() == len(df.collect())
    assert df.filter("offset >= 100").filter(F.col("key").isNotNull()).count() <= some
    assert df.count() == every


@pytest.mark.long
def test_register_and_sql(spark: SparkSession, path: Path) -> None:
    """Registered by hand, as if the module is not on the path; used as a view."""
    register(spark)
    spark.read.format("kafka-segments").option("topics", "orders").load(str(path)).createOrReplaceTempView("orders")
    (row,) = spark.sql("SELECT count(*) AS n, count(DISTINCT key) AS keys FROM orders").collect()
    rows = read_rows(path)
    assert (row.n, row.keys) == (len(rows), len({each["key"] for each in rows} - {None}))


def test_a_table_is_planned_for_each_query(spark: SparkSession, tmp_path: Path) -> None:
    """SP-3, SP-4: a table, and a view by SQL over it, see new records; a DataFrame does not, and reports what to do."""
    record = [Record(b"k", b"v")]
    segments = {at: encode_batch(record, base_offset=at) for at in range(3)}
    path = make_log_dir(tmp_path / "a b" / "logs", {"t-0": Partition(segments), "u-0": Partition({0: b""})})
    made = "CREATE TABLE source_table USING `kafka-segments` OPTIONS (topics 't', bound 'end', columns 'offset')"
    spark.sql(f"{made} LOCATION '{path}' TBLPROPERTIES ('owned.by'='us') COMMENT 'our orders'")
    spark.sql("CREATE TEMPORARY VIEW source_view AS SELECT * FROM source_table WHERE offset >= 1")
    try:
        frame = spark.read.format("kafka-segments").options(topics="t", bound="end").load(str(path))

        def counts() -> list[int]:
            return [spark.table(name).count() for name in ("source_table", "source_view")]

        assert [*counts(), frame.count()] == [3, 2, 3]
        write_segment(path / "t-0", 3, encode_batch(record, base_offset=3))
        assert [*counts(), frame.count()] == [4, 3, 3]
        for file in (path / "t-0").glob(f"{0:020d}.*"):
            file.unlink()
        assert counts() == [3, 3]
        gone = rf"{path}/t-0/0{{20}}\.log: the log changed after this reading was planned: .*call load\(\) again"
        with pytest.raises(PySparkException, match=gone):
            frame.count()
        assert frame.sparkSession.read.format("kafka-segments").options(bound="end").load(str(path)).count() == 3
        with_more = 'SELECT * FROM source_table WITH (endingOffsets = \'{"t": {"0": 2}}\')'
        assert [row.offset for row in spark.sql(with_more).collect()] == [1]
    finally:
        spark.sql("DROP TABLE source_table")
        spark.sql("DROP VIEW source_view")
    with pytest.raises(PySparkException, match="no such option: topic "):
        spark.sql(f"CREATE TABLE wrong USING `kafka-segments` OPTIONS (topic 't', path '{path}')")


@pytest.mark.long
def test_a_user_defined_schema(spark: SparkSession, path: Path) -> None:
    """Columns by schema: only these are read, with exactly these types."""
    df = spark.read.format("kafka-segments").schema("offset long, visible boolean").load(str(path))
    assert df.columns == ["offset", "visible"]
    assert df.agg(F.count_if("visible")).first()[0] == df.count() == len(read_rows(path))
    with pytest.raises(PySparkException, match="column offset is int"):
        spark.read.format("kafka-segments").schema("offset int").load(str(path)).count()


@pytest.mark.long
def test_every_column(spark: SparkSession, path: Path) -> None:
    """All columns of all records cross into Java as they are."""
    df = spark.read.format("kafka-segments").options(view="raw", columns=EVERYTHING, splitBytes="2k").load(str(path))
    found = [row.asDict(recursive=True) for row in df.collect()]
    expected = read_rows(path, view="raw", columns=EVERYTHING)
    assert df.rdd.getNumPartitions() > 3
    plain = set(expected[0]) - {"timestamp", "headers", "key", "value"}
    assert [{name: row[name] for name in plain} for row in found] == [
        {name: row[name] for name in plain} for row in expected
    ]


@pytest.mark.parametrize("strategy", ["offset", "timestamp", "header:version"])
def test_latest_is_the_snapshot(spark: SparkSession, tmp_path: Path, path: Path, strategy: str) -> None:
    """R280-14: the map's records are those of the SQL query."""
    name, _, header = strategy.partition(":")
    rules = KeyRules(strategy=name, header=header.encode() or None)
    write_snapshot(spark, find_logs([path], (), lambda _: rules), (tmp_path / "out").as_uri())
    snapshot = spark.read.parquet(str(tmp_path / "out")).select("offset", "key", "value", "timestamp").collect()
    latest = (
        spark.read.format("kafka-segments").options(view="latest", strategies=f'{{"orders": "{strategy}"}}')
        .load(str(path)).select("offset", "key", "value", "timestamp").collect()
    )  # fmt: skip
    assert sorted(latest) == sorted(snapshot)
    assert len(latest) > 10


def test_latest_of_many_keys(spark: SparkSession, tmp_path: Path) -> None:
    """Keys that fit no map are cut into shards, one pass per shard; the retained records are the same."""
    pick = random.Random(2)
    latest: dict[bytes, int] = {}
    data = []
    for base in range(0, 30_000, 500):
        records = [Record(b"%d" % pick.randrange(20_000), b"x") for _ in range(500)]
        latest.update({record.key: base + at for at, record in enumerate(records) if record.key is not None})
        data.append(encode_batch(records, base_offset=base))
    half = len(data) // 2
    segments = {0: b"".join(data[:half]), 500 * half: b"".join(data[half:])}
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition(segments)})
    for map_bytes in ("64k", "128m"):
        rows = read_rows(path, view="latest", columns="key,offset", mapBytes=map_bytes)
        assert {row["key"]: row["offset"] for row in rows} == latest
    df = spark.read.format("kafka-segments").options(view="latest", mapBytes="64k").load(str(path))
    assert df.count() == len(latest)


def test_tombstones(tmp_path: Path) -> None:
    """Deleted keys are left out, unless their tombstones are requested."""
    batch = encode_batch([Record(b"a", b"1"), Record(b"b", b"1"), Record(b"a", None), Record(None, b"x")])
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: batch})})
    assert [row["offset"] for row in read_rows(path, view="latest")] == [1]
    assert [row["offset"] for row in read_rows(path, view="latest", tombstones="true")] == [1, 2]
    assert KAFKAS_RULES.strategy == "offset"


@pytest.mark.long
def test_errors_have_the_position(spark: SparkSession, tmp_path: Path) -> None:
    """A task's or the driver worker's error arrives with file and position, option and value."""
    good = encode_batch([Record(b"k", b"v")])
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: good + good[:-1] + b"\xff", 9: b""}, indexes=False)})
    file = path / "t-0" / f"{0:020d}.log"
    with pytest.raises(PySparkException, match=rf"{file}.*{len(good)}"):
        spark.read.format("kafka-segments").option("view", "all").load(str(path)).collect()
    with pytest.raises(PySparkException, match="no such option: topic"):
        spark.read.format("kafka-segments").option("topic", "t").load(str(path))
    with pytest.raises(PySparkException, match="no such directory"):
        spark.read.format("kafka-segments").load(str(tmp_path / "nowhere")).count()
    skipped = spark.read.format("kafka-segments").options(view="all", onCorruption="skip", columns="offset,damaged")
    rows = skipped.load(str(path)).collect()
    assert [(row.offset, row.damaged is None) for row in rows] == [(0, True), (None, False)]
