"""The cases of Kafka's own LogCleanerTest for producers and transactions, row by row, on logs of these tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.cell import Cell, parameters
from tests.differential.cells.transaction_scenarios import CELLS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_row(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-22, C-33, C-34, C-37..C-41, C-47, C-48, C-52, C-69."""
    cell.check(judge_43, work)
