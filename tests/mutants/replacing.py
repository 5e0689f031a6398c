"""Mistakes in the replacement: order, barriers, recovery, the checkpoint (``apply/``, ``format/``)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SWAP = "cleanerd/apply/swap.py"
SPLIT = "cleanerd/cleaner/split.py"
RECOVER = "cleanerd/apply/recover.py"
STEPS = "tests/apply/test_swap.py::test_steps_and_barriers_in_their_order"

REPLACING = (
    Mutant(
        "log-moved-first",
        "S-31",
        SWAP,
        '("timeindex", "index", "txnindex", "log")',
        '("log", "timeindex", "index", "txnindex")',
        (STEPS,),
    ),
    Mutant(
        "no-barrier-after-the-commit-point",
        "S-34",
        SWAP,
        "swap_name(group.base, kind))\n    files.fsync_directory()\n    complete_group(",
        "swap_name(group.base, kind))\n    complete_group(",
        (STEPS,),
    ),
    Mutant(
        "lock-not-looked-at",
        "S-33",
        SWAP,
        "    lock.check()  # S-33\n",
        "",
        ("tests/apply/test_swap.py::test_the_lock_is_looked_at_before_the_commit_point",),
    ),
    Mutant(
        "sources-retired-without-a-barrier",
        "S-35",
        SWAP,
        "files.rename(name, name + DELETED_SUFFIX)\n        files.fsync_directory()\n",
        "files.rename(name, name + DELETED_SUFFIX)\n",
        (STEPS,),
    ),
    Mutant(
        "newest-snapshot-retired",
        "S-45",
        SWAP,
        "base not in {group.base, newest_snapshot}",
        "base not in {group.base}",
        ("tests/apply/test_swap.py::test_the_snapshot_of_the_first_source_and_the_newest_one_stay",),
    ),
    Mutant(
        "undone-log-first",
        "C-16",
        RECOVER,
        '        [swap_name(group.base, kind) for kind in kinds if kind != "log"],\n'
        '        [swap_name(group.base, "log")],\n',
        '        [swap_name(group.base, "log")],\n'
        '        [swap_name(group.base, kind) for kind in kinds if kind != "log"],\n',
        ("tests/apply/test_recover.py::test_a_roll_back_never_leaves_a_lone_index_behind",),
    ),
    Mutant(
        "committed-group-undone",
        "S-28",
        RECOVER,
        "if has_cleaned or (has_swap and not _is_committed(files, group, names)):",
        "if has_cleaned or has_swap:",
        ("tests/apply/test_recover.py::test_completed_after_the_commit_point",),
    ),
    Mutant(
        "swaps-alone-always-committed",
        "S-28",
        RECOVER,
        "if has_cleaned or (has_swap and not _is_committed(files, group, names)):",
        "if has_cleaned:",
        ("tests/apply/test_recover.py::test_an_incomplete_set_of_swaps_with_all_sources_is_undone",),
    ),
    Mutant(
        "files-of-others-passed-over",
        "S-21",
        RECOVER,
        "foreign = sorted((unfinished - ours) | set(found.foreign))",
        "foreign = sorted(set(found.foreign))",
        ("tests/apply/test_recover.py::test_files_of_others_are_reported_and_everything_is_left_alone",),
    ),
    Mutant(
        "checkpoint-lines-of-others-lost",
        "S-50",
        "cleanerd/apply/checkpoint.py",
        "merged = {**entries, **offsets}",
        "merged = {**offsets}",
        ("tests/apply/test_checkpoint.py::test_merged_with_the_lines_of_others",),
    ),
    Mutant(
        "piece-one-offset-too-long",
        "C-67",
        SPLIT,
        "if last - piece.base > MAX_RELATIVE_OFFSET:",
        "if last - piece.base >= MAX_RELATIVE_OFFSET:",
        ("tests/cleaner/test_split.py::test_the_pieces",),
    ),
    Mutant(
        "aborted-transactions-in-the-first-piece",
        "C-67",
        SPLIT,
        "entries[np.maximum(rows, 0) == row]",
        "entries[(row == 0) & (rows >= 0)]",
        ("tests/cleaner/test_split.py::test_the_pieces",),
    ),
    Mutant(
        "first-piece-begins-with-its-first-batch",
        "C-67",
        SPLIT,
        "                yield piece\n                piece =",
        "                if piece.records:\n                    yield piece\n                piece =",
        ("tests/cleaner/test_split.py::test_nothing_fits_the_first",),
    ),
    Mutant(
        "all-large-batches-are-oversized",
        "C-55",
        "cleanerd/cleaner/rewrite.py",
        "np.count_nonzero(large & (written.size > written.source_size))",
        "np.count_nonzero(large)",
        ("tests/cleaner/test_segments.py::test_oversize_is_growth",),
    ),
    Mutant(
        "apply-forgets-what-it-kept-before-the-crash",
        "S-40",
        "cleanerd/apply/keep.py",
        "begun = self._trash.entry(plan_id)",
        "begun: KeptEntry | None = None",
        ("tests/cli/test_stage_keep.py::test_killed_at_every_operation",),
    ),
    Mutant(
        "a-live-clean-keeps-when-it-is-too-late",
        "S-40",
        "cleanerd/apply/put_by_agent.py",
        "        keep.keep(staged)\n        yield\n",
        "        yield\n        keep.keep(staged)\n",
        ("tests/apply/test_keep_live.py::test_killed_around_a_swap",),
    ),
    Mutant(
        "a-refused-swap-stays-kept",
        "S-40",
        "cleanerd/apply/put_by_agent.py",
        "        if not swapper.in_doubt:\n            keep.let_go(staged)\n",
        "",
        ("tests/apply/test_keep_live.py::test_a_swap_that_was_refused_keeps_nothing",),
    ),
    Mutant(
        "a-swap-in-doubt-is-let-go",
        "S-40",
        "cleanerd/apply/put_by_agent.py",
        "        if not swapper.in_doubt:",
        "        if swapper is not None:",
        ("tests/apply/test_keep_live.py::test_nobody_knows_whether_it_was_made",),
    ),
    Mutant(
        "undo-knows-no-java-milliseconds",
        "S-40",
        "cleanerd/apply/kept_segments.py",
        "return found in (self, java)",
        "return found == self",
        ("tests/apply/test_keep_live.py::test_kept_and_put_back",),
    ),
    Mutant(
        "what-is-kept-goes-under-an-undo",
        "S-40",
        "cleanerd/apply/keep_limits.py",
        "        except LogDirBusyError:\n            return False",
        "        except LogDirBusyError:\n            pass",
        ("tests/apply/test_keep_limits.py::test_who_is_at_work_there_is_left_alone",),
    ),
    Mutant(
        "directory-taken-for-an-index",
        "OP-10",
        "cleanerd/log/partition.py",
        "known = suffix == SEGMENT_SUFFIX or suffix in COMPANION_SUFFIXES",
        "known = suffix == SEGMENT_SUFFIX",
        ("tests/cli/test_bad_files.py::test_bad_file",),
    ),
)
