"""Cleanings that end early: Kafka's because its map is full, cleanerd's by ``--cleanable-to`` (C-22, C-24, C-45.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.cell import Cell, parameters
from tests.differential.cells.partial import CELLS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_partial(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-22, C-24, C-31, C-34, C-45.1, C-48: records beyond the end of a cleaning are not decided."""
    cell.check(judge_43, work)
