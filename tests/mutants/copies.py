"""Planted mistakes about copies of a log directory, moved directories (U-46), and what is kept of a log (U-47)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PLACES = "cleanerd/log/places.py"
RECORD_PLACES = "cleanerd/verify/record_places.py"
TESTS = "tests/log/test_places.py"

COPIES = (
    Mutant(
        "a-copy-is-taken-for-the-original",
        "U-46",
        PLACES,
        "        if _is_there(before, now):\n            return False\n"
        "        is_same = (before.inode, before.file_system) == (now.inode, now.file_system)",
        "        is_same = True",
        (
            f"{TESTS}::test_a_copy_does_not_share_the_originals_state",
            "tests/cli/test_copies.py::test_undo_of_the_original_and_of_the_copy",
        ),
    ),
    Mutant(
        "a-trial-says-how-the-original-was-cleaned",
        "U-46",
        "cleanerd/log/clean_below.py",
        "changed_ns.get(known.base, since_ns) >= since_ns",
        "True",
        (f"{TESTS}::test_a_trial_on_a_copy_says_nothing_of_the_original",),
    ),
    Mutant(
        "a-new-disk-is-not-protected",
        "U-46",
        "cleanerd/log/other_places.py",
        "    for name, known in same.items():\n        if",
        "    for name, known in ():\n        if",
        (
            f"{TESTS}::test_a_copy_of_a_cleaned_log_has_its_rules",
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
        "undo-takes-what-was-kept-of-a-copy",
        "U-46",
        "cleanerd/apply/kept_segments.py",
        "return entry.place == self._places.name_of(log_dir.place)",
        "return entry.place.split('-')[0] == self._places.name_of(log_dir.place).split('-')[0]",
        ("tests/cli/test_copies.py::test_undo_of_the_original_and_of_the_copy",),
    ),
    Mutant(
        "audit-does-not-search-what-was-kept",
        "U-47",
        RECORD_PLACES,
        "        found.places.append(RecordPlace(kept, name, KEPT",
        "        str(RecordPlace(kept, name, KEPT",
        (
            "tests/verify/test_record_places.py::test_what_was_kept",
            "tests/cli/test_audit.py::test_in_what_a_cleaning_replaced",
        ),
    ),
    Mutant(
        "what-is-not-mounted-is-gone",
        "U-47",
        RECORD_PLACES,
        "    elif not kept.parent.parent.is_dir():",
        "    elif False:",
        (
            "tests/verify/test_record_places.py::test_a_disk_that_is_not_mounted",
            "tests/cli/test_audit.py::test_in_what_a_cleaning_replaced",
        ),
    ),
    Mutant(
        "a-damaged-entry-kept-nothing",
        "U-47",
        RECORD_PLACES,
        "            if name.endswith(DAMAGED):",
        "            if name.endswith(DAMAGED) and not name:",
        ("tests/verify/test_record_places.py::test_an_entry_that_says_nothing",),
    ),
)
