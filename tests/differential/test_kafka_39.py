"""Kafka 3.9's cleaner treats v2 batches as 4.3's does: some cells of every table compared with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.cell import Cell, parameters
from tests.differential.cells.sample import CELLS
from tests.differential.duel import play
from tests.differential.random_history import random_history

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_cells_as_kafka_39(judge_39: Judge, work: Path, cell: Cell) -> None:
    """C-53: apart from v0 and v1 the two releases agree, index bytes included, and cleanerd with both."""
    cell.check(judge_39, work)


@pytest.mark.parametrize("seed", range(3001, 3006))
def test_random_histories_as_kafka_39(judge_39: Judge, work: Path, seed: int) -> None:
    """Random histories against 3.9."""
    play(judge_39, work, random_history(seed))
