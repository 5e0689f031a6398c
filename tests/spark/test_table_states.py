"""Unhealthy tables and logs: tables that others changed, logs that were replaced or truncated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake

from cleanerd.cli.main import run
from cleanerd.errors import ConfigError, RefusedError
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.launch import DRIVER_VARIABLE
from cleanerd.spark.logs import find_logs
from cleanerd.spark.tables.merge import write_table
from cleanerd.verify.rules import KAFKAS_RULES
from tests.spark.growing_logs import Growing, merged, values
from tests.spark.tables import Tables
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def deleted(tables: Tables) -> None:
    if tables.kind == "delta":
        DeltaTable(tables.uri).delete("offset = 0")
    else:
        tables.iceberg().delete("offset = 0")


def added(tables: Tables) -> None:
    rows = tables.read().slice(0, 1)
    if tables.kind == "delta":
        write_deltalake(tables.uri, rows, mode="append")
    else:
        tables.iceberg().append(rows)


def overwritten(tables: Tables) -> None:
    rows = tables.read().slice(0, 1)
    if tables.kind == "delta":
        write_deltalake(tables.uri, rows, mode="overwrite")
    else:
        tables.iceberg().overwrite(rows)


@pytest.mark.parametrize("change", [deleted, added, overwritten])
def test_rows_that_another_writer_changed(tables: Tables, tmp_path: Path, change: Callable[[Tables], None]) -> None:
    """A merge on top was not a snapshot of the log: a row was missing, or a key was there twice."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1", b="1")
    write_table(None, tables.target.open(), log.write())
    change(tables)
    commits = tables.commits()
    log.put("orders-0", c="1")
    logs = log.write()
    with pytest.raises(RefusedError, match=r"another writer changed rows of the table .*--replace"):
        merged(tables, logs)
    assert tables.commits() == commits
    write_table(None, tables.target.open(), logs, replace_all=True)
    assert values(tables) == {"orders-0": {"a": "1", "b": "1", "c": "1"}}
    assert merged(tables, logs)[0].written == 0


def test_a_table_of_another_writer(delta: Tables, tmp_path: Path) -> None:
    """With our columns, and no commit of ours: no other writer has changed anything."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1")
    logs = log.write()
    write_table(None, delta.target.open(), logs)
    other = Tables("delta", tmp_path / "other")
    write_deltalake(other.uri, delta.read())
    with pytest.raises(RefusedError, match="does not state its offsets"):
        merged(other, logs)


def test_commits_that_change_no_row(delta: Tables, tmp_path: Path) -> None:
    """Compacted, vacuumed, with another property, more than once: it continues from our commit below."""
    log = Growing(tmp_path, "orders-0", "orders-1")
    log.put("orders-0", a="1")
    log.put("orders-1", a="1")
    write_table(None, delta.target.open(), log.write())
    table = DeltaTable(delta.uri)
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    log.put("orders-0", a="2")
    merged(delta, log.write())
    assert values(delta) == {"orders-0": {"a": "2"}, "orders-1": {"a": "1"}}


@pytest.mark.parametrize("name", ["a b", "a+b=ü"])
def test_names_of_directories(tmp_path: Path, name: str) -> None:
    """By path and by URL the same; names that delta-rs would change are refused before anything is written."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1", b="1")
    root = tmp_path / name
    (path,) = {each.log_dir for each in log.write()}
    ReadableLogs(None, path).latest().write_table(root.as_uri())
    log.put("orders-0", b=None)
    (path,) = {each.log_dir for each in log.write()}
    ReadableLogs(None, path).latest().merge_into(root)
    assert DeltaTable(str(root)).to_pyarrow_table().num_rows == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == [name, "logs-1", "logs-2"]
    for other in ("a#b", "a?b", "a%20b"):
        with pytest.raises(ConfigError, match="name another directory"):
            ReadableLogs(None, path).latest().write_table(tmp_path / other)
        assert not (tmp_path / other).exists()


def test_partitioned_by_another_writer(delta: Tables, tmp_path: Path) -> None:
    """Our files have no values of partition columns."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1")
    logs = log.write()
    write_table(None, delta.target.open(), logs)
    write_deltalake(delta.uri, delta.read(), mode="overwrite", partition_by=["topic"], schema_mode="overwrite")
    for do in (lambda: merged(delta, logs), lambda: write_table(None, delta.target.open(), logs, replace_all=True)):
        with pytest.raises(RefusedError, match="partitioning"):
            do()


@pytest.mark.parametrize("left", [(), ("00000000000000000000.json#1", "_commit_4f.json.tmp")])
def test_killed_in_the_first_commit(delta: Tables, tmp_path: Path, left: tuple[str, ...]) -> None:
    """Between the directory of the table's log and its first entry: the next run treated it as another writer's."""
    place = tmp_path / "table" / "_delta_log"
    place.mkdir(parents=True)
    (place.parent / "cleanerd-1.snappy.parquet").touch()
    for name in left:
        (place / name).write_text("{")
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1")
    assert not delta.target.open().exists
    write_table(None, delta.target.open(), log.write())
    assert values(delta) == {"orders-0": {"a": "1"}}


def test_truncated_and_grown_again(tables: Tables, tmp_path: Path) -> None:
    """An unclean leader: offsets that the table has are other records now. Only the leader epochs show it."""
    log = Growing(tmp_path, "orders-0", "orders-1")
    log.put("orders-0", a="1", b="1", c="1")
    log.put("orders-1", a="1")
    write_table(None, tables.target.open(), log.write(epochs=((4, 0),)))
    log.put("orders-0", d="1")
    merged(tables, log.write(epochs=((4, 0), (5, 3))))
    other = Growing(tmp_path / "other", "orders-0", "orders-1")
    other.put("orders-0", a="1", b="1", x="1", y="1", z="1")
    other.put("orders-1", a="1")
    logs = other.write(epochs=((4, 0), (6, 2)))
    commits = tables.commits()
    with pytest.raises(
        RefusedError, match=r"orders-0 was cut .* offset 3 is of leader epoch 6, .* epoch 5 .*--replace"
    ):
        merged(tables, logs)
    assert tables.commits() == commits
    write_table(None, tables.target.open(), logs, replace_all=True)
    assert values(tables)["orders-0"] == {"a": "1", "b": "1", "x": "1", "y": "1", "z": "1"}
    assert merged(tables, logs)[0].written == 0


@pytest.mark.long
def test_a_new_leader_is_not_a_truncation(delta: Tables, tmp_path: Path) -> None:
    """Epochs that begin where the table ends, that retention forgot, and a copy without them."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1", b="1", c="1", d="1")
    write_table(None, delta.target.open(), log.write(epochs=((4, 0),)))
    log.put("orders-0", e="1")
    merged(delta, log.write(epochs=((4, 0), (7, 4))))
    log.put("orders-0", f="1")
    logs = log.write()
    (logs[0].segments[0].path.parent / "leader-epoch-checkpoint").unlink()
    merged(delta, logs)
    log.put("orders-0", g="1")
    merged(delta, log.write(epochs=((9, 6),), log_start_offset=6))
    assert values(delta) == {"orders-0": {"g": "1"}}


def test_leftovers_of_a_deleted_topic(delta: Tables, tmp_path: Path) -> None:
    """Another disk has a partition of an earlier topic of that name: its rows were merged."""
    log = Growing(tmp_path, "orders-0")
    log.put("orders-0", a="1")
    old = make_log_dir(tmp_path / "old", {"orders-3": Partition({0: encode_batch([Record(b"z", b"1")])})})
    logs = log.write()
    both = find_logs([logs[0].log_dir, old], (), lambda _topic: KAFKAS_RULES)
    with pytest.raises(RefusedError, match="orders-3 is of another topic than other partitions of orders"):
        write_table(None, delta.target.open(), both)
    write_table(None, delta.target.open(), logs)
    with pytest.raises(RefusedError, match=r"another topic .*--partition"):
        merged(delta, both)
    assert values(delta) == {"orders-0": {"a": "1"}}


@pytest.mark.long
def test_an_empty_topic(tables: Tables, tmp_path: Path) -> None:
    """A table without a row, and its first rows."""
    log = Growing(tmp_path, "orders-0")
    write_table(None, tables.target.open(), log.write())
    assert tables.rows() == []
    assert merged(tables, log.write())[0].written == 0
    log.put("orders-0", a="1")
    merged(tables, log.write())
    log.put("orders-0", a=None)
    merged(tables, log.write())
    assert tables.rows() == []


STRANGE = [
    Record(b"", b"1"), Record(b"k" * 2**20, b"1"), Record(b"t", b"1", timestamp=-1),
    Record(b"u", b"1", timestamp=2**63 - 1), Record(None, b"no key"), Record(b"\xff\x00", b""), Record(b"a.b`c", b"1"),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("base", [0, 2**63 - 40])
def test_strange_records(tables: Tables, tmp_path: Path, base: int) -> None:
    """Empty keys, large ones, none; extreme times; offsets that end where numbers do."""

    def logs_with(*more: Record) -> Any:
        path = tmp_path / f"logs-{len(more)}"
        records = [*STRANGE, *more]
        data = b"".join(encode_batch([each], base_offset=base + at) for at, each in enumerate(records))
        make_log_dir(path, {"t-0": Partition({base: data}, topic_id=None)})
        return find_logs([path], (), lambda _topic: KAFKAS_RULES)

    logs = logs_with()
    write_table(None, tables.target.open(), logs)
    keys = {each.key: base + at for at, each in enumerate(STRANGE) if each.key is not None}
    assert tables.state() == keys
    times = {row["key"]: row["timestamp"] for row in tables.rows()}
    assert times[b"t"] is None
    assert times[b"u"] is None
    more = [Record(b"", b"2"), Record(b"k" * 2**20, None), Record(b"t", b"2", timestamp=2**63 - 1)]
    (reported,) = merged(tables, logs_with(*more))
    assert (reported.written, reported.removed) == (2, 3)
    del keys[b"k" * 2**20]
    assert tables.state() == {**keys, b"": base + 7, b"t": base + 9}
    assert ReadableLogs(None, tmp_path / "logs-3").latest().write_parquet(tmp_path / "out")[0].keys == len(keys)


def test_an_unknown_retention(
    delta: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory without the metadata log: a day is assumed and reported, though a topic's own may be less."""
    monkeypatch.delenv(DRIVER_VARIABLE, raising=False)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    log = Growing(tmp_path, "orders-0", "users-0")
    log.put("orders-0", a="1")
    log.put("users-0", a="1")
    (path,) = {each.log_dir for each in log.write()}
    arguments = ["spark", "snapshot", str(path), "--format", "delta", "--out", delta.uri]
    assert run(arguments) == 0
    message = "delete.retention.ms of orders is not known here, and treated as 86400000 ms"
    assert message not in capsys.readouterr().err
    assert run([*arguments, "--incremental"]) == 0
    assert capsys.readouterr().err.count("delete.retention.ms of") == 1
    known = ("topics.orders.delete.retention.ms=1000", "topics.users.delete.retention.ms=1000")
    for more in (["--set", known[0], "--set", known[1]], ["--set", "log.cleaner.delete.retention.ms=1"], ["--quiet"]):
        assert run([*arguments, "--incremental", *more]) == 0
        assert "delete.retention.ms of" not in capsys.readouterr().err
