"""Mistakes of tasks and of the local mode: a profile's figures, an audit's findings, a snapshot's retained records."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

COUNTS = "cleanerd/spark/key_counts.py"
TIMES = "cleanerd/spark/write_times.py"
PAIRS = "cleanerd/spark/record_pairs.py"
JUDGING = "cleanerd/spark/judging.py"
WINNERS = "cleanerd/spark/latest_by_tasks.py"
PICTURES = "cleanerd/spark/report/pictures.py"
TESTS = "tests/spark/test_key_counts.py"
REPORT = "tests/spark/test_report.py"

SPARK_PROFILE = (
    Mutant(
        "profile-treats-the-retained-record-as-the-last",
        "R280-4",
        COUNTS,
        '        **groups.highest(("last",)),\n',
        '        "last": rows["last"][winner],\n',
        (f"{TESTS}::test_added_up_in_any_parts",),
    ),
    Mutant(
        "profile-compares-a-partition-with-none",
        "OP-19",
        "cleanerd/spark/profile.py",
        "        if live is not None and partitions[topics[part]] > 1:\n",
        "        if live is not None:\n",
        (f"{TESTS}::test_more_keys_than_fit",),
    ),
    Mutant(
        "profile-counts-versions-with-a-sign",
        "R280-8",
        COUNTS,
        '    between = keys["version"][several].view(np.uint64) - keys["least"][several].view(np.uint64)\n',
        '    between = np.maximum(keys["version"][several] - keys["least"][several], 0).astype(np.uint64)\n',
        (f"{TESTS}::test_the_largest_difference_of_versions",),
    ),
    Mutant(
        "profile-treats-no-timestamp-as-1970",
        "U-13",
        COUNTS,
        "        waiting = timestamp[dirty & (timestamp >= 0)]\n",
        "        waiting = timestamp[dirty]\n",
        (f"{TESTS}::test_the_age_of_the_dirty_section",),
    ),
    Mutant(
        "profile-keeps-every-minute",
        "U-35",
        TIMES,
        "        while len(self.counts) > MOST_SPANS:\n",
        "        while False:\n",
        ("tests/spark/test_write_times.py::test_a_year_is_not_measured_by_the_minute",),
    ),
    Mutant(
        "report-as-wide-as-the-strangest-timestamp",
        "U-13",
        PICTURES,
        "        last = min(last, _LAST_MS // span_ms)\n",
        "",
        (f"{REPORT}::test_any_timestamp",),
    ),
    Mutant(
        "audit-has-the-digest-of-the-last-piece",
        "U-28",
        PAIRS,
        "            self.digests[name] = self.digests.get(name, 0) ^ value\n",
        "            self.digests[name] = value\n",
        ("tests/spark/test_audit_tasks.py::test_found_adds_up", "tests/spark/test_audit_tasks.py::test_in_pieces"),
    ),
    Mutant(
        "audit-reports-findings-once-per-shard",
        "U-28",
        JUDGING,
        "        if shard == 0:\n",
        "        if True:\n",
        ("tests/spark/test_audit_tasks.py::test_in_pieces",),
    ),
    Mutant(
        "audit-uses-the-key-of-the-cleaned-log",
        "U-28",
        PAIRS,
        "np.where(befores > 0, highest(0, rows[name]), highest(1, rows[name]))",
        "np.where(afters > 0, highest(1, rows[name]), highest(0, rows[name]))",
        ("tests/spark/test_audit_tasks.py::test_pairs",),
    ),
    Mutant(
        "snapshot-drops-tombstones-before-they-win",
        "R280-4",
        WINNERS,
        '        rows = select_rows(rows, (rows["flags"] & _COMPETES) == _COMPETES)\n',
        '        rows = select_rows(rows, (rows["flags"] & (_COMPETES | RecordFact.TOMBSTONE)) == _COMPETES)\n',
        ("tests/spark/test_snapshot_files.py::test_one_state",),
    ),
    Mutant(
        "snapshot-treats-the-best-of-a-segment-as-the-best",
        "R280-3",
        WINNERS,
        "            waiting, rows = [_best(waiting)], 0\n",
        "            waiting, rows = [], 0\n",
        ("tests/spark/test_snapshot_files.py::test_more_keys_than_wait_at_once",),
    ),
    Mutant(
        "profile-reports-the-damage-of-headers-only",
        "U-35",
        "cleanerd/spark/profile.py",
        "[*walked.damaged, *other_damage(walked.damaged, totals.damaged, files)]",
        "[*walked.damaged]",
        ("tests/spark/test_views.py::test_damage_that_only_decoding_finds",),
    ),
    Mutant(
        "profile-is-silent-about-times-in-another-unit",
        "OP-18",
        "cleanerd/spark/profile.py",
        "        if wrong is not None:",
        "        if wrong is not None and not batches:",
        (f"{TESTS}::test_timestamps_in_another_unit",),
    ),
    Mutant(
        "keys-of-other-topics-are-in-several-partitions",
        "OP-19",
        COUNTS,
        "    for column in (topics, high, low):",
        "    for column in (high, low):",
        (f"{TESTS}::test_the_same_key_of_another_topic_is_elsewhere_in_no_partition",),
    ),
    Mutant(
        "deleted-keys-are-in-several-partitions",
        "OP-19",
        COUNTS,
        'np.flatnonzero(keys["deleted"] == 0)',
        'np.flatnonzero(keys["deleted"] >= 0)',
        (f"{TESTS}::test_keys_in_several_partitions",),
    ),
)
