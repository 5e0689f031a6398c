"""A session with a user's settings: the same records are read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from cleanerd.spark import snapshot
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.logs import find_logs
from cleanerd.verify.rules import KAFKAS_RULES
from tests.spark.reading import read_rows
from tests.spark.rich_log import RichLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

OTHERS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "Pacific/Kiritimati",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}

pytestmark = pytest.mark.long


@pytest.fixture
def strange(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of all tests, for one of them."""
    before = {name: spark.conf.get(name, None) for name in OTHERS}
    for name, value in OTHERS.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


def plain(row: Mapping[str, Any]) -> tuple[Any, ...]:
    def of(value: Any) -> Any:
        if isinstance(value, list):
            return tuple((each["key"], of(each["value"])) for each in value)
        return bytes(value) if isinstance(value, bytearray) else value

    return tuple(of(value) for value in row.values())


@pytest.mark.parametrize("view", ["committed", "latest"])
def test_the_source(strange: SparkSession, tmp_path: Path, view: str) -> None:
    """Rows, and times whatever the session's zone is."""
    path = RichLog(3, transactions=True).write(tmp_path / "logs", 3, 6)
    columns = "offset,key,value,headers,topic,partition,timestampType,version,visible"
    reader = strange.read.format("kafka-segments").options(view=view, splitBytes="1k")
    found = sorted(plain(row.asDict()) for row in reader.option("columns", columns).load(str(path)).collect())
    assert found == sorted(plain(row) for row in read_rows(path, view=view, columns=columns))
    frame = reader.option("columns", "offset,timestamp").load(str(path))
    times = {row.offset: row.t for row in frame.selectExpr("offset", "unix_millis(timestamp) AS t").collect()}
    assert times == {row["offset"]: row["timestamp"] for row in read_rows(path, view=view, columns="offset,timestamp")}


def test_jobs(strange: SparkSession, tmp_path: Path) -> None:
    """Profile, audit, and a snapshot by Spark's own writer."""
    path = RichLog(4, transactions=True, codec=1).write(tmp_path / "logs", 3, 6)
    assert ReadableLogs(strange, path).profile() == ReadableLogs(None, path).profile()
    assert ReadableLogs(strange, path).audit(before=path).found == 0
    logs = find_logs([path], (), lambda _topic: KAFKAS_RULES)
    ends = [snapshot.high_watermark_of(log) for log in logs]
    walks = snapshot.walked_logs(strange, logs, ends, whole_log=False)
    state = snapshot.latest_state(strange, logs, walks)
    state.write.partitionBy("topic").parquet(str(tmp_path / "by-spark"))
    (taken,) = snapshot.write_snapshot(None, logs, str(tmp_path / "alone"))
    assert snapshot.counted_rows(strange, str(tmp_path / "by-spark"), None) == {taken.name: (taken.keys, 0)}
    rows = [pq.read_table(tmp_path / each).to_pylist() for each in ("by-spark", "alone")]
    for one, other in zip(*(sorted(each, key=lambda row: row["offset"]) for each in rows), strict=True):
        assert {**one, "timestamp": None} == {**other, "timestamp": None}
        assert one["timestamp"].timestamp() == other["timestamp"].timestamp()
