"""Random logs full of transactions. A failure names its seed; SEED=n runs that one alone."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.differential.random_transactions import ROUNDS, random_transactions
from tests.differential.seeds import drawn, play_seed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.differential.duel import Outcome
    from tests.differential.history import Turn
    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]

FOUND = (3553097438, 226453316)
"""Seeds that once showed a mistake, sometimes of the comparison itself."""
FIXED = [*range(1, 25), *FOUND]
LONG = [*range(25, 41), *range(1001, 1301)]
DRAWN_LONG = 30
FEATURES = 14
"""Of ``_features``; that there was a history, and that Kafka changed the log at all."""


def _features(outcome: Outcome, last: Turn | None) -> dict[str, bool]:
    """Kafka's actions in a cleaning, and cleanerd's result."""
    markers = {batch.base for batch in outcome.before.batches if batch.control and batch.count}
    entries = sum(len(segment.txn_index or ()) for segment in outcome.before.segments)
    return {
        "dropped aborted data": outcome.ours.removed.aborted > 0,
        "dropped superseded data": outcome.ours.removed.superseded > 0,
        "dropped markers": bool(markers & outcome.gone()),
        "emptied markers": bool(markers & outcome.emptied()),
        "emptied data batches": bool(outcome.emptied() - markers),
        "set a marker's horizon": bool(markers & set(outcome.horizons())),
        "dropped index entries": len(outcome.aborted()) < entries,
        "kept index entries": bool(outcome.aborted()),
        "limited by an open transaction": outcome.turn.stable_offset is not None,
        "ended early": outcome.turn.map_keys is not None and outcome.kafka.buffer_utilization == 0.5,
        "cleaned the other's result": outcome.turn.swapped,
        "a fourth round": outcome.turn == last,
    }


def _play_all(judge: Judge, work: Path, seeds: list[int]) -> Counter[str]:
    """Run them all; returns the number of cleanings per feature, and of histories that Kafka changed."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        history = random_transactions(seed)
        if not history.turns:
            continue  # the first segment has a transaction that never ends
        outcomes = play_seed(judge, work, seed, history, "random transactional history")
        fourth = history.turns[ROUNDS - 1] if len(history.turns) == ROUNDS else None
        for outcome in outcomes:
            seen.update(name for name, there in _features(outcome, fourth).items() if there)
        changed = any(outcome.dropped() or outcome.gone() for outcome in outcomes)
        seen["histories"] += 1
        seen["histories that Kafka changed"] += changed
    return seen


def test_fixed_seeds(judge_43: Judge, work: Path) -> None:
    """C-18, C-19, C-33..C-43, C-69: whatever the transactions, as Kafka's; and every feature occurs (U-26)."""
    alone = os.environ.get("SEED")
    seen = _play_all(judge_43, work, [int(alone)] if alone else [*FIXED])
    assert alone or len(seen) == FEATURES, seen
    assert alone or seen["histories that Kafka changed"] > 0.6 * len(FIXED), seen


@pytest.mark.parametrize("seed", range(3001, 3007))
def test_random_transactions_as_kafka_39(judge_39: Judge, work: Path, seed: int) -> None:
    """Kafka 3.9 decides the same."""
    _play_all(judge_39, work, [seed])


@pytest.mark.timeout(1800)
def test_many_seeds(judge_43: Judge, work: Path) -> None:
    """Many seeds. Some have nothing to clean: a transaction of their first segment never ends."""
    seen = _play_all(judge_43, work, [*LONG, *drawn(DRAWN_LONG)])
    assert seen["histories"] > 0.9 * len(LONG), seen
    assert seen["histories that Kafka changed"] > 0.6 * len(LONG), seen
