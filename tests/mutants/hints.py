"""Mistakes that trust a hint against the log: a checkpoint, a time index, a remembered horizon (U-50, U-51, S-40)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CLEAN_BELOW = "cleanerd/state/first_dirty_offset.py"
BOUNDS = "cleanerd/segments/cleanable_range.py"
UNDO = "cleanerd/swap/undo.py"
DECIDE = "cleanerd/cleaner/decide.py"
UNPROVEN = "tests/cleaner/test_first_dirty_above_clean.py"
TWICE = f"{UNPROVEN}::test_two_records_of_a_key_below_kafkas_checkpoint"
AGES = "tests/segments/test_cleanable_range.py::test_the_age_of_a_segment_is_read_from_its_batches"
MARKERS = "tests/swap/test_undo_order.py::test_a_transaction_without_its_marker_stays_away"
IDLE = "tests/cleaner/test_idle_tombstone_removal.py"

HINTS = (
    Mutant(
        "kafkas-checkpoint-permits-tombstone-removal",
        "U-50",
        "cleanerd/cleaner/tombstone_guard.py",
        "    return late if plan.rules.versioned else late & ~bits_from(evidence.unproven_to, evidence.records)\n",
        "    return late if plan.rules.versioned else None\n",
        (TWICE, f"{UNPROVEN}::test_no_deleted_key_comes_back_with_any_checkpoint"),
    ),
    Mutant(
        "the-active-segment-delays-tombstones-of-an-offset-topic",
        "U-50",
        "cleanerd/cleaner/plan.py",
        "return self.uncleanable if self.rules.versioned else ()",
        "return self.uncleanable",
        (f"{UNPROVEN}::test_a_newer_record_in_the_active_segment_holds_no_tombstone_back",),
    ),
    Mutant(
        "one-cleaning-makes-kafkas-clean-section-cleanerds",
        "U-50",
        CLEAN_BELOW,
        "    return before if end_offset < before else min(before, first_dirty_offset)\n",
        "    return 0\n",
        (TWICE, f"{UNPROVEN}::test_the_proof_of_a_cleaning"),
    ),
    Mutant(
        "an-earlier-checkpoint-proves-all",
        "U-50",
        CLEAN_BELOW,
        "    return first_dirty_offset if point.unproven_below is None else point.unproven_below\n",
        "    return point.unproven_below or 0\n",
        (TWICE,),
    ),
    Mutant(
        "newer-records-delay-a-tombstone",
        "U-50",
        "cleanerd/cleaner/tombstone_guard.py",
        "evidence.dirty_to if evidence.is_versioned else evidence.unproven_to",
        "evidence.dirty_to",
        (f"{UNPROVEN}::test_newer_records_hold_no_tombstone_back",),
    ),
    Mutant(
        "a-time-index-decides-a-segments-age",
        "U-51",
        BOUNDS,
        "        found_ms = max(found_ms, _largest_of_batches_ms(segment, reader))\n",
        "        found_ms = max(found_ms, -1)\n",
        (AGES,),
    ),
    Mutant(
        "an-empty-time-index-means-old",
        "U-51",
        BOUNDS,
        "    if found_ms <= old_ms:\n",
        "    if 0 <= found_ms <= old_ms:\n",
        (AGES,),
    ),
    Mutant(
        "possibly-torn-segments-are-read-for-their-age",
        "U-51",
        BOUNDS,
        "reader if segments[row + 1].base <= readable_end else None",
        "reader if readable_end >= 0 else None",
        ("tests/segments/test_cleanable_range.py::test_possibly_torn_segments_are_not_read_for_their_age",),
    ),
    Mutant(
        "undo-does-not-search-markers",
        "S-40",
        UNDO,
        "            _require_markers(locked, files, log, entry, plan)\n",
        "",
        (MARKERS,),
    ),
    Mutant(
        "undo-accepts-any-marker",
        "S-40",
        UNDO,
        "    if marker is not None and (marker == aborted_at if is_abort else aborted_at is None):\n",
        "    if marker is not None:\n",
        (MARKERS,),
    ),
    Mutant(
        "a-horizon-that-is-now-is-never-due",
        "R534-6",
        DECIDE,
        "    new = [begun] if begun >= 0 and any(",
        "    new = [begun] if begun > plan.now_ms and any(",
        (f"{IDLE}::test_an_idle_partition_keeps_nothing_removable",),
    ),
    Mutant(
        "a-marker-whose-data-is-removed-is-forgotten",
        "R534-3",
        DECIDE,
        "    if begun >= 0 and any(decision.shortens_transactions for decision in decided):\n",
        "    if False:\n",
        (f"{IDLE}::test_an_idle_partition_keeps_nothing_removable",),
    ),
    Mutant(
        "a-marker-waits-for-its-producer-indefinitely",
        "R534-3",
        DECIDE,
        "    if any(decision.waits_for_producers for decision in decided):\n",
        "    if False:\n",
        (f"{IDLE}::test_an_idle_partition_keeps_nothing_removable",),
    ),
    Mutant(
        "force-finds-nothing-to-clean",
        "R534-6",
        "cleanerd/cleaner/survey.py",
        "    if options.force:\n        return None\n",
        "    if options.force:\n        return against\n",
        (f"{IDLE}::test_force_removes_tombstones_of_a_log_that_kafka_cleaned",),
    ),
    Mutant(
        "a-cleaning-knows-horizons-above-its-end",
        "R534-6",
        "cleanerd/swap/record_outcome.py",
        "        removal_known_below=offset if result.end_offset >= offset else None,\n",
        "        removal_known_below=offset,\n",
        (f"{IDLE}::test_horizons_above_the_end_of_a_cleaning_are_unknown",),
    ),
    Mutant(
        "a-marker-without-a-horizon-is-overlooked",
        "R534-3",
        "cleanerd/cleaner/horizons.py",
        "            if _ends_nothing(batches, transactions).any():\n",
        "            if False:\n",
        (f"{IDLE}::test_a_marker_that_kafka_left_alone",),
    ),
    Mutant(
        "a-lowered-checkpoint-weakens-an-audit",
        "U-10",
        "cleanerd/spark/audit.py",
        "return self.question.clean_end is not None and self.question.clean_end < before",
        "return self.question.clean_end is None and 0 < before",
        ("tests/spark/test_cli_audit.py::test_a_lowered_checkpoint_does_not_weaken_an_audit",),
    ),
    Mutant(
        "audit-weakens-itself-where-the-checkpoint-no-longer-fits",
        "U-10",
        "cleanerd/cli/clean_end.py",
        "        if known is None or known[1]:\n            return found",
        "        if known is None or known[1] or found is None:\n            return found",
        ("tests/spark/test_cli_audit.py::test_every_lost_record_is_counted_with_an_unusable_checkpoint",),
    ),
    Mutant(
        "a-checkpoint-above-the-end-makes-all-of-the-log-clean",
        "U-10",
        "cleanerd/spark/audit.py",
        "if judged_by.is_hint and is_beyond",
        "if not judged_by.is_hint and is_beyond",
        ("tests/spark/test_cli_audit.py::test_a_checkpoint_above_the_end_of_the_log_is_not_used",),
    ),
    Mutant(
        "a-new-field-damages-the-files-of-the-last-release",
        "U-10",
        "cleanerd/daemon/registry/pauses.py",
        "    paused: bool\n",
        "    paused: bool\n    since_ms: int\n",
        ("tests/state/test_format_1.py::test_a_stored_file_is_read",),
    ),
)
