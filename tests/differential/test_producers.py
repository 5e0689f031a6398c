"""Idempotent producers, active and expired (KIP-192)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.cell import Cell, parameters
from tests.differential.cells.producers import CELLS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_producer(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-39.1, C-41, C-43, R192-1, R192-2: the batch with an active producer's last sequence stays."""
    cell.check(judge_43, work)
