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
        "abs(now_ns - changed_ns) > CLOCK_TICK_NS",
        "changed_ns > 0",
        (
            "tests/daemon/test_log_dir_looker.py::test_what_changes_in_the_tick_of_the_look",
            "tests/cli/test_moving.py::test_many_are_moved_at_once",
        ),
    ),
    Mutant(
        "the-tick-was-over-when-the-listing-ended",
        "D-06",
        "cleanerd/log/partition.py",
        "            if before.tells_changes:",
        "            if directory_time(directory).tells_changes:",
        ("tests/log/test_same_file.py::test_two_changes_in_one_tick",),
    ),
    Mutant(
        "one-log-directory-asks-for-all",
        "U-40",
        "cleanerd/scope/told_topics.py",
        "known.topics[name].asked_ms if name in known.topics else None for name in names",
        "known.asked_ms for name in names",
        ("tests/scope/test_told_topics.py::test_each_log_directory_of_a_broker_asks_for_its_own_topics",),
    ),
    Mutant(
        "who-asks-last-forgets-what-others-were-told",
        "U-40",
        "cleanerd/log/topic_memory.py",
        "topics=kept | dict(told.topics)",
        "topics=told.topics",
        ("tests/scope/test_told_topics.py::test_log_directories_that_ask_at_the_same_time",),
    ),
    Mutant(
        "an-answer-is-as-young-as-the-last-one",
        "U-40",
        "cleanerd/scope/told_topics.py",
        "alive_ms - max(own, default=known.asked_ms)",
        "alive_ms - known.asked_ms",
        ("tests/scope/test_told_topics.py::test_how_old_an_answer_is_goes_by_topic",),
    ),
    Mutant(
        "a-log-that-got-shorter-a-moment-ago",
        "S-03",
        "cleanerd/daemon/seen.py",
        "and known <= now:",
        "and known is not None:",
        ("tests/daemon/test_modes.py::test_a_log_that_became_shorter_a_moment_ago",),
    ),
    Mutant(
        "a-log-that-could-not-be-read-a-moment-ago",
        "S-03",
        "cleanerd/daemon/looking/log_dir_looker.py",
        "if seen.active is not None and is_apart(seen.since, self._read_at)",
        "if seen.active is not None",
        ("tests/daemon/test_modes.py::test_a_log_that_became_shorter_a_moment_ago",),
    ),
    Mutant(
        "a-look-tells-where-a-killed-broker-starts",
        "U-1",
        "cleanerd/broker/live_log.py",
        "lasting = lasting_start_offset(log_dir.path, name)",
        "lasting = log_dir.log_start_offsets.get(name, lasting_start_offset(log_dir.path, name))",
        ("tests/daemon/test_log_dir_looker.py::test_where_a_killed_broker_would_start_by_the_job",),
    ),
    Mutant(
        "a-disk-that-is-away-holds-nothing",
        "U-6",
        "cleanerd/daemon/looking/sweep.py",
        "log_dirs is not None and all((path / META_PROPERTIES).exists() for path in log_dirs)",
        "log_dirs is not None",
        ("tests/daemon/test_sweep.py::test_a_disk_that_is_away_may_hold_it",),
    ),
)
