"""Planted mistakes about copies and moved directories (U-46), kept segments (U-47) and erasure (OP-16)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PLACES = "cleanerd/state/places.py"
RECORD_PLACES = "cleanerd/verify/record_places.py"
AUDIT = "cleanerd/verify/audit.py"
TESTS = "tests/state/test_places.py"

COPIES = (
    Mutant(
        "a-copy-counts-as-the-original",
        "U-46",
        PLACES,
        "        if is_there(before, now):\n            return False\n"
        "        is_same = (before.inode, before.file_system) == (now.inode, now.file_system)",
        "        is_same = True",
        (
            f"{TESTS}::test_a_copy_does_not_share_the_originals_state",
            "tests/cli/test_copies.py::test_undo_of_the_original_and_of_the_copy",
        ),
    ),
    Mutant(
        "a-trial-adopts-the-originals-state",
        "U-46",
        "cleanerd/cli/adopt_state.py",
        "if is_there(before.place, log_dir.place):",
        "if not known:",
        ("tests/cli/test_adopt_state.py::test_a_trial_gets_nothing",),
    ),
    Mutant(
        "an-adopted-checkpoint-fits-any-file",
        "U-46",
        "cleanerd/state/cleaner_checkpoint.py",
        "return now is not None and (now.size, now.mtime_ns) == (before.size, before.mtime_ns)",
        "return now is not None",
        ("tests/cli/test_adopt_state.py::test_another_file_is_not_clean",),
    ),
    Mutant(
        "a-trial-on-a-copy-counts-for-the-original",
        "U-46",
        "cleanerd/state/first_dirty_offset.py",
        "changed_ns.get(known.base, since_ns) >= since_ns",
        "True",
        (f"{TESTS}::test_a_trial_on_a_copy_does_not_affect_the_original",),
    ),
    Mutant(
        "a-new-disk-is-not-protected",
        "U-46",
        "cleanerd/state/other_places.py",
        "    for name, known in same.items():\n        if",
        "    for name, known in ():\n        if",
        (
            f"{TESTS}::test_a_copy_of_a_cleaned_log_has_its_settings",
            "tests/cli/test_copies.py::test_a_copy_cleaned_by_offset",
        ),
    ),
    Mutant(
        "a-mount-point-is-known-by-its-inode",
        "U-46",
        PLACES,
        "is_same = (before.inode, before.file_system) == (now.inode, now.file_system)",
        "is_same = before.inode == now.inode",
        (f"{TESTS}::test_another_file_system_with_the_same_inode",),
    ),
    Mutant(
        "undo-uses-segments-of-a-copy",
        "U-46",
        "cleanerd/swap/kept_segments.py",
        "return entry.place == self._places.name_of(log_dir.place)",
        "return entry.place.split('-')[0] == self._places.name_of(log_dir.place).split('-')[0]",
        ("tests/cli/test_copies.py::test_undo_of_the_original_and_of_the_copy",),
    ),
    Mutant(
        "audit-does-not-search-kept-segments",
        "U-47",
        RECORD_PLACES,
        "        found.places.append(RecordPlace(kept, name, KEPT",
        "        str(RecordPlace(kept, name, KEPT",
        (
            "tests/verify/test_record_places.py::test_kept_segments",
            "tests/cli/test_audit.py::test_in_replaced_segments",
        ),
    ),
    Mutant(
        "unmounted-segments-count-as-removed",
        "U-47",
        RECORD_PLACES,
        "    elif not kept.parent.parent.is_dir():",
        "    elif False:",
        (
            "tests/verify/test_record_places.py::test_a_disk_that_is_not_mounted",
            "tests/cli/test_audit.py::test_in_replaced_segments",
        ),
    ),
    Mutant(
        "moved-partitions-are-not-searched",
        "U-47",
        RECORD_PLACES,
        "    _of_moves(state_dir, log_dirs, found)",
        "    str(_of_moves)",
        (
            "tests/verify/test_record_places.py::test_moved_partitions",
            "tests/cli/test_long_away.py::test_an_erased_key_in_a_moved_replica",
        ),
    ),
    Mutant(
        "the-place-of-to-is-not-recorded",
        "U-47",
        "cleanerd/cli/move_aside.py",
        "            if self.to is not None:",
        "            if self.to is not None and not self.paths:",
        ("tests/cli/test_long_away.py::test_an_erased_key_in_a_moved_replica",),
    ),
    Mutant(
        "a-damaged-entry-kept-nothing",
        "U-47",
        RECORD_PLACES,
        "            if name.endswith(DAMAGED):",
        "            if name.endswith(DAMAGED) and not name:",
        ("tests/verify/test_record_places.py::test_an_unreadable_entry",),
    ),
    Mutant(
        "a-prefix-may-be-anywhere-in-a-key",
        "OP-16",
        AUDIT,
        "else record.key.startswith(self.data)",
        "else self.data in record.key",
        ("tests/cli/test_audit.py::test_key_prefixes_and_parts_of_values",),
    ),
    Mutant(
        "headers-are-not-searched",
        "OP-16",
        AUDIT,
        "values = (record.value, *(value for _, value in record.headers))",
        "values = (record.value,)",
        ("tests/cli/test_audit.py::test_key_prefixes_and_parts_of_values",),
    ),
    Mutant(
        "a-term-that-is-found-late-is-not-shown",
        "OP-16",
        "cleanerd/spark/erasure.py",
        "if any(shown[term] < limit for term in each.terms):",
        "if sum(shown.values()) < limit:",
        ("tests/spark/test_erasure.py::test_a_term_whose_matches_come_late_is_shown",),
    ),
    Mutant(
        "an-unmounted-disk-of-a-removed-partition-is-not-named",
        "U-47",
        "cleanerd/cli/audit.py",
        "    also += [each.name for each in elsewhere.unsearched if each.name is not None]\n",
        "",
        ("tests/cli/test_audit.py::test_a_topic_of_which_only_unmounted_segments_are_left",),
    ),
)
