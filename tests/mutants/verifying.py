"""Mistakes of ``verify``: unchecked fields, and right cleanings reported as wrong (U-56)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FIELDS = "tests/verify/test_fields.py"

VERIFYING = (
    Mutant(
        "a-damaged-last-batch-of-a-producer-is-missing",
        "R192-1",
        "cleanerd/verify/partition.py",
        "for each in log.segments if not each.whole]",
        "for each in log.segments if False]",
        ("tests/verify/test_damages.py::test_a_damaged_last_batch_of_a_producer_is_not_reported_missing",),
    ),
    Mutant(
        "the-largest-time-of-a-batch-is-not-checked",
        "U-56",
        "cleanerd/verify/keys.py",
        "else stated_ms != rows.highest_ms\n",
        "else stated_ms < -1\n",
        (f"{FIELDS}::test_the_largest_time_of_a_batch",),
    ),
    Mutant(
        "a-cleared-tombstone-flag-is-not-found",
        "U-14",
        "cleanerd/verify/against.py",
        'self._flags_tombstones = rules.tombstone_mode == "flag"',
        "self._flags_tombstones = False",
        ("tests/verify/test_record_fields.py::test_the_flag_of_a_tombstone",),
    ),
    Mutant(
        "aborted-data-stays-after-the-end-of-a-cleaning",
        "U-56",
        "cleanerd/verify/against.py",
        "if header is None or old.segment >= self._clean_below:",
        "if header is None or old.last >= self._clean_below:",
        (f"{FIELDS}::test_aborted_data_behind_the_end_of_a_cleaning",),
    ),
    Mutant(
        "any-marker-of-an-active-producer-may-be-removed",
        "U-56",
        "cleanerd/verify/against.py",
        "        return self.many_cleanings if horizon_ms is None else horizon_ms <= self.now_ms\n",
        "        return True\n",
        (f"{FIELDS}::test_a_marker_of_an_active_producer",),
    ),
    Mutant(
        "a-running-broker-truncates-damage",
        "U-56",
        "cleanerd/verify/log_dir.py",
        "clean_shutdown=None if around.broker_runs else around.clean_shutdown,",
        "clean_shutdown=around.clean_shutdown,",
        (f"{FIELDS}::test_a_running_broker_truncates_no_damage",),
    ),
)
