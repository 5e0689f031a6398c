"""Mistakes about memory: how much there is, and what becomes of a partition that a process was killed at (U-35)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

VERIFY = "tests/verify/test_memory.py"
MARKS = "tests/log/test_at_work.py"
MAP_FILE = "tests/cleaner/test_map_file.py"

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
        "        if status.st_size > max_bytes:  # before",
        "        if status.st_size < 0:  # before",
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
    Mutant(
        "what-a-disk-lost-of-the-map-counts",
        "U-43",
        "cleanerd/cleaner/map_file.py",
        "            os.fsync(self._descriptor)\n",
        "",
        (f"{MAP_FILE}::test_what_could_not_be_written_does_not_count",),
    ),
    Mutant(
        "a-map-in-memory-itself",
        "U-43",
        "cleanerd/cleaner/map_file.py",
        "if kind in IN_MEMORY:",
        "if kind == place:",
        (f"{MAP_FILE}::test_a_directory_that_will_not_do",),
    ),
    Mutant(
        "a-map-that-fills-the-disk",
        "U-43",
        "cleanerd/cleaner/map_file.py",
        "disk.f_bavail * disk.f_frsize - reserve, 0)",
        "disk.f_bavail * disk.f_frsize, 0)",
        (f"{MAP_FILE}::test_the_reserve_stays_free",),
    ),
    Mutant(
        "a-file-whatever-it-costs",
        "U-43",
        "cleanerd/cleaner/decide.py",
        "decoder.timed_by(use.pace)",
        "decoder.timed_by(None)",
        (f"{MAP_FILE}::test_it_is_given_up_when_it_is_slow",),
    ),
)
