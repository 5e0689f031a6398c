"""Random logs over three cleanings. A failure names its seed; SEED=n runs that one alone."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.differential.random_history import random_history
from tests.differential.seeds import drawn, play_seed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.differential.duel import Outcome
    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]

FIXED = range(1, 25)
LONG = [*range(25, 41), *range(1001, 1301)]
DRAWN_LONG = 30
FEATURES = 12
"""Of ``_features``, and that Kafka changed the log at all."""


def _features(outcome: Outcome) -> dict[str, bool]:
    """Kafka's actions in a cleaning, and cleanerd's result."""
    before = {record.offset: record for record in outcome.before.records}
    return {
        "dropped values": any(before[offset].value is not None for offset in outcome.dropped()),
        "dropped tombstones": any(before[offset].value is None for offset in outcome.dropped()),
        "dropped keyless records": outcome.kafka.invalid_messages_read > 0,
        "emptied a batch": bool(outcome.emptied()),
        "set a horizon": bool(set(outcome.horizons()) - {b.base for b in outcome.before.batches if b.delete_horizon}),
        "ended early": outcome.turn.map_keys is not None and outcome.kafka.buffer_utilization == 0.5,
        "cleaned the other's result": outcome.turn.swapped,
        "limited by the high watermark": outcome.turn.first_uncleanable_offset is not None,
        "expired tombstones": outcome.ours.removed.tombstone > 0,
        "batches that only cleanerd has": bool(outcome.comparison.additions),
        "wrote a segment as Kafka's, with its indexes": outcome.equal_segments > 0,
    }


def _play_all(judge: Judge, work: Path, seeds: list[int]) -> Counter[str]:
    """Run them all; returns the number of cleanings per feature, and of histories that Kafka changed."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        outcomes = play_seed(judge, work, seed, random_history(seed), "random history")
        for outcome in outcomes:
            seen.update(name for name, there in _features(outcome).items() if there)
        dropped = any(outcome.kafka.messages_written < outcome.kafka.messages_read for outcome in outcomes)
        seen["histories that Kafka changed"] += dropped
    return seen


def test_fixed_seeds(judge_43: Judge, work: Path) -> None:
    """Whatever the log and the cleanings, cleanerd's result equals Kafka's; and every feature occurs (U-26)."""
    alone = os.environ.get("SEED")
    seen = _play_all(judge_43, work, [int(alone)] if alone else [*FIXED])
    assert alone or len(seen) == FEATURES, seen
    assert alone or seen["histories that Kafka changed"] > 0.9 * len(FIXED), seen


@pytest.mark.timeout(1800)
def test_many_seeds(judge_43: Judge, work: Path) -> None:
    """With those of the other two files more than a thousand, a tenth of these new."""
    seen = _play_all(judge_43, work, [*LONG, *drawn(DRAWN_LONG)])
    assert seen["histories that Kafka changed"] > 0.8 * len(LONG), seen
