"""Held tombstones: no purge until their replicas have them, and a look when they do (U-73)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleanerd.daemon.directory_snapshot import DirectorySnapshot
from cleanerd.daemon.registry.due import trigger_of
from cleanerd.daemon.registry.partition_entry import PartitionEntry
from cleanerd.format.names import TopicPartition
from cleanerd.policy.replicas import MARGIN_MS, ExpiryBound, ReplicaFacts, Replicas, TopicReplicas
from tests.cleaner.driver import config
from tests.daemon.fleets import look

NOW = 1_700_000_000_000
HORIZON = NOW - 60 * MARGIN_MS
BOTH, FIRST = frozenset({1, 2}), frozenset({1})
SHORT = ExpiryBound(HORIZON - 1, (2,), HORIZON)


@pytest.mark.parametrize(("at_ms", "expected"), [(None, "purge"), (HORIZON, "purge"), (HORIZON - 1, None), (-1, None)])
def test_it_waits(at_ms: int | None, expected: str | None) -> None:
    """U-73: a purge for nothing would be begun again and again."""
    held = look(eligible=False, forceable=True, has_clean_part=True, dirty_bytes=0, expiry=ExpiryBound(at_ms))
    tracked = PartitionEntry(TopicPartition("orders", 0), "/logs", look=held, next_purge_ms=HORIZON, purge_known=True)
    assert trigger_of(tracked, "live", NOW, is_full=False, plan_max_age_ms=1000) == expected


def seen(expiry: ExpiryBound, purge_ms: int | None) -> DirectorySnapshot:
    return DirectorySnapshot(1, 1, config(), "live/live", True, NOW + 1000, (0, 0), expiry=expiry, purge_ms=purge_ms)


@pytest.mark.parametrize(
    ("purge_ms", "isr", "as_of_ms", "expected"),
    [
        pytest.param(HORIZON, FIRST, NOW, False, id="as it was"),
        pytest.param(HORIZON, BOTH, NOW, True, id="the replica is back"),
        pytest.param(None, BOTH, NOW, True, id="the replica is back: shown at once"),
        pytest.param(HORIZON, frozenset(), NOW, True, id="another one is missing"),
    ],
)
def test_it_is_looked_at_again(purge_ms: int | None, isr: frozenset[int], as_of_ms: int, expected: bool) -> None:
    """U-73: by what the metadata log shows now, although nothing changed in the directory."""
    replicas = Replicas(BOTH, isr, HORIZON, HORIZON)
    topic = replace(config(), replicas=TopicReplicas(ReplicaFacts({}, as_of_ms, as_of_ms), {0: replicas}))
    assert seen(SHORT, purge_ms).waits_otherwise(0, topic, NOW) is expected


@pytest.mark.parametrize(("later_ms", "expected"), [(-1, False), (0, True)])
def test_it_is_looked_at_when_the_log_is_past_it(later_ms: int, expected: bool) -> None:
    """U-73: with every replica in the ISR, the metadata log's own time decides."""
    before = ExpiryBound(HORIZON - 1, why="the log is not as far")
    as_of_ms = HORIZON + MARGIN_MS + later_ms
    topic = replace(config(), replicas=TopicReplicas(ReplicaFacts({}, as_of_ms), {0: Replicas(BOTH, BOTH)}))
    assert seen(before, HORIZON).waits_otherwise(0, topic, NOW) is expected


def test_who_waits_for_nothing_is_not_looked_at_again() -> None:
    topic = replace(config(), replicas=TopicReplicas(ReplicaFacts({}, NOW, NOW), {0: Replicas(FIRST, FIRST)}))
    assert not seen(ExpiryBound(), HORIZON).waits_otherwise(0, topic, NOW)
