"""Cleanings that begin in the middle of the log."""

from __future__ import annotations

from tests.differential.cell import Cell
from tests.differential.history import NOW, History, Turn, batch, log

LOG = log(
    [batch(0, "a=1 a=2 b=1 c=1"), batch(4, "a=3 d=1 d=2 e=1")],
    [batch(8, "b=2 f=1 f=2 b=3"), batch(12, "g=1 c=2 f=3 g=2")],
    [batch(16, "h=1 e=2 h=2 !=1")],
)
"""Duplicates inside every batch, and across batches."""


def _from(name: str, offset: int, dropped: set[int]) -> Cell:
    """``dropped`` follows from C-45.3: superseded by a *dirty* record; the rest of the clean section stays."""
    return Cell(
        f"{name} ({offset})",
        History(LOG, turns=(Turn(NOW, first_dirty_offset=offset),)),
        lambda rounds: rounds[0].dropped() == dropped,
    )


def _up_to(name: str, bound: int, dropped: set[int]) -> Cell:
    return Cell(
        f"{name} ({bound})",
        History(LOG, turns=(Turn(NOW, first_uncleanable_offset=bound),)),
        lambda rounds: rounds[0].dropped() == dropped and rounds[0].kafka.end_offset <= bound,
    )


ALL = {0, 1, 2, 3, 5, 7, 8, 9, 10, 12, 16, 19}


CELLS = [
    _from("first dirty at 0", 0, ALL),
    _from("first dirty inside the first batch", 1, ALL),
    _from("first dirty inside the first batch, past a duplicate", 2, ALL),
    _from("first dirty at a batch edge", 4, ALL),
    _from("first dirty inside a batch, between its duplicates", 6, ALL - {0, 1}),
    _from("first dirty at the last record of a segment", 7, ALL - {0, 1, 5}),
    _from("first dirty at a segment edge", 8, ALL - {0, 1, 5}),
    _from("first dirty inside a segment and a batch", 10, ALL - {0, 1, 5}),
    _from("first dirty inside a segment and a batch, further on", 11, ALL - {0, 1, 5}),
    _from("first dirty at the last batch of a segment", 12, {3, 7, 9, 10, 12, 16, 19}),
    _from("first dirty inside the last batch of a segment", 14, {7, 9, 10, 12, 16, 19}),
    _from("first dirty at the last segment", 16, {7, 16, 19}),
    _from("first dirty inside the last segment", 17, {7, 16, 19}),
    _from("only a keyless record is dirty", 19, {19}),
    _up_to("bound inside the last segment", 18, {0, 1, 2, 3, 5, 8, 9, 10, 12}),
    _up_to("bound at a segment edge", 16, {0, 1, 2, 3, 5, 8, 9, 10, 12}),
    _up_to("bound just below a segment edge", 15, {0, 1, 5}),
    _up_to("bound at the end of the first segment", 8, {0, 1, 5}),
    Cell(
        "first dirty inside a hole",
        History(
            log([batch(0, "a=1 b=1"), batch(10, "a=2 b=2")], [batch(12, "c=1")]),
            turns=(Turn(NOW, first_dirty_offset=5),),
        ),
        lambda rounds: rounds[0].dropped() == {0, 1},
    ),
    Cell(
        "first dirty in an empty segment",
        History(
            log([batch(0, "a=1 b=1")], 5, [batch(9, "a=2 a=3")]), turns=(Turn(NOW, first_dirty_offset=7),)
        ),
        lambda rounds: rounds[0].dropped() == {0, 9},
    ),
    Cell(
        "first dirty in a hole at the end of a segment",
        History(log([batch(0, "a=1 b=1")], [batch(9, "a=2 a=3")]), turns=(Turn(NOW, first_dirty_offset=5),)),
        lambda rounds: rounds[0].dropped() == {0, 9},
    ),
    Cell(
        "log start offset inside a batch: records below it are cleaned like others (C-15)",
        History(
            log([batch(0, "a=1 b=1 b=2 c=1"), batch(4, "a=2 d=1")], [batch(6, "c=2")]), log_start_offset=2
        ),
        lambda rounds: rounds[0].dropped() == {0, 1, 3},
    ),
    Cell(
        "log start offset: a duplicate wholly below it stays (C-20)",
        History(log([batch(0, "a=1 a=2 b=2 c=1"), batch(4, "d=2 c=3")]), log_start_offset=2),
        lambda rounds: rounds[0].dropped() == {3},
    ),
    Cell(
        "records without a key of the clean section are removed too (C-45.2)",
        History(log([batch(0, "!=1 b=1 !=2")], [batch(3, "c=1")]), turns=(Turn(NOW, first_dirty_offset=3),)),
        lambda rounds: rounds[0].dropped() == {0, 2} and rounds[0].kafka.invalid_messages_read == 2,
    ),
    Cell(
        "the two cleaners take turns",
        History(
            log(
                [batch(0, "a=1 b=1 a=2 c"), batch(4, "b=2 d=1")],
                [batch(6, "a=3 e !=1"), batch(9, "! !=2")],
                [batch(11, "f=1 d=2 !=3")],
                [batch(14, "f=2 e=1")],
            ),
            turns=(
                Turn(NOW, segments=3),
                Turn(NOW + 1000, segments=4, swapped=True),
                Turn(NOW + 2000, swapped=True),
                Turn(NOW + 3000, from_start=True, swapped=True),
            ),
            config={"delete.retention.ms": "500"},
        ),
        lambda rounds: (
            9 in rounds[0].emptied()
            and 9 in rounds[1].gone()
            and {3, 5, 7} <= rounds[1].dropped() | rounds[2].dropped()
        ),
    ),
    Cell(
        "clean section and new dirty data, three rounds",
        History(
            log(
                [batch(0, "a=1 b=1 a=2 c=1"), batch(4, "b=2 d=1")],
                [batch(6, "a=3 e=1"), batch(8, "e=2 d=2 f")],
                [batch(11, "f=1 g=1 !=1")],
                [batch(14, "g=2 h=1")],
            ),
            turns=(Turn(NOW, segments=2), Turn(NOW + 1000, segments=4), Turn(NOW + 2000)),
            config={"delete.retention.ms": "500"},
        ),
        lambda rounds: (
            [sorted(each.dropped()) for each in rounds] == [[0, 1], [2, 5, 7, 10, 13], [12]]
        ),
    ),
]  # fmt: skip
