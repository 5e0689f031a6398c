"""The files of a snapshot by every writer: this process, one task per log, many tasks, Spark's own writer."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cleanerd.errors import CleanerdError, ConfigError
from cleanerd.spark import latest_by_tasks, snapshot_files
from cleanerd.spark.latest_by_tasks import LARGE_BYTES, by_file
from cleanerd.spark.logs import find_logs, work_on
from cleanerd.spark.snapshot import walked_logs, write_snapshot
from cleanerd.verify.listing import NO_END
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from tests.spark.rich_log import RichLog
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.spark.logs import Log
    from cleanerd.spark.snapshot import SnapshotResult

BY_HEADER = KeyRules("header", b"version")


@pytest.fixture(params=[KAFKAS_RULES, BY_HEADER], ids=["offset", "header"])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> list[Log]:
    """Transactions, aborted ones, tombstones, versions, old formats."""
    path = RichLog(11, transactions=True, legacy=True).write(tmp_path / "logs", 4, 40)
    return find_logs([path], (), lambda _topic: request.param)


def rows_in(place: Path) -> list[dict[str, Any]]:
    found = pq.read_table(place).to_pylist()
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def reported_in(place: Path) -> list[Any]:
    return [json.loads(line) for path in (place / "_cleanerd").glob("*.json") for line in path.open()]


@pytest.mark.long
@pytest.mark.parametrize("tombstones", [False, True])
def test_one_state(
    spark: SparkSession, logs: list[Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, tombstones: bool
) -> None:
    """R280-3, R280-4: rows, report and columns are the same, for every writer."""
    alone = tmp_path / "alone"
    taken = write_snapshot(None, logs, alone.as_uri(), tombstones=tombstones)
    assert sum(each.keys for each in taken) == len(rows_in(alone)) > 10

    def written(name: str, session: SparkSession) -> tuple[list[SnapshotResult], list[dict[str, Any]], list[Any]]:
        place = tmp_path / name
        # Spark's own writer handles a URL with one slash.
        uri = f"file:{place}" if name == "by Spark" else place.as_uri()
        large_bytes = 0 if name == "many tasks" else LARGE_BYTES
        found = write_snapshot(session, logs, uri, tombstones=tombstones, large_bytes=large_bytes)
        assert not (place / "_attempts").exists()
        assert (place / "_SUCCESS").exists()
        return found, rows_in(place), reported_in(place)

    expected = (taken, rows_in(alone), reported_in(alone))
    assert written("a task a log", spark) == expected
    assert written("many tasks", spark) == expected
    found, rows, reported = written("by Spark", spark)
    assert (found, reported) == (expected[0], expected[2])
    assert [{**row, "timestamp": None} for row in rows] == [{**row, "timestamp": None} for row in expected[1]]
    assert pq.read_schema(*(tmp_path / "many tasks").glob("topic=*/*")) == pq.read_schema(*alone.glob("topic=*/*"))


def test_more_keys_than_wait_at_once(logs: list[Log]) -> None:
    """U-20: sums of a shard already compete with later keys."""
    walks = walked_logs(None, logs, [NO_END] * len(logs), whole_log=True)
    _, items = work_on(logs, walks, bytes(16), stable=True)

    def places(sent_rows: int) -> set[tuple[int, int]]:
        sent = [batch for _, item in items for batch in latest_by_tasks.best_of_segment(1, item, sent_rows)]
        found = latest_by_tasks.best_of_shard(tombstones=False, batches=iter(sent), sent_rows=sent_rows)
        reported = {(file, offset) for file, offsets in by_file(latest_by_tasks._places(found)) for offset in offsets}
        assert reported
        return reported

    assert places(1) == places(latest_by_tasks.SENT_ROWS)


def test_a_task_that_is_tried_twice(logs: list[Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that no attempt reported are not part of the state, and are deleted."""
    once = write_snapshot(None, logs, (tmp_path / "once").as_uri())
    write_log = snapshot_files.write_log

    def twice(how: Mapping[str, Any], item: Any) -> Iterator[pa.RecordBatch]:
        list(write_log(how, item))
        yield from write_log(how, item)

    monkeypatch.setattr(snapshot_files, "write_log", twice)  # as Spark does when it tries a task again
    assert write_snapshot(None, logs, (tmp_path / "twice").as_uri()) == once
    assert rows_in(tmp_path / "twice") == rows_in(tmp_path / "once")
    assert {path.name for path in (tmp_path / "twice").iterdir()} == {"topic=orders", "_SUCCESS", "_cleanerd"}


def test_an_attempt_that_still_writes(logs: list[Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a task whose other attempt was first: its file, created while the files are put in order, broke the run."""
    real, late = os.rmdir, iter(("late.parquet", "later.parquet"))

    def rmdir(path: str, *arguments: Any, **named: Any) -> None:
        for name in late:
            (tmp_path / "state" / "_attempts" / name).touch()
            break
        real(path, *arguments, **named)

    system_call(monkeypatch, "rmdir", rmdir)  # the other attempt writes at this very moment
    write_snapshot(None, logs, (tmp_path / "state").as_uri())
    assert next(late, None) is None
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"topic=orders", "_SUCCESS", "_cleanerd"}


@pytest.mark.long
def test_a_failure_leaves_nothing(spark: SparkSession, logs: list[Log], tmp_path: Path) -> None:
    """Neither a half-written state, nor files in a directory that existed before."""
    segment = logs[0].segments[0].path
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    for session in (None, spark):
        with pytest.raises(CleanerdError):
            write_snapshot(session, logs, (tmp_path / "out").as_uri())
        assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises((ConfigError, CleanerdError)):
        write_snapshot(spark, logs, (tmp_path / "out").as_uri())
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]
