"""Mistakes about erasures: a date that is too early, a proof that proves nothing (U-85..U-88)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

REMOVAL = "cleanerd/policy/removal.py"
STEPS = "tests/policy/test_removal.py"

ERASING = (
    Mutant(
        "the-active-segment-is-rolled-by-time-alone",
        "U-85",
        REMOVAL,
        "        if covering and covering[-1].is_active:\n",
        "        if False:\n",
        (f"{STEPS}::test_only_a_write_rolls_the_active_segment",),
    ),
    Mutant(
        "kafkas-cleaner-returns-for-tombstones",
        "U-85",
        REMOVAL,
        """        if self._facts.cleaned_by == "daemon":\n""",
        """        if self._facts.cleaned_by != "operator":\n""",
        (f"{STEPS}::test_kafkas_cleaner_does_not_return_for_a_tombstone",),
    ),
    Mutant(
        "an-event-without-a-bound-is-left-out-of-the-date",
        "U-85",
        REMOVAL,
        "return None if None in bounds else max(",
        "return max(",
        (f"{STEPS}::test_only_a_write_rolls_the_active_segment",),
    ),
    Mutant(
        "a-date-does-not-wait-for-replicas",
        "U-85",
        REMOVAL,
        "    way.replicated(facts.expiry)\n",
        "",
        (f"{STEPS}::test_a_tombstone_waits_for_every_replica",),
    ),
)
