"""Offsets with gaps, empty batches and segments, the end of the round, segments and indexes of odd sizes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.differential.cell import Cell, Reason, parameters
from tests.differential.history import NOW, T0, History, Turn, batch, log, text
from tests.kafka.log_spec import Batch, Segment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.differential.duel import Outcome
    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

FAR = 3_000_000_000
REACH = 2**31 - 1
BEHIND = Batch((text(12, "a=1"), text(15, "b=1")), base=10, last=20)
WIDE = Batch((text(0, "a=1"), text(REACH, "a=2")))


def dropped(*offsets: int) -> Reason:
    """These records went in the first round, and no others."""
    return lambda rounds: rounds[0].dropped() == set(offsets)


def gone(*bases: int) -> Reason:
    """Of these batches nothing is left after the first round."""
    return lambda rounds: set(bases) <= rounds[0].gone()


def _once(name: str, reason: Reason, *segments: Sequence[Batch] | int, **config: str) -> Cell:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return Cell(name, History(log(*segments), config=settings), reason)


GAPS = [
    _once(
        "gaps in and between batches",
        dropped(0, 5),
        [Batch((text(0, "a=1"), text(5, "b=1"), text(9, "a=2"))), batch(20, "b=2 c=1")],
    ),
    _once("room before the first and behind the last record", dropped(12), [BEHIND, batch(21, "a=2")]),
    _once("the log begins far from 0", dropped(FAR, FAR + 1), [batch(FAR, "a=1 b=1 a=2")], [batch(FAR + 3, "b=2")]),
    _once(
        "3e9 between segments",
        dropped(0, FAR + 1),
        [batch(0, "a=1 b=1")],
        [batch(FAR, "a=2 c=1")],
        [batch(2 * FAR, "c=2 d=1")],
    ),
    _once(
        "3e9 between segments, empty ones among them",
        dropped(0, FAR + 1),
        [batch(0, "a=1 b=1")],
        9,
        [batch(FAR, "a=2 c=1")],
        FAR + 9,
        [batch(2 * FAR, "c=2")],
    ),
    _once(
        "as far as a segment reaches",
        dropped(0, REACH),
        [batch(0, "a=1 b=1"), batch(REACH - 1, "a=2 c=1")],
        [batch(REACH + 1, "c=2")],
    ),
    _once(
        "two segments as far as one reaches",
        dropped(0, REACH, REACH + 2),
        [batch(0, "a=1 b=1")],
        [batch(REACH - 1, "a=2 c=1")],
        [batch(REACH + 1, "c=2 d=1 d=2")],
    ),
    _once(
        "two segments one further than one reaches",
        dropped(0, REACH + 1),
        [batch(0, "a=1 b=1")],
        [batch(REACH, "a=2 c=1")],
        [batch(REACH + 2, "c=2")],
    ),
    _once("a batch as wide as a segment reaches", dropped(0), [WIDE], [batch(REACH + 1, "b=1")]),
    _once("a hole at the end of each segment (C-23)", dropped(0), [batch(0, "a=1 b=1")], [batch(50, "a=2")], 100),
]

EMPTY = [
    _once(
        "empty batches in the middle",
        gone(1, 5),
        [batch(0, "a=1"), Batch(base=1, last=3), batch(4, "a=2"), Batch(base=5, last=5), batch(6, "b=1")],
    ),
    _once(
        "an empty batch of a log with append time",
        gone(1),
        [batch(0, "a=1"), Batch(base=1, last=3, append_time=T0), batch(4, "a=2")],
    ),
    _once(
        "nothing but empty batches before the last",
        gone(0, 4, 10),
        [Batch(base=0, last=3), Batch(base=4, last=9)],
        [Batch(base=10, last=11), batch(12, "a=1")],
    ),
    _once("an empty batch ends a segment", gone(1), [batch(0, "a=1"), Batch(base=1, last=3)], [batch(4, "a=2 b=1")]),
    _once(
        "a segment of one empty batch",
        gone(2),
        [batch(0, "a=1 b=1")],
        [Batch(base=2, last=9)],
        [batch(10, "a=2 c=1")],
    ),
    _once("the first segment is empty", dropped(5), 0, [batch(5, "a=1 a=2")]),
    _once("the last segment below the bound is empty", dropped(0), [batch(0, "a=1 a=2")], 5, 9),
    _once(
        "empty segments everywhere", dropped(3, 7), 0, 1, 2, [batch(3, "a=1 b=1")], 5, 6, [batch(7, "a=2 a=3")], 10, 11
    ),
    _once(
        "a segment whose records all go",
        dropped(2, 3, 4),
        [batch(0, "a=1 b=1")],
        [batch(2, "c=1 d=1"), batch(4, "c=2")],
        [batch(5, "c=3 d=2")],
    ),
    _once(
        "all segments but the last",
        dropped(0, 1, 2, 3),
        [batch(0, "a=1 b=1")],
        [batch(2, "b=2")],
        [batch(3, "a=2")],
        [batch(4, "a=3 b=3")],
    ),
    _once(
        "hundreds of segments of one batch each",
        lambda rounds: len(rounds[0].after.segments) == 2,
        *([batch(row, f"k{row % 7}={row}")] for row in range(300)),
    ),
]


def _end(name: str, *segments: Sequence[Batch]) -> Cell:
    """The last batch of the round stays without its records; the round after takes it (C-39.2)."""
    sealed = log(*segments)[:-1]
    base = sealed[-1].batches[-1].base
    end = log(*segments)[-1].base
    return Cell(
        name,
        History(
            (*sealed, Segment(end, (batch(end, "z=1"),)), Segment(end + 1)),
            turns=(Turn(NOW, segments=len(sealed) + 1), Turn(NOW + 1)),
        ),
        lambda rounds: base in rounds[0].emptied() and base in rounds[1].gone(),
    )


END = [
    _end("the last batch is keyless", [batch(0, "a=1 b=1"), batch(2, "!=1 !=2")]),
    _end("the last batch is one record without key and value", [batch(0, "a=1")], [batch(1, "b=1"), batch(2, "!")]),
    _end("the last batch holds expired tombstones", [batch(0, "a=1"), batch(1, "b c", delete_horizon=NOW)]),
    _end("all of the log is keyless", [batch(0, "!=1 !=2"), batch(2, "! !=3")], [batch(4, "!=4")]),
    _end("the last batch, compressed", [batch(0, "a=1 b=1"), batch(2, "!=1 !=2", codec="zstd")]),
    _end("the last batch, LogAppendTime", [batch(0, "a=1 b=1"), batch(2, "!=1 !=2", append_time=T0)]),
    _end("the last batch is far from the one before", [batch(0, "a=1 b=1"), batch(REACH, "!=1", leader_epoch=9)]),
]

WORDS = " ".join(f"k{row}={'v' * 40}{row}" for row in range(12))
MANY = [
    [batch(base + row * 12, WORDS if row % 2 else f"{WORDS[:-1]}x") for row in range(20)] for base in range(0, 960, 240)
]


def _several(rounds: Sequence[Outcome]) -> bool:
    """Kafka dropped records, and several entries of its indexes lie over what is left."""
    after = rounds[0].after
    return bool(rounds[0].dropped()) and len(after.batches) > 3


def _entries(rounds: Sequence[Outcome]) -> bool:
    segments = rounds[0].after.segments
    return _several(rounds) and any(segment.offset_index and segment.time_index for segment in segments[:-1])


SPREAD = [
    [batch(base + row * 3, f"k{base + row * 3}={'v' * 90} k{row}=1 x{row}=2") for row in range(20)]
    for base in range(0, 240, 60)
]

SIZES = [
    *(
        _once(f"an index entry every {interval} bytes", _entries, *SPREAD, index_interval_bytes=interval)
        for interval in ("0", "1", "200", "1000")
    ),
    _once("no index entry at all", _several, *SPREAD, index_interval_bytes="2147483647"),
    *(
        _once(f"segments of {size} bytes", _several, *SPREAD, segment_bytes=size, index_interval_bytes="300")
        for size in ("14", "500", "2000", "5000", "12000")
    ),
    _once(
        "segments that one merged segment may not hold",
        lambda rounds: len(rounds[0].after.segments) > 2 and bool(rounds[0].dropped()),
        *SPREAD,
        segment_bytes="6000",
    ),
    _once(
        "small indexes",
        lambda rounds: len(rounds[0].after.segments) > 2 and _entries(rounds),
        *SPREAD,
        segment_index_bytes="480",
        index_interval_bytes="100",
    ),
    _once("max.message.bytes below every batch (C-60)", _several, *SPREAD, max_message_bytes="10"),
]


@pytest.mark.parametrize("cell", parameters([*GAPS, *EMPTY, *END, *SIZES]))
def test_offsets(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-23, C-39, C-41, C-63, C-64, U-13: offsets never move, and the end of the log stays."""
    cell.check(judge_43, work)


def test_our_segments_hold_records(judge_43: Judge, work: Path) -> None:
    """D-02: where Kafka leaves an empty segment to a neighbour that could take it, we merge; nothing else is added."""
    cell = EMPTY[-3]
    (outcome,) = cell.check(judge_43, work)
    ours = judge_43.dump(work / "ours" / "t-0")
    records = {segment.base: 0 for segment in ours.segments[:-1]}
    for found in ours.batches:
        records[found.segment] += found.count
    assert all(records.values()), records
    assert all(low < high for low, high in pairwise(sorted(records)))
    assert len(outcome.comparison.additions) <= len(records)
