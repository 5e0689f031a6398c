"""Cleanings that end early."""

from __future__ import annotations

from tests.differential.cell import Cell
from tests.differential.history import NOW, T0, History, Turn, batch, log
from tests.kafka.log_spec import Batch, Record

DATA = (
    [batch(0, "a=1 b=1 c=1 a=2"), batch(4, "d=1 b=2 e=1 f=1")],
    [batch(8, "!=1 a=3 g=1 d=2"), batch(12, "c=2 ! h=1 e")],
    [batch(16, "a b=3 g=2 d=3")],
)


def _early(name: str, keys: int, end: int, *segments: list[Batch], first_dirty: int | None = None) -> Cell:
    """One cleaning that the full map ends at ``end``, and one that does the rest."""
    return Cell(
        f"{name}: {keys} keys, up to {end}",
        History(log(*segments), turns=(Turn(NOW, first_dirty_offset=first_dirty, map_keys=keys), Turn(NOW + 1))),
        lambda rounds: rounds[0].kafka.end_offset == end and end < rounds[1].kafka.end_offset,
    )


def _steps(name: str, keys: int, rounds: int, *segments: list[Batch]) -> Cell:
    """Repeated cleanings with the same small map until all is clean."""
    turns = tuple(Turn(NOW + row, map_keys=keys) for row in range(rounds))
    return Cell(
        f"{name}, {keys} keys a round",
        History(log(*segments), turns=turns, config={"delete.retention.ms": "2"}),
        lambda played: len({each.kafka.end_offset for each in played}) == rounds,
    )


LATE = [batch(0, "a=1 b=1 c=1 !=1 d ! a=2"), batch(7, "e f=1 !=2 c=2")]


CELLS = [
    *(
        _early("inside a batch", keys, end, *DATA)
        for keys, end in ((2, 2), (3, 3), (4, 5), (5, 7), (6, 8), (7, 11), (8, 15))
    ),
    _early("from a clean section, inside a batch", 2, 8, *DATA, first_dirty=6),
    _early("from a clean section, past records without a key", 3, 13, *DATA, first_dirty=10),
    _steps("to the end", 2, 9, *DATA),
    _steps("to the end", 3, 5, *DATA),
    _steps("to the end", 5, 3, *DATA),
    Cell(
        "keyless records and tombstones beyond the end stay, and tombstones get their horizon early (C-45.1, C-48)",
        History(log(LATE), turns=(Turn(NOW, map_keys=3), Turn(NOW + 1)), config={"delete.retention.ms": "1"}),
        lambda rounds: (
            rounds[0].kafka.end_offset == 3
            and not rounds[0].dropped()
            and rounds[0].horizons() == {0: NOW + 1, 7: NOW + 1}
            and {3, 4, 5, 0, 7} <= rounds[1].dropped()
        ),
    ),
    Cell(
        "a record without key and value beyond the end starts a horizon (C-48)",
        History(
            log([batch(0, "a=1 b=1"), batch(2, "c=1 !"), batch(4, "! a=2"), batch(6, "x=1 !=1")]),
            turns=(Turn(NOW, map_keys=2), Turn(NOW + 1)),
        ),
        lambda rounds: rounds[0].kafka.end_offset == 2 and rounds[0].horizons().keys() == {2, 4},
    ),
    Cell(
        "expired tombstones beyond the end stay (C-45.1)",
        History(
            log([batch(0, "a=1 b=1 a=2"), batch(3, "c d=1", delete_horizon=NOW - 5)]),
            turns=(Turn(NOW, map_keys=2), Turn(NOW)),
        ),
        lambda rounds: (
            rounds[0].kafka.end_offset == 2 and 3 in rounds[0].offsets() and 3 in rounds[1].dropped()
        ),
    ),
    Cell(
        "a full map ends the round even if the key is in it (C-22)",
        History(log([batch(0, "a=1 b=1 b=2 a=2"), batch(4, "a=3")]), turns=(Turn(NOW, map_keys=2), Turn(NOW))),
        lambda rounds: rounds[0].kafka.end_offset == 2 and rounds[1].dropped() == {0, 1, 3},
    ),
    Cell(
        "segments beyond the end are not touched (C-31)",
        History(
            log(
                [batch(0, "a=1 a=2"), batch(2, "b=1 c=1")],
                [batch(4, "!=1 d=1 d=2")],
                [Batch((Record(7, T0, b"e", None),)), batch(8, "e=1 !=2")],
            ),
            turns=(Turn(NOW, map_keys=3), Turn(NOW)),
        ),
        lambda rounds: (
            rounds[0].kafka.end_offset == 4 and rounds[0].dropped() == {0} and {4, 5, 7} <= rounds[1].dropped()
        ),
    ),
    Cell(
        "the last batch of the last segment is beyond the end",
        History(
            log([batch(0, "a=1 b=1 c=1"), batch(3, "!=1 !")], [batch(5, "c=2")]),
            turns=(Turn(NOW, map_keys=2), Turn(NOW)),
        ),
        lambda rounds: rounds[0].kafka.end_offset == 2 and rounds[1].dropped() == {2, 3, 4},
    ),
]  # fmt: skip
