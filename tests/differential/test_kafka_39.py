"""Kafka 3.9's cleaner decides v2 batches as 4.3's does: some cells of every table with it as the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential import (
    test_first_dirty,
    test_further_rounds,
    test_offsets,
    test_partial,
    test_producers,
    test_records,
    test_shapes,
    test_tombstones,
    test_transaction_scenarios,
    test_transactions,
)
from tests.differential.cell import Cell, parameters
from tests.differential.duel import play
from tests.differential.random_history import random_history

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

CELLS = [
    *test_shapes.CELLS[2:70:13],
    *test_tombstones.CELLS[:2],
    *test_tombstones.CELLS[16:24:3],
    *test_first_dirty.CELLS[4:26:6],
    *test_offsets.GAPS[:4],
    *test_offsets.END[:2],
    *test_offsets.SIZES[1:3],
    *test_partial.CELLS[1:14:3],
    *test_producers.CELLS[:24:5],
    *test_records.CELLS[:30:7],
    *test_further_rounds.CELLS[:4],
    *test_transactions.CELLS[4::5],
    *test_transaction_scenarios.CELLS[1::4],
]


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_as_39(judge_39: Judge, work: Path, cell: Cell) -> None:
    """C-53: apart from v0 and v1 the two releases agree, index bytes included, and we with both."""
    cell.check(judge_39, work)


@pytest.mark.parametrize("seed", range(3001, 3006))
def test_random_as_39(judge_39: Judge, work: Path, seed: int) -> None:
    """Random histories against 3.9."""
    play(judge_39, work, random_history(seed))
