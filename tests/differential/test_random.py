"""Random logs over three rounds. A failure names its seed; SEED=n plays that one alone."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.differential.duel import play
from tests.differential.random_history import random_history

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

FIXED = range(1, 33)
LONG = range(1001, 1369)
DRAWN = 8
DRAWN_LONG = 32
FEWEST_CHANGED = 0.9
"""Of ten histories nine must be such that Kafka dropped something in them (U-26)."""


def _play_all(judge: Judge, work: Path, seeds: list[int]) -> None:
    changed = 0
    for seed in seeds:
        try:
            outcomes = play(judge, work / str(seed), random_history(seed))
        except BaseException as error:
            error.add_note(f"this was random history {seed}; again with SEED={seed}")
            raise
        changed += any(outcome.kafka.messages_written < outcome.kafka.messages_read for outcome in outcomes)
    assert changed >= int(FEWEST_CHANGED * len(seeds)), f"Kafka had something to drop in {changed} of {len(seeds)} only"


def _drawn(count: int) -> list[int]:
    return [random.SystemRandom().randrange(2**32) for _ in range(count)]


def test_fixed_seeds(judge_43: Judge, work: Path) -> None:
    """Whatever the log and the rounds, ours is as Kafka's."""
    alone = os.environ.get("SEED")
    _play_all(judge_43, work, [int(alone)] if alone else list(FIXED))


def test_new_seeds(judge_43: Judge, work: Path) -> None:
    """The same with seeds that nobody has tried."""
    _play_all(judge_43, work, _drawn(DRAWN))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_seeds(judge_43: Judge, work: Path) -> None:
    """Hundreds of them, a tenth of them new."""
    _play_all(judge_43, work, [*LONG, *_drawn(DRAWN_LONG)])
