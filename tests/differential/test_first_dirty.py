"""The start of the dirty section, and the end of the cleaned section."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.cell import Cell, parameters
from tests.differential.cells.first_dirty import CELLS
from tests.differential.history import NOW, History, Turn, batch, log

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]


NUMBERS = [f"k{row * 37 % 50}={row}" for row in range(400)]


def _word_border(first_dirty: int, size: int, end: int | None) -> Cell:
    """Bitmaps have 64 records per word: parts of the log that begin and end beside a word border."""
    batches = [batch(base, " ".join(NUMBERS[base : base + size])) for base in range(0, 390 - size, size)]
    cut = max(1, 130 // size)
    return Cell(
        f"from {first_dirty}, {size} records a batch, {end} keys",
        History(
            log(batches[:cut], batches[cut:]),
            turns=(Turn(NOW, first_dirty_offset=first_dirty, map_keys=end), Turn(NOW + 1, from_start=True)),
        ),
        lambda rounds: any(each.dropped() for each in rounds),
    )


BORDERS = [
    _word_border(first_dirty, size, end)
    for first_dirty in (1, 63, 64, 65, 127, 128, 129)
    for size, end in ((63, None), (64, 27), (65, None), (1, None), (128, 40))
]


@pytest.mark.parametrize("cell", parameters([*CELLS, *BORDERS]))
def test_first_dirty(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-05..C-07, C-15, C-20, C-31, C-45: only dirty records supersede, in all segments."""
    cell.check(judge_43, work)
