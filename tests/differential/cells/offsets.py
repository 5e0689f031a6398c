"""Gaps between offsets, offsets far apart, and size limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.differential.cell import Cell, Reason
from tests.differential.history import NOW, T0, History, Turn, batch, log, text
from tests.kafka.log_spec import Batch, Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.differential.duel import Outcome

FAR = 3_000_000_000


REACH = 2**31 - 1


LAST = 2**63 - 2


BEHIND = Batch((text(12, "a=1"), text(15, "b=1")), base=10, last=20)


WIDE = Batch((text(0, "a=1"), text(REACH, "a=2")))


def dropped(*offsets: int) -> Reason:
    """Exactly these records were removed in the first cleaning."""
    return lambda rounds: rounds[0].dropped() == set(offsets)


def gone(*bases: int) -> Reason:
    """These batches were removed completely in the first cleaning."""
    return lambda rounds: set(bases) <= rounds[0].gone()


def once(name: str, reason: Reason, *segments: Sequence[Batch] | int, **config: str) -> Cell:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return Cell(name, History(log(*segments), config=settings), reason)


GAPS = [
    once(
        "gaps in and between batches",
        dropped(0, 5),
        [Batch((text(0, "a=1"), text(5, "b=1"), text(9, "a=2"))), batch(20, "b=2 c=1")],
    ),
    once("space before the first and after the last record", dropped(12), [BEHIND, batch(21, "a=2")]),
    once("the log begins far from 0", dropped(FAR, FAR + 1), [batch(FAR, "a=1 b=1 a=2")], [batch(FAR + 3, "b=2")]),
    once(
        "the largest possible offsets",
        dropped(LAST - 9),
        [batch(LAST - 9, "a=1 b=1 a=2", timestamp=T0)],
        [batch(LAST - 1, "c=1", timestamp=T0)],
    ),
    once(
        "3e9 between segments",
        dropped(0, FAR + 1),
        [batch(0, "a=1 b=1")],
        [batch(FAR, "a=2 c=1")],
        [batch(2 * FAR, "c=2 d=1")],
    ),
    once(
        "3e9 between segments, empty ones among them",
        dropped(0, FAR + 1),
        [batch(0, "a=1 b=1")],
        9,
        [batch(FAR, "a=2 c=1")],
        FAR + 9,
        [batch(2 * FAR, "c=2")],
    ),
    once(
        "as far as a segment reaches",
        dropped(0, REACH),
        [batch(0, "a=1 b=1"), batch(REACH - 1, "a=2 c=1")],
        [batch(REACH + 1, "c=2")],
    ),
    once(
        "two segments as far as one reaches",
        dropped(0, REACH, REACH + 2),
        [batch(0, "a=1 b=1")],
        [batch(REACH - 1, "a=2 c=1")],
        [batch(REACH + 1, "c=2 d=1 d=2")],
    ),
    once(
        "two segments one further than one reaches",
        dropped(0, REACH + 1),
        [batch(0, "a=1 b=1")],
        [batch(REACH, "a=2 c=1")],
        [batch(REACH + 2, "c=2")],
    ),
    once("a batch as wide as a segment reaches", dropped(0), [WIDE], [batch(REACH + 1, "b=1")]),
    once("a hole at the end of each segment (C-23)", dropped(0), [batch(0, "a=1 b=1")], [batch(50, "a=2")], 100),
]


EMPTY = [
    once(
        "empty batches in the middle",
        gone(1, 5),
        [batch(0, "a=1"), Batch(base=1, last=3), batch(4, "a=2"), Batch(base=5, last=5), batch(6, "b=1")],
    ),
    once(
        "an empty batch of a log with append time",
        gone(1),
        [batch(0, "a=1"), Batch(base=1, last=3, append_time=T0), batch(4, "a=2")],
    ),
    once(
        "nothing but empty batches before the last",
        gone(0, 4, 10),
        [Batch(base=0, last=3), Batch(base=4, last=9)],
        [Batch(base=10, last=11), batch(12, "a=1")],
    ),
    once("an empty batch ends a segment", gone(1), [batch(0, "a=1"), Batch(base=1, last=3)], [batch(4, "a=2 b=1")]),
    once(
        "a segment of one empty batch",
        gone(2),
        [batch(0, "a=1 b=1")],
        [Batch(base=2, last=9)],
        [batch(10, "a=2 c=1")],
    ),
    once("the first segment is empty", dropped(5), 0, [batch(5, "a=1 a=2")]),
    once("the last segment below the bound is empty", dropped(0), [batch(0, "a=1 a=2")], 5, 9),
    once(
        "empty segments everywhere", dropped(3, 7), 0, 1, 2, [batch(3, "a=1 b=1")], 5, 6, [batch(7, "a=2 a=3")], 10, 11
    ),
    once(
        "a segment whose records all go",
        dropped(2, 3, 4),
        [batch(0, "a=1 b=1")],
        [batch(2, "c=1 d=1"), batch(4, "c=2")],
        [batch(5, "c=3 d=2")],
    ),
    once(
        "all segments but the last",
        dropped(0, 1, 2, 3),
        [batch(0, "a=1 b=1")],
        [batch(2, "b=2")],
        [batch(3, "a=2")],
        [batch(4, "a=3 b=3")],
    ),
    once(
        "hundreds of segments of one batch each",
        lambda rounds: len(rounds[0].after.segments) == 2,
        *([batch(row, f"k{row % 7}={row}")] for row in range(300)),
    ),
]


def _end(name: str, *segments: Sequence[Batch]) -> Cell:
    """The last batch of the cleaning stays without its records; the next cleaning removes it (C-39.2)."""
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


def _several(rounds: Sequence[Outcome]) -> bool:
    """Kafka removed records, and its indexes have several entries for the rest."""
    after = rounds[0].after
    return bool(rounds[0].dropped()) and len(after.batches) > 3


def _entries(rounds: Sequence[Outcome]) -> bool:
    """Kafka's new segments have entries in both indexes, and cleanerd's were compared with them."""
    segments = rounds[0].after.segments
    return (
        _several(rounds)
        and any(segment.offset_index and segment.time_index for segment in segments[:-1])
        and rounds[0].equal_segments > 0
    )


SPREAD = [
    [batch(base + row * 3, f"k{base + row * 3}={'v' * 90} k{row}=1 x{row}=2") for row in range(20)]
    for base in range(0, 240, 60)
]


SIZES = [
    *(
        once(f"an index entry every {interval} bytes", _entries, *SPREAD, index_interval_bytes=interval)
        for interval in ("0", "1", "200", "1000")
    ),
    once("no index entry at all", _several, *SPREAD, index_interval_bytes="2147483647"),
    *(
        once(f"segments of {size} bytes", _several, *SPREAD, segment_bytes=size, index_interval_bytes="300")
        for size in ("14", "500", "2000", "5000", "12000")
    ),
    once(
        "segments that one merged segment may not hold",
        lambda rounds: len(rounds[0].after.segments) > 2 and bool(rounds[0].dropped()),
        *SPREAD,
        segment_bytes="6000",
    ),
    once(
        "small indexes",
        lambda rounds: len(rounds[0].after.segments) > 2 and _entries(rounds),
        *SPREAD,
        segment_index_bytes="480",
        index_interval_bytes="100",
    ),
    once(
        "no timestamps, so no time index",
        lambda rounds: (
            bool(rounds[0].after.segments[0].offset_index)
            and rounds[0].after.segments[0].time_index == ()
            and rounds[0].equal_segments > 0
        ),
        [batch(row, f"k{row % 90}={'v' * 90}", timestamp=-1) for row in range(120)],
        index_interval_bytes="100",
    ),
    once(
        "compact,delete: Kafka's cleaner ignores it, cleanerd keeps a segment's time span short (U-17)",
        lambda rounds: bool(rounds[0].dropped()) and len(rounds[0].after.segments) == 2,
        *([batch(row * 2, f"k{row % 3}=1 x{row}=1", timestamp=T0 + row * 3_600_000)] for row in range(20)),
        cleanup_policy="compact,delete",
        retention_ms="36000000",
    ),
    once("max.message.bytes below every batch (C-60)", _several, *SPREAD, max_message_bytes="10"),
]
