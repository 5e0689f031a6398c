"""Strategy x tombstone mode x codec x transactions x shards, in real Spark sessions: the local engine's bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.matrix import CELLS, MASTERS, Cell, enough, in_a_child, pairs, pairwise, run
from tests.support.length import one_in

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

CHOSEN = pairwise()
EVERY_WITH_TWO = 7
EVERY_WITH_ONE = 23


def chosen(master: str) -> list[Cell]:
    return [cell for name, cell in CHOSEN if name == master]


def test_pairs_are_covered() -> None:
    """Every pair of values of two dimensions occurs, the master included; a few cells are enough, on both masters."""
    assert len(CELLS) == 3 * 3 * 5 * 2 * 3
    assert set().union(*map(pairs, CHOSEN)) == set().union(*(pairs((m, cell)) for m in MASTERS for cell in CELLS))
    assert len(CHOSEN) <= 20
    assert all(len(chosen(master)) > 5 for master in MASTERS)


@pytest.mark.parametrize("cells", [CELLS[::EVERY_WITH_TWO], CELLS[3::EVERY_WITH_ONE]])
def test_the_cells_cover_all_values(cells: list[Cell]) -> None:
    for name in ("strategy", "mode", "codec", "transactions", "shards"):
        assert {getattr(cell, name) for cell in cells} == {getattr(cell, name) for cell in CELLS}


@pytest.mark.long
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.long)])
def test_two_cores(spark: SparkSession, tmp_path: Path, every: int) -> None:
    """OP-2 in ``local[2]``: the pairwise cells, or every second of them."""
    cells = chosen("local[2]")[::every]
    enough(cells, run(spark, cells, tmp_path))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_one_core(tmp_path: Path) -> None:
    """OP-2 in ``local[1]``, where a stage's tasks follow each other in one worker."""
    cells = chosen("local[1]")
    enough(cells, in_a_child("local[1,4]", cells, tmp_path, 1100))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_cells(spark: SparkSession, tmp_path: Path) -> None:
    """The full product with two cores, or one in so many of it, in which all values of all dimensions turn up."""
    cells = CELLS[:: one_in(EVERY_WITH_TWO)]
    enough(cells, run(spark, cells, tmp_path))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_cells_with_one_core(tmp_path: Path) -> None:
    """The same with one."""
    cells = CELLS[3 :: one_in(EVERY_WITH_ONE)]
    enough(cells, in_a_child("local[1,4]", cells, tmp_path, 3500))
