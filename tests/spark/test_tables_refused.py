"""Tables that are not updated because the result would not be the latest state, and their memory of a log."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.errors import ConfigError, RefusedError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.partition import PARTITION_METADATA
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.logs import find_logs
from cleanerd.spark.tables.merge import write_table
from cleanerd.spark.tables.parts import topics_of
from cleanerd.spark.tables.remembered import TableState, Watermark
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from tests.support.log_dirs import HIGH_WATERMARKS, write_checkpoint
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.spark.logs import Log
    from tests.spark.tables import Tables

from tests.spark.growing_logs import DAY_MS, Growing, merged


def other_rules(log: Growing, logs: list[Log]) -> list[Log]:
    return [replace(each, rules=KeyRules(strategy="timestamp")) for each in logs]


def other_topic(log: Growing, logs: list[Log]) -> list[Log]:
    log.ids["orders"] = uuid.uuid4()
    return log.write()


def cut(log: Growing, logs: list[Log]) -> list[Log]:
    write_checkpoint(logs[0].log_dir / HIGH_WATERMARKS, {"orders-0": 3})
    return find_logs([logs[0].log_dir], (), lambda _topic: KAFKAS_RULES)


def gap(log: Growing, logs: list[Log]) -> list[Log]:
    log.put("orders-0", f="1", g="1")
    return log.write(log_start_offset=6)


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_rules, "chosen by offset, now it is timestamp"),
        (other_topic, "is another topic than the one in the table: id"),
        (cut, "orders-0 ends at offset 3, the table has it up to 5"),
        (gap, "orders-0 begins at offset 6, the table ends at 5"),
    ],
)
def test_refused(delta: Tables, tmp_path: Path, change: Callable[[Growing, list[Log]], list[Log]], words: str) -> None:
    """New records would not give the latest state; nothing is written, and --replace does it."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1", b="1", c="1", d="1", e="1")
    write_table(None, delta.target.open(), log.write())
    before = (delta.rows(), delta.commits(), delta.files())
    logs = change(log, log.write())
    with pytest.raises(RefusedError, match=words) as raised:
        merged(delta, logs)
    assert "--replace writes the table again" in str(raised.value)
    assert (delta.rows(), delta.commits(), delta.files()) == before
    write_table(None, delta.target.open(), logs, replace_all=True)
    merged(delta, logs)


def test_a_copy_without_its_topic_id(delta: Tables, tmp_path: Path) -> None:
    """``partition.metadata`` was not copied once: the table forgot its topic, and another topic was merged."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1")
    write_table(None, delta.target.open(), log.write())
    log.put("orders-0", b="1")
    logs = log.write()
    (logs[0].segments[0].path.parent / PARTITION_METADATA).unlink()
    assert [found.end_offset for found in merged(delta, logs)] == [2]
    log.put("orders-0", c="1")
    with pytest.raises(RefusedError, match="is another topic than the one in the table"):
        merged(delta, other_topic(log, logs))


def test_tombstones_written_and_removed_between_two_merges(delta: Tables, tmp_path: Path) -> None:
    """A gap above the mark shows a cleaning: the table must be younger than delete.retention.ms, or it may be old."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1", b="1", c="1", d="1")
    logs = log.write()
    write_table(None, delta.target.open(), logs)
    now_ms = os.stat(logs[0].log_dir / HIGH_WATERMARKS).st_mtime_ns // 1_000_000
    log.put("orders-0", e="1")
    merged(delta, log.write(), now_ms=now_ms + 100 * DAY_MS)  # complete, however old
    log.put("orders-0", a=None, f="1", g="1", h="1")
    log.drop(
        "orders-0",
        4,
        encode_batch([Record(b"e", b"1")], base_offset=4) + encode_batch([Record(b"f", b"1")], base_offset=6),
    )
    logs = log.write()
    with pytest.raises(RefusedError, match=r"was cleaned above offset 5, and the table is 14\d\d minutes old"):
        merged(delta, logs, now_ms=now_ms + DAY_MS)
    (found,) = merged(delta, logs, now_ms=now_ms + DAY_MS // 2)
    assert found.end_offset == 9


def test_a_table_of_the_whole_log(delta: Tables, tmp_path: Path) -> None:
    """It contains unacknowledged records, so new records do not give the latest state."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1")
    write_table(None, delta.target.open(), log.write(), whole_log=True)
    with pytest.raises(RefusedError, match="--whole-log"):
        merged(delta, log.write())
    with pytest.raises(ConfigError, match="may be missing next time"):
        ReadableLogs(None, log.path.with_name("logs-1")).latest(whole_log=True).merge_into(delta.target)


def test_tables_that_are_not_ours(delta: Tables, tmp_path: Path) -> None:
    """Another table, other files, no table, an existing table."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1")
    logs = log.write()
    with pytest.raises(ConfigError, match="no such table"):
        merged(delta, logs)
    assert not (tmp_path / "table").exists()
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"contains notes\.txt"):
        delta.target.open()
    (tmp_path / "table" / "notes.txt").unlink()
    write_table(None, delta.target.open(), logs)
    with pytest.raises(ConfigError, match="exists already"):
        write_table(None, delta.target.open(), logs)
    other = tmp_path / "other"
    write_deltalake(str(other), pq.read_table(next((tmp_path / "table").glob("*.parquet"))).select(["key", "value"]))
    with pytest.raises(RefusedError, match="other columns"):
        ReadableLogs(None, logs[0].log_dir).latest().write_table(other, replace=True)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["format", "topics", "partitions", "whole_log", "t-0", "rules"]), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.one_of(st.text(max_size=20), JSONS.map(json.dumps)))
def test_hostile_memory(text: str) -> None:
    """Whatever a commit's properties contain is ours, or an error of ours."""
    with pytest.raises(ConfigError, match="--replace"):
        TableState.from_text(text, "table")


def test_memory_is_kept(tmp_path: Path) -> None:
    """A commit's memory is read as it was written; with less of it, or another format, it is refused."""
    log = Growing(tmp_path, "orders-0", "users-0")
    log.put("orders-0", a="1")
    logs = log.write()
    topics = {log.name.topic: topic for log, topic in zip(logs, topics_of(logs, tombstones=True), strict=True)}
    remembered = TableState(topics, {TopicPartition("orders", 0): Watermark(1, 2, 3)}, whole_log=True)
    assert TableState.from_text(remembered.to_text(), "table") == remembered
    document = json.loads(remembered.to_text())
    for key in document:
        less = {name: value for name, value in document.items() if name != key}
        for text in (json.dumps(less), json.dumps({**document, key: -1})):
            with pytest.raises(ConfigError, match="cannot be read"):
                TableState.from_text(text, "table")
