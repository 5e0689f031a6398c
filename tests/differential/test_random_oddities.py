"""Random logs with unusual times, formats and remains. A failure names its seed; SEED=n runs it."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.differential.random_oddities import features, random_oddities
from tests.differential.seeds import drawn, play_seed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]

FIXED = range(1, 37)
LONG = [*range(37, 61), *range(1001, 1401)]
DRAWN_LONG = 40
FEATURES = 14


def _play_all(judge: Judge, work: Path, seeds: Iterable[int], *, rounds: int | None = None) -> Counter[str]:
    """Run them all; returns the number of logs per feature, of cleanings, and of cleanings with changes."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        history = random_oddities(seed)
        if not history.turns:
            continue  # the first segment has a transaction that never ends
        seen.update(set(features(history)))
        outcomes = play_seed(judge, work, seed, history, "random odd history", rounds=rounds)
        seen["histories"] += 1
        seen["rounds"] += len(outcomes)
        seen["histories that Kafka changed"] += any(outcome.dropped() or outcome.gone() for outcome in outcomes)
    return seen


def test_fixed_seeds(judge_43: Judge, work: Path) -> None:
    """U-13, U-17, U-37: whatever the times, a broker behaves the same on cleanerd's result.

    Every feature occurs (U-26).
    """
    alone = os.environ.get("SEED")
    seen = _play_all(judge_43, work, [int(alone)] if alone else FIXED)
    assert alone or len(seen) == FEATURES + 3, seen
    assert alone or seen["histories that Kafka changed"] > 0.5 * len(FIXED), seen


def test_random_oddities_as_kafka_39(judge_39: Judge, work: Path) -> None:
    """U-18: one cleaning each against 3.9, where v0 and v1 keep their format."""
    _play_all(judge_39, work, range(3001, 3016), rounds=1)


@pytest.mark.timeout(1800)
def test_many_seeds(judge_43: Judge, work: Path) -> None:
    """A tenth of them new."""
    seen = _play_all(judge_43, work, [*LONG, *drawn(DRAWN_LONG)])
    assert seen["histories that Kafka changed"] > 0.5 * len(LONG), seen


@pytest.mark.timeout(1800)
def test_many_seeds_as_kafka_39(judge_39: Judge, work: Path) -> None:
    """The same with 3.9."""
    _play_all(judge_39, work, range(4001, 4201), rounds=1)
