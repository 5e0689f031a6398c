"""``make compatibility``: run the matrix, store the result of every row, write docs/compatibility.md.

``COMPATIBILITY=quick`` leaves long tests out; ``COMPATIBILITY_ROWS=3.8`` runs the rows whose key contains that. A row
that is not run keeps its last result and date. Exit code 1 when a row failed.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.compatibility.matrix import ROWS, Row
from tests.compatibility.page import PAGE, RESULTS, TOP, Result, page, read_results


def run(row: Row, *, long: bool, python: str = sys.executable) -> Result | None:
    """Run one row's tests by ``python``; None: all of them are long. A row without a test that ran has failed."""
    markers = "not bench" if long else "not bench and not long"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [python, "-m", "pytest", "-q", *row.tests, "-m", markers, f"--junitxml={report}"]
        ended = subprocess.run(command, cwd=TOP, check=False).returncode
        suites = list(ET.parse(report).getroot().iter("testsuite")) if report.exists() else []  # noqa: S314 - ours
    if ended == pytest.ExitCode.NO_TESTS_COLLECTED and not long:
        return None
    count = sum(int(suite.get("tests", 0)) for suite in suites)
    failed = sum(int(suite.get("failures", 0)) + int(suite.get("errors", 0)) for suite in suites)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return Result(count, failed if count else 1, today, long)


def main() -> int:
    """Run the rows, one after the other."""
    wanted = os.environ.get("COMPATIBILITY_ROWS", "")
    ended = 0
    for row in ROWS:
        if wanted in row.key:
            result = run(row, long=os.environ.get("COMPATIBILITY") != "quick")
            if result is None:
                continue
            results = read_results() | {row.key: result}  # another run may have written meanwhile
            ended |= bool(result.failed)
            # After each row, so that a stopped run keeps its results.
            kept = {each.key: asdict(results[each.key]) for each in ROWS if each.key in results}
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
            PAGE.write_text(page(results))
    return ended


if __name__ == "__main__":
    sys.exit(main())
