"""Idle partitions: whoever cleans again when ``next_purge_ms`` says so, and then no more, leaves nothing that may go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanerd.cleaner.survey import CleaningOptions
from tests.cleaner.driver import NAME, clean, config, resources, scratch
from tests.cleaner.strategy_script import Clean, Script, Shape, Write
from tests.cleaner.strategy_world import World

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.log.topic_config import TopicConfig

ONE = resources(expiration_ms=1)
YEAR_MS = 31_536_000_000
MOST_PURGES = 8


def purged_in_time(path: Path, topic: TopicConfig, due_ms: int | None, now_ms: int) -> int:
    """Clean when the last cleaning said, until none says so any more; returns when that was."""
    for _ in range(MOST_PURGES):
        if due_ms is None:
            return now_ms
        now_ms = max(now_ms, due_ms)
        result = clean(path, CleaningOptions(now_ms, purge=True), topic, ONE)
        assert result.outcome in ("cleaned", "unchanged"), result.reason
        due_ms = result.next_purge_ms
    raise AssertionError("it is never done")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    shape=st.sampled_from([Shape("offset"), Shape("offset", mode="header"), Shape("timestamp"), Shape("header")]),
    seed=st.integers(0, 2**32),
    retention_ms=st.sampled_from([0, 0, 1, 600]),
    rounds=st.integers(1, 3),
)
def test_an_idle_partition_keeps_nothing_that_may_go(shape: Shape, seed: int, retention_ms: int, rounds: int) -> None:
    """R534-3, R534-6: a cleaning of everything, much later, finds no tombstone and no marker to remove."""
    with scratch() as root:
        world = World(root, shape)
        now_ms, due_ms = 0, None
        topic = config()
        for step in Script(shape, seed, rounds, stops=False, moves=False, changes=False, upsets=False).steps():
            if isinstance(step, Write):
                world.write(step)
            elif isinstance(step, Clean):
                now_ms = max(now_ms, step.now_ms)
                topic = config(**{**_settings(world, step), "delete_retention_ms": retention_ms})
                result = clean(world.path, CleaningOptions(now_ms, force=True), topic, ONE)
                due_ms = due_ms if result.outcome == "skipped" else result.next_purge_ms
        now_ms = purged_in_time(world.path, topic, due_ms, now_ms)
        for year in range(1, 4):
            late = CleaningOptions(now_ms + year * YEAR_MS, force=True, from_start=True)
            found = clean(world.path, late, topic, ONE)
            assert (found.dropped.tombstone, found.dropped.marker) == (0, 0), "left behind"


def _settings(world: World, step: Clean) -> dict[str, object]:
    topic = world.topic(step)
    return {
        "compaction_strategy": topic.compaction_strategy,
        "compaction_strategy_header": topic.compaction_strategy_header,
        "compaction_strategy_header_encoding": topic.compaction_strategy_header_encoding,
        "tombstone_mode": topic.tombstone_mode,
        "tombstone_header": topic.tombstone_header,
        "segment_bytes": topic.segment_bytes,
    }
