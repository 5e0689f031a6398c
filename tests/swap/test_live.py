"""A cleaning beside a running broker: the requests to its agent, and the use of its facts about the log."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from cleanerd.broker import agent_client
from cleanerd.cleaner.refusals import refuse_deletions
from cleanerd.config.delegation import Delegation
from cleanerd.errors import RetryLaterError
from cleanerd.format.index import TXN_ENTRY
from cleanerd.policy.transaction import AbortedTransactions
from cleanerd.segments.partition import read_partition
from cleanerd.swap.files import FileOperation, PartitionFiles
from tests.cleaner.driver import NAME, config, resources, scratch
from tests.support.log_dirs import Partition, read_segments, tree
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.live_round import QUICK, clean_beside, cleaned_offline, content, leftovers, running
from tests.swap.offline_round import NOW, batch, force, state_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from cleanerd.cleaner.cleaner import Cleaning
    from tests.support.fake_agent import FakeAgent


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def test_a_cleaning(root: Path) -> None:
    """U-16, A-20, U-10: group by group, ascending; the same log as offline; checkpoints at the end."""
    expected = cleaned_offline(root)
    with running(root) as agent:
        before = content(root)
        result = clean_beside(agent)
        assert (result.outcome, result.reason) == ("cleaned", "")
        assert content(root) == expected != before
        assert [request["groups"][0]["base"] for request in agent.requested("swap")] == [0, 5]
        assert all(len(request["groups"]) == 1 for request in agent.requested("swap"))
        assert agent.checkpoints == {NAME: 8}
        assert result.removed.superseded == 3
        assert result.segments_rewritten == 2
        assert result.bytes_after == sum(segment.size_bytes for segment in _log(agent).segments[:-1])
        state = json.loads(state_file(root).read_text())
        assert state["cleanerd_checkpoint"]["offset"] == 8
        assert state["cleanerd_checkpoint"]["last_segment"]["inode"] == (root / NAME / f"{5:020d}.log").stat().st_ino
        assert not leftovers(root)
        assert clean_beside(agent, force()).reason.startswith("nothing to clean: dirty from offset 8")


def test_a_cleaning_that_moves_no_checkpoint(root: Path) -> None:
    """U-6: its compaction settings are remembered; the checkpoints of cleanerd and the broker stay."""
    with running(root) as agent:
        assert clean_beside(agent, force(first_dirty_offset=5)).outcome == "cleaned"
        state = json.loads(state_file(root).read_text())
        assert (state["cleanerd_checkpoint"], state["rules"]) == (None, "strategy=offset;tombstone.mode=null")
        assert not agent.checkpoints


def test_a_clean_section_below_a_gap_stays_clean(root: Path) -> None:
    """U-10: --first-dirty above the checkpoint rewrites a segment below it.

    The next cleaning begins at the checkpoint.
    """
    with running(root) as agent:
        assert clean_beside(agent, force(up_to_offset=4)).end_offset == 4
        assert clean_beside(agent, force(first_dirty_offset=5)).segments_rewritten == 2
        point = json.loads(state_file(root).read_text())["cleanerd_checkpoint"]
        assert point["offset"] == 4
        assert point["last_segment"]["inode"] == (root / NAME / f"{0:020d}.log").stat().st_ino
        assert clean_beside(agent, force()).first_dirty_offset == 4


@pytest.mark.parametrize("base", [0, 4])
def test_the_broker_changes_the_clean_section_below_a_gap(root: Path, base: int) -> None:
    """U-10: after the last swap the broker changes a segment below the gap.

    The checkpoint is void, and the rest is dirty.
    """

    def changes(agent: FakeAgent, _request: dict[str, Any]) -> bytes | None:
        path = agent.log_dir / NAME / f"{base:020d}.log"
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
        return None

    with running(root) as agent:
        assert clean_beside(agent, force(up_to_offset=4)).end_offset == 4
        agent.fail("log", lambda _agent, _request: None, changes)
        assert clean_beside(agent, force(first_dirty_offset=5)).segments_rewritten == 2
        assert clean_beside(agent, force()).first_dirty_offset == (0 if base == 0 else 4)


def test_segments_deleted_right_after_the_last_swap(root: Path) -> None:
    """Retention or DeleteRecords between the last swap and the checkpoint request used to kill the worker."""

    def deletes(agent: FakeAgent, _request: dict[str, Any]) -> bytes | None:
        for path in (agent.log_dir / NAME).iterdir():
            if path.is_file() and path.stem.isdigit() and int(path.stem) < 8:
                path.unlink()
        return None

    with running(root) as agent:
        agent.fail("log", lambda _agent, _request: None, deletes)
        result = clean_beside(agent)
        assert result.outcome == "cleaned", result.reason
        assert any("nothing is left below offset 8" in note for note in result.notes)
        assert not agent.checkpoints


def _log(agent: FakeAgent) -> Any:
    from cleanerd.segments.log_dir import read_log_dir  # noqa: PLC0415

    found = read_log_dir(agent.log_dir)
    return read_partition(found, found.partitions[0])


def test_every_request_has_all_preconditions(root: Path) -> None:
    """U-3: from log start to the first uncleanable offset, as before this request; an output replaces its sources."""
    with running(root) as agent:
        first = {row[0]: row for row in agent.do_log({"topic": "orders", "partition": 0})["segments"]}
        clean_beside(agent)
        one, two = agent.requested("swap")
        for base in (0, 4, 5):
            assert [one["witnesses"][[0, 4, 5].index(base)][key] for key in ("base", "size", "mtime_ms", "ino")] == (
                first[base]
            )
        now = {row[0]: row for row in agent.do_log({"topic": "orders", "partition": 0})["segments"]}
        reported = {witness["base"]: witness for witness in two["witnesses"]}
        assert [reported[0][key] for key in ("base", "size", "mtime_ms", "ino")] == now[0] != first[0]
        assert reported[5]["ino"] == first[5][3]
        assert one["topic_id"] is not None
        assert one["log_start"] is None, "Kafka's own cleaner does not mind under offset"


def _with_transactions() -> Partition:
    """``good`` is committed, ``bad`` aborted above the limit; one aborted record is in a segment that changes twice."""
    first = batch(0, ("k", "good"), ("x", "1")) + _data(2, 8, "y") + _marker(3, 8)
    logs = {0: first, 4: _data(4, 7, "k") + batch(5, ("x", "2")), 6: batch(6, ("x", "3")) + _marker(7, 7), 8: b""}
    # The open transaction from offset 6 limits the cleaning, so the marker of producer 7 is above the limit (U-12).
    logs[6] = _data(6, 9, "z") + _marker(7, 7)
    return Partition(logs, aborted={0: [(8, 2, 3, 3)], 6: [(7, 4, 7, 6)]})


def _data(offset: int, producer: int, key: str) -> bytes:
    records = [Record(key.encode(), b"bad", NOW - 1000)]
    return encode_batch(
        records, base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
    )


def _marker(offset: int, producer: int) -> bytes:
    return encode_marker(offset, commit=False, producer_id=producer, timestamp=NOW - 1000)


def test_a_transaction_index_that_was_empty_for_a_moment(root: Path) -> None:
    """U-44, U-32: the log's markers decide, and the agent compares the index with the one that cleanerd read."""
    with running(root, _with_transactions()) as agent:
        agent.facts = {"hw": 8, "lso": 6}
        (root / NAME / f"{6:020d}.txnindex").write_bytes(b"")
        result = clean_beside(agent)
        assert result.outcome == "cleaned", result.reason
        assert (0, b"k", b"good") in content(root)
        assert (4, b"k", b"bad") not in content(root)
        assert any("an ABORT marker at offset 7" in note for note in result.notes)
        (below,) = {request["aborted"]["sha256"] for request in agent.requested("swap") if "aborted" in request}
        assert below == AbortedTransactions(np.array([(0, 0, 8, 2, 3, 3)], TXN_ENTRY)).digest(0, 8), "as it was read"


@pytest.mark.parametrize("index", [{}, {0: [(8, 2, 3, 3)]}, {0: [(8, 1, 3, 1)], 4: [(8, 4, 5, 4)]}])
def test_a_wrong_transaction_index(root: Path, index: dict[int, list[tuple[int, int, int, int]]]) -> None:
    """A-40: live cleaning corrects an index by the markers; files as offline, transaction indexes included."""
    logs = {
        0: batch(0, ("k", "good"), ("x", "1")) + _data(2, 8, "k") + _marker(3, 8),
        4: _data(4, 7, "x") + _marker(5, 7),
        6: batch(6, ("y", "1"), ("y", "2")),
        8: b"",
    }
    partition = Partition(logs, aborted=index)
    expected = cleaned_offline(root, partition)
    with running(root, partition) as agent:
        agent.facts = {"hw": 8, "lso": 8}
        result = clean_beside(agent)
        assert result.outcome == "cleaned", result.reason
    assert content(root) == expected
    assert (0, b"k", b"good") in expected
    assert _files(root) == _files(root.parent / "offline")
    assert any(name.endswith("txnindex") for name in _files(root))


def _files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / NAME).iterdir() if path.suffix in {".log", ".txnindex"}}


def test_an_agent_of_an_earlier_release(root: Path) -> None:
    """U-32, S-50: it would refuse unknown fields, so it gets the earlier requests."""
    with running(root, _with_transactions()) as agent:
        agent.facts = {"hw": 8, "lso": 6, "compares_aborted": False, "compares_clean": False}
        result = clean_beside(agent)
        assert (result.outcome, result.notes) == ("cleaned", ())
        assert all("aborted" not in request for request in agent.requested("swap"))
        (reported,) = agent.requested("checkpoint")
        assert "clean" not in reported


def test_cleaning_again_below_its_checkpoint(root: Path) -> None:
    """U-10: a segment between is as it was read, not changed by the broker; the log is clean up to the same offset."""
    with running(root) as agent:
        first = clean_beside(agent)
        assert first.end_offset == 8
        again = clean_beside(agent, force(from_start=True, up_to_offset=5))
        assert (again.end_offset, again.notes) == (5, ())


def test_the_log_start_is_compared_under_a_versioned_strategy(root: Path) -> None:
    """U-2."""
    topic = replace(config(segment_bytes=3000, compaction_strategy="timestamp"), delegation=Delegation("delegated"))
    with running(root) as agent:
        assert clean_beside(agent, topic=topic).outcome == "cleaned"
        assert {request["log_start"] for request in agent.requested("swap")} == {0}
        assert agent.checkpoints == {}, "U-10: Kafka's checkpoint is about Kafka's rules"


@pytest.mark.parametrize("recovery_point", [0, 3, 5, 8])
def test_a_recovery_point_that_stays_behind(root: Path, monkeypatch: pytest.MonkeyPatch, recovery_point: int) -> None:
    """U-49: after an unclean stop it stays until a segment is rolled, which an idle log never does.

    Closed segments above it are flushed before the first swap, also unchanged ones.
    """
    flushed: list[tuple[str, int]] = []
    perform = PartitionFiles.perform

    def seen(files: PartitionFiles, operation: FileOperation) -> None:
        if operation.kind == "fsync" and operation.name.endswith(".log") and "/" not in operation.name:
            flushed.append((operation.name, len(agent.requested("swap"))))
        perform(files, operation)

    monkeypatch.setattr(PartitionFiles, "perform", seen)
    expected = cleaned_offline(root)
    flushed.clear()
    with running(root) as agent:
        log = _log(agent)
        closed = [(f"{segment.base:020d}.log", log.end_of(row)) for row, segment in enumerate(log.segments[:-1])]
        agent.facts = {"recovery_point": recovery_point}
        result = clean_beside(agent)
        assert (result.outcome, result.end_offset, content(root)) == ("cleaned", 8, expected)
        assert all(request["recovery_point"] is False for request in agent.requested("swap"))
        behind = [name for name, end in closed if end > recovery_point]
        assert flushed[: len(behind)] == [(name, 0) for name in behind]


@pytest.mark.parametrize("facts", [{"hw": 5, "lso": 5}, {"lso": 5}])
def test_the_brokers_offsets_count(root: Path, facts: dict[str, int]) -> None:
    """U-23, S-01: its high watermark and last stable offset, not those of the checkpoint files."""
    with running(root) as agent:
        agent.facts = dict(facts)
        result = clean_beside(agent, force(from_start=True))
        assert result.end_offset == 5
        assert all(request["groups"][0]["end"] <= 5 for request in agent.requested("swap"))


def test_segments_that_the_broker_does_not_have(root: Path) -> None:
    """D-06: directory and broker disagree: cleanerd reads both again, and then skips the partition."""
    with running(root) as agent:
        before = tree(root / NAME)
        rows = agent.do_log({"topic": "orders", "partition": 0})["segments"]
        agent.facts = {"segments": [[*rows[0][:3], rows[0][3] + 1], *rows[1:]]}
        result = clean_beside(agent)
        assert (result.outcome, len(agent.requested("log"))) == ("skipped", QUICK.plans)
        assert "segment 0 is not the one that the broker has" in result.reason
        assert tree(root / NAME) == before


def test_a_segment_rolled_meanwhile_is_not_read(root: Path) -> None:
    """The active segment belongs to the broker: a later segment did not exist when the broker reported."""
    with running(root) as agent:
        rows = agent.do_log({"topic": "orders", "partition": 0})["segments"]
        agent.facts = {"segments": rows[:3], "hw": 8, "lso": 8}
        result = clean_beside(agent)
        assert result.end_offset == 5
        assert [request["groups"][0]["base"] for request in agent.requested("swap")] == []


def test_replaced_a_moment_ago(root: Path) -> None:
    """D-04: while a base offset's replaced files still exist, it is not swapped again."""
    expected = cleaned_offline(root)
    with running(root) as agent:
        old = root / NAME / f"{5:020d}.log.deleted"
        old.write_bytes(b"")
        result = clean_beside(agent)
        assert (result.outcome, agent.requested("swap")) == ("skipped", [])
        assert "file.delete.delay.ms" in result.reason
        assert len(agent.requested("log")) == 1, "not decided again and again"
        threading.Timer(0.15, old.unlink).start()
        soon = config(segment_bytes=3000, file_delete_delay_ms=100)
        patient = replace(QUICK, deletion_seconds=PATIENCE_SECONDS)
        assert clean_beside(agent, topic=soon, patience=patient).outcome == "cleaned", "a moment can be waited for"
        assert content(root) == expected


def test_replaced_before_the_clock_was_set_back() -> None:
    """D-04: the replaced files seem to be from tomorrow; cleanerd waits no longer than the broker's own delay."""
    segment = SimpleNamespace(source=SimpleNamespace(base=5))
    cleaning = SimpleNamespace(
        groups=lambda: [[0]], decision=SimpleNamespace(segments=[segment]), plan=SimpleNamespace(path=NAME)
    )
    from_tomorrow = os.stat_result((*[0] * 9, int(time.time()) + 86_400))
    with pytest.raises(RetryLaterError, match="replaced less than") as raised:
        refuse_deletions(cast("Cleaning", cleaning), lambda _name: from_tomorrow, 60_000, 1.0)
    assert raised.value.seconds == 60.0


@pytest.mark.parametrize(("producers", "stays"), [([], False), ([[7, 1, 0]], True), ([[7, None, 0]], False)])
def test_an_active_producers_last_batch(root: Path, producers: list[list[Any]], stays: bool) -> None:
    """R192-1: a producer that the broker still has keeps its batch, even if cleanerd would treat it as expired."""
    record = Record(key=b"a", value=b"1", timestamp=NOW - 5000)
    idempotent = encode_batch([record, record], base_offset=0, producer_id=7, producer_epoch=0, base_sequence=0)
    partition = Partition({0: idempotent + batch(2, ("b", "1")), 3: batch(3, ("a", "2"), ("b", "2")), 5: b""})
    with running(root, partition) as agent:
        agent.producers = producers
        assert clean_beside(agent, with_resources=resources(expiration_ms=1)).outcome == "cleaned"
        headers = [stored.header for found in read_segments(root / NAME).values() for stored in found]
        assert (7 in {header.producer_id for header in headers}) is stays
        assert b"1" not in {value for _, _, value in content(root)}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [({"future": True}, "moved"), ({"remote": True}, "remote storage"), ({"deleted": True}, "deleted")],
)
def test_partitions_being_moved(root: Path, facts: dict[str, Any], reason: str) -> None:
    """A-13."""
    with running(root) as agent:
        agent.facts = facts
        result = clean_beside(agent)
        assert (result.outcome, len(agent.requested("swap"))) == ("refused", 0)
        assert reason in result.reason


def test_plans_of_a_killed_cleanerd_are_removed(root: Path) -> None:
    """Staged files without a process; a ready plan of `cleanerd stage` stays until the first swap."""
    with running(root) as agent:
        staging = root / NAME / ".kstage"
        for plan, ready in (("20261121t001400-0123abcd", False), ("20261121t001401-0123abcd", True)):
            (staging / plan).mkdir(parents=True)
            (staging / plan / f"{0:020d}.log").write_bytes(b"half")
            if ready:
                (staging / plan / "ready.json").write_bytes(b"{}")
        agent.facts = {"lso": 0}
        assert clean_beside(agent).outcome == "skipped"
        assert [path.name for path in staging.iterdir()] == ["20261121t001401-0123abcd"]
        agent.facts = {}
        assert clean_beside(agent).outcome == "cleaned"
        assert not staging.exists()


def test_old_message_formats_are_refused(root: Path) -> None:
    """U-18: only v2 beside a running broker; offline the log is cleaned."""
    old = b"".join(encode_legacy(offset, b"a", b"1") for offset in range(3))
    partition = Partition({0: old, 3: batch(3, ("a", "9")), 4: b""})
    cleaned_offline(root, partition)
    with running(root, partition) as agent:
        before = tree(root / NAME)
        result = clean_beside(agent)
        assert (result.outcome, agent.requested("swap")) == ("refused", [])
        assert "v0 or v1" in result.reason
        assert tree(root / NAME) == before


def test_a_connection_closed_by_the_agent(root: Path) -> None:
    """The decision took so long that the connection was closed: a new one, without doubt about any response."""
    with running(root) as agent:
        assert clean_beside(agent, patience=replace(QUICK, idle_seconds=0.0)).outcome == "cleaned"
        assert len(agent.requested("swap")) == 2


@pytest.mark.parametrize(("limit", "most"), [("MAX_REQUEST_BYTES", 700), ("MAX_REQUEST_VALUES", 50)])
def test_more_segments_than_a_request_can_name(
    root: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """No request is sent, and no attempt repeated."""
    # a log of enough segments for the real limits would take minutes to write
    monkeypatch.setattr(agent_client, limit, most)
    with running(root) as agent:
        before = tree(root / NAME)
        result = clean_beside(agent)
        assert (result.outcome, agent.requested("swap"), len(agent.requested("log"))) == ("refused", [], 1)
        assert "too many segments" in result.reason
        assert tree(root / NAME) == before


def test_a_full_disk_does_not_quarantine_the_log(root: Path) -> None:
    """U-16: failed with the reason, no quarantine, no files left; a later cleaning succeeds."""
    with running(root) as agent:
        before = tree(root / NAME)
        result = clean_beside(agent, with_resources=resources(disk_reserve_bytes=1 << 60))
        assert result.outcome == "failed"
        assert "not enough free space" in result.reason
        assert result.error is not None
        assert result.error.exit_code == 1
        assert tree(root / NAME) == before
        assert not (root.parent / "state").exists()
        assert clean_beside(agent).outcome == "cleaned"
