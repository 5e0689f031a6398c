"""Cells with transactions: functions to define them, and the places of committed and aborted data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest

from tests.differential.cell import Cell, Reason
from tests.differential.history import DAY_MS, NOW, T0, History, Turn, batch, log, sent
from tests.kafka.log_spec import Batch, Codec, Marker

if TYPE_CHECKING:
    from collections.abc import Sequence


pytestmark = pytest.mark.kafka

RETENTION_MS = 1000
AGAIN = tuple(Turn(NOW + row, from_start=row > 0) for row in range(4))
"""Four cleanings over the whole log; no tombstone or marker that has to wait is old enough."""

LATER = tuple(Turn(NOW + row * RETENTION_MS, from_start=row > 0) for row in range(4))
"""Four cleanings; a horizon set in one expires in the next."""


def tx(producer: int, base: int, words: str, **settings: Any) -> Batch:
    """A batch of a transaction."""
    return sent(producer, base, words, transactional=True, **settings)


def commit(producer: int, base: int, *, epoch: int = 0, timestamp: int | None = None) -> Batch:
    """The marker of a committed one."""
    return _marker("commit", producer, base, epoch, timestamp)


def abort(producer: int, base: int, *, epoch: int = 0, timestamp: int | None = None) -> Batch:
    """The marker of an aborted one."""
    return _marker("abort", producer, base, epoch, timestamp)


def _marker(kind: Any, producer: int, base: int, epoch: int, timestamp: int | None) -> Batch:
    marker = Marker(kind, T0 + base if timestamp is None else timestamp)
    return Batch(base=base, marker=marker, producer_id=producer, producer_epoch=epoch)


def hollow(producer: int, base: int, *, last: int | None = None, control: bool = False, **settings: Any) -> Batch:
    """The rest of a transaction's batch, or of its marker, after an earlier cleaning."""
    return Batch(
        base=base,
        last=last,
        max_timestamp=T0 + base,
        producer_id=producer,
        producer_epoch=settings.pop("epoch", 0),
        base_sequence=-1 if control else 0,
        transactional=True,
        control=control,
        **settings,
    )


def cell_of(
    name: str,
    reason: Reason,
    *segments: Sequence[Batch] | int,
    turns: tuple[Turn, ...] = (Turn(NOW),),
    expiration_ms: int = 20 * DAY_MS,
    **settings: Any,
) -> Cell:
    config = {"delete.retention.ms": str(RETENTION_MS)}
    history = History(log(*segments), turns=turns, config=config, producer_expiration_ms=expiration_ms, **settings)
    return Cell(name, history, reason)


CODECS = [
    cell_of(
        f"aborted and committed, {codec}",
        lambda rounds: rounds[0].dropped() == {1, 2, 4, 6} and rounds[0].aborted() == [(1, 1, 8)],
        [batch(0, "a=1"), tx(1, 1, "a=2 b=1", codec=codec), tx(2, 3, "c=1 d=1 e=1", codec=codec), tx(1, 6, "c=2")],
        [commit(2, 7), abort(1, 8), batch(9, "d=2")],
    )
    for codec in get_args(Codec)
]

PLAIN = [
    cell_of(
        "committed",
        lambda rounds: rounds[0].dropped() == {0} and rounds[0].markers() == {2} and not rounds[0].horizons(),
        [tx(1, 0, "a=1 b=1"), commit(1, 2), batch(3, "a=2")],
    ),
    cell_of(
        "aborted",
        lambda rounds: (
            rounds[0].dropped() == {0, 1} and rounds[0].markers() == {2} and rounds[0].aborted() == [(1, 0, 2)]
        ),
        [tx(1, 0, "a=1 b=1"), abort(1, 2)],
        [batch(3, "c=1")],
    ),
    cell_of(
        "aborted data shadows nothing (C-19)",
        lambda rounds: rounds[0].dropped() == {2, 3} and {0, 1} <= rounds[0].offsets(),
        [batch(0, "a=1 b=1"), tx(1, 2, "a=2 b"), abort(1, 4)],
        [batch(5, "c=1")],
    ),
    cell_of(
        "committed tombstones and aborted ones",
        lambda rounds: rounds[0].dropped() == {0, 3, 5} and rounds[0].horizons().keys() == {3},
        [batch(0, "a=1 b=1 c=1"), tx(1, 3, "a=2 a"), tx(2, 5, "b"), abort(2, 6), commit(1, 7)],
        [batch(8, "d=1")],
    ),
    cell_of(
        "interleaved",
        lambda rounds: rounds[0].dropped() == {1, 4, 6} and rounds[0].aborted() == [(2, 1, 7)],
        [tx(1, 0, "a=1"), tx(2, 1, "a=2"), tx(3, 2, "b=1 c=1"), tx(2, 4, "b=2"), tx(1, 5, "d=1")],
        [tx(2, 6, "d=2"), abort(2, 7), commit(3, 8), commit(1, 9)],
        [batch(10, "e=1")],
    ),
    cell_of(
        "one producer: aborted, committed, aborted",
        lambda rounds: rounds[0].dropped() == {0, 4} and rounds[0].aborted() == [(1, 0, 1), (1, 4, 5)],
        [tx(1, 0, "a=1"), abort(1, 1), tx(1, 2, "b=1", sequence=1), commit(1, 3), tx(1, 4, "b=2", sequence=2)],
        [abort(1, 5), batch(6, "c=1")],
    ),
    cell_of(
        "an idempotent batch of the same producer before its transaction",
        lambda rounds: rounds[0].dropped() == {1} and 0 in rounds[0].offsets(),
        [sent(1, 0, "a=1"), tx(1, 1, "a=2", sequence=1), abort(1, 2)],
        [batch(3, "c=1")],
    ),
    cell_of(
        "keyless records in transactions",
        lambda rounds: rounds[0].dropped() == {0, 2, 3} and rounds[0].kafka.invalid_messages_read == 1,
        [tx(1, 0, "!=1 a=1"), tx(2, 2, "!=2 b=1"), commit(1, 4), abort(2, 5)],
        [batch(6, "c=1")],
    ),
    cell_of(
        "LogAppendTime",
        lambda rounds: rounds[0].dropped() == {0, 2} and rounds[0].emptied() >= {2},
        [tx(1, 0, "a=1 b=1", append_time=T0 + 5), tx(2, 2, "a=2", append_time=T0 + 6), commit(1, 3), abort(2, 4)],
        [batch(5, "a=3")],
    ),
]

PLACES = [
    cell_of(
        "committed over three segments",
        lambda rounds: rounds[0].dropped() == {0, 2} and rounds[0].markers() == {6},
        [tx(1, 0, "a=1 b=1")],
        [tx(1, 2, "a=2 c=1", sequence=2)],
        [tx(1, 4, "a=3 d=1", sequence=4), commit(1, 6)],
        [batch(7, "e=1")],
    ),
    cell_of(
        "aborted over three segments",
        lambda rounds: (
            rounds[0].dropped() == {0, 1, 2, 3, 4} and rounds[0].markers() == {5} and not rounds[0].horizons()
        ),
        [tx(1, 0, "a=1 b=1")],
        [tx(1, 2, "a=2 c=1", sequence=2)],
        [tx(1, 4, "a=3", sequence=4), abort(1, 5)],
        [batch(6, "e=1")],
    ),
    cell_of(
        "aborted, the marker in the active segment",
        lambda rounds: rounds[0].dropped() == {1} and rounds[0].aborted() == [(1, 1, 4)],
        [batch(0, "a=1"), tx(1, 1, "a=2")],
        [batch(2, "b=1 c=1"), abort(1, 4)],
        turns=(Turn(NOW, segments=2),),
    ),
    cell_of(
        "aborted, data in the active segment too",
        lambda rounds: rounds[0].dropped() == {1} and {2, 3} <= rounds[0].offsets(),
        [batch(0, "a=1"), tx(1, 1, "a=2")],
        [tx(1, 2, "b=1 c=1", sequence=1), abort(1, 4)],
        turns=(Turn(NOW, segments=2),),
    ),
    cell_of(
        "aborted, the marker above the bound",
        lambda rounds: rounds[0].dropped() == {1} and rounds[0].kafka.end_offset == 2,
        [batch(0, "a=1"), tx(1, 1, "a=2")],
        [batch(2, "b=1"), tx(2, 3, "c=1"), abort(1, 4)],
        [batch(5, "c=2")],
        turns=(Turn(NOW, stable_offset=3),),
    ),
    cell_of(
        "U-12: data at 10, another open from 60, abort marker at 100",
        lambda rounds: rounds[0].dropped() == {10, 11} and rounds[0].kafka.end_offset == 50,
        [batch(0, "a=1 b=1 c=1"), tx(1, 10, "a=2 b=2"), batch(12, "d=1")],
        [batch(50, "e=1"), tx(2, 60, "f=1")],
        [batch(90, "g=1")],
        [abort(1, 100)],
        turns=(Turn(NOW, stable_offset=60),),
    ),
    cell_of(
        "U-12: two abort markers behind an open transaction",
        lambda rounds: rounds[0].dropped() == {10, 12} and rounds[0].kafka.end_offset == 50,
        [batch(0, "a=1 b=1 c=1"), tx(1, 10, "a=2"), batch(11, "d=1"), tx(3, 12, "b=2")],
        [batch(50, "e=1"), tx(2, 60, "f=1")],
        [abort(1, 90), batch(91, "g=1")],
        [abort(3, 100)],
        turns=(Turn(NOW, stable_offset=60),),
    ),
    cell_of(
        "open at the end of the log",
        lambda rounds: rounds[0].dropped() == {0} and rounds[0].kafka.end_offset == 2,
        [batch(0, "a=1 a=2")],
        [batch(2, "b=1"), tx(1, 3, "a=3 b=2")],
        [batch(5, "b=3 b=4")],
        turns=(Turn(NOW, stable_offset=3),),
    ),
    cell_of(
        "open in the active segment",
        lambda rounds: rounds[0].dropped() == {0},
        [batch(0, "a=1 a=2")],
        [tx(1, 2, "a=3 b=2")],
        turns=(Turn(NOW, segments=2, stable_offset=2),),
    ),
    cell_of(
        "open, committed later on",
        lambda rounds: rounds[0].dropped() == {0} and {1, 2, 5} <= rounds[1].dropped(),
        [batch(0, "a=1 a=2")],
        [batch(2, "b=1"), tx(1, 3, "a=3 c=2")],
        [batch(5, "b=2 b=3")],
        [commit(1, 7)],
        [batch(8, "d=1")],
        turns=(Turn(NOW, segments=3, stable_offset=3), Turn(NOW + 1)),
    ),
    cell_of(
        "open, aborted later on",
        lambda rounds: rounds[0].dropped() == {0} and rounds[1].dropped() == {2, 3, 4, 5},
        [batch(0, "a=1 a=2")],
        [batch(2, "b=1"), tx(1, 3, "a=3 c=2")],
        [batch(5, "b=2 b=3")],
        [abort(1, 7)],
        [batch(8, "d=1")],
        turns=(Turn(NOW, segments=3, stable_offset=3), Turn(NOW + 1)),
    ),
    *(
        cell_of(
            f"{what} (first dirty at {offset})",
            lambda rounds, expected=expected: rounds[0].dropped() == expected,
            [batch(0, "a=1 b=1"), tx(1, 2, "a=2 c=1"), tx(2, 4, "b=2 d=1")],
            [tx(1, 6, "c=2 e=1", sequence=2), commit(2, 8), abort(1, 9)],
            [batch(10, "d=2")],
            turns=(Turn(NOW, first_dirty_offset=offset),),
        )
        for offset, what, expected in (
            (2, "at the beginning of a transaction", {1, 2, 3, 5, 6, 7}),
            (3, "inside an aborted batch", {1, 2, 3, 5, 6, 7}),
            (5, "inside a committed batch", {2, 3, 5, 6, 7}),
            (6, "in the middle of both", {2, 3, 5, 6, 7}),
            (8, "at a marker", {2, 3, 5, 6, 7}),
            (10, "behind the markers", {2, 3, 5, 6, 7}),
        )
    ),
    cell_of(
        "the round ends before the markers (--cleanable-to)",
        lambda rounds: (
            rounds[0].kafka.end_offset == 6 and rounds[0].dropped() == {1, 2, 3} and rounds[1].dropped() == {0, 4, 5, 7}
        ),
        [batch(0, "a=1 b=1"), tx(1, 2, "a=2 c=1"), tx(2, 4, "b=2 d=1 a=3")],
        [tx(1, 7, "c=2", sequence=2), commit(2, 8), abort(1, 9), batch(10, "x=1 y=1")],
        [batch(12, "d=2 b=3")],
        turns=(Turn(NOW, map_keys=3), Turn(NOW + 1)),
    ),
]

PLACES.append(
    cell_of(
        "aborted data beyond the end of the round (KAFKA-13727)",
        lambda rounds: (
            rounds[0].kafka.end_offset == 2 and rounds[0].dropped() == {3, 4} and rounds[1].dropped() == {0, 1}
        ),
        [batch(0, "a=1 b=1"), batch(2, "c=1"), tx(1, 3, "a=2 d=1"), abort(1, 5), batch(6, "b=2 a=9")],
        turns=(Turn(NOW, map_keys=2), Turn(NOW + 1)),
    )
)
