"""Mistakes of updating tables (``spark/tables/``): rows missing or left."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SIFT = "cleanerd/spark/tables/filter_superseded.py"
REFUSALS = "cleanerd/spark/tables/refusals.py"
MERGE = "cleanerd/spark/tables/merge.py"
DELTA = "cleanerd/spark/tables/delta.py"
STATES = "tests/spark/test_table_states.py"
TESTS = "tests/spark/test_tables.py"
REFUSED = "tests/spark/test_tables_refused.py"

SPARK_TABLES = (
    Mutant(
        "table-takes-a-late-version",
        "R280-14",
        SIFT,
        "    beats = _Ranks.of(there).above(_Ranks.of(rival))\n",
        "    beats = np.zeros(len(there), np.bool_)\n",
        (f"{TESTS}::test_a_late_version_loses",),
    ),
    Mutant(
        "table-remembers-a-tombstone-that-the-log-forgot",
        "U-1",
        SIFT,
        "        beats[winning_tombstones[~stored]] = False\n",
        "        pass\n",
        (f"{TESTS}::test_a_late_version_loses",),
    ),
    Mutant(
        "table-keeps-rows-that-retention-deleted",
        "R280-14",
        SIFT,
        "        drop |= old\n",
        "        pass\n",
        (f"{TESTS}::test_retention_moves_the_log_start",),
    ),
    Mutant(
        "table-misses-removed-tombstones",
        "R534-2",
        REFUSALS,
        "    if missing > 0 and",
        "    if missing < 0 and",
        (f"{REFUSED}::test_tombstones_written_and_removed_between_two_merges",),
    ),
    Mutant(
        "table-refuses-all-old-records",
        "R534-2",
        REFUSALS,
        "    if missing > 0 and",
        "    if",
        (f"{REFUSED}::test_tombstones_written_and_removed_between_two_merges",),
    ),
    Mutant(
        "table-reads-past-an-open-transaction",
        "S-04",
        MERGE,
        "        end = max(walked.stable_end, first)\n",
        "        end = max(walked.end_offset, first)\n",
        (f"{TESTS}::test_a_merge_adds_new_records",),
    ),
    Mutant(
        "table-is-committed-on-top-of-another",
        "R280-14",
        DELTA,
        ", max_commit_retries=0)",
        ")",
        (f"{TESTS}::test_the_second_of_two_merges_changes_nothing",),
    ),
    Mutant(
        "table-forgets-which-topic-it-is-of",
        "R280-14",
        "cleanerd/spark/tables/remembered.py",
        "return self if before is None or self.topic_id is not None else",
        "return self if before is None or self.topic_id is None else",
        ("tests/spark/test_tables_refused.py::test_a_copy_without_its_topic_id",),
    ),
    Mutant(
        "table-of-a-truncated-log",
        "F-9",
        REFUSALS,
        "and epoch != watermark.leader_epoch:",
        "and epoch < watermark.leader_epoch:",
        (f"{STATES}::test_truncated_and_grown_again",),
    ),
    Mutant(
        "table-with-rows-of-another-writer",
        "R280-14",
        DELTA,
        'changed = f"{operation}, version {version}" if self._changes_rows(version) else ""',
        'changed = ""',
        (f"{STATES}::test_rows_that_another_writer_changed",),
    ),
    Mutant(
        "table-that-another-writer-compacted-is-refused",
        "R280-14",
        DELTA,
        'each.get(kind, {}).get("dataChange", False)',
        "kind in each",
        (f"{STATES}::test_commits_that_change_no_row",),
    ),
)
