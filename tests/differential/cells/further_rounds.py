"""Logs that are cleaned several times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.differential.cell import Cell, Reason
from tests.differential.history import NOW, History, Turn, batch, log, sent
from tests.kafka.log_spec import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.differential.duel import Outcome

ROUNDS = 5


AGAIN = (Turn(NOW), *(Turn(NOW, from_start=True) for _ in range(ROUNDS - 1)))


FAR = 2**63 - 1


def _changes(rounds: int) -> Reason:
    """Kafka itself changed the log in exactly that many cleanings, and then no more."""
    return lambda played: [changed(each) for each in played] == [row < rounds for row in range(ROUNDS)]


def changed(outcome: Outcome) -> bool:
    """Whether Kafka's batches differ; their segments do not matter."""
    before, after = (
        [replace(b, segment=0, position=0) for b in dump.batches] for dump in (outcome.before, outcome.after)
    )
    return before != after


def _cell(name: str, rounds: int, *segments: Sequence[Batch] | int, retention_ms: int = 0) -> Cell:
    config = {"delete.retention.ms": str(retention_ms)}
    return Cell(name, History(log(*segments), turns=AGAIN, config=config), _changes(rounds))


CELLS = [
    _cell("duplicates", 1, [batch(0, "a=1 b=1 a=2")], [batch(3, "b=2 c=1")], [batch(5, "a=3")]),
    _cell("tombstones without retention expire in the second round", 2, [batch(0, "a=1 a b")], [batch(3, "c=1 d")]),
    _cell("tombstones with retention stay", 1, [batch(0, "a=1 a b")], [batch(3, "c=1 d")], retention_ms=1),
    _cell("tombstones that never expire (C-50)", 1, [batch(0, "a=1 a b"), batch(3, "d")], retention_ms=FAR),
    _cell("a last batch of tombstones ends empty", 2, [batch(0, "a=1 b=1")], [batch(2, "a b")]),
    _cell("empty batches", 1, [batch(0, "a=1"), Batch(base=1, last=4)], [batch(5, "a=2")], [Batch(base=6, last=7)]),
    _cell("all keyless", 1, [batch(0, "!=1"), batch(1, "!=2")], [batch(2, "!=3")], [batch(3, "!=4")]),
    _cell("producers", 1, [sent(1, 0, "a=1"), sent(2, 1, "a=2")], [sent(1, 2, "a=3", sequence=1)], [batch(3, "a=4")]),
    _cell("producers' tombstones", 2, [sent(1, 0, "a b"), sent(2, 2, "c")], [batch(3, "d=1")]),
    _cell("segments of nothing", 1, 0, 1, [batch(3, "a=1 a=2")], 5, 6, [batch(7, "a=3")], 9),
    _cell("compressed", 2, [batch(0, "a=1 a b", codec="zstd")], [batch(3, "c=1 d", codec="gzip")]),
    _cell("3e9 apart", 2, [batch(0, "a=1 b")], [batch(3_000_000_000, "a=2")], [batch(6_000_000_000, "c=1")]),
]  # fmt: skip
