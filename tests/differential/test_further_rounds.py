"""Repeated cleanings at the same time equal Kafka's, until nothing changes any more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.differential.cell import Cell, parameters
from tests.differential.cells.further_rounds import CELLS, ROUNDS, changed
from tests.differential.history import Turn
from tests.differential.random_history import random_history

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]

FIXED_SEEDS = [*range(2001, 2007), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2007, 2025))]


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_further_rounds(judge_43: Judge, work: Path, cell: Cell) -> None:
    """``--force --from-start --now-ms``: each cleaning equals Kafka's, and the last one leaves every byte unchanged."""
    outcomes = cell.check(judge_43, work)
    assert outcomes[-1].our_digest == outcomes[-2].our_digest


@pytest.mark.parametrize("seed", FIXED_SEEDS)
def test_random_logs(judge_43: Judge, work: Path, seed: int) -> None:
    """The same with random logs, all of whose segments exist from the beginning."""
    history = random_history(seed)
    now_ms = history.turns[0].now_ms
    turns = tuple(Turn(now_ms, from_start=row > 0) for row in range(ROUNDS))
    cell = Cell(
        f"seed {seed}", replace(history, turns=turns), lambda played: changed(played[0]) and not changed(played[-1])
    )
    outcomes = cell.check(judge_43, work)
    assert outcomes[-1].our_digest == outcomes[-2].our_digest
