"""Mistakes about memory: how much there is, and what becomes of a partition that a process was killed at (U-35)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

VERIFY = "tests/verify/test_memory.py"
MARKS = "tests/log/test_at_work.py"

MEMORY = (
    Mutant(
        "only-its-own-cgroup-has-a-limit",
        "U-35",
        "cleanerd/log/memory.py",
        "range(len(parts), -1, -1)",
        "range(len(parts), len(parts) - 1, -1)",
        ("tests/log/test_memory.py::test_the_cgroup_of_version_2",),
    ),
    Mutant(
        "a-batch-may-unpack-to-what-was-set",
        "U-35",
        "cleanerd/log/memory.py",
        "min(max(batch, LEAST_BATCH_BYTES), max_unpacked_bytes)",
        "max_unpacked_bytes",
        ("tests/log/test_memory.py::test_all_of_it_fits",),
    ),
    Mutant(
        "only-the-segment-at-hand-takes-memory",
        "U-35",
        "cleanerd/cleaner/facts_room.py",
        "BATCH_BYTES * self._batches + RECORD_BITS * self._records // 8",
        "BATCH_BYTES * self._own_batches + RECORD_BITS * self._own_records // 8",
        ("tests/cleaner/test_facts_room.py::test_what_is_counted",),
    ),
    Mutant(
        "verify-tells-damage-twice",
        "U-35",
        "cleanerd/verify/keys.py",
        " and not is_told(facts.file.path, damage)",
        "",
        ("tests/verify/test_memory.py::test_damage_takes_no_memory",),
    ),
    Mutant(
        "verify-keeps-any-number-of-markers",
        "U-35",
        "cleanerd/verify/transactions.py",
        "* MARKER_BYTES > facts_bytes():",
        "* MARKER_BYTES < 0:",
        ("tests/verify/test_memory.py::test_markers_are_columns",),
    ),
    Mutant(
        "verify-keeps-all-batches-of-a-segment",
        "U-35",
        "cleanerd/verify/segment.py",
        "            self._columns = None\n            what",
        "            what",
        (f"{VERIFY}::test_a_segment_of_too_many_batches", f"{VERIFY}::test_memory_stays_below_what_is_reckoned"),
    ),
    Mutant(
        "verify-leaves-indexes-out-without-a-word",
        "U-35",
        "cleanerd/verify/segment.py",
        "            self._findings.error(Kind.NOT_VERIFIED, self._name, what, position=int(columns[0][0]))\n",
        "",
        (f"{VERIFY}::test_a_segment_of_too_many_batches",),
    ),
    Mutant(
        "a-large-file-is-read-before-it-is-refused",
        "U-35",
        "cleanerd/log/safe_open.py",
        "    if size > max_bytes:\n",
        "    if size < 0:\n",
        ("tests/log/test_safe_open.py::test_nothing_of_a_large_one_is_read",),
    ),
    Mutant(
        "a-death-counts-at-each-look",
        "U-35",
        "cleanerd/log/at_work.py",
        "mark.boot_seconds, left=True)\n            close_quietly",
        "mark.boot_seconds, left=False)\n            close_quietly",
        (f"{MARKS}::test_a_killed_one_is_counted_once",),
    ),
    Mutant(
        "a-power-cut-is-a-death",
        "U-35",
        "cleanerd/log/at_work.py",
        "mark.deaths + (1 if same_boot else 0)",
        "mark.deaths + (1 if same_boot else 1)",
        (f"{MARKS}::test_a_machine_that_went_down_is_not_counted",),
    ),
    Mutant(
        "a-death-after-the-work-is-held-against-it",
        "U-35",
        "cleanerd/daemon/looking/log_dir_looker.py",
        "if look.name in suspects and isinstance(look, PartitionLook) and look.has_nothing_to_do(now_ms):",
        "if look.name not in suspects:",
        ("tests/daemon/test_log_dir_looker.py::test_a_death_after_the_work_was_done",),
    ),
    Mutant(
        "whoever-is-killed-at-a-purge-is-forgiven",
        "U-35",
        "cleanerd/daemon/partition_look.py",
        "            and not purge_is_due\n",
        "",
        ("tests/daemon/test_log_dir_looker.py::test_what_waits_for_work",),
    ),
    Mutant(
        "a-suspect-beside-others",
        "U-35",
        "cleanerd/daemon/fleet/schedule.py",
        "return chosen if chosen or running else suspects[:1]",
        "return chosen or suspects[:1]",
        ("tests/daemon/test_schedule.py::test_a_suspect_comes_last_and_alone",),
    ),
)
