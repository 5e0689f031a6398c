"""Transactions in every combination."""

from __future__ import annotations

from tests.differential.history import NOW, Turn, batch, sent
from tests.differential.transaction_cells import (
    AGAIN,
    CODECS,
    LATER,
    PLACES,
    PLAIN,
    RETENTION_MS,
    abort,
    cell_of,
    commit,
    hollow,
    tx,
)

MARKERS = [
    cell_of(
        "an empty transaction's marker before its horizon",
        lambda rounds: rounds[0].horizons() == {1: NOW + RETENTION_MS} and rounds[1].markers() == {1},
        [batch(0, "a=1"), commit(1, 1), sent(1, 2, "b=1")],
        [batch(3, "c=1")],
        turns=(Turn(NOW), Turn(NOW + RETENTION_MS - 1, from_start=True)),
    ),
    cell_of(
        "an empty transaction's marker at its horizon",
        lambda rounds: rounds[0].horizons() == {1: NOW + RETENTION_MS} and rounds[1].gone() == {1},
        [batch(0, "a=1"), commit(1, 1), sent(1, 2, "b=1")],
        [batch(3, "c=1")],
        turns=(Turn(NOW), Turn(NOW + RETENTION_MS, from_start=True)),
    ),
    cell_of(
        "empty transactions, committed and aborted",
        lambda rounds: rounds[0].horizons().keys() == {1, 2, 3, 4} and rounds[1].gone() == {1, 2},
        [batch(0, "a=1"), commit(1, 1), abort(1, 2), abort(2, 3), commit(2, 4)],
        [sent(1, 5, "b=1")],
        [batch(6, "c=1")],
        turns=LATER,
    ),
    cell_of(
        "the entry is removed a round before its marker",
        lambda rounds: (
            rounds[0].aborted() == [(1, 1, 2)]
            and not rounds[1].aborted()
            and rounds[1].horizons() == {2: NOW + 1 + RETENTION_MS}
            and rounds[3].markers() == {2}
        ),
        [batch(0, "a=1"), tx(1, 1, "a=2"), abort(1, 2)],
        [sent(1, 3, "b=1", sequence=1)],
        [batch(4, "c=1")],
        turns=AGAIN,
    ),
    cell_of(
        "no retention: the marker is removed in the next round",
        lambda rounds: [2 in each.markers() for each in rounds] == [True, True, False, False],
        [batch(0, "a=1"), tx(1, 1, "a=2"), abort(1, 2)],
        [sent(1, 3, "b=1", sequence=1)],
        [batch(4, "c=1")],
        turns=LATER,
    ),
    cell_of(
        "an emptied marker of a producer that has data",
        lambda rounds: 1 in rounds[0].gone(),
        [batch(0, "a=1"), hollow(1, 1, control=True), sent(1, 2, "b=1")],
        [batch(3, "c=1")],
    ),
    cell_of(
        "an emptied marker without a producer",
        lambda rounds: 1 in rounds[0].gone(),
        [batch(0, "a=1"), hollow(1, 1, control=True), batch(2, "b=1")],
        [batch(3, "c=1")],
    ),
    cell_of(
        "an emptied batch of an aborted transaction",
        lambda rounds: rounds[0].gone() == {1} and rounds[0].aborted() == [(1, 1, 4)],
        [batch(0, "a=1"), hollow(1, 1, last=3), abort(1, 4)],
        [sent(1, 5, "b=1", sequence=3)],
        [batch(6, "c=1")],
    ),
    cell_of(
        "an emptied batch of a committed transaction",
        lambda rounds: rounds[0].gone() == {1} and not rounds[0].horizons() and 4 in rounds[1].horizons(),
        [batch(0, "a=1"), hollow(1, 1, last=3), commit(1, 4)],
        [sent(1, 5, "b=1", sequence=3)],
        [batch(6, "c=1")],
        turns=AGAIN[:2],
    ),
    cell_of(
        "a key like a commit marker's (KAFKA-14055)",
        lambda rounds: rounds[0].dropped() == {0, 1} and rounds[0].markers() == {2, 5},
        [tx(1, 0, "\0\0\0\1=1 k=1"), commit(1, 2)],
        [tx(1, 3, "\0\0\0\1=2 k=2", sequence=2), commit(1, 5)],
        [batch(6, "c=1")],
    ),
    cell_of(
        "markers alone, the last ones of the round",
        lambda rounds: rounds[1].horizons() and rounds[3].gone() == set(),
        [tx(1, 0, "a=1"), abort(1, 1)],
        [commit(2, 2), abort(3, 3)],
        [batch(4, "a=1")],
        turns=LATER,
        expiration_ms=1,
    ),
]


PRODUCERS = [
    cell_of(
        "only markers are known: the epoch's one stays",
        lambda rounds: rounds[0].horizons().keys() == {1} and rounds[1].emptied() == {1} and 1 not in rounds[3].gone(),
        [batch(0, "a=1"), commit(1, 1), batch(2, "b=1")],
        [batch(3, "c=1")],
        turns=LATER,
    ),
    cell_of(
        "only markers are known: of two epochs",
        lambda rounds: rounds[1].gone() == {1} and rounds[1].emptied() == {2},
        [batch(0, "a=1"), commit(1, 1, epoch=3), abort(1, 2, epoch=4), batch(3, "b=1")],
        [batch(4, "c=1")],
        turns=LATER,
    ),
    cell_of(
        "transaction version 2: each marker bumps the epoch",
        lambda rounds: rounds[0].gone() >= {0, 3} and rounds[0].markers() == {1, 4, 7},
        [tx(1, 0, "a=1"), commit(1, 1, epoch=1), batch(2, "a=2")],
        [tx(1, 3, "b=1", epoch=1), abort(1, 4, epoch=2), batch(5, "b=2")],
        [tx(1, 6, "c=1", epoch=2), commit(1, 7, epoch=3)],
        [batch(8, "c=2 d=1")],
        turns=LATER,
    ),
    cell_of(
        "transaction version 2: data in the new epoch",
        lambda rounds: rounds[0].gone() == {0} and rounds[0].emptied() == {3},
        [tx(1, 0, "a=1"), commit(1, 1, epoch=1), batch(2, "a=2")],
        [tx(1, 3, "b=1", epoch=1), abort(1, 4, epoch=1)],
        [batch(5, "c=2 d=1")],
        turns=LATER,
    ),
    cell_of(
        "an aborted last batch stays, emptied",
        lambda rounds: rounds[0].emptied() == {0} and rounds[3].aborted() == [(1, 0, 2)] and rounds[3].markers() == {2},
        [tx(1, 0, "a=1 b=1"), abort(1, 2)],
        [batch(3, "c=1")],
        turns=LATER,
    ),
    cell_of(
        "an expired producer's aborted transaction vanishes",
        lambda rounds: rounds[0].gone() == {0} and not rounds[1].aborted() and 2 in rounds[2].gone(),
        [tx(1, 0, "a=1 b=1"), abort(1, 2)],
        [batch(3, "c=1")],
        turns=LATER,
        expiration_ms=1,
    ),
    cell_of(
        "an expired producer's markers vanish",
        lambda rounds: rounds[1].gone() == {1},
        [batch(0, "a=1"), commit(1, 1), batch(2, "b=1")],
        [batch(3, "c=1")],
        turns=LATER,
        expiration_ms=1,
    ),
    cell_of(
        "a late marker keeps its producer",
        lambda rounds: rounds[0].emptied() == {0} and rounds[1].gone() == {0},
        [tx(1, 0, "a=1 b=1"), abort(1, 2, timestamp=NOW - 9)],
        [batch(3, "c=1")],
        turns=(Turn(NOW), Turn(NOW + 1, from_start=True)),
        expiration_ms=10,
    ),
]


CELLS = [*CODECS, *PLAIN, *PLACES, *MARKERS, *PRODUCERS]
