"""The latest-state view: the same retained records as the cleaner, in any order (R280-4..6, R280-14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.client.latest_state import LatestPartition, LatestState, ReadingStart
from cleanerd.client.rules import TopicRules
from tests.client.histories import WRITES, ListSource, Write, left_of, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cleanerd.client.record import ConsumedRecord
    from cleanerd.client.rules import Strategy, TombstoneMode

STRATEGIES = st.sampled_from(("offset", "timestamp", "header"))
MODES = st.sampled_from(("null", "flag", "header"))
HISTORIES = st.lists(WRITES, max_size=25)


def seen(state: LatestState | LatestPartition) -> dict[bytes, tuple[int, bool]]:
    return {record.key or b"": (record.offset, record.is_tombstone()) for record in state.winners()}


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(HISTORIES, STRATEGIES, MODES, st.randoms(use_true_random=False))
def test_the_order_of_reading_does_not_matter(
    writes: list[Write], strategy: Strategy, tombstones: TombstoneMode, random: object
) -> None:
    """R280-4..6, R87-2..4 compared with a plain model; an older write never undoes a tombstone that was read."""
    rules = rules_of(strategy, tombstones)
    records = [write.record(offset, rules) for offset, write in enumerate(writes)]
    random.shuffle(records)  # type: ignore[attr-defined]
    state = LatestPartition()
    for record in records:
        before = state.winner(record.key) if record.key is not None else None
        assert state.take(record) is (record.key is not None and (before is None or record.rank > before.rank))
    expected = left_of(dict(enumerate(writes)), strategy, tombstones)
    assert seen(state) == expected
    live = {key for key, (_, deletes) in expected.items() if not deletes}
    assert set(state) == live
    assert len(state) == len(live)
    assert all((key in state) is (key in live) for key in expected)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.data(), HISTORIES, STRATEGIES, MODES)
def test_updates_and_a_moving_log_start(
    data: st.DataObject, writes: list[Write], strategy: Strategy, tombstones: TombstoneMode
) -> None:
    """U-2: records below the log start have no effect, also when it moves past a retained record."""
    size = len(writes)
    ends = sorted(data.draw(st.lists(st.integers(0, size), min_size=1, max_size=4)))
    source = ListSource(writes, rules_of(strategy, tombstones), ends)
    state = LatestState(source)
    for end in ends:
        source.log_start = data.draw(st.integers(source.log_start, end))
        won = state.update()
        visible = {offset: writes[offset] for offset in range(source.log_start, end)}
        assert seen(state) == left_of(visible, strategy, tombstones)
        assert all(record.offset in visible for record in won)


def test_a_superseded_record_comes_back_when_the_retained_one_is_deleted() -> None:
    """U-2: the retained record at 0 by version is below the log start now; that at 1 was read before and dropped."""
    writes = [Write(b"a", b"new", 2, 0, marked=False), Write(b"a", b"old", 1, 0, marked=False)]
    source = ListSource(writes, rules_of("header", "null"), [2, 2])
    state = LatestState(source)
    state.update()
    assert state[b"a"].value == b"new"
    source.log_start = 1
    assert [record.value for record in state.update()] == [b"old"]
    assert state[b"a"].value == b"old"


def test_a_late_older_write_does_not_resurrect() -> None:
    """R280-13, U-4: the view has seen the tombstone; a reader that has not accepts the write."""
    rules = rules_of("header", "null")
    late = Write(b"a", b"late", 3, 0, marked=False)
    writes = [Write(b"a", b"1", 1, 0, marked=False), Write(b"a", None, 5, 0, marked=False), late]
    state = LatestState(ListSource(writes, rules, [2, 3]))
    state.update()
    assert state.update() == []
    assert b"a" not in state
    newcomer = LatestPartition()
    newcomer.take(late.record(2, rules))
    assert newcomer[b"a"].value == b"late"


class TwoPartitions:
    """Partition 1 appears with the second reading; with the third, partition 0 was truncated and has other records."""

    def __init__(self, rules: TopicRules) -> None:
        self.rounds = 0
        self._rules = rules

    def begin(self) -> Mapping[int, ReadingStart]:
        self.rounds += 1
        starts = {0: ReadingStart(0, again=self.rounds != 2)}
        if self.rounds > 1:
            starts[1] = ReadingStart(0, again=self.rounds == 2)
        return starts

    def reread(self, partition: int) -> None:  # noqa: ARG002
        raise AssertionError

    def records(self, timeout_s: float) -> Iterator[ConsumedRecord]:  # noqa: ARG002
        def write(value: bytes | None, version: int, partition: int, timestamp_ms: int = 0) -> ConsumedRecord:
            return Write(b"k", value, version, timestamp_ms, marked=False).record(9 - version, self._rules, partition)

        yield from {
            1: [write(b"old home", 4, 0)],
            2: [write(b"new home", 3, 1)],
            3: [write(None, 3, 0, timestamp_ms=1)],
        }[self.rounds]

    def close(self) -> None:
        self.rounds = -1


def test_partitions() -> None:
    """Each partition has its own retained record; the topic's is the highest version, then the newest."""
    source = TwoPartitions(rules_of("header", "null"))
    with LatestState(source) as state:
        state.update()
        assert state[b"k"].value == b"old home"
        state.update()
        assert state[b"k"].value == b"old home"
        assert [state.partitions[number][b"k"].value for number in (0, 1)] == [b"old home", b"new home"]
        assert list(state) == [b"k"]
        assert len(state.winners()) == 2
        state.update()  # truncated: version 4 never existed
        assert b"k" not in state
        assert list(state) == []
        assert len(state) == 0
        assert state.winner(b"k") is not None
        with pytest.raises(KeyError):
            state[b"k"]
    assert source.rounds == -1


def test_follow() -> None:
    writes = [Write(b"a", b"%d" % n, n, 0, marked=False) for n in (1, 2, 1, 4)]
    state = LatestState(ListSource(writes, rules_of("header", "null"), [1, 3, 3, 4]))
    followed = state.follow(pause_s=0.01)
    assert [next(followed).offset for _ in range(3)] == [0, 1, 3]


def test_other_keys() -> None:
    state = LatestState(ListSource([], TopicRules(), [0]))
    assert state.update() == []
    assert "text" not in state  # type: ignore[comparison-overlap]
    assert state.winner(b"x") is None
