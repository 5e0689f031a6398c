"""Mistakes of the canary: a budget that is exceeded, a wrong cleaning that is not found or does not hold."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TEST = "tests/daemon/test_canary.py"

CANARY = (
    Mutant(
        "one-more-than-the-budget-is-cleaned",
        "D-18",
        "cleanerd/daemon/registry/canary.py",
        "if budget.partitions is not None and len(self.unverified) >= budget.partitions:",
        "if budget.partitions is not None and len(self.unverified) > budget.partitions:",
        (f"{TEST}::test_never_more_than_the_budget_between_two_verifications",),
    ),
    Mutant(
        "a-new-day-forgets-what-is-not-verified",
        "D-18",
        "cleanerd/daemon/registry/canary.py",
        "return replace(self, spent_bytes=0, day_ms=now_ms)",
        "return replace(self, spent_bytes=0, day_ms=now_ms, unverified=())",
        (f"{TEST}::test_a_new_day_does_not_forget_what_is_not_verified",),
    ),
    Mutant(
        "the-canary-waits-for-the-clock-as-it-was",
        "D-18",
        "cleanerd/daemon/registry/canary.py",
        "return replace(self, day_ms=min(self.day_ms, now_ms))",
        "return self",
        (f"{TEST}::test_a_clock_that_was_set_back_delays_one_day",),
    ),
    Mutant(
        "verified-bytes-do-not-count-for-the-day",
        "D-18",
        "cleanerd/daemon/registry/canary.py",
        "spent_bytes=self.spent_bytes + log.size_bytes,",
        "spent_bytes=self.spent_bytes,",
        (f"{TEST}::test_never_more_than_the_budget_between_two_verifications",),
    ),
    Mutant(
        "a-cleaning-begins-before-it-is-counted",
        "D-18",
        "cleanerd/daemon/canary.py",
        " and (unwritten := self.save()):",
        ' and (unwritten := ""):',
        (f"{TEST}::test_nothing_is_cleaned_that_cannot_be_counted",),
    ),
    Mutant(
        "a-damaged-canary-begins-again",
        "D-20",
        "cleanerd/daemon/registry/canary.py",
        'return replace(NOTHING_CLEANED, hold=CanaryHold("", "", finding, now_ms))',
        "return NOTHING_CLEANED",
        (f"{TEST}::test_a_state_that_cannot_be_read_holds",),
    ),
    Mutant(
        "the-canary-compares-nothing",
        "D-19",
        "cleanerd/daemon/work/verify_cleaning.py",
        "against=kept[-1] if kept else None,",
        "against=None,",
        (f"{TEST}::test_a_wrong_cleaning_holds_everything",),
    ),
    Mutant(
        "the-canary-does-not-know-what-is-clean",
        "D-19",
        "cleanerd/daemon/work/verify_cleaning.py",
        "return replace(request, clean_below=end_offset,",
        "return replace(request, clean_below=None,",
        (f"{TEST}::test_a_wrong_cleaning_holds_everything",),
    ),
    Mutant(
        "a-hold-is-of-one-partition",
        "D-20",
        "cleanerd/daemon/registry/canary.py",
        "if self.hold is not None:\n            return",
        "if self.hold is not None and self.hold.partition == str(key[1]):\n            return",
        (f"{TEST}::test_a_wrong_cleaning_holds_everything",),
    ),
    Mutant(
        "a-request-passes-a-hold",
        "D-20",
        "cleanerd/daemon/control_api.py",
        "canary = self._fleet.held or",
        "canary =",
        (f"{TEST}::test_an_operators_request_does_not_pass_a_hold",),
    ),
    Mutant(
        "a-topic-of-the-same-name-is-verified",
        "D-19",
        "cleanerd/daemon/canary.py",
        "if _topic_id(tracked.scan) != log.topic_id:",
        "if not log.topic_id:",
        (f"{TEST}::test_a_deleted_topic_does_not_hold",),
    ),
    Mutant(
        "what-is-not-managed-is-forgotten",
        "D-20",
        "cleanerd/daemon/canary.py",
        'self._not_verified(log, "the daemon no longer manages it")',
        'self._strike_off(log, "")',
        (f"{TEST}::test_a_partition_that_is_not_managed_any_more_holds",),
    ),
    Mutant(
        "staged-is-verified-before-it-is-swapped-in",
        "D-19",
        "cleanerd/daemon/canary.py",
        "return None if tracked.scan.staged is not None else tracked",
        "return tracked",
        (f"{TEST}::test_a_staged_cleaning_is_verified_when_it_was_applied",),
    ),
    Mutant(
        "the-cluster-is-well-although-a-canary-holds",
        "D-20",
        "cleanerd/admin/cluster_compare.py",
        "any(not row.healthy or row.canary_holds for row",
        "any(not row.healthy for row",
        ("tests/cli/test_cluster.py::test_a_daemon_that_holds_is_a_fault",),
    ),
)
