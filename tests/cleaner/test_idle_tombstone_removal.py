"""Idle partitions: cleanings at ``next_purge_ms`` alone leave nothing that may go (R534-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanerd.cleaner.survey import CleaningOptions
from tests.cleaner.driver import DAY_MS, NAME, clean, config, resources, scratch
from tests.cleaner.strategy_script import T0, Clean, Script, Shape, Write
from tests.cleaner.strategy_world import World
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch, encode_marker, keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.resources import Resources
    from cleanerd.config.topic_config import TopicConfig

YEAR_MS = 31_536_000_000
MOST_REMOVALS = 8


def removed_in_time(path: Path, topic: TopicConfig, using: Resources, due_ms: int | None, now_ms: int) -> int:
    """Clean at the times that the last cleaning reported, until none is reported; returns these times."""
    for _ in range(MOST_REMOVALS):
        if due_ms is None:
            return now_ms
        now_ms = max(now_ms, due_ms)
        result = clean(path, CleaningOptions(now_ms, tombstone_removal=True), topic, using)
        assert result.outcome in ("cleaned", "unchanged"), result.reason
        due_ms = result.next_purge_ms
    raise AssertionError("it is never done")


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    shape=st.sampled_from([Shape("offset"), Shape("offset", mode="header"), Shape("timestamp"), Shape("header")]),
    seed=st.integers(0, 2**32),
    retention_ms=st.sampled_from([0, 0, 1, 600]),
    rounds=st.integers(1, 3),
    expiration_ms=st.sampled_from([1, DAY_MS]),
)
def test_an_idle_partition_keeps_nothing_removable(
    shape: Shape, seed: int, retention_ms: int, rounds: int, expiration_ms: int
) -> None:
    """R534-3, R534-6, R192-1: a cleaning of everything, much later, finds no tombstone and no marker to remove."""
    with scratch() as root:
        world = World(root, shape)
        using = resources(expiration_ms=expiration_ms)
        now_ms, due_ms = 0, None
        topic = config()
        for step in Script(shape, seed, rounds, stops=False, moves=False, changes=False, upsets=False).steps():
            if isinstance(step, Write):
                world.write(step)
            elif isinstance(step, Clean):
                now_ms = max(now_ms, step.now_ms)
                topic = config(**{**_settings(world, step), "delete_retention_ms": retention_ms})
                result = clean(world.path, CleaningOptions(now_ms, force=True), topic, using)
                due_ms = due_ms if result.outcome == "skipped" else result.next_purge_ms
        now_ms = removed_in_time(world.path, topic, using, due_ms, now_ms)
        for year in range(1, 4):
            late = CleaningOptions(now_ms + year * YEAR_MS, force=True, from_start=True)
            found = clean(world.path, late, topic, using)
            assert (found.removed.tombstone, found.removed.marker) == (0, 0), "left behind"


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


LATE = T0 + YEAR_MS


def idle_log(root: Path, data: bytes, end: int, **files: object) -> Path:
    """Clean by Kafka's checkpoint up to its active segment at ``end``; without stored state."""
    return make_log_dir(root, {NAME: Partition({0: data, end: b""}, cleaner_offset=end, **files)})  # type: ignore[arg-type]


def test_force_removes_tombstones_of_a_log_that_kafka_cleaned(tmp_path: Path) -> None:
    """R534-6: nothing is dirty, but its tombstones are past their horizon."""
    held = encode_batch([Record(b"a", None, T0), Record(b"b", b"1", T0, offset_delta=1)], delete_horizon=T0 + 5)
    log_dir = idle_log(tmp_path / "logs", held, 2)
    assert clean(log_dir, CleaningOptions(T0 + 4, force=True)).outcome == "skipped"
    assert clean(log_dir, CleaningOptions(T0 + 5)).outcome == "skipped"
    result = clean(log_dir, CleaningOptions(T0 + 5, force=True))
    assert (result.outcome, result.removed.tombstone) == ("cleaned", 1)
    assert clean(log_dir, CleaningOptions(LATE, force=True)).outcome == "skipped"


def test_a_due_removal_is_named_when_nothing_is_dirty(tmp_path: Path) -> None:
    """R534-6: without --force the reason names what is due."""
    log_dir = make_log_dir(tmp_path / "logs", {NAME: Partition({0: keyed_batch(0, [("a", None)]), 1: b""})})
    topic = config(delete_retention_ms=1000)
    assert clean(log_dir, CleaningOptions(LATE, force=True), topic).next_purge_ms == LATE + 1000
    assert "delete horizon" not in clean(log_dir, CleaningOptions(LATE + 999), topic).reason
    assert "past their delete horizon" in clean(log_dir, CleaningOptions(LATE + 1000), topic).reason


def test_a_marker_that_kafka_left_alone(tmp_path: Path) -> None:
    """R534-3: its transaction has no batch left and it has no horizon; the first cleaning sets one."""
    marker = encode_marker(0, commit=False, producer_id=7, timestamp=T0)
    log_dir = idle_log(tmp_path / "logs", marker + keyed_batch(1, [("a", "1")]), 2)
    topic, using = config(delete_retention_ms=1000), resources(expiration_ms=1)
    first = clean(log_dir, CleaningOptions(LATE, force=True), topic, using)
    assert (first.removed.marker, first.next_purge_ms) == (0, LATE + 1000)
    assert clean(log_dir, CleaningOptions(LATE + 1000, force=True), topic, using).removed.marker == 1


def test_horizons_above_the_end_of_a_cleaning_are_unknown(tmp_path: Path) -> None:
    """R534-6: --cleanable-to ends below the first dirty offset, so another scan has to find the horizons above."""
    held = encode_batch([Record(b"b", None, T0)], base_offset=1, delete_horizon=LATE)
    log = {0: keyed_batch(0, [("a", "1")]), 1: held, 2: b""}
    log_dir = make_log_dir(tmp_path / "logs", {NAME: Partition(log, cleaner_offset=2)})
    clean(log_dir, CleaningOptions(LATE - 1, force=True, from_start=True, up_to_offset=1))
    result = clean(log_dir, CleaningOptions(LATE, force=True))
    assert result.removed.tombstone == 1


def test_a_tombstone_removal_ends_at_the_high_watermark(tmp_path: Path) -> None:
    """S-01: the clean section can reach above a limit; nothing above the limit is touched."""
    held = [encode_batch([Record(b"%d" % row, None, T0)], base_offset=row, delete_horizon=T0) for row in range(2)]
    log = {0: held[0], 1: held[1], 2: b""}
    for name, wished in (("force", {"force": True}), ("tombstone removal", {"tombstone_removal": True})):
        partition = Partition(log, cleaner_offset=2, high_watermark=1)
        log_dir = make_log_dir(tmp_path / name / "logs", {NAME: partition})
        result = clean(log_dir, CleaningOptions(LATE, **wished))
        assert (result.end_offset, result.removed.tombstone) == (1, 1)
        assert (log_dir / NAME / f"{1:020d}.log").read_bytes() == held[1]
