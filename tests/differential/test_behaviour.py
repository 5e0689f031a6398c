"""Behaviour of a broker on a cleaned log (U-37): cases that a comparison of batches misses, and strategies."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from cleanerd.state.cleaner_checkpoint import StateStore
from tests.differential.behaves import assert_alike
from tests.differential.duel import NAME, NEVER_MS, clean_ours, play, prepare
from tests.differential.history import DAY_MS, NOW, History, Turn, batch, log
from tests.differential.random_oddities import random_oddities
from tests.kafka.log_spec import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

WEEK = {"cleanup.policy": "compact,delete", "retention.ms": str(7 * DAY_MS)}
RANKINGS = {
    "timestamp": {"compaction.strategy": "timestamp"},
    "header": {"compaction.strategy": "header", "compaction.strategy.header": "v"},
}


def _timeless(*contents: Sequence[str], magic: int = 2) -> tuple[Segment, ...]:
    """Segments of one-record batches without times; their files have the present time, the last is active."""
    segments = []
    offset = 0
    for words in contents:
        batches = [batch(offset + row, word, timestamp=-1, magic=magic) for row, word in enumerate(words)]
        segments.append(Segment(offset, tuple(batches), last_modified_ms=NOW))
        offset += len(words)
    return tuple(segments)


@pytest.mark.parametrize("profile", ["judge_43", "judge_39"])
@pytest.mark.parametrize("magic", [2, 1, 0])
def test_records_without_a_time(request: pytest.FixtureRequest, work: Path, profile: str, magic: int) -> None:
    """U-13: the batch that closes a group must not give a time to records without one: retention would delete them."""
    # Kafka's cleaner fails if the last v0 or v1 batch loses everything (C-44): these two are not the last.
    segments = _timeless(["a=1", "b=1", "d=1"], ["c=1", "d=2"], ["d=3", "e=1"], magic=magic)
    play(request.getfixturevalue(profile), work, History(segments, config={**WEEK, "segment.bytes": "200"}))


@pytest.mark.parametrize("policy", [{}, WEEK])
def test_segments_of_their_own(judge_43: Judge, work: Path, policy: dict[str, str]) -> None:
    """U-13, U-17: the same if each segment is a group by itself, and if one has no retained record."""
    segments = _timeless(["a=1", "b=1", "d=1"], ["d=2"], ["c=1", "d=3"], ["d=4", "e=1"])
    play(
        judge_43,
        work,
        History(segments, turns=(Turn(NOW), Turn(NOW + 1, from_start=True)), config={**policy, "segment.bytes": "80"}),
    )


@pytest.mark.parametrize("time_ms", [0, -1, NOW - 1])
def test_an_old_closing_batch(judge_43: Judge, work: Path, time_ms: int) -> None:
    """U-13: a batch that an earlier cleaning or release left at a segment's end hides no record after it."""
    segments = log(
        [batch(0, "a=1", timestamp=NOW - DAY_MS), batch(1, "", last=2, max_timestamp=time_ms)],
        [batch(3, "b=1", timestamp=NOW - 5), batch(4, "c=1", timestamp=NOW - 1)],
    )
    play(judge_43, work, History(segments, config=WEEK))


@pytest.mark.parametrize("days", [0, 100])
def test_a_neighbour_with_a_time(judge_43: Judge, work: Path, days: int) -> None:
    """U-17: records without a time expire by their file's time, and join no much older segment."""
    old_ms = NOW - days * DAY_MS
    batches = (
        (batch(0, "a=1", timestamp=-1), batch(1, "d=1", timestamp=-1)),
        (batch(2, "b=1", timestamp=old_ms), batch(3, "d=2", timestamp=old_ms)),
        (batch(4, "d=3 e=1", timestamp=old_ms),),
    )
    segments = [Segment(2 * row, content, last_modified_ms=NOW) for row, content in enumerate(batches)]
    history = History((*segments, Segment(6, last_modified_ms=NOW)), config={**WEEK, "segment.bytes": "240"})
    play(judge_43, work, history)
    first = [each.base for each in judge_43.dump(work / "ours" / str(NAME)).batches if each.segment == 0 and each.count]
    assert first == ([0] if days else [0, 2])


def _alone(judge: Judge, work: Path, history: History) -> int:
    """Run a history with cleanerd alone, and compare each cleaning with the log before.

    Returns the number of queries.
    """
    ours, before = work / "ours" / str(NAME), work / "before" / str(NAME)
    ours.parent.mkdir(parents=True)
    prepare(ours.parent)
    made = {key: value for key, value in history.config.items() if key == "index.interval.bytes"}
    judge.make(ours, history.segments, now_ms=NOW, config=made, producer_expiration_ms=NEVER_MS)
    store = StateStore(work / "state")
    requested = 0
    for row in range(3):
        turn = Turn(history.turns[0].now_ms + row * 2 * DAY_MS, from_start=row > 0)
        shutil.copytree(ours, before)
        result = clean_ours(ours.parent, store, history, turn)
        assert result.error is None, str(result.error)
        assert result.outcome in {"cleaned", "unchanged"}, f"{result.outcome}: {result.reason}"
        requested += assert_alike(judge, history, turn, ours=ours, before=before)
        shutil.rmtree(before)
    return requested


def _strategies(judge: Judge, work: Path, seeds: range) -> None:
    for seed in seeds:
        history = random_oddities(seed)
        for name, ranking in RANKINGS.items():
            try:
                if history.turns:
                    assert _alone(judge, work / name / str(seed), _with(history, ranking))
            except BaseException as error:
                error.add_note(f"this was random odd history {seed} by {name}")
                raise


def _with(history: History, ranking: dict[str, str]) -> History:
    return History(
        history.segments,
        turns=history.turns,
        config={**history.config, **ranking},
        producer_expiration_ms=history.producer_expiration_ms,
        log_start_offset=history.log_start_offset,
    )


@pytest.mark.long
def test_strategies(judge_43: Judge, work: Path) -> None:
    """U-37 if Kafka's cleaner would retain other records: no time hides a record, retention deletes none early."""
    _strategies(judge_43, work, range(1, 16))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_strategies_for_longer(judge_43: Judge, work: Path) -> None:
    """The same."""
    _strategies(judge_43, work, range(1001, 1301))
