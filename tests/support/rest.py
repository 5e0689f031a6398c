"""``make test-rest``: the tests that ``make test`` leaves out, and three minutes of torture.

Run as ``python -m tests.support.rest [--minutes N]``. A test that fails runs once more, alone: if it passes then, it is
listed as flaky and the run passes. After ``--minutes`` no further test begins, and the number of the others is printed.
The order of such a run is drawn, so that every test has its turn in some run. The property tests of ``make test`` run
again, on examples that no run has tried.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

PYTEST: Final = (sys.executable, "-m", "pytest", "--hypothesis-profile", "drawn")
REST: Final = ("-n", "5", "--dist", "loadfile", "-m", "(long or hypothesis) and not bench")
TORTURE_MINUTES: Final = 3
MOST_RETRIES: Final = 10
"""More failures than this have one cause, which is not chance."""


def main(arguments: Sequence[str]) -> int:
    """Run the rest; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.rest")
    parser.add_argument("--minutes", type=float, help="begin no test after so many minutes")
    options = parser.parse_args(arguments)
    until = None if options.minutes is None else time.time() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="test-rest-") as work:
        found = run_tests(Path(work) / "outcomes.json", until)
    failures = found["failures"]
    flaky = [name for name in failures if passes_alone(name)] if len(failures) <= MOST_RETRIES else []
    torture = run_torture()
    if torture == "flaky":
        flaky.append("make torture")
    failed = len(failures) - len(set(flaky) & set(failures)) + (torture == "failed")
    for name in flaky:
        write(f"flaky: {name}\n")
    if found["not_run"]:
        write(f"{found['not_run']} tests did not begin within {options.minutes:g} minutes\n")
    write(
        f"{found['passed'] + len(flaky) + (torture == 'passed')} passed, {failed} failed, {found['skipped']} skipped\n"
    )
    return 1 if failed else 0


def run_tests(outcomes: Path, until: float | None) -> dict[str, Any]:
    """All of the rest, several at a time: counts by outcome, ``not_run`` and ``failures`` (node ids)."""
    limit = [] if until is None else ["--until", str(until), "--shuffle", str(drawn_seed())]
    if limit:
        write(f"order: pytest {' '.join(limit[2:])}\n")
    code = subprocess.run([*PYTEST, *REST, *limit, "--outcomes", str(outcomes)], check=False).returncode
    if not outcomes.exists():
        return {
            "passed": 0,
            "failed": 1,
            "skipped": 0,
            "not_run": 0,
            "failures": [f"pytest ended with exit code {code}"],
        }
    found: dict[str, Any] = json.loads(outcomes.read_text())
    return found


def passes_alone(name: str) -> bool:
    """Whether one test passes when no other runs."""
    write(f"once more, alone: {name}\n")
    return subprocess.run([*PYTEST, name], check=False).returncode == 0


def run_torture() -> str:
    """``passed``, ``failed``, or ``flaky`` when only the second of two runs with one drawn seed passed."""
    seed = drawn_seed()
    for outcome in ("passed", "flaky"):
        with tempfile.TemporaryDirectory(prefix="torture-state-") as state:
            environment = {**os.environ, "TORTURE_STATE": f"{state}/figures.json"}
            command = [
                sys.executable,
                "-m",
                "tests.torture.run",
                "--minutes",
                str(TORTURE_MINUTES),
                "--seed",
                str(seed),
            ]
            write(f"torture: TORTURE_MINUTES={TORTURE_MINUTES} TORTURE_SEED={seed} make torture\n")
            if subprocess.run(command, check=False, env=environment).returncode == 0:
                return outcome
    return "failed"


def drawn_seed() -> int:
    """Another one in each run."""
    return random.SystemRandom().randrange(1, 1_000_000)


def write(text: str) -> None:
    """Print at once: the programs that run in between write to the same place."""
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
