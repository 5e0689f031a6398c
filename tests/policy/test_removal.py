"""The steps before a copy of a key is removed, and their times (U-85)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleanerd.policy.removal import (
    NO_LIMIT_MS,
    NO_TOMBSTONE,
    RemovalFacts,
    SegmentTimes,
    Step,
    bound_of,
    steps_of_tombstone,
    steps_of_value,
)
from cleanerd.policy.replicas import MARGIN_MS, ExpiryBound

NOW = 1_700_000_000_000
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
SEGMENTS = (
    SegmentTimes(0, NOW - 10 * HOUR, NOW - 9 * HOUR, is_active=False),
    SegmentTimes(10, NOW - 8 * HOUR, NOW - 7 * HOUR, is_active=False),
    SegmentTimes(20, NOW - 6 * HOUR, NOW - HOUR, is_active=True),
)
FACTS = RemovalFacts(
    now_ms=NOW,
    segments=SEGMENTS,
    first_dirty_offset=0,
    cleaned_by="daemon",
    has_request=True,
    segment_ms=7 * DAY,
    min_lag_ms=0,
    max_lag_ms=NO_LIMIT_MS,
    delete_retention_ms=DAY,
    file_delete_delay_ms=MINUTE,
    scan_ms=15 * SECOND,
)
BY_DAEMON = 15 * SECOND + MINUTE
"""The next scan; a segment that was just replaced is replaced again only once its old files are deleted (D-04)."""
CLEANED = NOW + BY_DAEMON


def missing_bounds(steps: tuple[Step, ...]) -> list[str]:
    """The settings named by the steps that may never happen."""
    return [step.setting for step in steps if step.wait_ms is None]


def test_a_value_is_removed_by_the_cleaning_that_covers_its_tombstone() -> None:
    steps = steps_of_value(FACTS, 3, 12)
    assert bound_of(steps) == CLEANED + MINUTE
    assert [step.setting for step in steps] == [
        "log.cleaner.backoff.ms and file.delete.delay.ms",
        "file.delete.delay.ms",
    ]


def test_without_a_tombstone_nothing_removes_a_value() -> None:
    assert steps_of_value(FACTS, 3, None) == (NO_TOMBSTONE,)
    assert bound_of((NO_TOMBSTONE,)) is None


def test_a_tombstone_is_removed_after_its_horizon() -> None:
    steps = steps_of_tombstone(FACTS, 12, None)
    assert bound_of(steps) == CLEANED + DAY + BY_DAEMON + MINUTE
    # A horizon that is set is never moved (C-49).
    known = steps_of_tombstone(replace(FACTS, first_dirty_offset=20), 12, NOW + HOUR)
    assert bound_of(known) == NOW + HOUR + BY_DAEMON + MINUTE
    passed = steps_of_tombstone(replace(FACTS, first_dirty_offset=20), 12, NOW - HOUR)
    assert bound_of(passed) == NOW + BY_DAEMON + MINUTE


def test_only_a_write_rolls_the_active_segment() -> None:
    """No limit, and not before segment.ms; max.compaction.lag.ms shortens that, as in the broker."""
    facts = replace(FACTS, has_request=False)
    steps = steps_of_value(facts, 3, 25)
    assert (steps[0].by_ms, steps[0].wait_ms, steps[0].from_ms) == (None, None, NOW - 6 * HOUR + 7 * DAY)
    assert bound_of(steps) is None
    sooner = steps_of_value(replace(facts, max_lag_ms=DAY), 3, 25)
    assert (sooner[0].by_ms, sooner[0].from_ms) == (None, NOW - 6 * HOUR + DAY)
    # A value in the active segment, under a strategy by version: its own segment counts.
    assert bound_of(steps_of_value(facts, 25, 12)) is None


def test_the_daemon_has_the_active_segment_rolled_for_a_request() -> None:
    """U-91: when a write would roll it. A first batch without a time gives no date; Kafka's cleaner rolls nothing."""
    steps = steps_of_value(FACTS, 3, 25)
    rolled_ms = NOW - 6 * HOUR + 7 * DAY
    assert (steps[0].from_ms, steps[0].by_ms, steps[0].setting) == (rolled_ms, rolled_ms + 20 * SECOND, "segment.ms")
    assert bound_of(steps) == rolled_ms + (20 + 15) * SECOND + 2 * MINUTE
    sooner = steps_of_value(replace(FACTS, max_lag_ms=HOUR), 3, 25)
    assert (sooner[0].from_ms, sooner[0].setting) == (NOW, "max.compaction.lag.ms")
    timeless = (*SEGMENTS[:2], replace(SEGMENTS[2], first_ms=-1))
    assert bound_of(steps_of_value(replace(FACTS, segments=timeless), 3, 25)) is None
    assert bound_of(steps_of_value(replace(FACTS, cleaned_by="kafka", max_lag_ms=DAY), 3, 25)) is None


def test_the_maximum_lag_bounds_a_cleaning_without_a_request() -> None:
    facts = replace(FACTS, has_request=False)
    assert missing_bounds(steps_of_value(facts, 3, 12)) == ["max.compaction.lag.ms"]
    lagging = replace(facts, max_lag_ms=DAY)
    assert bound_of(steps_of_value(lagging, 3, 12)) == NOW - 10 * HOUR + DAY + BY_DAEMON + MINUTE
    # The oldest dirty segment counts (C-10), not one in the clean section.
    cleaned = replace(lagging, first_dirty_offset=10)
    assert bound_of(steps_of_value(cleaned, 3, 12)) == NOW - 8 * HOUR + DAY + BY_DAEMON + MINUTE
    overdue = replace(facts, max_lag_ms=HOUR)
    assert bound_of(steps_of_value(overdue, 3, 12)) == CLEANED + MINUTE


def test_the_minimum_lag_holds_a_cleaning_back() -> None:
    steps = steps_of_value(replace(FACTS, min_lag_ms=DAY), 3, 12)
    assert steps[0].by_ms == NOW - 7 * HOUR + DAY
    assert bound_of(steps) == NOW - 7 * HOUR + DAY + BY_DAEMON + MINUTE


def test_a_setting_without_end_gives_no_bound() -> None:
    """U-85, C-50: Kafka writes no horizon for it, and no segment gets that old."""
    kept = steps_of_tombstone(replace(FACTS, delete_retention_ms=NO_LIMIT_MS), 12, None)
    assert (bound_of(kept), missing_bounds(kept)) == (None, ["delete.retention.ms"])
    young = steps_of_value(replace(FACTS, min_lag_ms=NO_LIMIT_MS), 3, 12)
    assert (bound_of(young), missing_bounds(young)) == (None, ["min.compaction.lag.ms"])
    last = steps_of_tombstone(replace(FACTS, delete_retention_ms=NO_LIMIT_MS - CLEANED - DAY), 12, None)
    assert missing_bounds(last) == [], "the last horizons that fit"


@pytest.mark.parametrize("name", ["the high watermark", "the recovery point", "an open transaction"])
def test_a_limit_below_the_tombstone_has_no_bound(name: str) -> None:
    steps = steps_of_value(replace(FACTS, limits={name: 12}), 3, 12)
    assert steps[0].wait_ms is None
    assert steps[0].event.startswith(f"{name}, now at offset 12, ")
    assert bound_of(steps_of_value(replace(FACTS, limits={name: 13}), 3, 12)) is not None


def test_kafkas_cleaner_does_not_return_for_a_tombstone() -> None:
    facts = replace(FACTS, cleaned_by="kafka", has_request=False, max_lag_ms=DAY)
    assert bound_of(steps_of_value(facts, 3, 12)) is not None
    assert ["cleanerd.mode=auto" in each for each in missing_bounds(steps_of_tombstone(facts, 12, None))] == [True]


def test_without_a_daemon_an_operator_cleans() -> None:
    facts = replace(FACTS, cleaned_by="operator")
    assert len(missing_bounds(steps_of_value(facts, 3, 12))) == 1
    assert len(missing_bounds(steps_of_tombstone(facts, 12, None))) == 2


def test_a_tombstone_waits_for_every_replica() -> None:
    """U-70: a missing broker has no limit; a full ISR is shown with the metadata log's margin."""
    missing = replace(FACTS, expiry=ExpiryBound(NOW - HOUR, missing=(2,), since_ms=NOW - HOUR))
    steps = steps_of_tombstone(missing, 12, None)
    assert bound_of(steps) is None
    (waits,) = (step for step in steps if step.wait_ms is None)
    assert "broker 2" in waits.event
    assert "ignore-replica" in waits.setting
    assert bound_of(steps_of_value(missing, 3, 12)) == CLEANED + MINUTE
    stale = replace(FACTS, expiry=ExpiryBound(NOW - DAY, why="the controllers are down"))
    assert bound_of(steps_of_tombstone(stale, 12, None)) is None
    full = replace(FACTS, expiry=ExpiryBound(NOW - MARGIN_MS))
    assert bound_of(steps_of_tombstone(full, 12, None)) == CLEANED + DAY + MARGIN_MS + BY_DAEMON + MINUTE


def test_a_tombstone_that_never_expires() -> None:
    assert missing_bounds(steps_of_tombstone(replace(FACTS, keeps_tombstones=True), 12, None)) == [
        "tombstone.guard=horizon"
    ]


def test_a_tombstone_waits_for_later_records_of_its_key() -> None:
    """U-1: under a strategy by version a superseded record may be above it."""
    horizon = {"horizon_ms": NOW - HOUR}
    facts = replace(FACTS, first_dirty_offset=15)
    assert bound_of(steps_of_tombstone(facts, 12, **horizon, last_offset=14)) is not None
    assert bound_of(steps_of_tombstone(facts, 12, **horizon, last_offset=25)) is None


def test_kept_segments_outlive_the_cleaning() -> None:
    steps = steps_of_value(replace(FACTS, kept_ms=7 * DAY), 3, 12)
    assert bound_of(steps) == CLEANED + MINUTE + 7 * DAY


def test_a_cleaning_of_dirty_records_leaves_two_clean_ones() -> None:
    """U-50: records that Kafka's cleaner left twice below its checkpoint are removed with --from-start only."""
    assert missing_bounds(steps_of_value(replace(FACTS, first_dirty_offset=20), 3, 12)) == [
        "cleanerd clean --from-start"
    ]
