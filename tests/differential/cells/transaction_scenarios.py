"""Transactions, case by case."""

from __future__ import annotations

from tests.differential.history import DAY_MS, NOW, Turn, batch, sent
from tests.differential.transaction_cells import LATER, RETENTION_MS, abort, cell_of, commit, tx

CELLS = [
    cell_of(
        "row: idempotent producers 1:(1,2,3) 2:(3,1,4) 3:(1,4), then producer 4 writes key 2",
        lambda rounds: (
            [b.last for b in rounds[0].after.batches] == [2, 5, 7, 8]
            and rounds[0].offsets() == {1, 3, 6, 7, 8}
            and rounds[1].emptied() == {0}
            and rounds[1].offsets() == {3, 6, 7, 8, 9}
        ),
        [sent(1, 0, "1=1 2=1 3=1"), sent(2, 3, "3=2 1=2 4=2"), sent(3, 6, "1=3 4=3")],
        [sent(4, 8, "2=4")],
        [batch(9, "x=1")],
        turns=(Turn(NOW, segments=2), Turn(NOW + 1)),
    ),
    cell_of(
        "row: small map, two producers, aborted and committed, three passes",
        lambda rounds: (
            rounds[0].kafka.end_offset < 12
            and rounds[0].markers() == {4, 6, 10, 11}
            and rounds[0].aborted() == [(2, 2, 4), (1, 9, 10)]
            and rounds[1].aborted() == [(1, 9, 10)]
            and rounds[1].markers() == {4, 6, 10, 11}
            and rounds[2].gone() == {4}
            and not rounds[2].aborted()
        ),
        [tx(1, 0, "1=1 2=1"), tx(2, 2, "2=2 3=2"), abort(2, 4), tx(1, 5, "4=1", sequence=2), commit(1, 6)],
        [tx(2, 7, "1=3 5=2", sequence=2), tx(1, 9, "5=4", sequence=3), abort(1, 10), commit(2, 11)],
        [sent(1, 12, "6=1", sequence=4), sent(2, 13, "7=1", sequence=4)],
        [batch(14, "x=1")],
        turns=(Turn(NOW, map_keys=3), Turn(NOW + 1, from_start=True), Turn(NOW + 2 * RETENTION_MS, from_start=True)),
    ),
    cell_of(
        "row: interleaved transactions, one aborted",
        lambda rounds: (
            rounds[0].dropped() == {0, 1, 2, 4, 5}
            and rounds[0].markers() == {8, 9}
            and rounds[0].aborted() == [(2, 1, 9)]
        ),
        [tx(1, 0, "1=1"), tx(2, 1, "2=2"), tx(1, 2, "2=3", sequence=1), tx(1, 3, "3=4", sequence=2)],
        [tx(2, 4, "3=5", sequence=1), tx(2, 5, "1=6", sequence=2), tx(1, 6, "2=7 1=8", sequence=3)],
        [commit(1, 8), abort(2, 9), batch(10, "x=1")],
    ),
    cell_of(
        "row: transactions over two segments, only the first is cleaned, later the rest",
        lambda rounds: rounds[0].dropped() == {1} and rounds[1].dropped() == {2, 3, 6},
        [batch(0, "2=1"), tx(3, 1, "2=9"), tx(1, 2, "3=3")],
        [tx(1, 3, "1=4", sequence=1), abort(3, 4), commit(1, 5), tx(2, 6, "3=5")],
        [abort(2, 7), tx(1, 8, "1=9", sequence=2), commit(1, 9), batch(10, "3=6")],
        turns=(Turn(NOW, segments=2, stable_offset=6), Turn(NOW + 1)),
    ),
    cell_of(
        "row: a commit marker, its data superseded in part, then in full",
        lambda rounds: (
            rounds[0].dropped() == {0}
            and 2 not in rounds[1].horizons()
            and rounds[2].horizons()[2] == NOW + 2 + RETENTION_MS
            and 2 in rounds[3].markers()
            and 2 in rounds[4].gone()
        ),
        [tx(1, 0, "a=1 b=1"), commit(1, 2), batch(3, "a=2"), sent(1, 4, "x=1", sequence=2)],
        [batch(5, "b=2")],
        [batch(6, "c=1")],
        turns=(
            Turn(NOW, segments=2),
            Turn(NOW + 1),
            Turn(NOW + 2, from_start=True),
            Turn(NOW + 2, from_start=True),
            Turn(NOW + 2 + RETENTION_MS, from_start=True),
        ),
    ),
    cell_of(
        "row: an empty data batch of a transaction is its producer's last",
        lambda rounds: (
            rounds[0].emptied() == {0}
            and 1 not in rounds[1].horizons()
            and 0 in rounds[2].gone()
            and 1 in rounds[3].horizons()
            and 1 in rounds[4].gone()
        ),
        [tx(1, 0, "a=1"), commit(1, 1), batch(2, "a=2")],
        [batch(3, "x=1")],
        [sent(1, 4, "b=1", sequence=1)],
        [batch(5, "c=1")],
        turns=(
            Turn(NOW, segments=2),
            Turn(NOW + RETENTION_MS, segments=2, from_start=True),
            Turn(NOW + 2 * RETENTION_MS),
            Turn(NOW + 2 * RETENTION_MS, from_start=True),
            Turn(NOW + 3 * RETENTION_MS, from_start=True),
        ),
    ),
    cell_of(
        "row: only a commit marker for a producer",
        lambda rounds: rounds[1].emptied() == {1} and all(1 not in each.gone() for each in rounds),
        [batch(0, "a=1"), commit(1, 1), batch(2, "b=1")],
        [batch(3, "c=1")],
        turns=(*LATER[:2], Turn(NOW + 9 * RETENTION_MS, from_start=True)),
    ),
    cell_of(
        "row: a committed transaction over two segments",
        lambda rounds: rounds[1].dropped() == {0} and all({1} < each.offsets() | each.markers() for each in rounds),
        [batch(0, "b=1"), tx(1, 1, "a=1")],
        [commit(1, 2), batch(3, "b=2")],
        [batch(4, "c=1")],
        turns=(Turn(NOW, segments=2), Turn(NOW + 1), Turn(NOW + DAY_MS, from_start=True)),
    ),
    cell_of(
        "row: an aborted transaction over two segments",
        lambda rounds: rounds[0].emptied() == {0} and rounds[2].markers() == {1} and rounds[2].aborted() == [(1, 0, 1)],
        [tx(1, 0, "a=1")],
        [abort(1, 1), batch(2, "b=1")],
        [batch(3, "c=1")],
        turns=(Turn(NOW), Turn(NOW + DAY_MS, from_start=True), Turn(NOW + 30 * DAY_MS, from_start=True)),
    ),
    cell_of(
        "row: an abort marker",
        lambda rounds: (
            rounds[0].dropped() == {0}
            and rounds[0].markers() == {1}
            and 1 in rounds[1].horizons()
            and 1 in rounds[2].gone()
        ),
        [tx(1, 0, "a=1"), abort(1, 1), sent(1, 2, "b=1", sequence=1)],
        [batch(3, "c=1")],
        turns=LATER,
    ),
    cell_of(
        "row: two transactions with equal sequences of one producer",
        lambda rounds: (
            rounds[0].gone() == {0}
            and rounds[0].emptied() == {2}
            and 1 in rounds[2].gone()
            and 3 in rounds[3].markers()
        ),
        [tx(1, 0, "a=1"), commit(1, 1), tx(1, 2, "a=2"), commit(1, 3), batch(4, "a=3")],
        [batch(5, "c=1")],
        turns=LATER,
    ),
    cell_of(
        "row: an abort marker with a retained empty batch",
        lambda rounds: (
            rounds[0].emptied() == {0}
            and rounds[1].aborted() == [(1, 0, 1)]
            and rounds[2].gone() == {0}
            and not rounds[3].aborted()
            and 1 in rounds[4].gone()
        ),
        [tx(1, 0, "a=1"), abort(1, 1)],
        [batch(2, "b=1")],
        [sent(1, 3, "c=1", sequence=1)],
        [batch(4, "d=1")],
        turns=(
            Turn(NOW, segments=2),
            Turn(NOW + RETENTION_MS, segments=2, from_start=True),
            *(Turn(NOW + row * RETENTION_MS, from_start=row > 2) for row in (2, 3, 4)),
        ),
    ),
    cell_of(
        "row: the last sequence of each producer, with an aborted transaction too",
        lambda rounds: rounds[0].emptied() == {2, 4} and rounds[0].gone() == {0} and {2, 4} <= rounds[1].gone(),
        [sent(1, 0, "a=1 b=1"), sent(1, 2, "a=2 b=2", sequence=2), tx(2, 4, "a=3"), abort(2, 5), batch(6, "a=4 b=4")],
        [batch(8, "x=1")],
        [sent(1, 9, "p=1", sequence=4), sent(2, 10, "q=1", sequence=1)],
        [batch(11, "c=1")],
        turns=(Turn(NOW, segments=2), Turn(NOW + 1)),
    ),
    cell_of(
        "row: a key equal to a commit marker's key",
        lambda rounds: rounds[0].dropped() == {0} and rounds[0].markers() == {1, 3},
        [tx(1, 0, "\0\0\0\1=1"), commit(1, 1), tx(1, 2, "\0\0\0\1=2", sequence=1), commit(1, 3)],
        [batch(4, "c=1")],
    ),
]
