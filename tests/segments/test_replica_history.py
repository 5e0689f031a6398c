"""Replicas in the ISR and the last time of a full ISR: from the metadata log (U-71), and remembered (U-72)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cleanerd.format.metadata import read_metadata_record
from cleanerd.format.metadata_records import PartitionChangeRecord, PartitionRecord
from cleanerd.policy.replicas import MARGIN_MS, ReplicaFacts, Replicas, TopicReplicas
from cleanerd.segments.cluster_metadata import read_cluster_metadata
from cleanerd.state.full_isr import KEPT_MS, full_isr_document, remember_full_isr
from tests.segments.metadata_logs import ID1, ID2, LOG, read
from tests.segments.replica_records import MINUTE_MS, NO_OP, T0, change, log_of, partition
from tests.support.format_bytes import ABORT, BEGIN, END, metadata, remove_topic, snapshot, topic

if TYPE_CHECKING:
    from pathlib import Path

BOTH, FIRST = frozenset({1, 2}), frozenset({1})


def full_minute(facts: ReplicaFacts, number: int = 0) -> float:
    """The last full ISR of partition ``number``, in minutes after T0; below 0: never."""
    full_ms = facts.full_ms(facts.topics[ID1][number])
    return -1 if full_ms < 0 else (full_ms - T0) / MINUTE_MS


CREATED = (0, (topic("a", ID1), partition(ID1, 0, [1, 2], [1, 2])))


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param([(90, (NO_OP,))], 90, id="full until the last batch that counts"),
        pytest.param([(20, (change(ID1, 0, isr=[1]),)), (90, (NO_OP,))], 20, id="short"),
        pytest.param([(20, (change(ID1, 0, isr=[]),)), (90, (NO_OP,))], 20, id="empty"),
        pytest.param([(20, (change(ID1, 0, isr=[1]),)), (30, (change(ID1, 0, isr=[2, 1]),)), (90, (NO_OP,))], 90,
                     id="again"),
        pytest.param([(20, (change(ID1, 0, replicas=[1, 2, 3], adding=[3]),)), (90, (NO_OP,))], 20, id="added"),
        pytest.param([(20, (change(ID1, 0, adding=[3]),)), (90, (NO_OP,))], 20, id="added, by that field alone"),
        pytest.param([(20, (change(ID1, 0),)), (90, (NO_OP,))], 90, id="a change of something else"),
        pytest.param([(20, (change(ID1, 1, isr=[1]), change(ID2, 0, isr=[1]))), (90, (NO_OP,))], 90, id="others"),
        pytest.param([(20, (BEGIN, change(ID1, 0, isr=[1]))), (30, (END,)), (90, (NO_OP,))], 30, id="transaction"),
        pytest.param([(20, (BEGIN, change(ID1, 0, isr=[1]), ABORT)), (90, (NO_OP,))], 90, id="aborted transaction"),
        pytest.param([(20, (BEGIN, change(ID1, 0, isr=[1]))), (90, (NO_OP,))], 0, id="open transaction"),
        pytest.param([(20, (change(ID1, 0, isr=[1]),)), (97, (change(ID1, 0, isr=[1, 2]),))], 20,
                     id="full at the end, which may be uncommitted"),
    ],
)  # fmt: skip
def test_the_last_full_isr(tmp_path: Path, batches: list[tuple[float, tuple[bytes, ...]]], expected: float) -> None:
    """U-71: by the log's own times; its last minutes do not count, also for a stopped broker."""
    assert full_minute(read(log_of(tmp_path / "m", CREATED, *batches)).replicas) == expected


@pytest.mark.parametrize(
    ("batches", "alone"),
    [
        pytest.param([(97, (partition(ID1, 5, [1], [1]),))], True, id="a young partition of one replica"),
        pytest.param([(97, (partition(ID1, 5, [1, 2], [1, 2]),))], None, id="of two"),
        pytest.param([(97, (partition(ID1, 5, [1], [1]), change(ID1, 5, adding=[2])))], None, id="one to be added"),
        pytest.param([(9, (partition(ID1, 5, [1], [1]),))], True, id="an old one"),
        pytest.param([(9, (partition(ID1, 5, [1], [1]),)), (97, (change(ID1, 5, adding=[2]),))], False, id="joined"),
        pytest.param([(9, (partition(ID1, 5, [1], [1]),)), (97, (change(ID1, 5, isr=[]),))], True, id="no ISR"),
    ],
)
def test_one_replica_in_the_last_minutes(
    tmp_path: Path, batches: list[tuple[float, tuple[bytes, ...]]], alone: bool | None
) -> None:
    """U-71: with one replica nothing waits at first; a second one that may be added is waited for."""
    found = read(log_of(tmp_path / "m", CREATED, *batches)).replicas.topics[ID1].get(5)
    assert (None if found is None else found.is_alone) == alone


def test_a_deleted_topic(tmp_path: Path) -> None:
    facts = read(log_of(tmp_path / "m", CREATED, (1, (remove_topic(ID1),)), (90, (NO_OP,)))).replicas
    assert ID1 not in facts.topics


def test_a_clock_that_goes_back(tmp_path: Path) -> None:
    """U-71: a controller whose clock was a day ahead shrank the ISR; the next one's times count."""
    day = 24 * 60
    batches = [(day, (change(ID1, 0, isr=[1]),)), (30, (NO_OP,)), (40, (NO_OP,))]
    facts = read(log_of(tmp_path / "m", CREATED, *batches, end=2 * day)).replicas
    assert full_minute(facts) == 30
    assert facts.newest_ms == T0 + 2 * day * MINUTE_MS


def test_beside_a_running_broker(tmp_path: Path) -> None:
    """U-23, U-71: records younger than the limit do not count; the end of the log is known nevertheless."""
    directory = log_of(tmp_path / "m", CREATED, (20, (change(ID1, 0, isr=[1]),)), (90, (NO_OP,)))
    for younger in (False, True):
        found = read_cluster_metadata(directory, only_before_ms=T0 + 10 * MINUTE_MS, younger=younger).replicas
        assert (full_minute(found), found.newest_ms) == (0, T0 + 100 * MINUTE_MS)


@pytest.mark.parametrize("younger", [False, True])
def test_a_clock_that_goes_back_at_the_end(tmp_path: Path, younger: bool) -> None:
    """U-71: the end of the log does not count, but shows that earlier times were ahead, by up to a day in this case."""
    day = 24 * 60
    times = [(day, (NO_OP,)), (day + 60, (NO_OP,)), (60, (change(ID1, 0, isr=[1]),))]
    directory = log_of(tmp_path / "m", CREATED, *times, end=day + 30)
    before_ms = T0 + (day + 25) * MINUTE_MS
    for only_before_ms in (None, before_ms):
        facts = read_cluster_metadata(directory, only_before_ms=only_before_ms, younger=younger).replicas
        assert full_minute(facts) == 60


def test_a_snapshot_of_a_clock_that_is_ahead(tmp_path: Path) -> None:
    """U-71: also if nothing follows it."""
    directory = log_of(tmp_path / "m", start=2)
    (directory / LOG).rename(directory / f"{2:020d}.log")
    (directory / f"{2:020d}.log").write_bytes(b"")
    values = topic("a", ID1), partition(ID1, 0, [1, 2], [1, 2])
    (directory / f"{2:020d}-{1:010d}.checkpoint").write_bytes(snapshot(*values, timestamp=T0 + 1000 * MINUTE_MS))
    facts = read(directory).replicas
    bound = TopicReplicas(facts, facts.topics[ID1]).bound(0, T0 + 500 * MINUTE_MS)
    assert bound.at_ms == -1
    assert "ahead of this host's clock" in bound.why


@pytest.mark.parametrize("younger", [False, True])
def test_a_second_replica_beside_a_running_broker(tmp_path: Path, younger: bool) -> None:
    """U-71: an added replica is waited for at once, although such young metadata is not used otherwise."""
    directory = log_of(
        tmp_path / "m",
        (0, (topic("a", ID1), partition(ID1, 0, [1], [1]), partition(ID1, 1, [1, 2], [1, 2]))),
        (97, (change(ID1, 0, adding=[3]), change(ID1, 1, adding=[3]))),
    )
    facts = read_cluster_metadata(directory, only_before_ms=T0 + 95 * MINUTE_MS, younger=younger).replicas
    one, two = facts.topics[ID1][0], facts.topics[ID1][1]
    assert (one.assigned, two.assigned, two.joining) == ({1, 3}, {1, 2}, {3})


@pytest.mark.parametrize(("isr", "expected"), [([1, 2], 90), ([1], -1)])
def test_a_snapshot(tmp_path: Path, isr: list[int], expected: float) -> None:
    """U-71: it has the ISR of its time, and no history."""
    directory = log_of(tmp_path / "m", (90, (NO_OP,)), start=2)
    at_ms = T0 + 50 * MINUTE_MS
    values = topic("a", ID1), partition(ID1, 0, [1, 2], isr)
    (directory / f"{2:020d}-{1:010d}.checkpoint").write_bytes(snapshot(*values, timestamp=at_ms))
    (directory / LOG).rename(directory / f"{2:020d}.log")
    assert full_minute(read(directory).replicas) == expected


@pytest.mark.parametrize("api_key", [3, 5])
def test_a_newer_version(tmp_path: Path, api_key: int) -> None:
    """U-71: a cleaning continues, and all facts about replicas are unknown from then on."""
    for minute in (1, 99):  # also in the last minutes: it may add a replica
        batches = (minute, (metadata(api_key, b"new", version=9),))
        facts = read(log_of(tmp_path / "m", CREATED, batches)).replicas
        assert "version 9 is not known" in facts.unread


RECORDS = {
    3: "00000005000000000000000000000000000000070400000001000000020000000303000000010000000302000000020200000003"
    "00000001000000090000000b",
    5: "0000000500000000000000000000000000000007",
}
DIRECTORIES = "04" + "".join(f"{1:016x}{number:016x}" for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("api_key", "version", "rest"),
    [
        (3, 0, "01000101"),
        (3, 1, DIRECTORIES + "01000101"),
        (3, 2, DIRECTORIES + "030001010105020000000202050200000001"),
        (5, 0, "0600050200000003010400000003020903000000030000000403010104050200000004050100"),
        (5, 1, "07000502000000030104000000030209030000000300000004030101040502000000040501000831" + DIRECTORIES),
        (5, 2, "090005020000000301040000000302090300000003000000040301010405020000000405010006050200000002"
         "070502000000010831" + DIRECTORIES),
    ],
)  # fmt: skip
def test_records_written_by_kafka(api_key: int, version: int, rest: str) -> None:
    """U-71: bytes written by the classes of 3.3.2 (version 0) and 4.4.0, with every tagged field."""
    value = bytes([1, api_key, version]) + bytes.fromhex(RECORDS[api_key] + rest)
    expected = (
        PartitionRecord(uuid_7, 5, (1, 2, 3), (1, 3), (3,))
        if api_key == 3
        else PartitionChangeRecord(uuid_7, 5, (3, 4), (3,), (4,))
    )
    assert read_metadata_record(value) == expected


uuid_7 = type(ID1)(int=7)
PLACE, CLONE = "id-0123456789abcdef", "id-fedcba9876543210"
FILE_NAME = full_isr_document(PLACE).name

# ---- remembered facts


def facts_of(state: Replicas, **more: int) -> ReplicaFacts:
    return ReplicaFacts({ID1: {0: state}}, **{"as_of_ms": T0 + 90 * MINUTE_MS, "newest_ms": T0, **more})


def short(full_until: float) -> Replicas:
    return Replicas(BOTH, FIRST, int(T0 + full_until * MINUTE_MS), T0)


def test_it_only_grows(tmp_path: Path) -> None:
    """U-72: a snapshot while the ISR is short removes no fact; another reading makes no time earlier."""
    for full_until, expected in ((20, 20), (30, 30), (10, 30)):
        known = remember_full_isr(tmp_path, PLACE, facts_of(short(full_until)), T0 + 100 * MINUTE_MS, [])
        assert known[ID1.hex] == {0: T0 + expected * MINUTE_MS}
    never = remember_full_isr(tmp_path, PLACE, facts_of(Replicas(BOTH, FIRST)), T0 + 100 * MINUTE_MS, [])
    assert never[ID1.hex] == {0: T0 + 30 * MINUTE_MS}


def test_a_clone_of_the_cluster(tmp_path: Path) -> None:
    """U-72, U-46: its replicas, with the same topic ids, were complete later; the original's tombstones wait."""
    now_ms = T0 + 100 * MINUTE_MS
    remember_full_isr(tmp_path, CLONE, facts_of(short(90)), now_ms, [])
    known = remember_full_isr(tmp_path, PLACE, facts_of(short(20)), now_ms, [])
    assert known[ID1.hex] == {0: T0 + 20 * MINUTE_MS}


def test_full_isrs_are_not_written(tmp_path: Path) -> None:
    for state in (Replicas(BOTH, BOTH, -1, T0), Replicas(FIRST, frozenset(), T0, T0)):
        assert remember_full_isr(tmp_path, PLACE, facts_of(state), T0, []) == {}
    assert not list(tmp_path.iterdir())


def test_a_clock_that_is_ahead_adds_nothing(tmp_path: Path) -> None:
    """U-72: a wrong future time would count indefinitely."""
    ahead = facts_of(short(20), newest_ms=T0 + MARGIN_MS + 1)
    assert remember_full_isr(tmp_path, PLACE, ahead, T0, []) == {}
    assert not list(tmp_path.iterdir())


def test_a_time_in_the_future(tmp_path: Path) -> None:
    """U-72: no ISR was full then, so it counts as absent."""
    ahead = T0 + 100 * MINUTE_MS + MARGIN_MS + 1
    for full_ms, expected in ((ahead, 20 * MINUTE_MS + T0), (ahead - 1, ahead - 1)):
        content = {"format": 1, "topics": {ID1.hex: {"0": full_ms}}}
        (tmp_path / FILE_NAME).write_text(json.dumps(content))
        known = remember_full_isr(tmp_path, PLACE, facts_of(short(20)), T0 + 100 * MINUTE_MS, [])
        assert known[ID1.hex] == {0: expected}


def test_a_damaged_file(tmp_path: Path) -> None:
    """U-72: it counts as absent, with a warning; the known facts replace it."""
    for content in (b"{", b"[]", json.dumps({"format": 1, "topics": {ID1.hex: {"0": "x"}}}).encode()):
        (tmp_path / FILE_NAME).write_bytes(content)
        warnings: list[str] = []
        known = remember_full_isr(tmp_path, PLACE, facts_of(short(20)), T0 + MINUTE_MS, warnings)
        assert known[ID1.hex] == {0: T0 + 20 * MINUTE_MS}
        assert warnings
        assert FILE_NAME in warnings[0]


def test_old_entries_are_removed(tmp_path: Path) -> None:
    remember_full_isr(tmp_path, PLACE, facts_of(short(20)), T0 + MINUTE_MS, [])
    other = ReplicaFacts({ID2: {0: short(KEPT_MS / MINUTE_MS + 20)}}, T0, T0)
    assert set(remember_full_isr(tmp_path, PLACE, other, T0 + KEPT_MS + 20 * MINUTE_MS, [])) == {ID2.hex}


def test_a_missing_state_directory(tmp_path: Path) -> None:
    assert remember_full_isr(tmp_path / "none", PLACE, facts_of(short(20)), T0, []) == {}
