"""A cell of a table: a history, and a proof that Kafka itself did what the cell tests (U-26)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pytest

from tests.differential.duel import Outcome, play

if TYPE_CHECKING:
    from pathlib import Path

    from _pytest.mark import ParameterSet

    from tests.differential.history import History
    from tests.kafka.judge import Judge

Reason: TypeAlias = Callable[[Sequence[Outcome]], bool]


@dataclass(frozen=True, slots=True)
class Cell:
    """``reason`` checks what Kafka did; a cell for which it is false tests nothing."""

    name: str
    history: History
    reason: Reason

    def check(self, judge: Judge, work: Path) -> list[Outcome]:
        """Run the history: cleanerd's result equals Kafka's, and Kafka's is what the cell tests."""
        outcomes = play(judge, work, self.history)
        assert self.reason(outcomes), f"Kafka did not do what {self.name!r} is about: {reported(outcomes)}"
        return outcomes


def reported(outcomes: Sequence[Outcome]) -> str:
    """Kafka's actions, for a message."""
    return "; ".join(
        f"end {outcome.kafka.end_offset}, dropped {sorted(outcome.dropped())[:20]}, "
        f"emptied {sorted(outcome.emptied())[:9]}, gone {sorted(outcome.gone())[:9]}, horizons {outcome.horizons()}"
        for outcome in outcomes
    )


def parameters(cells: Iterable[Cell]) -> list[ParameterSet]:
    """The cells for ``pytest.mark.parametrize``."""
    return [pytest.param(cell, id=cell.name) for cell in cells]
