"""Batches that no client of Kafka writes: cleanerd treats their bytes as Kafka's cleaner does (F-2.7, C-48..C-52)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from tests.differential.cell import Cell, parameters
from tests.differential.history import NOW, T0, batch
from tests.differential.transaction_cells import LATER, RETENTION_MS, cell_of
from tests.kafka.log_spec import Batch
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

UNKNOWN = 77


def raw(base: int, records: Sequence[Record], *, last: int | None = None, **settings: Any) -> Batch:
    """One batch, byte for byte."""
    last = base + len(records) - 1 if last is None else last
    data = encode_batch(records, base_offset=base, last_offset_delta=last - base, **settings)
    return Batch(base=base, last=last, raw=data)


def control(base: int, value: bytes | None) -> Batch:
    """A control batch of an unknown type, without a producer."""
    return raw(base, [Record(struct.pack(">hh", 0, UNKNOWN), value, T0 + base)], control=True)


def odd(**settings: Any) -> list[Batch]:
    """A value, and a tombstone that is the only retained record of its batch."""
    return [raw(0, [Record(b"a", b"1", T0), Record(b"b", None, T0 + 9)], **settings), batch(2, "a=2")]


CELLS = [
    cell_of(
        "an unknown control type stays",
        lambda rounds: all(played.markers() == {1} for played in rounds) and not rounds[-1].horizons(),
        [batch(0, "a=1"), control(1, b"v"), batch(2, "a=2")],
        [batch(3, "b=1")],
        turns=LATER,
    ),
    cell_of(
        "an unknown control type without a value starts a horizon, and stays beyond it",
        lambda rounds: rounds[0].horizons() == {1: NOW + RETENTION_MS} and rounds[-1].markers() == {1},
        [batch(0, "a=1"), control(1, None), batch(2, "a=2")],
        [batch(3, "b=1")],
        turns=LATER,
    ),
    cell_of(
        "a horizon below 0 has passed, and a rebuild forgets it",
        lambda rounds: rounds[0].dropped() == {0, 1},
        odd(delete_horizon=-1),
        [batch(4, "d=1")],
        turns=LATER,
    ),
    cell_of(
        "a horizon at the end of time",
        lambda rounds: rounds[-1].horizons() == {0: 2**63 - 1} and 1 in rounds[-1].offsets(),
        odd(delete_horizon=2**63 - 1),
        [batch(4, "d=1")],
        turns=LATER,
    ),
    cell_of(
        "a largest timestamp that is none",
        lambda rounds: rounds[0].dropped() == {0} and rounds[1].dropped() == {1},
        odd(max_timestamp=-1),
        [batch(4, "d=1")],
        turns=LATER,
    ),
    cell_of(
        "a last offset far beyond the records",
        lambda rounds: rounds[0].dropped() == {0} and rounds[1].dropped() == {1},
        [raw(0, [Record(b"a", b"1", T0), Record(b"b", None, T0)], last=1000), batch(1001, "a=2")],
        [batch(5000, "c=1")],
        turns=LATER,
    ),
    cell_of(
        "times from none to the end of time",
        lambda rounds: rounds[0].dropped() == {0},
        [raw(0, [Record(b"a", b"1", 0), Record(b"b", b"2", 2**63 - 1), Record(b"c", b"1", -1)]), batch(3, "a=2")],
        [batch(4, "d=1")],
        turns=LATER,
    ),
]


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_raw_batches(judge_43: Judge, work: Path, cell: Cell) -> None:
    """F-2.7, C-45.5, C-48, C-50..C-52: four cleanings, after each of which both logs are equal."""
    cell.check(judge_43, work)
