"""The table of Spark's releases agrees with the last runs."""

from __future__ import annotations

import re
import tomllib

from tests.compatibility.page import TOP, Result
from tests.compatibility.spark import PAGE, PYTHONS, ROWS, SPARKS, TESTS, page, read_results, table


def test_the_table_is_that_of_the_last_run() -> None:
    """It is only generated, every combination was run, and none failed."""
    results = read_results()
    text = PAGE.read_text()
    assert text == page(text, results)
    assert table(results) in text
    assert set(results) == {row.key for row in ROWS}
    assert [key for key, result in results.items() if result.failed] == []


def test_the_claimed_combinations_were_run() -> None:
    """The bounds of pyspark and of Python in the package end where the combinations end; the tests exist."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    (bounds,) = [each for each in project["optional-dependencies"]["spark"] if each.startswith("pyspark")]
    lines = [tuple(map(int, each.split(".")[:2])) for each in SPARKS]
    oldest, newest = min(lines), max(lines)
    assert bounds == f"pyspark>={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}"
    assert project["requires-python"] == f">={PYTHONS[0]}"
    assert re.search(r"^pyspark==(.*)$", (TOP / "constraints.txt").read_text(), re.MULTILINE)[1] in SPARKS  # type: ignore[index]
    assert [each for each in TESTS if not (TOP / each).exists()] == []


def test_failed_and_missing_runs_are_shown_as_such() -> None:
    """Neither is a success."""
    shown = table({ROWS[0].key: Result(tests=5, failed=2, date="2026-01-02", long=False)})
    assert "| 4.1.4 | **2 of 5 failed** (few) | not run | not run |" in shown
    assert shown.count("not run") == len(ROWS) - 1
