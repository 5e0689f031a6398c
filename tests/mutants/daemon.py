"""Mistakes of the daemon: who is cleaned next, who is left alone, what a failure leads to."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SCHEDULE = "cleanerd/daemon/schedule.py"
FLEET = "cleanerd/daemon/fleet.py"
TEST_SCHEDULE = "tests/daemon/test_schedule.py"
TEST_FLEET = "tests/daemon/test_fleet.py"

DAEMON = (
    Mutant(
        "waiting-is-worth-nothing",
        "issue 7: nobody starves",
        SCHEDULE,
        "2, candidate.efficiency + candidate.waiting_ms / AGEING_MS",
        "2, candidate.efficiency",
        (f"{TEST_SCHEDULE}::test_waiting_outweighs_any_saving_in_the_end",),
    ),
    Mutant(
        "a-flood-of-promises-starves-the-rest",
        "issue 7: nobody starves",
        SCHEDULE,
        "max(candidate.overdue_ms, candidate.waiting_ms - STARVED_MS)",
        "candidate.overdue_ms",
        (f"{TEST_SCHEDULE}::test_who_has_starved_counts_as_overdue", f"{TEST_SCHEDULE}::test_nobody_starves"),
    ),
    Mutant(
        "overdue-is-no-promise",
        "C-11",
        SCHEDULE,
        "    elif late_ms > 0:\n",
        "    elif late_ms > 10**15:\n",
        (f"{TEST_SCHEDULE}::test_overdue_comes_before_any_saving_and_the_longest_overdue_first",),
    ),
    Mutant(
        "the-largest-first",
        "issue 7: bytes reclaimed per byte moved",
        SCHEDULE,
        "return min(1.0, max(0, self.reclaimable_bytes) / max(1, self.moved_bytes))",
        "return float(self.reclaimable_bytes)",
        (f"{TEST_SCHEDULE}::test_then_bytes_reclaimed_per_byte_moved",),
    ),
    Mutant(
        "one-partition-twice",
        "issue 7: one clean per partition",
        SCHEDULE,
        "candidate.name in busy or ",
        "",
        (f"{TEST_SCHEDULE}::test_one_clean_a_partition_also_while_it_moves_between_directories",),
    ),
    Mutant(
        "no-cap",
        "issue 7: a cap per log directory",
        SCHEDULE,
        " or per_dir[candidate.log_dir] >= limits.per_log_dir",
        "",
        (f"{TEST_SCHEDULE}::test_the_cap_of_a_log_directory_lets_others_through",),
    ),
    Mutant(
        "windows-stop-promises",
        "issue 7: overdue is a promise",
        SCHEDULE,
        'not in {"asked", "overdue"}',
        'not in {"asked"}',
        (f"{TEST_SCHEDULE}::test_outside_of_the_windows_only_what_is_asked_for_or_overdue_begins",),
    ),
    Mutant(
        "one-bad-look-is-a-proof",
        "D-06",
        FLEET,
        'look.kind == "bad" and tracked.failed_in_a_row > 1',
        'look.kind == "bad"',
        (f"{TEST_FLEET}::test_a_look_that_fails_twice_is_a_quarantine_and_ends_by_itself",),
    ),
    Mutant(
        "a-clock-that-jumps-back-holds-for-ever",
        "issue 7: clock jumping",
        FLEET,
        "now_ms < held <= now_ms + max(self.backoff_ms[1], HOLD_MS[1])",
        "now_ms < held",
        (f"{TEST_FLEET}::test_a_failure_is_remembered_and_ends_with_a_success",),
    ),
    Mutant(
        "no-purge-of-idle-partitions",
        "R534-6",
        "cleanerd/cleaner/verdict.py",
        "None if purge and end_offset > log.segments[0].base else ",
        "",
        ("tests/daemon/test_purge.py::test_a_purge_reads_no_keys",),
    ),
    Mutant(
        "passed-horizons-are-next-purges",
        "C-49",
        "cleanerd/policy/tombstone.py",
        "has_horizon(attributes) & (base_timestamp > now_ms)]",
        "has_horizon(attributes)]",
        ("tests/daemon/test_purge.py::test_a_purge_reads_no_keys",),
    ),
    Mutant(
        "a-topic-that-was-made-again-keeps-what-was-remembered",
        "S-51",
        "cleanerd/log/clean_point.py",
        "return state_name not in {_file_name(name, topic_id), _file_name(name, None)}",
        "return False",
        ("tests/log/test_clean_point.py::test_what_is_gone_is_forgotten",),
    ),
    Mutant(
        "who-observes-forgets",
        "cleanerd.mode=observe",
        "cleanerd/daemon/sweep.py",
        ' or each.mode.work == "observe"',
        "",
        ("tests/daemon/test_sweep.py::test_who_observes_removes_nothing",),
    ),
)
