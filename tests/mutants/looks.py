"""Mistakes about what looks remember: staleness, and whose it is."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FACTS = "cleanerd/daemon/looking/facts_cache.py"
READINGS = "tests/daemon/test_metadata_readings.py"

LOOKS = (
    Mutant(
        "a-segment-begun-after-the-broker-spoke-is-seen",
        "D-06",
        "cleanerd/broker/live_log.py",
        "found.listed if len(segments) == len(found.segments) else None",
        "found.listed",
        ("tests/daemon/test_log_dir_looker.py::test_a_segment_begun_while_the_broker_is_asked",),
    ),
    Mutant(
        "one-brokers-facts-for-another-ones-directory",
        "U-23",
        FACTS,
        "self._facts if settings is self._settings and broker == self._broker else None",
        "self._facts if settings is self._settings else None",
        (f"{READINGS}::test_another_brokers_directory_in_the_place_of_one",),
    ),
    Mutant(
        "what-could-not-be-read-is-not-tried-again",
        "U-23",
        FACTS,
        "facts, signature = known, (at_once,)",
        "facts = known",
        (f"{READINGS}::test_what_could_not_be_read_for_a_moment",),
    ),
    Mutant(
        "read-long-before-a-look-that-hung",
        "U-23",
        FACTS,
        "max(context.asked_at, self._read_at, started - _TOGETHER_SECONDS)",
        "max(context.asked_at, self._read_at)",
        (f"{READINGS}::test_a_look_that_was_asked_for_long_ago",),
    ),
    Mutant(
        "the-tick-of-the-look-is-over",
        "a directory's time is too coarse",
        "cleanerd/log/directory_time.py",
        "return abs(time.time_ns() - changed_ns) > CLOCK_TICK_NS",
        "return changed_ns > 0",
        (
            "tests/daemon/test_log_dir_looker.py::test_what_changes_in_the_tick_of_the_look",
            "tests/cli/test_moving.py::test_many_are_moved_at_once",
        ),
    ),
)
