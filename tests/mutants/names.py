"""Mistakes in opening, creating and changing owners of files below another user's directory (U-33, U-34, S-60)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SAFE_OPEN = "cleanerd/fsio/safe_open.py"
FILE_READING = "cleanerd/segments/file_metadata.py"
UNFINISHED = "cleanerd/swap/unfinished.py"
CLAIM = "cleanerd/broker/claim.py"
PLANTED = "tests/fsio/test_safe_open.py::test_planted_entries_are_not_opened"

NAMES = (
    Mutant(
        "a-link-is-followed",
        "U-33",
        SAFE_OPEN,
        "_BASE: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK",
        "_BASE: Final = os.O_CLOEXEC | os.O_NONBLOCK",
        (PLANTED, "tests/fsio/test_safe_open.py::test_a_directory_is_not_reached_through_a_link"),
    ),
    Mutant(
        "a-second-name-is-written-to",
        "U-33",
        SAFE_OPEN,
        "    if one_name and status.st_nlink > 1:",
        "    if one_name and status.st_nlink > 2:",
        (PLANTED, "tests/fsio/test_safe_open.py::test_planted_entries_are_not_replaced_by_a_new_file"),
    ),
    Mutant(
        "only-the-last-part-of-a-name-is-checked",
        "U-33",
        SAFE_OPEN,
        '    *above, last = name.split("/")',
        "    above, last = [], name",
        ("tests/fsio/test_safe_open.py::test_a_directory_is_not_reached_through_a_link",),
    ),
    Mutant(
        "a-claim-on-a-removed-name",
        "U-33",
        CLAIM,
        "                if _is_at(lock, CLAIM, staging) and _is_at(staging, STAGING, partition):",
        "                if lock:",
        ("tests/swap/test_claim.py::test_a_lock_that_is_removed_before_it_is_won",),
    ),
    Mutant(
        "root-empties-a-moved-directory",
        "U-33",
        "cleanerd/swap/files.py",
        "            self._require_owner(place, name)\n",
        "",
        ("tests/swap/test_hostile_owner.py::test_a_directory_that_was_moved_below_kstage",),
    ),
    Mutant(
        "root-changes-the-owner-of-any-kstage",
        "U-33",
        "cleanerd/cleaner/stage.py",
        "if found.st_uid == os.geteuid() and not os.listdir(staging):",
        "if found.st_uid == os.geteuid():",
        ("tests/swap/test_hostile_owner.py::test_a_directory_that_was_renamed_to_kstage",),
    ),
    Mutant(
        "entries-in-trash-are-trusted",
        "U-33",
        "cleanerd/swap/kept_place.py",
        "        if named is None:\n            _require_agreed",
        "        if named is not None:\n            _require_agreed",
        ("tests/cli/test_hostile_records.py::test_undo_deletes_no_tree_that_trash_json_names",),
    ),
    Mutant(
        "root-keeps-segments-at-a-plans-path",
        "U-33",
        "cleanerd/swap/apply_staged.py",
        "        require = partial(_require_theirs, files) if named is None else None",
        "        require = None",
        (
            "tests/cli/test_hostile_records.py::test_apply_keeps_nothing_in_a_directory_that_only_the_staged_cleaning_names",
        ),
    ),
    Mutant(
        "no-access-list",
        "S-60",
        FILE_READING,
        '_CARRIED: Final = ("user.", "security.", ACCESS_LIST, "system.nfs4_acl")',
        '_CARRIED: Final = ("user.", "security.", "system.nfs4_acl")',
        ("tests/swap/test_owner_and_mode.py::test_an_access_list_stays",),
    ),
    Mutant(
        "the-default-list-stays",
        "S-60",
        FILE_READING,
        "        if ACCESS_LIST in found and ACCESS_LIST not in self.attributes:",
        "        if ACCESS_LIST in found and ACCESS_LIST in self.attributes:",
        ("tests/swap/test_owner_and_mode.py::test_a_default_access_list_grants_no_access",),
    ),
    Mutant(
        "an-immutable-source-noticed-too-late",
        "U-34",
        UNFINISHED,
        "        _require_renamable(files, name)\n        gone",
        "        gone",
        ("tests/swap/test_swap_in_doubt.py::test_the_check_changes_nothing",),
    ),
    Mutant(
        "a-swap-beside-an-unfinished-one",
        "U-34",
        "cleanerd/swap/group_swap.py",
        "    refuse_unfinished(files, names)  # U-34\n",
        "",
        ("tests/swap/test_swap_in_doubt.py::test_no_swap_beside_an_unfinished_one",),
    ),
    Mutant(
        "half-a-swap-counts-as-done",
        "A-24",
        "cleanerd/swap/agent_swap.py",
        "if error.code == LOG_DIR_FAILED:",
        "if error.code == LOG_DIR_FAILED and not error.done:",
        ("tests/swap/test_live_answers.py::test_the_broker_takes_it_offline_for_a_swap",),
    ),
    Mutant(
        "a-live-swap-on-top-of-one-that-stopped-half-way",
        "U-34",
        "cleanerd/swap/live_swap.py",
        "        swapper.require_no_half_swap(staged)\n",
        "",
        ("tests/swap/test_live_answers.py::test_a_swap_that_stopped_half_way",),
    ),
    Mutant(
        "a-repeat-hides-the-first-failure",
        "U-38",
        "cleanerd/swap/agent_swap.py",
        "problem = failure or StalePlanError(",
        "problem = StalePlanError(",
        ("tests/swap/test_live_answers.py::test_the_first_error_is_reported_not_that_of_the_repeat",),
    ),
    Mutant(
        "running-spark-is-swept",
        "S-28",
        "cleanerd/swap/group_swap.py",
        "    if not left or not files.keeps_others_out():",
        "    if not left:",
        ("tests/swap/test_recover.py::test_the_next_claim_removes_staging_of_a_killed_spark_driver",),
    ),
    Mutant(
        "files-of-a-killed-spark-stay-a-day",
        "S-28",
        "cleanerd/swap/recover.py",
        "    if found.unknown:\n        drop_work(files, names_staged(files))\n",
        "",
        ("tests/swap/test_recover.py::test_the_next_claim_removes_staging_of_a_killed_spark_driver",),
    ),
)
