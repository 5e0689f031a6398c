"""Mistakes of the estimates: a wrong limit, parts that a sample misses, and a cleaning that waits."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

RECLAIMABLE = "cleanerd/cleaner/reclaimable.py"
TRUTH = "tests/cleaner/test_reclaimable.py::test_the_exact_value_is_within_the_bounds"
DAEMON = "tests/daemon/test_estimates.py"

ESTIMATES = (
    Mutant(
        "a-partial-sample-counts-as-complete",
        "U-41",
        RECLAIMABLE,
        "if self._others_drawn == self._others:",
        "if self._others_drawn:",
        (TRUTH,),
    ),
    Mutant(
        "clean-records-supersede-none-of-the-clean-section",
        "U-41",
        RECLAIMABLE,
        "by_any = _SampledRecords.of(sample, versioned=True, cleans_too=True)",
        "by_any = by_dirty",
        ("tests/cleaner/test_reclaimable.py::test_clean_records_supersede_each_other_by_version",),
    ),
    Mutant(
        "tombstones-past-their-horizon-stay-in-a-sample",
        "U-41",
        "cleanerd/cleaner/sample.py",
        "fates[late & contests] = MAY_GO if guarded else GOES",
        "fates[late & contests] = CONTESTS",
        (TRUTH,),
    ),
    Mutant(
        "a-producers-last-batch-is-removed-in-a-sample",
        "U-41",
        "cleanerd/cleaner/sample.py",
        "np.where(sample.batch_emptied, HEADER_BYTES, 0)",
        "0",
        (TRUTH,),
    ),
    Mutant(
        "batches-without-records-stay-in-a-sample",
        "U-41",
        "cleanerd/cleaner/sample.py",
        "np.where(stays, np.uint8(STAYS), np.uint8(GOES))",
        "np.full(len(stays), STAYS, dtype=np.uint8)",
        (TRUTH,),
    ),
    Mutant(
        "the-guard-keeps-tombstones-by-offset-in-a-sample",
        "U-4",
        "cleanerd/cleaner/sample.py",
        'if not rules.versioned or rules.tombstone_guard != "forever":',
        'if rules.tombstone_guard != "forever":',
        ("tests/cleaner/test_reclaimable.py::test_tombstones_that_a_guard_for_versions_keeps_by_offset_too",),
    ),
    Mutant(
        "growth-of-one-part-does-not-reduce-the-other",
        "U-41",
        RECLAIMABLE,
        "unseen, 0.0) - cost - doubt)",
        "unseen - cost - doubt, 0.0))",
        (TRUTH,),
    ),
    Mutant(
        "headers-of-v2-cost-nothing-in-a-sample",
        "U-41",
        RECLAIMABLE,
        "        rows = self._costs > 0\n",
        "        rows = self._costs > np.inf\n",
        (TRUTH,),
    ),
    Mutant(
        "an-old-estimate-of-another-log",
        "U-41",
        "cleanerd/daemon/estimate_cache.py",
        "saving.is_of(scan) and saving.closed == scan.closed",
        "saving.is_of(scan)",
        (f"{DAEMON}::test_a_log_that_changed_meanwhile_gets_no_old_estimate",),
    ),
    Mutant(
        "a-cleaning-waits-for-an-estimate",
        "U-41",
        "cleanerd/daemon/dispatcher.py",
        "        self.estimator.stop(lambda _job: True)\n",
        "",
        (f"{DAEMON}::test_cleaning_does_not_wait_for_an_estimate",),
    ),
    Mutant(
        "estimated-repeatedly",
        "U-41",
        "cleanerd/daemon/registry/due.py",
        "    if before is not None and 0 <= now_ms - before < ESTIMATE_INTERVAL_MS:\n        return False\n",
        "",
        (f"{DAEMON}::test_once_an_hour_and_when_twice_as_much_is_dirty",),
    ),
    Mutant(
        "an-estimate-that-hangs-has-the-only-worker",
        "OP-10",
        "cleanerd/daemon/estimator.py",
        "        self._workers.lend(1)",
        "        self._workers.lend(0)",
        ("tests/daemon/test_estimate_hangs.py::test_the_only_worker_is_not_lost",),
    ),
)
