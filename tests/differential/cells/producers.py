"""Producers' last sequences and the batches that preserve them."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from tests.differential.cell import Cell, Reason
from tests.differential.history import DAY_MS, NOW, T0, History, Turn, batch, log, sent
from tests.kafka.log_spec import Batch, Codec, Marker

if TYPE_CHECKING:
    from collections.abc import Sequence

EXPIRATION_MS = 3_600_000


def emptied(*bases: int) -> Reason:
    """Exactly these batches lost all their records and stayed."""
    return lambda rounds: rounds[0].emptied() == set(bases)


def _once(name: str, reason: Reason, *segments: Sequence[Batch]) -> Cell:
    return Cell(name, History(log(*segments)), reason)


def _expiring(name: str, since_ms: int, *, stays: bool) -> Cell:
    """The last batch of producer 1 has timestamp T0 + 1; ``since_ms`` later the cleaner runs."""
    return Cell(
        name,
        History(
            log([sent(1, 0, "a=1 b=1"), batch(2, "a=2 b=2")], [batch(4, "c=1")]),
            turns=(Turn(T0 + 1 + since_ms),),
            producer_expiration_ms=EXPIRATION_MS,
        ),
        emptied(0) if stays else lambda rounds: rounds[0].gone() == {0},
    )


CELLS = [
    *(
        _once(
            f"a superseded last batch stays, {codec}",
            emptied(0),
            [sent(1, 0, "a=1 b=1", codec=codec), batch(2, "a=2 b=2")],
            [batch(4, "c=1")],
        )
        for codec in get_args(Codec)
    ),
    _once("one of them survives", emptied(), [sent(1, 0, "a=1 b=1"), batch(2, "a=2 !=1")], [batch(4, "c=1")]),
    _once(
        "only the last batch is protected (C-39.1)",
        lambda rounds: rounds[0].emptied() == {4} and rounds[0].gone() == {0, 2},
        [sent(1, 0, "a=1 b=1"), sent(1, 2, "a=2 b=2", sequence=2), sent(1, 4, "a=3 b=3", sequence=4)],
        [batch(6, "a=4 b=4 c=1")],
    ),
    _once(
        "several producers",
        lambda rounds: rounds[0].emptied() == {2, 4} and rounds[0].gone() == {0},
        [sent(1, 0, "a=1 b=1"), sent(1, 2, "a=2 b=2", sequence=2), sent(2, 4, "a=3 b=3"), batch(6, "a=4 b=4")],
        [sent(3, 8, "c=1")],
    ),
    _once(
        "repeated equal sequences: the offset counts (KAFKA-8335)",
        lambda rounds: rounds[0].emptied() == {2} and rounds[0].gone() == {0},
        [sent(1, 0, "a=1 b=1"), sent(1, 2, "a=2 b=2", epoch=1), batch(4, "a=3 b=3")],
        [batch(6, "c=1")],
    ),
    _once(
        "a new epoch",
        lambda rounds: rounds[0].emptied() == {2} and rounds[0].gone() == {0},
        [sent(1, 0, "a=1 b=1", sequence=70), sent(1, 2, "a=2 b=2", epoch=3), batch(4, "a=3 b=3")],
        [batch(6, "c=1")],
    ),
    Cell(
        "the last batch is in the active segment",
        History(
            log([sent(1, 0, "a=1 b=1"), batch(2, "a=2 b=2")], [sent(1, 4, "c=1", sequence=2)]),
            turns=(Turn(segments=2),),
        ),
        lambda rounds: rounds[0].gone() == {0},
    ),
    _once(
        "sequences wrap around",
        emptied(0),
        [sent(1, 0, "a=1 b=1 c=1 d=1", sequence=2**31 - 2), batch(4, "a=2 b=2 c=2 d=2")],
        [batch(8, "c=3")],
    ),
    _once(
        "an emptied batch of an earlier cleaning stays",
        lambda rounds: rounds[0].dropped() == {5} and rounds[0].after.batches[0].base == 0,
        [
            Batch(base=0, last=4, max_timestamp=T0 + 5, producer_id=1, producer_epoch=0, base_sequence=0),
            batch(5, "a=1 a=2"),
        ],
        [batch(7, "c=1")],
    ),
    _once(
        "an emptied batch of an earlier cleaning is removed when the producer has written again",
        lambda rounds: 0 in rounds[0].gone(),
        [
            Batch(base=0, last=4, max_timestamp=T0 + 5, producer_id=1, producer_epoch=0, base_sequence=0),
            sent(1, 5, "a=1", sequence=5),
        ],
        [batch(6, "c=1")],
    ),
    _once(
        "LogAppendTime: time, type and sequences stay in the emptied batch",
        lambda rounds: (
            rounds[0].emptied() == {0}
            and rounds[0].after.batches[0].timestamp_type == "LogAppendTime"
            and rounds[0].after.batches[0].max_timestamp == T0 + 77
        ),
        [sent(1, 0, "a=1 b=1", append_time=T0 + 77), batch(2, "a=2 b=2")],
        [batch(4, "c=1")],
    ),
    _once(
        "expired tombstones of a last batch",
        lambda rounds: rounds[0].emptied() == {0} and not rounds[0].horizons(),
        [sent(1, 0, "a b", delete_horizon=NOW), batch(2, "c=1 d=1")],
        [batch(4, "c=2")],
    ),
    _once(
        "a keyless last batch",
        emptied(0),
        [sent(1, 0, "!=1 !=2"), batch(2, "c=1 d=1")],
        [batch(4, "c=2")],
    ),
    _once(
        "space after the records: the last offset counts, not the last record's",
        emptied(0),
        [Batch(batch(0, "a=1 b=1").records, last=9, producer_id=1, producer_epoch=0, base_sequence=0)],
        [batch(10, "a=2 b=2")],
    ),
    _expiring("just before it expires", EXPIRATION_MS - 1, stays=True),
    _expiring("when it expires", EXPIRATION_MS, stays=False),
    _expiring("long after it expired", 50 * EXPIRATION_MS, stays=False),
    Cell(
        "expired between two rounds (C-43)",
        History(
            log([sent(1, 0, "a=1 b=1"), batch(2, "a=2 b=2")], [batch(4, "c=1 a=3")], [batch(6, "d=1")]),
            turns=(Turn(T0 + EXPIRATION_MS, segments=2), Turn(T0 + 2 * EXPIRATION_MS)),
            producer_expiration_ms=EXPIRATION_MS,
        ),
        lambda rounds: rounds[0].emptied() == {0} and 0 in rounds[1].gone(),
    ),
    Cell(
        "writes again between two rounds",
        History(
            log(
                [sent(1, 0, "a=1 b=1"), batch(2, "a=2 b=2")],
                [batch(4, "x=1")],
                [sent(1, 5, "c=1 a=3", sequence=2)],
                [batch(7, "c=2 a=4")],
                [batch(9, "d=1")],
            ),
            turns=(Turn(NOW, segments=2), Turn(NOW + 1, segments=4), Turn(NOW + 2)),
            producer_expiration_ms=2 * DAY_MS,
        ),
        lambda rounds: rounds[0].emptied() == {0} and 0 in rounds[1].gone() and rounds[2].emptied() == {5},
    ),
    Cell(
        "a transaction in the active segment: the log below it is cleaned",
        History(
            log(
                [sent(1, 0, "a=1 b=1"), sent(2, 2, "a=2 b=2"), batch(4, "a=3 b=3")],
                [
                    sent(1, 6, "c=1", sequence=2, transactional=True),
                    Batch(base=7, marker=Marker("abort", T0), producer_id=1, producer_epoch=0),
                ],
            ),
            turns=(Turn(NOW, segments=2),),
            producer_expiration_ms=2 * DAY_MS,
        ),
        lambda rounds: rounds[0].emptied() == {2} and rounds[0].gone() == {0},
    ),
    Cell(
        "a marker of a newer epoch in the active segment: the old epoch's last batch is removed",
        History(
            log(
                [sent(1, 0, "a=1 b=1"), batch(2, "a=2 b=2")],
                [Batch(base=4, marker=Marker("abort", T0), producer_id=1, producer_epoch=1)],
            ),
            turns=(Turn(NOW, segments=2),),
            producer_expiration_ms=2 * DAY_MS,
        ),
        lambda rounds: rounds[0].gone() == {0},
    ),
    Cell(
        "the last batch is also the last of the round",
        History(
            log([batch(0, "a=1 b=1"), sent(1, 2, "!=1")], [batch(3, "c=1")], [batch(4, "d=1")]),
            turns=(Turn(NOW, segments=2), Turn(NOW + 1)),
            producer_expiration_ms=2 * DAY_MS,
        ),
        lambda rounds: rounds[0].emptied() == {2} and 2 not in rounds[1].gone(),
    ),
]
