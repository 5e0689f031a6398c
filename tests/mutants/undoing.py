"""Mistakes about restored segments, and about a plan that was applied in part (S-26, S-40, X-20)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

UNDO = "cleanerd/swap/undo.py"
ORDER = "tests/swap/test_undo_order.py"

UNDOING = (
    Mutant(
        "an-ended-apply-drops-its-plan",
        "X-20",
        "cleanerd/swap/apply_staged.py",
        "rollback_on_error(partial(abandon, files, keep_ready=True))",
        "rollback_on_error(partial(abandon, files))",
        ("tests/swap/test_apply_ended.py::test_apply_continues_with_the_next_group",),
    ),
    Mutant(
        "a-partly-undone-plan-waits",
        "S-28",
        "cleanerd/swap/recover.py",
        "        for manifest in left.ready if left.rolled_back else ():\n",
        "        for manifest in ():\n",
        ("tests/swap/test_apply_ended.py::test_rolling_back_a_group_removes_its_plan",),
    ),
    Mutant(
        "undo-below-a-later-cleaning",
        "S-40",
        UNDO,
        "    above = None if point is None else _later_segment(point, entry)\n",
        "    above = None\n",
        (f"{ORDER}::test_a_cleaning_above_removed_the_marker",),
    ),
    Mutant(
        "first-dirty-forgets-its-last-output",
        "S-40",
        "cleanerd/swap/record_outcome.py",
        "    if last_base is None and output is not None:\n",
        "    if output is not None:\n",
        (f"{ORDER}::test_a_cleaning_above_removed_the_marker",),
    ),
    Mutant(
        "undo-refuses-for-an-earlier-cleaning-above",
        "S-40",
        UNDO,
        "output is not None and output != known and output.base",
        "output is not None and output.base",
        (f"{ORDER}::test_an_earlier_cleaning_above_does_not_prevent_an_undo",),
    ),
    Mutant(
        "undo-uses-the-clock-alone",
        "S-40",
        UNDO,
        "            newest.insert(max(rests, default=-1) + 1, entry)\n",
        "            newest.insert(0, entry)\n",
        (f"{ORDER}::test_a_clock_that_was_set_back",),
    ),
    Mutant(
        "undo-while-the-replica-is-moved",
        "S-21",
        "cleanerd/cli/undo.py",
        "        facts.require_in_place(entry.name)\n",
        "        pass\n",
        ("tests/cli/test_undo_beside.py::test_a_replica_that_is_being_moved_is_not_undone",),
    ),
    Mutant(
        "a-plan-is-kept-in-two-places",
        "S-40",
        "cleanerd/swap/backup.py",
        "        if os.path.realpath(kept) != os.path.realpath(entry.kept) and os.path.isdir(entry.kept):\n",
        "        if not entry.kept:\n",
        ("tests/cli/test_stage_keep.py::test_kept_in_two_places",),
    ),
    Mutant(
        "a-link-of-before-is-in-the-way",
        "S-40",
        "cleanerd/swap/backup.py",
        '                    place.unlink(f"{self._directory}/{name}")\n                place',
        "                place",
        ("tests/cli/test_stage_keep.py::test_a_broker_writes_an_index_again",),
    ),
    Mutant(
        "apply-makes-its-state-in-a-log-directory",
        "H-21",
        "cleanerd/cli/apply.py",
        "    require_outside(settings.daemon.cleanerd_state_dir, log_dirs)\n",
        "",
        ("tests/cli/test_clean_bad_input.py::test_state_in_a_log_directory",),
    ),
    Mutant(
        "no-memory-ends-the-command",
        "U-38",
        "cleanerd/segments/kernel_errors.py",
        "_kernel.KernelBugError, MemoryError)",
        "_kernel.KernelBugError)",
        ("tests/swap/test_broker_cleaner_swaps.py::test_no_memory",),
    ),
    Mutant(
        "an-unsweepable-file-stops-a-cleaning",
        "U-33",
        "cleanerd/swap/recover.py",
        "            with contextlib.suppress(CleanerdError):  # it does no harm\n",
        "            with contextlib.suppress(LogDirBusyError):\n",
        ("tests/cli/test_one_bad_partition.py::test_a_staging_file_of_root_does_no_harm",),
    ),
    Mutant(
        "a-topic-whose-name-no-file-can-have",
        "U-6",
        "cleanerd/state/last_settings.py",
        "    if len(topic) <= _LONGEST_NAME:\n",
        "    if topic:\n",
        ("tests/state/test_cleaner_checkpoint.py::test_a_topic_without_an_id_has_any_name",),
    ),
    Mutant(
        "verify-treats-a-part-as-the-copy",
        "U-28",
        "cleanerd/verify/partition.py",
        "        self._report_missing(findings)\n",
        "",
        ("tests/cli/test_verify.py::test_against_kept_segments_some_of_which_are_missing",),
    ),
)
