"""Mistakes of a profile (``spark/key_counts.py``, ``spark/report/``): figures that a strategy would be chosen by."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

COUNTS = "cleanerd/spark/key_counts.py"
TIMES = "cleanerd/spark/write_times.py"
PICTURES = "cleanerd/spark/report/pictures.py"
TESTS = "tests/spark/test_key_counts.py"
REPORT = "tests/spark/test_report.py"

SPARK_PROFILE = (
    Mutant(
        "profile-takes-the-winner-for-the-last",
        "R280-4",
        COUNTS,
        '        "last": np.maximum.reduceat(rows["last"], starts),\n',
        '        "last": rows["last"][winner],\n',
        (f"{TESTS}::test_added_up_in_any_parts",),
    ),
    Mutant(
        "profile-counts-versions-with-a-sign",
        "R280-8",
        COUNTS,
        '    between = keys["version"][several].view(np.uint64) - keys["least"][several].view(np.uint64)\n',
        '    between = np.maximum(keys["version"][several] - keys["least"][several], 0).astype(np.uint64)\n',
        (f"{TESTS}::test_versions_as_far_apart_as_numbers_go",),
    ),
    Mutant(
        "profile-takes-no-timestamp-for-1970",
        "U-13",
        COUNTS,
        "        waiting = timestamp[dirty & (timestamp >= 0)]\n",
        "        waiting = timestamp[dirty]\n",
        (f"{TESTS}::test_how_old_what_is_not_cleaned_is",),
    ),
    Mutant(
        "profile-keeps-every-minute",
        "U-35",
        TIMES,
        "        while len(self.counts) > MOST_SPANS:\n",
        "        while False:\n",
        ("tests/spark/test_write_times.py::test_a_year_is_not_told_by_the_minute",),
    ),
    Mutant(
        "report-as-wide-as-the-strangest-timestamp",
        "U-13",
        PICTURES,
        "        last = min(last, _LAST_MS // span_ms)\n",
        "",
        (f"{REPORT}::test_any_timestamp",),
    ),
)
