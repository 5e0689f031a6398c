"""Tombstones and their delete horizons."""

from __future__ import annotations

from typing import get_args

from tests.differential.cell import Cell
from tests.differential.history import DAY_MS, NOW, T0, History, Turn, batch, log
from tests.kafka.log_spec import Batch, Codec, Record

RETENTION_MS = 60_000


SHORT = {"delete.retention.ms": str(RETENTION_MS)}


FAR = 2**63 - 1


AGAIN = (Turn(NOW), Turn(NOW + RETENTION_MS - 1, from_start=True), Turn(NOW + RETENTION_MS, from_start=True))


def _at_the_horizon(name: str, *batches: Batch, tombstone: int) -> Cell:
    """Kept at horizon - 1, removed at the horizon."""
    return Cell(
        name,
        History(log(batches), turns=AGAIN, config=SHORT),
        lambda rounds: (
            set(rounds[0].horizons().values()) == {NOW + RETENTION_MS}
            and tombstone in rounds[1].offsets()
            and rounds[1].horizons() == rounds[0].horizons()
            and tombstone in rounds[2].dropped()
        ),
    )


def _preset(name: str, horizon: int, *, is_removed: bool) -> Cell:
    """A horizon from an earlier cleaning: the clock decides against it, not retention."""
    return Cell(
        name,
        History(log([batch(0, "a=1 b c", delete_horizon=horizon), batch(3, "d=1 a=2")]), config=SHORT),
        lambda rounds: ({1, 2} <= rounds[0].dropped()) == is_removed and 0 in rounds[0].dropped(),
    )


CELLS = [
    *(
        _at_the_horizon(f"at the horizon, {codec}", batch(0, "a=1 b a=2", codec=codec), batch(3, "c=1"), tombstone=1)
        for codec in get_args(Codec)
    ),
    *(
        _at_the_horizon(
            f"at the horizon, LogAppendTime, {codec}",
            batch(0, "a=1 b a=2", codec=codec, append_time=T0 + 9),
            batch(3, "c=1"),
            tombstone=1,
        )
        for codec in get_args(Codec)
    ),
    _at_the_horizon("a batch of one tombstone", batch(0, "a=1"), batch(1, "a"), batch(2, "c=1"), tombstone=1),
    _at_the_horizon(
        "without timestamps",
        Batch((Record(0, -1, b"a", None), Record(1, -1, b"b", b"1"))),
        batch(2, "c=1"),
        tombstone=0,
    ),
    _at_the_horizon(
        "timestamps as far away as they get",
        Batch((Record(0, FAR, b"a", None), Record(1, 0, b"b", None), Record(2, FAR, b"c", b"1"))),
        batch(3, "d=1"),
        tombstone=1,
    ),
    _at_the_horizon("with a value of length 0 beside it", batch(0, "a b= c"), batch(3, "d=1"), tombstone=2),
    _preset("horizon one ms away", NOW + 1, is_removed=False),
    _preset("horizon now", NOW, is_removed=True),
    _preset("horizon one ms ago", NOW - 1, is_removed=True),
    _preset("horizon 0", 0, is_removed=True),
    Cell(
        "no retention: still kept in the first pass (C-47)",
        History(
            log([batch(0, "a=1 a b=1"), batch(3, "c=1")]),
            turns=(Turn(NOW), Turn(NOW, from_start=True)),
            config={"delete.retention.ms": "0"},
        ),
        lambda rounds: 1 in rounds[0].offsets() and 1 in rounds[1].dropped(),
    ),
    Cell(
        "infinite retention: no horizon, never removed (C-50)",
        History(
            log([batch(0, "a=1 a b=1"), batch(3, "c=1")]),
            turns=(Turn(NOW), Turn(2**62, from_start=True), Turn(FAR, from_start=True)),
            config={"delete.retention.ms": str(FAR)},
        ),
        lambda rounds: all(1 in each.offsets() and not each.horizons() for each in rounds),
    ),
    Cell(
        "the last horizon that fits (C-50)",
        History(
            log([batch(0, "a=1 a b=1"), batch(3, "c=1")]),
            turns=(Turn(NOW), Turn(FAR - 1, from_start=True), Turn(FAR, from_start=True)),
            config={"delete.retention.ms": str(FAR - NOW)},
        ),
        lambda rounds: (
            rounds[0].horizons() == {0: FAR} and 1 in rounds[1].offsets() and 1 in rounds[2].dropped()
        ),
    ),
    Cell(
        "a horizon stays through later rounds, and after its tombstones are removed (C-49)",
        History(
            log([batch(0, "a b c=1 d=1"), batch(4, "e=1")], [batch(5, "a=2 c=2")], [batch(7, "f=1")]),
            turns=(Turn(NOW, segments=2), Turn(NOW + 1), Turn(NOW + RETENTION_MS, from_start=True)),
            config=SHORT,
        ),
        lambda rounds: (
            rounds[1].horizons() == {0: NOW + RETENTION_MS}
            and {0, 2} <= rounds[1].dropped()
            and 1 in rounds[2].dropped()
            and rounds[2].horizons() == rounds[0].horizons()
        ),
    ),
    Cell(
        "a second tombstone in a batch with a horizon gets that horizon",
        History(
            log([batch(0, "a=1 b c", delete_horizon=NOW + 1), batch(3, "d=1 a=2")]),
            turns=(Turn(NOW), Turn(NOW + 1, from_start=True)),
            config=SHORT,
        ),
        lambda rounds: rounds[0].horizons() == {0: NOW + 1} and {1, 2} <= rounds[1].dropped(),
    ),
    Cell(
        "superseded tombstones go at once, whatever their horizon",
        History(
            log([batch(0, "a b", delete_horizon=NOW + DAY_MS), batch(2, "a=1")], [batch(3, "b=1 c=1")]),
            config=SHORT,
        ),
        lambda rounds: rounds[0].dropped() == {0, 1} and 0 in rounds[0].gone(),
    ),
    Cell(
        "a tombstone removes the values of its key in the clean section",
        History(
            log([batch(0, "a=1 b=1"), batch(2, "a=2")], [batch(3, "a c=1")]),
            turns=(Turn(NOW, first_dirty_offset=3),),
        ),
        lambda rounds: {0, 2} <= rounds[0].dropped() and rounds[0].horizons() == {3: NOW + DAY_MS},
    ),
    Cell(
        "tombstones of the clean section expire although their keys are not dirty",
        History(
            log([batch(0, "a b=1", delete_horizon=NOW)], [batch(2, "c=1")], [batch(3, "d=1")]),
            turns=(Turn(NOW, first_dirty_offset=2),),
        ),
        lambda rounds: rounds[0].dropped() == {0},
    ),
    Cell(
        "tombstones of the clean section without a horizon get one",
        History(
            log([batch(0, "a b=1")], [batch(2, "c=1")], [batch(3, "d=1")]), turns=(Turn(NOW, first_dirty_offset=2),)
        ),
        lambda rounds: rounds[0].horizons() == {0: NOW + DAY_MS},
    ),
    Cell(
        "an emptied batch has no horizon (F-2.5)",
        History(log([batch(0, "a=1"), batch(1, "b c", delete_horizon=NOW)])),
        lambda rounds: 1 in rounds[0].emptied() and rounds[0].horizons() == {},
    ),
    Cell(
        "a horizon makes a batch larger than max.message.bytes (C-55, R534-5)",
        History(
            log([batch(0, " ".join(f"k{row}" for row in range(50))), batch(50, "c=1")]),
            config={"max.message.bytes": "500"},
        ),
        lambda rounds: (
            next(b.size for b in rounds[0].after.batches)
            > next(b.size for b in rounds[0].before.batches)
            > 500
        ),
    ),
    Cell(
        "the record's age does not matter (T-02)",
        History(
            log([Batch((Record(0, 1, b"a", None), Record(1, T0, b"b", b"1"))), batch(2, "c=1")]),
            turns=AGAIN,
            config=SHORT,
        ),
        lambda rounds: 0 in rounds[1].offsets() and 0 in rounds[2].dropped(),
    ),
]  # fmt: skip
