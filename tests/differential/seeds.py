"""Random histories by their seeds."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.differential import duel

if TYPE_CHECKING:
    from pathlib import Path

    from tests.differential.duel import Outcome
    from tests.differential.history import History
    from tests.kafka.judge import Judge


def drawn(count: int) -> list[int]:
    """Seeds that nobody has tried."""
    return [random.SystemRandom().randrange(2**32) for _ in range(count)]


def play_seed(
    judge: Judge, work: Path, seed: int, history: History, what: str, *, rounds: int | None = None
) -> list[Outcome]:
    """Play one history; a failure names its seed, which ``SEED=n`` plays alone where the test says so.

    ``rounds``: no more than so many of its turns.
    """
    try:
        return duel.play(judge, work / str(seed), replace(history, turns=history.turns[:rounds]))
    except BaseException as error:
        error.add_note(f"this was {what} {seed}")
        raise
