"""Mistakes about files that change while they are read, and about whose files they are (``log/``)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SEGMENT = "cleanerd/log/segment.py"
READ = "cleanerd/log/read.py"
PLAIN = "cleanerd/log/plain_file.py"
SAME = "tests/log/test_same_file.py"
MOVED_ON = "tests/apply/test_moved_on.py"
CAUSES = "tests/apply/test_causes.py"
STAGED = "tests/apply/test_stage_failures.py"
PACE = "tests/apply/test_live_pace.py"
HOSTILE = "tests/cli/test_hostile_reading.py"

MOVING_LOGS = (
    Mutant(
        "another-file-of-the-same-name",
        "D-06",
        SEGMENT,
        "if found.st_ino != self.inode:",
        "if found.st_ino < 0:",
        (f"{SAME}::test_a_sealed_segment_that_changed",),
    ),
    Mutant(
        "sealed-segments-may-be-written-to",
        "D-06",
        SEGMENT,
        "if self.sealed_bytes >= 0 and (",
        "if self.sealed_bytes < -1 and (",
        (f"{SAME}::test_a_sealed_segment_that_changed",),
    ),
    Mutant(
        "compared-at-the-open-only",
        "D-06",
        READ,
        "require_same(descriptor, segment, where)  # cut and written",
        "pass  # cut and written",
        (f"{SAME}::test_it_changes_while_it_is_read",),
    ),
    Mutant(
        "indexes-of-whatever-segment",
        "D-06",
        "cleanerd/log/same_file.py",
        "change = segment.change(os.stat(log, follow_symlinks=False))",
        'change = "" if os.stat(log, follow_symlinks=False) else ""',
        (f"{SAME}::test_indexes_of_a_segment_that_changed",),
    ),
    Mutant(
        "listed-once",
        "D-06",
        "cleanerd/log/partition.py",
        "if names == _names(directory):",
        "if names:",
        (f"{SAME}::test_two_changes_in_one_tick",),
    ),
    Mutant(
        "a-log-that-moves-on-is-not-planned-again",
        "D-06",
        "cleanerd/apply/round.py",
        "if error.plan_again else None",
        "if error.plan_again and not error.moved_on else None",
        (f"{MOVED_ON}::test_once", f"{MOVED_ON}::test_again_and_again"),
    ),
    Mutant(
        "a-log-that-moves-on-is-a-failure",
        "D-06",
        "cleanerd/cleaner/result.py",
        " and not result.moved_on]",
        "]",
        (f"{MOVED_ON}::test_again_and_again",),
    ),
    Mutant(
        "a-full-disk-is-the-logs-fault",
        "OP-10",
        "cleanerd/errors.py",
        "    cause = Cause.WORLD\n",
        "",
        (f"{CAUSES}::test_every_error_in_every_mode",),
    ),
    Mutant(
        "a-read-only-disk-is-the-logs-fault",
        "U-38",
        "cleanerd/errors.py",
        "    return MachineError if error.errno in _MACHINE else CleanerdError\n",
        "    return CleanerdError\n",
        ("tests/cli/test_bad_files.py::test_read_only_file_system",),
    ),
    Mutant(
        "a-rolled-segment-hides-damage",
        "D-06",
        "cleanerd/apply/put_staged.py",
        "    return not _closed(after).issuperset(_closed(before))\n",
        "    return _closed(after) != _closed(before)\n",
        (f"{STAGED}::test_a_segment_that_was_rolled_is_no_change",),
    ),
    Mutant(
        "a-staged-partition-stays-in-quarantine",
        "OP-10",
        "cleanerd/apply/put_staged.py",
        "        forget_quarantine(self.store, self.log_dir, found.log)\n",
        "",
        (f"{STAGED}::test_a_quarantine_ends_when_it_is_staged",),
    ),
    Mutant(
        "no-rest-after-a-swap",
        "R-9",
        "cleanerd/apply/agent_swap.py",
        "        time.sleep(max(self._rest_until - time.monotonic(), 0.0))\n",
        "",
        (f"{PACE}::test_rests",),
    ),
    Mutant(
        "groups-stay-as-large-however-long-the-lock-is-held",
        "U-36",
        "cleanerd/apply/agent_swap.py",
        "    return round(min(max((before + wanted) / 2, _FEWEST_SOURCES), _MOST_SOURCES))\n",
        "    return before\n",
        (f"{PACE}::test_how_many_sources",),
    ),
    Mutant(
        "another-cleanerd-is-a-quarantine",
        "OP-10",
        "cleanerd/errors.py",
        "    cause = Cause.BUSY\n",
        "    cause = Cause.LOG\n",
        (f"{CAUSES}::test_every_error_in_every_mode", f"{CAUSES}::test_a_held_claim_is_busy"),
    ),
    Mutant(
        "quarantine-forgotten",
        "OP-10",
        "cleanerd/apply/remember.py",
        "    if error.consequence.remembered:\n",
        "    if False:\n",
        (f"{CAUSES}::test_every_error_in_every_mode",),
    ),
    Mutant(
        "sparks-cause-is-lost",
        "OP-10",
        "cleanerd/daemon/work/hand_over.py",
        'result.reason}", result.error.cause)',
        'result.reason}")',
        (f"{CAUSES}::test_every_error_in_every_mode",),
    ),
    Mutant(
        "the-kernels-refusal-ends-the-worker",
        "OP-10",
        "cleanerd/log/kernel_errors.py",
        "except _kernel.InvalidCallError as error:",
        "except ZeroDivisionError as error:",
        (f"{SAME}::test_kernel_errors_have_one_class", f"{MOVED_ON}::test_what_the_kernel_refuses"),
    ),
    Mutant(
        "a-hard-link-shows-a-secret",
        "U-33",
        PLAIN,
        "    if not others_write and directory.st_uid in {0, file.st_uid}:\n",
        "    if not others_write:\n",
        (f"{HOSTILE}::test_whose_file_is_read", f"{HOSTILE}::test_what_was_planted_before"),
    ),
    Mutant(
        "a-partition-may-be-a-link",
        "U-33",
        PLAIN,
        "follow = 0 if name in LOG_DIR_FILES else os.O_NOFOLLOW",
        "follow = 0",
        (f"{HOSTILE}::test_a_partition_that_is_a_link",),
    ),
    Mutant(
        "cleaned-while-it-is-moved",
        "S-21",
        "cleanerd/scope/broker_facts.py",
        "if name in moved_here(path)), None)",
        "if name not in self.log_dirs and not path.name), None)",
        (
            "tests/cli/test_moving.py::test_left_alone",
            "tests/cli/test_moving.py::test_a_plan_waits",
            "tests/cli/test_moving.py::test_the_daemon",
        ),
    ),
    Mutant(
        "a-quarantine-outlives-its-segment",
        "OP-10",
        "cleanerd/log/quarantine.py",
        "segment_at(log, about.base) != about",
        "segment_at(log, about.base) is None",
        ("tests/log/test_quarantine.py::test_what_it_is_about", "tests/cli/test_doctor.py::test_quarantine"),
    ),
    Mutant(
        "a-retry-is-forgotten-by-the-next-daemon",
        "OP-10",
        "cleanerd/daemon/looking/log_dir_looker.py",
        "            forget_quarantine(context.store, reading.log_dir, reading.log)\n",
        "            pass\n",
        ("tests/daemon/test_control.py::test_a_retry_outlives_the_daemon",),
    ),
    Mutant(
        "a-forgiven-partition-is-begun-at-once",
        "OP-10",
        "cleanerd/daemon/fleet/stale_looks.py",
        "        self.ended(key)\n        self.forgiven[key]",
        "        self.forgiven[key]",
        ("tests/daemon/test_stale_looks.py::test_who_is_forgiven_waits_for_the_look_that_forgets",),
    ),
    Mutant(
        "what-a-job-saw-counts-by-whatever-settings",
        "run",
        "cleanerd/daemon/looking/log_dir_looker.py",
        "(seen.settings is None or seen.settings is self._settings)",
        "(seen.settings is None or bool(self._settings))",
        ("tests/daemon/test_looked_after.py::test_a_job_that_went_by_the_settings_from_before_a_reload",),
    ),
    Mutant(
        "what-lies-above-a-cleaning-is-none-of-the-log",
        "U-10",
        "cleanerd/apply/agent_swap.py",
        "        known = {**self._evidence, **self._above}\n",
        "        known = {**self._evidence}\n",
        ("tests/apply/test_live.py::test_cleaned_again_below_its_clean_point",),
    ),
)
