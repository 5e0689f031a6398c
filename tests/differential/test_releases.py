"""Releases beside the two that judge everything: some cells of every table by 3.6's classes and by 4.4's.

3.6 stands for the brokers whose log classes were Scala throughout, 4.4 is the newest. Loaders and cleaners, and what
differs between the families: a release up to 3.9 keeps message formats v0 and v1, and so do we for it (U-18).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential import test_kafka_39, test_offsets, test_shapes, test_tombstones, test_transaction_scenarios
from tests.differential.cell import Cell, parameters
from tests.differential.duel import play
from tests.differential.legacy_cells import CELLS as LEGACY
from tests.differential.legacy_cells import magics
from tests.differential.random_history import random_history
from tests.differential.random_transactions import random_transactions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

QUICK = [
    test_shapes.CELLS[2],
    test_tombstones.CELLS[1],
    test_offsets.GAPS[0],
    test_transaction_scenarios.CELLS[1],
]
OTHERS = pytest.mark.parametrize("profile", ["3.6", "4.4"])


@pytest.fixture
def judge(request: pytest.FixtureRequest, profile: str) -> Judge:
    """The release, of which a test first makes sure that it is the one (U-26)."""
    found: Judge = request.getfixturevalue(f"judge_{profile.replace('.', '')}")
    assert found.version().startswith(f"{profile}.")
    return found


@OTHERS
@pytest.mark.parametrize("cell", parameters(QUICK))
def test_a_cell_of_every_sort(judge: Judge, work: Path, cell: Cell) -> None:
    """C-53: v2 batches are decided alike, index bytes included."""
    cell.check(judge, work)


@OTHERS
def test_old_formats(judge: Judge, work: Path, profile: str) -> None:
    """U-18: 3.6 keeps what stays of v0 and v1 as it is, 4.4 makes v2 of it; the wrong one of the two is another log."""
    (outcome, *_) = LEGACY[0].check(judge, work)
    assert magics(outcome.before) & {0, 1}
    assert bool(magics(outcome.after) & {0, 1}) == (profile == "3.6")


@pytest.mark.long
@pytest.mark.timeout(1800)
@OTHERS
@pytest.mark.parametrize("cell", parameters(test_kafka_39.CELLS))
def test_every_cell(judge: Judge, work: Path, cell: Cell) -> None:
    """C-53: all that 3.9 is asked."""
    cell.check(judge, work)


@pytest.mark.long
@OTHERS
@pytest.mark.parametrize("cell", parameters(LEGACY))
def test_every_old_format(judge: Judge, work: Path, cell: Cell) -> None:
    """C-45.6, C-53, F-3: as the release does it."""
    cell.check(judge, work)


@pytest.mark.long
@pytest.mark.timeout(1800)
@OTHERS
@pytest.mark.parametrize("seed", range(3101, 3111))
def test_random(judge: Judge, work: Path, seed: int) -> None:
    """Random histories, with transactions and without."""
    play(judge, work / "records", random_history(seed))
    play(judge, work / "transactions", random_transactions(seed))
