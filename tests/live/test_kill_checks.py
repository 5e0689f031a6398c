"""The checks after a kill find each kind of damage: one broken case per rule (LT-4)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cleanerd.cleaner.manifest import STAGING
from tests.live.chaos import without_lost_verifications
from tests.live.day import without_early_appends
from tests.live.kill_checks import Readers, Requested, left_behind, too_high
from tests.live.kill_writers import KEYS, Writers
from tests.live.ledger import Ledger, Place, Written
from tests.live.load import Load, Writing
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch

ORDERS = Place("orders", 0)
Found = dict[int, tuple[bytes, bytes | None]]
MOVED = (
    "[2026-11-28 10:00:00,000] [ReplicaAlterLogDirsThread-0] INFO kafka.log.LogManager - The current replica is "
    "successfully replaced with the future replica for t-0"
)
REFUSED = (
    "[2026-11-28 10:00:00,200] [handler-1] ERROR kafka.server.ReplicaManager - [ReplicaManager broker=1] Error "
    "processing append operation on partition liPChhodTc6m87cKKO6fng:t-0"
)
UNVERIFIED = "org.apache.kafka.common.errors.InvalidTxnStateException: Record was not part of an ongoing transaction"
OUT_OF_ORDER = "org.apache.kafka.common.errors.OutOfOrderSequenceException: Out of order sequence number for producer 1"


def batches(*entries: tuple[int, str, str | None]) -> bytes:
    """Offset, key and value of every record."""
    return b"".join(keyed_batch(offset, [(key, value)]) for offset, key, value in entries)


def of_group(directory: Path, base: int, end: int, *sources: int) -> dict[str, Any]:
    """A swap request for a group whose new segment is staged."""
    group = {"base": base, "end": end, "files": {"log": "0.log"}, "sources": [{"base": each} for each in sources]}
    return {"dir": str(directory), "plan": "p", "groups": [group]}


@pytest.fixture
def requested(tmp_path: Path) -> Requested:
    """Two segments to be merged into one."""
    segments = {0: batches((0, "a", "0:"), (1, "b", "1:")), 2: batches((2, "a", "2:")), 3: batches((3, "c", "3:"))}
    directory = make_log_dir(tmp_path / "d", {"orders-0": Partition(segments)}) / "orders-0"
    (directory / STAGING / "p").mkdir(parents=True)
    (directory / STAGING / "p" / "0.log").write_bytes(batches((1, "b", "1:"), (2, "a", "2:")))
    found = Requested.of(of_group(directory, 0, 3, 0, 2), directory)
    assert found is not None
    return found


def test_old_new_and_neither(requested: Requested) -> None:
    """K-1 .. K-8: judged as the broker would load it, `.swap` files included."""
    directory = requested.directory
    assert (requested.outcome(), requested.is_on_the_disk()) == ("old", True)
    (directory / f"{0:020d}.log.swap").write_bytes((directory / STAGING / "p" / "0.log").read_bytes())
    assert (requested.outcome(), requested.is_on_the_disk()) == ("new", True)
    (directory / STAGING / "p" / "0.log").unlink()
    (directory / f"{0:020d}.log.swap").replace(directory / f"{0:020d}.log")
    assert (requested.outcome(), requested.is_on_the_disk()) == (None, False)  # the second source still exists
    (directory / f"{2:020d}.log").unlink()
    assert requested.outcome() == "new"
    (directory / f"{0:020d}.log").write_bytes(batches((2, "a", "2:")))
    assert requested.outcome() is None


def test_a_repeated_swap_request_changes_nothing(requested: Requested) -> None:
    """After a lost response the same swap is requested again; its files are gone."""
    (requested.directory / STAGING / "p" / "0.log").unlink()
    assert Requested.of(of_group(requested.directory, 0, 3, 0, 2), requested.directory) is None


def points(tmp_path: Path, *, kafkas: int, ours: int) -> tuple[Path, Path]:
    """A log with a key twice, at 0 and 4, and two checkpoints for it."""
    log = Partition({0: batches((0, "a", "0:"), (3, "b", "3:"), (4, "a", "4:")), 5: batches((5, "c", "5:"))})
    log_dir = make_log_dir(tmp_path / "d", {"orders-0": log})
    (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {kafkas}\n")
    state = tmp_path / "state" / "partitions" / "x"
    state.mkdir(parents=True)
    document = {"topic": "orders", "partition": 0, "cleanerd_checkpoint": {"offset": ours}}
    (state / "orders-0.json").write_text(json.dumps(document))
    return log_dir, tmp_path / "state"


def writers(doomed: tuple[int, ...] = (), open_from: int | None = None) -> Writers:
    return cast("Writers", SimpleNamespace(doomed=set(doomed), unplaced=[], open_from=lambda _place: open_from))


def test_checkpoints_that_are_too_high(tmp_path: Path) -> None:
    """S-50, U-10: a duplicate key below one, an aborted record, an open transaction."""
    log_dir, state = points(tmp_path, kafkas=4, ours=4)
    assert too_high(log_dir, state, writers()) == []
    reported = too_high(log_dir, state, writers(doomed=(3,), open_from=2))
    assert [each.split(" checkpoint")[0] for each in reported] == ["Kafka's", "Kafka's", "our", "our"]
    assert "open from 2" in reported[0]
    assert "aborted records at [3]" in reported[1]


@pytest.mark.parametrize(("kafkas", "ours", "whose"), [(5, 4, "Kafka's"), (4, 5, "our")])
def test_a_duplicate_key_below_a_checkpoint(tmp_path: Path, kafkas: int, ours: int, whose: str) -> None:
    """S-50: in either of the two checkpoints."""
    (reported,) = too_high(*points(tmp_path, kafkas=kafkas, ours=ours), writers())
    assert reported == f"{whose} checkpoint 5 of orders-0 is too high: duplicate keys below it: [b'a']"


class Reads:
    """Scripted results of consumers of both isolation levels, read by read."""

    def __init__(self, *reads: Found) -> None:
        self.ledger = Ledger()
        self._reads = [each for read in reads for each in (read, read)]

    def read_all(self, _isolation: str) -> dict[Place, Found]:
        return {ORDERS: self._reads.pop(0)}


def read(*reads: Found, doomed: tuple[int, ...] = ()) -> list[str]:
    """Problems reported for the last read."""
    readers = Readers(cast("Load", Reads(*reads)), writers(doomed))
    reported: list[str] = []
    for _ in reads:
        reported = readers.read()
    return reported


def test_the_faults_that_a_reader_reports() -> None:
    """D-08: removed records that are back, a record twice, one out of order, one that was aborted."""
    first: Found = {0: (b"a", b"0:"), 1: (b"b", b"1:"), 4: (b"a", b"4:")}
    cleaned: Found = {1: (b"b", b"1:"), 4: (b"a", b"4:"), 5: (b"c", None)}
    assert read(first, cleaned, cleaned) == []
    reported = read(first, cleaned, {**first, **cleaned})
    assert [each.rpartition(": ")[2] for each in reported] == ["[0]", "[0]"]
    assert all("back" in each for each in reported)
    assert "twice, or out of order" in read({0: (b"a", b"0:"), 1: (b"a", b"0:")})[0]
    assert "twice, or out of order" in read({0: (b"a", b"7:"), 1: (b"b", b"6:")})[0]
    (reported_committed,) = read(first, doomed=(4,))
    assert reported_committed.startswith("read_committed")
    assert reported_committed.endswith("aborted: [4]")


def test_a_plain_producer_may_write_a_batch_twice() -> None:
    """Allowed: the acknowledged offset is the valid one, and the order holds there."""
    place = Place("plain", 0)
    reads = Reads()
    again: Found = {0: (b"a", b"0:"), 1: (b"b", b"1:"), 2: (b"a", b"0:"), 3: (b"b", b"1:")}
    cast("Any", reads).read_all = lambda _isolation: {place: again}
    for offset in (2, 3):
        reads.ledger.add(place, offset, Written(*again[offset], 0))
    assert Readers(cast("Load", reads), writers()).read() == []
    reads.ledger.add(place, 0, Written(*again[0], 0))
    reads.ledger.add(place, 1, Written(*again[1], 0))
    assert "out of order" in Readers(cast("Load", reads), writers()).read()[0]


def test_an_acknowledged_record_without_an_offset_is_searched() -> None:
    """A retried batch is acknowledged without an offset: its records must be somewhere."""
    reads = Reads({0: (b"a", b"0:")})
    reported = writers()
    reported.unplaced += [(ORDERS, Written(b"a", b"0:", 5)), (ORDERS, Written(b"b", b"1:", 5))]
    (wrong,) = Readers(cast("Load", reads), reported).read()
    assert "acknowledged, and not there: b'b'" in wrong
    assert reads.ledger.at(ORDERS, 0) == Written(b"a", b"0:", 5)


def test_leftover_files_are_found(tmp_path: Path) -> None:
    """U-35 and LT-10: files of swaps, of replaced segments, and marker files of work in progress."""
    log_dir, state = points(tmp_path, kafkas=4, ours=4)
    broker = cast("Any", SimpleNamespace(log_dirs=(log_dir,)))
    assert left_behind(broker, state) == []
    names = ("0.log.swap", "0.log.cleaned", "0.log.deleted", STAGING)
    for name in names:
        (log_dir / "orders-0" / name).mkdir()
    (state / "in-progress" / "x").mkdir(parents=True)
    (state / "in-progress" / "x" / "orders-0").write_text("")
    assert sorted(Path(each).name for each in left_behind(broker, state)) == sorted([*names, "orders-0"])


def test_the_ledger_forgets_deleted_records() -> None:
    """Below an offset, all but the retained records and each key's latest."""
    ledger = Ledger()
    for offset in range(KEYS):
        ledger.add(ORDERS, offset, Written(b"k%d" % random.Random(offset).randrange(4), b"", 0))
    newest = set(ledger.expected(ORDERS).values())
    ledger.forget(ORDERS, KEYS - 5, {1, 2})
    kept = {offset for offset in range(KEYS) if ledger.at(ORDERS, offset) is not None}
    assert kept == {1, 2, *newest, *range(KEYS - 5, KEYS)}


@pytest.mark.parametrize(
    ("found", "right"),
    [
        ({3: (b"a", b"new"), 5: (b"b", None)}, True),
        ({3: (b"a", b"new")}, True),
        ({3: (b"a", b"new"), 4: (b"a", b"aborted")}, True),
        ({5: (b"b", None)}, False),
        ({0: (b"a", b"old"), 5: (b"b", None)}, False),
        ({3: (b"a", b"new"), 1: (b"b", b"old")}, False),
        ({3: (b"a", b"other"), 5: (b"b", None)}, False),
    ],
    ids=["all", "the tombstone went", "an aborted record", "lost", "stale", "a deleted key is back", "altered"],
)
def test_the_retained_records_are_compared(found: dict[int, tuple[bytes | None, bytes | None]], right: bool) -> None:
    """LT-21: the latest committed record of every key must exist; of a deleted key no other record."""
    load = Load(cast("Any", None), (Writing(ORDERS.topic, "plain", "none"),), tombstones=0.5)
    rows = [(0, b"a", b"old"), (1, b"b", b"old"), (3, b"a", b"new"), (5, b"b", None)]
    for offset, key, value in rows:
        load.ledger.add(ORDERS, offset, Written(key, value, 0))
    load.ledger.add(ORDERS, 4, Written(b"a", b"aborted", 0), aborted=True)
    if right:
        load.check_winners(ORDERS, found, "a reader")
    else:
        with pytest.raises(AssertionError):
            load.check_winners(ORDERS, found, "a reader")


def test_records_removed_by_delete_records_may_be_missing() -> None:
    """LT-21: also when its acknowledgement arrives late; a missing record above the new start is still reported."""
    ledger = Ledger()
    for offset, key in enumerate((b"a", b"b")):
        ledger.add(ORDERS, offset, Written(key, b"", 0))
    ledger.cut(ORDERS, 1)
    ledger.add(ORDERS, 0, Written(b"c", b"", 0))
    assert ledger.expected(ORDERS) == {b"b": 1}
    assert [ledger.is_cut(ORDERS, offset) for offset in (0, 1)] == [True, False]


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ((MOVED, REFUSED, UNVERIFIED), 0),
        ((MOVED, REFUSED, UNVERIFIED, REFUSED, OUT_OF_ORDER), 0),
        ((MOVED, REFUSED, OUT_OF_ORDER), 1),
        ((MOVED, REFUSED, UNVERIFIED, REFUSED, OUT_OF_ORDER, REFUSED, OUT_OF_ORDER), 1),
        ((MOVED, REFUSED, UNVERIFIED, REFUSED.replace("10:00:00", "10:00:11"), OUT_OF_ORDER), 1),
        ((MOVED.replace("t-0", "t-1"), REFUSED, UNVERIFIED), 1),
        ((MOVED.replace("10:00:00", "09:59:49"), REFUSED, UNVERIFIED), 1),
        ((REFUSED, UNVERIFIED), 1),
        ((MOVED, REFUSED, "org.apache.kafka.common.errors.CorruptRecordException: a checksum"), 1),
    ],
)
def test_which_refused_appends_a_move_explains(lines: tuple[str, ...], left: int) -> None:
    """Only those whose verification the replaced log had, and then the next of that producer."""
    kept = without_lost_verifications("\n".join(lines))
    assert sum(" ERROR " in line for line in kept.splitlines()) == left


LEADS = (
    "[2026-11-28 14:48:57,167] INFO [Broker id=1] Leader idempotent-2 with topic id Some(7-_mm_ABQombUbQ7tBO2QA) "
    "starts at leader epoch 4 from offset 4642 with partition epoch 4, ISR [1] (state.change.logger)"
)
EARLY = (
    "[2026-11-28 14:48:57,682] ERROR [ReplicaManager broker=1] Error processing append operation on partition "
    "idempotent-2 (kafka.server.ReplicaManager)"
)
GAP = (
    "org.apache.kafka.common.errors.OutOfOrderSequenceException: Out of order sequence number for producer 1 at offset "
    "4642 in partition idempotent-2: 4646 (incoming seq. number), 4641 (current end sequence number)"
)


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ((LEADS, EARLY, GAP), 0),
        ((LEADS, EARLY.replace("idempotent-2", "abc:idempotent-2"), GAP), 0),
        ((EARLY, GAP), 1),
        ((LEADS, EARLY, GAP.replace("4642", "4643")), 1),
        ((LEADS.replace("idempotent-2", "idempotent-1"), EARLY, GAP), 1),
        ((LEADS, EARLY, GAP.replace("OutOfOrderSequence", "InvalidProducerEpoch")), 1),
    ],
)
def test_which_refused_appends_a_new_leader_explains(lines: tuple[str, ...], left: int) -> None:
    """Only the first one after the broker became the leader, with a gap in its sequence numbers."""
    kept = without_early_appends("\n".join(lines))
    assert sum(" ERROR " in line for line in kept.splitlines()) == left
