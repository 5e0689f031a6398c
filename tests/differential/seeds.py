"""Random histories by seed."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.cleaner import survey
from tests.differential import duel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.differential.duel import Outcome
    from tests.differential.history import History
    from tests.kafka.judge import Judge


def drawn(count: int) -> list[int]:
    """New random seeds."""
    return [random.SystemRandom().randrange(2**32) for _ in range(count)]


@contextlib.contextmanager
def kafkas_checkpoint_counts() -> Iterator[None]:
    """Both sides clean by Kafka's rules: U-50, which Kafka lacks, has its own tests in tests/cleaner."""
    real = survey.unproven_below
    vars(survey)["unproven_below"] = lambda _point, _clean_offset: 0  # no setting disables U-50
    try:
        yield
    finally:
        vars(survey)["unproven_below"] = real


def play_seed(
    judge: Judge, work: Path, seed: int, history: History, what: str, *, rounds: int | None = None
) -> list[Outcome]:
    """Run one history; a failure names its seed, which ``SEED=n`` runs alone if the test supports it.

    ``rounds``: limit of its turns.
    """
    try:
        return duel.play(judge, work / str(seed), replace(history, turns=history.turns[:rounds]))
    except BaseException as error:
        error.add_note(f"this was {what} {seed}")
        raise
