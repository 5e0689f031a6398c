"""Delta and Iceberg tables of topics: as snapshots, updated, repeated, with other writers, and refused."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import BotoCoreError
from deltalake import DeltaTable

from cleanerd.errors import CorruptionError, RefusedError, SegmentChangedError
from cleanerd.format.names import TopicPartition
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.logs import find_logs
from cleanerd.spark.source.plan import part_of
from cleanerd.spark.tables import merge
from cleanerd.spark.tables.files import ROWS
from cleanerd.spark.tables.latest import write_segments
from cleanerd.spark.tables.merge import merge_into, write_table
from cleanerd.spark.tables.place import DeltaPlace
from cleanerd.spark.task_runner import received
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from cleanerd_lab.demo.ports import free_port
from tests.spark.rich_log import RichLog
from tests.spark.tables import Tables
from tests.support.log_dirs import HIGH_WATERMARKS, set_mtime
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.spark.logs import Log

from tests.spark.growing_logs import BY_HEADER, DAY_MS, Growing, merged, values


def eventually(call: Callable[[], object]) -> None:
    """Until it works."""
    for _ in range(600):
        try:
            call()
        except (OSError, BotoCoreError):
            time.sleep(0.1)
        else:
            return
    raise AssertionError


@pytest.mark.long
@pytest.mark.parametrize("rules", [KAFKAS_RULES, BY_HEADER], ids=["offset", "header"])
def test_a_table_of_a_whole_snapshot(tables: Tables, tmp_path: Path, rules: KeyRules) -> None:
    """The rows of a snapshot as Parquet, which other tests compare with a dictionary; with versions, their columns."""
    for seed in range(3):
        path = RichLog(seed, transactions=True, codec=seed).write(tmp_path / f"logs-{seed}", 3, 12)
        logs = ReadableLogs(None, path, lambda _topic: rules)
        logs.latest().write_parquet(tmp_path / f"parquet-{seed}")
        expected = {row["offset"]: row for row in pq.read_table(tmp_path / f"parquet-{seed}").to_pylist()}
        taken = logs.latest().write_table(tables.target, replace=seed > 0)
        rows = tables.rows()
        found = {row["offset"]: row for row in rows if not row["is_tombstone"]}
        assert sum(each.keys for each in taken) == len(found) == len(expected) > 5
        for offset, row in expected.items():
            assert {name: found[offset][name] for name in row} == row
        assert (rules is BY_HEADER) == any(row["is_tombstone"] for row in rows)
        assert (rules is BY_HEADER) == any(row["version"] is not None for row in rows)
    assert tables.commits() == 3


def test_a_merge_adds_new_records(tables: Tables, tmp_path: Path) -> None:
    """Put, put again, deleted, aborted, open, committed later; another partition and topic: as a table made of it."""
    log = Growing(tmp_path, "orders-0", "orders-1", "users-0")
    log.put("orders-0", a="1", b="1", c="1", d="1", e="1")
    log.put("orders-1", a="other")
    logs = log.write()
    write_table(None, tables.target.open(), [each for each in logs if each.name.topic == "orders"])
    assert values(tables) == {"orders-0": dict.fromkeys("abcde", "1"), "orders-1": {"a": "other"}}
    log.put("orders-0", b="2", c=None, f="1", f2=None)
    log.add("orders-0", Record(b"a", b"never"), transactional=True, producer_id=5, producer_epoch=0)
    log.end_transaction("orders-0", 5, commit=False)
    log.add("orders-0", Record(b"d", b"later"), transactional=True, producer_id=6, producer_epoch=0)
    log.put("orders-0", e="behind it")
    log.put("users-0", u="1")
    found = {str(each.name): each for each in merged(tables, log.write())}
    assert values(tables) == {
        "orders-0": {"a": "1", "b": "2", "d": "1", "e": "1", "f": "1"},
        "orders-1": {"a": "other"},
        "users-0": {"u": "1"},
    }
    one = found["orders-0"]
    assert (one.begin, one.end_offset, one.written, one.removed) == (5, 11, 2, 2)
    assert (found["orders-1"].written, found["users-0"].written) == (0, 1)
    log.end_transaction("orders-0", 6, commit=True)
    merged(tables, log.write())
    assert values(tables)["orders-0"] == {"a": "1", "b": "2", "d": "later", "e": "behind it", "f": "1"}
    rows = tables.rows()
    write_table(None, tables.target.open(), log.write(), replace_all=True)
    assert tables.rows() == rows


@pytest.mark.long
def test_a_repeated_merge_changes_nothing(tables: Tables, tmp_path: Path) -> None:
    """No commit, no further file; after a tenth of the retention one commit without changes."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1", b="1")
    write_table(None, tables.target.open(), log.write())
    log.put("orders-0", a="2", b=None)
    logs = log.write()
    merged(tables, logs)
    before = (tables.rows(), tables.commits(), tables.files())
    again = merged(tables, logs)
    assert (again[0].written, again[0].removed) == (0, 0)
    assert (tables.rows(), tables.commits(), tables.files()) == before
    now_ms = os.stat(logs[0].log_dir / HIGH_WATERMARKS).st_mtime_ns // 1_000_000
    set_mtime(logs[0].log_dir / HIGH_WATERMARKS, now_ms + DAY_MS // 5)
    merged(tables, logs, now_ms=now_ms + DAY_MS // 5)
    assert (tables.rows(), tables.commits()) == (before[0], before[1] + 1)


def test_a_late_version_loses(tables: Tables, tmp_path: Path) -> None:
    """Compared with a row and with a deleted key; and no longer with a tombstone that the log has removed."""

    def version(key: bytes, number: int, value: bytes | None) -> Record:
        return Record(key, value, headers=((b"version", number.to_bytes(8, "big")),))

    log = Growing(tmp_path, "orders-0")
    log.add(
        "orders-0", version(b"a", 5, b"a5"), version(b"b", 7, None), version(b"c", 7, None), version(b"d", 1, b"d1")
    )
    by_header = [replace(each, rules=BY_HEADER) for each in log.write()]
    write_table(None, tables.target.open(), by_header)
    assert tables.state() == {b"a": 0, b"d": 3}
    log.add("orders-0", version(b"a", 4, b"a4"), version(b"b", 6, b"b6"), version(b"d", 2, b"d2"))
    merged(tables, [replace(each, rules=BY_HEADER) for each in log.write()])
    assert tables.state() == {b"a": 0, b"d": 6}
    kept = encode_batch([version(b"a", 5, b"a5")]) + encode_batch([version(b"b", 7, None)], base_offset=1)
    log.drop("orders-0", 0, kept + encode_batch([], base_offset=2, last_offset_delta=1))
    log.add("orders-0", version(b"b", 5, b"b5"), version(b"c", 1, b"c1"))
    merged(tables, [replace(each, rules=BY_HEADER) for each in log.write()])
    assert tables.state() == {b"a": 0, b"d": 6, b"c": 8}


def test_retention_moves_the_log_start(tables: Tables, tmp_path: Path) -> None:
    """Rows below it go."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1", b="1", c="1", d="1", e="1")
    write_table(None, tables.target.open(), log.write())
    (found,) = merged(tables, log.write(log_start_offset=2))
    assert (found.log_start, found.removed) == (2, 2)
    assert values(tables) == {"orders-0": dict.fromkeys("cde", "1")}


@pytest.mark.long
def test_the_second_of_two_merges_changes_nothing(tables: Tables, tmp_path: Path) -> None:
    """The second one changes nothing and leaves nothing; run again, it continues from the first one's commit."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1")
    one, two = tables.target.open(), tables.target.open()
    write_table(None, one, log.write())
    with pytest.raises(RefusedError, match="another writer changed the table at the same time"):
        write_table(None, two, log.write())
    log.put("orders-0", b="1")
    late = tables.target.open()
    merged(tables, log.write())
    before = (tables.rows(), tables.commits(), tables.files())
    log.put("orders-0", c="1", a=None)
    logs = log.write()
    with pytest.raises(RefusedError, match="run it again"):
        merge_into(None, late, logs, retention_ms=lambda _topic: DAY_MS)
    assert (tables.rows(), tables.commits(), tables.files()) == before
    merged(tables, logs)
    assert values(tables) == {"orders-0": {"b": "1", "c": "1"}}


@pytest.mark.long
def test_tasks_and_this_process_write_the_same(spark: SparkSession, delta: Tables, tmp_path: Path) -> None:
    """A session's tasks and this process write the same."""
    by_tasks(spark, delta, tmp_path)


def test_retained_records_by_segment(delta: Tables, tmp_path: Path) -> None:
    """A task's input for a large log (file and offset, in batches) becomes rows as of a small one: one file per log."""
    logs = []
    for name in ("a", "b"):
        path = RichLog(ord(name), transactions=True, legacy=True).write(tmp_path / name, 3, 12)
        (found,) = find_logs([path], (), lambda _topic: BY_HEADER)
        logs.append(replace(found, name=TopicPartition(name, 0)))
    write_table(None, delta.target.open(), logs)
    rows = delta.rows()
    segments = [(number, each) for number, log in enumerate(logs) for each in log.segments]
    items = [(number, part_of(logs[number], each.base, each.end)) for number, each in segments]
    wanted = [
        (at, row["offset"])
        for row in rows
        for at, (number, each) in enumerate(segments)
        if row["topic"] == logs[number].name.topic and each.base <= row["offset"] < each.end
    ]
    numbers, at_offsets = zip(*wanted, strict=True)
    reported = table_of(items, tmp_path, pa.array(numbers, pa.int32()), pa.array(at_offsets))
    assert [(each["log"], len(each["files"])) for each in reported] == [(0, 1), (1, 1)]
    written = [
        row for each in reported for row in pq.read_table(tmp_path / "other" / each["files"][0].path).to_pylist()
    ]
    assert written == rows
    with pytest.raises(SegmentChangedError, match="0 of 1 records are there"):
        table_of(items, tmp_path, pa.array([0], pa.int32()), pa.array([segments[0][1].end - 1 + 10**6]))


def table_of(items: list[tuple[int, Log]], root: Path, files: pa.Array, at_offsets: pa.Array) -> list[dict[str, Any]]:
    batches = pa.Table.from_arrays([files, at_offsets], ["file", "offset"]).to_batches(5)
    how = {"place": DeltaPlace(str(root / "other")), "columns": ROWS, "decoding": None}
    found = write_segments(items, how, iter(batches))
    return [received(batch.column(0)[0].as_py()) for batch in found]


@pytest.mark.long
@pytest.mark.parametrize("rules", [KAFKAS_RULES, BY_HEADER], ids=["offset", "header"])
def test_large_logs(
    spark: SparkSession, delta: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: KeyRules
) -> None:
    """Cut into many tasks: transactions, tombstones, versions, old formats, codecs, all rows the same."""
    calls = []
    shuffled = merge.write_found
    # To see that many tasks did it: the rows do not show it.
    monkeypatch.setattr(merge, "write_found", lambda *given, **how: calls.append(given) or shuffled(*given, **how))
    for seed in range(4):
        path = RichLog(seed, transactions=True, codec=seed, legacy=seed > 1).write(tmp_path / f"logs-{seed}", 5, 20)
        for tombstones in (False, True):
            rows = []
            for session in (None, spark):
                latest = ReadableLogs(session, path, lambda _topic: rules).latest(tombstones=tombstones)
                latest.write_table(delta.target, replace=delta.target.open().exists, large_bytes=0)
                rows.append(delta.rows())
            assert rows[0] == rows[1]
            assert len(rows[0]) > 5
    assert len(calls) == 8


@pytest.mark.long
def test_by_tasks_and_their_errors(spark: SparkSession, tables: Tables, tmp_path: Path) -> None:
    """The same for both formats; and an error of a task in our words, which changes nothing."""
    logs = by_tasks(spark, tables, tmp_path)
    rows, commits = tables.rows(), tables.commits()
    logs[0].segments[0].path.write_bytes(b"\xff" * 100)
    with pytest.raises(CorruptionError):
        write_table(spark, tables.target.open(), logs, replace_all=True)
    assert (tables.rows(), tables.commits()) == (rows, commits)


def by_tasks(spark: SparkSession, tables: Tables, root: Path) -> list[Log]:
    log = Growing(root, "orders-0", "orders-1", "users-0")
    for name in ("orders-0", "orders-1", "users-0"):
        log.put(name, a="1", b="1", c="1", d="1", e="1")
    write_table(spark, tables.target.open(), log.write())
    log.put("orders-1", a=None, b="2", z="1")
    log.put("users-0", e=None)
    logs = log.write()
    merge_into(spark, tables.target.open(), logs, retention_ms=lambda _topic: DAY_MS)
    rows = tables.rows()
    assert values(tables)["orders-1"] == {"b": "2", "c": "1", "d": "1", "e": "1", "z": "1"}
    write_table(None, tables.target.open(), logs, replace_all=True)
    assert tables.rows() == rows
    return logs


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An S3 server in a process of its own: delta-rs lets no other thread of this one run while it waits."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    message = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for key, value in message.items():
            patch.setenv(key, value)
        eventually(lambda: boto3.client("s3").create_bucket(Bucket="lake"))
        yield message["AWS_ENDPOINT_URL"]
    server.terminate()
    server.wait()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_in_an_object_store(endpoint: str, tmp_path: Path, kind: str) -> None:
    """With the protocol of S3: created, merged, with another writer, written again."""
    tables = Tables(kind, tmp_path, "s3://lake/tables", endpoint)
    with tables.known():
        log = Growing(tmp_path, "orders-0", "orders-1")
        log.put("orders-0", a="1", b="1", c="1")
        log.put("orders-1", a="1")
        write_table(None, tables.target.open(), log.write())
        late = tables.target.open()
        log.put("orders-0", a="2", b=None, d="1")
        (one, other) = merged(tables, log.write())
        assert (one.written, one.removed, other.written) == (2, 2, 0)
        log.put("orders-1", z="1")
        with pytest.raises(RefusedError, match="another writer"):
            merge_into(None, late, log.write(), retention_ms=lambda _topic: DAY_MS)
        merged(tables, log.write())
        rows = tables.rows()
        assert values(tables) == {"orders-0": {"a": "2", "c": "1", "d": "1"}, "orders-1": {"a": "1", "z": "1"}}
        write_table(None, tables.target.open(), log.write(), replace_all=True)
        assert tables.rows() == rows


def test_files_that_others_made(delta: Tables, tmp_path: Path) -> None:
    """Files of several partitions in one, by OPTIMIZE: its rows are removed one by one.

    A restored table is not trusted.
    """
    log = Growing(tmp_path, "orders-0", "orders-1")
    log.put("orders-0", a="1", b="1")
    log.put("orders-1", a="1", b="1")
    write_table(None, delta.target.open(), log.write())
    table = DeltaTable(str(tmp_path / "table"))
    assert table.optimize.compact()["numFilesAdded"] == 1
    log.put("orders-1", a="2", b=None)
    merged(delta, log.write())
    assert values(delta) == {"orders-0": {"a": "1", "b": "1"}, "orders-1": {"a": "2"}}
    DeltaTable(str(tmp_path / "table")).restore(0)
    with pytest.raises(RefusedError, match="does not state its offsets"):
        merged(delta, log.write())


def test_iceberg_put_back(tmp_path: Path) -> None:
    """To an earlier snapshot: its later commits are known, and the merge continues from there."""
    tables = Tables("iceberg", tmp_path)
    with tables.known():
        log = Growing(tmp_path, "orders-0")
        log.put("orders-0", a="1", b="1")
        write_table(None, tables.target.open(), log.write())
        first = tables.iceberg().current_snapshot().snapshot_id
        log.put("orders-0", a="2", b=None)
        merged(tables, log.write())
        tables.iceberg().manage_snapshots().rollback_to_snapshot(first).commit()
        assert values(tables) == {"orders-0": {"a": "1", "b": "1"}}
        log.put("orders-0", c="1")
        merged(tables, log.write())
        assert values(tables) == {"orders-0": {"a": "2", "c": "1"}}


@pytest.mark.long
def test_many_commits(delta: Tables, tmp_path: Path) -> None:
    """Checkpoints of the table's log, and deleted old entries of it, change nothing."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1", b="0")
    write_table(None, delta.target.open(), log.write())
    for number in range(2, 8):
        log.put("orders-0", a=str(number))
        merged(delta, log.write())
        DeltaTable(delta.uri).create_checkpoint()
    for number in range(5):
        (tmp_path / "table" / "_delta_log" / f"{number:020d}.json").unlink()
    log.put("orders-0", c="1")
    merged(delta, log.write())
    assert values(delta) == {"orders-0": {"a": "7", "b": "0", "c": "1"}}


def test_deleted_keys_that_stay(delta: Tables, tmp_path: Path) -> None:
    """Requested once, they are kept always; a key that comes back gets the row."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1", b=None)
    write_table(None, delta.target.open(), log.write(), tombstones=True)
    log.put("orders-0", a=None, c=None)
    log.put("orders-0", b="1")
    with pytest.raises(RefusedError, match="with --tombstones"):
        merged(delta, log.write())
    merged(delta, log.write(), tombstones=True)
    assert {row["key"]: row["is_tombstone"] for row in delta.rows()} == {b"a": True, b"b": False, b"c": True}
    assert delta.state() == {b"b": 4}
