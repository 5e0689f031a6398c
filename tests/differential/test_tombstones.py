"""Tombstones and delete horizons (KIP-534)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.cell import Cell, parameters
from tests.differential.cells.tombstones import CELLS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_tombstone(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-45.5, C-47..C-50, R534-1..R534-6."""
    cell.check(judge_43, work)
