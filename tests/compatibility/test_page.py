"""The page about releases agrees with the matrix and its last run."""

from __future__ import annotations

from tests.compatibility.matrix import ROWS
from tests.compatibility.page import PAGE, TOP, Result, page, read_results


def test_the_page_is_that_of_the_last_run() -> None:
    """It is only generated, and every result belongs to a row."""
    results = read_results()
    assert PAGE.read_text() == page(results)
    assert set(results) <= {row.key for row in ROWS}
    assert [key for key, result in results.items() if result.failed] == []


def test_the_readme_lists_the_tested_releases() -> None:
    """Its line about live cleaning goes from the oldest release with a live row that passed to the newest."""
    results = read_results()
    live = [row for row in ROWS if row.mode == "live" and row.key in results and not results[row.key].failed]
    releases = sorted(
        {each for row in live for each in row.release.split(", ")}, key=lambda each: [*map(int, each.split("."))]
    )
    assert f"runs, Kafka {releases[0]} to {releases[-1]} |" in (TOP / "README.md").read_text()


def test_rows_name_tests_that_are_there() -> None:
    """Each row is one row, and runs something."""
    assert len({row.key for row in ROWS}) == len(ROWS)
    assert [row.tests[0] for row in ROWS if not (TOP / row.tests[0]).exists()] == []


def test_a_row_that_failed_is_shown_as_failed() -> None:
    """And one that was never run is not a success."""
    shown = page({ROWS[0].key: Result(tests=5, failed=2, date="2026-01-02", long=False)}).split("\n")
    assert sum("| Swaps, restart after a kill * (**2 of 5 failed**). " in line for line in shown) == 1
    assert sum(line.count("(**not run yet**)") for line in shown) == len(ROWS) - 1
