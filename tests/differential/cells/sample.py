"""Some cells of every table, for the releases that do not run all of them."""

from __future__ import annotations

from tests.differential.cells import (
    first_dirty,
    further_rounds,
    offsets,
    partial,
    producers,
    records,
    shapes,
    tombstones,
    transaction_scenarios,
    transactions,
)

CELLS = [
    *shapes.CELLS[2:70:13],
    *tombstones.CELLS[:2],
    *tombstones.CELLS[16:24:3],
    *first_dirty.CELLS[4:26:6],
    *offsets.GAPS[:4],
    *offsets.END[:2],
    *offsets.SIZES[1:3],
    *partial.CELLS[1:14:3],
    *producers.CELLS[:24:5],
    *records.CELLS[:30:7],
    *further_rounds.CELLS[:4],
    *transactions.CELLS[4::5],
    *transaction_scenarios.CELLS[1::4],
]
