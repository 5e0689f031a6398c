"""``make spark-releases``: the quick tests that start Spark, by Spark release and Python, and their table.

A Python gets a virtual environment of its own in ``.cache/spark``, with everything in ``constraints.txt`` except
pyspark, which is installed again for every release. ``SPARK_RELEASE=4.1`` and ``SPARK_PYTHON=3.12`` run a part. The
table is in docs/spark.md; a combination that is not run keeps its last result. ``SPARK_TESTS=few`` leaves out the
slowest ones. Exit code 1 when one failed.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.compatibility.matrix import Row
from tests.compatibility.page import TOP, Result
from tests.compatibility.run import run

if TYPE_CHECKING:
    from collections.abc import Mapping

SPARKS: Final = ("4.1.4", "4.2.1", "4.3.0")
"""The newest release of every line that ``cleanerd[spark]`` accepts."""
PYTHONS: Final = ("3.11", "3.12", "3.13")

FEW: Final = tuple(
    f"tests/spark/test_{name}.py"
    for name in ("archive_tasks", "descriptions", "snapshot_files", "source_stream", "spark")
)
TESTS: Final = (*FEW, *(f"tests/spark/test_{name}.py" for name in ("api", "connect", "source_spark", "views")))
"""Tests that start a session or a driver, or that Spark's calls reach."""

LIMITS: Final = "tests/spark/test_source_stream_limits.py"
"""Tests of calls that Spark 4.1 does not make."""

ROWS: Final = tuple(
    Row(
        spark,
        python,
        "sessions, verbs, source, streams",
        "the local engine",
        TESTS if spark.startswith("4.1") else (*TESTS, LIMITS),
    )
    for spark, python in itertools.product(SPARKS, PYTHONS)
)
RESULTS: Final = Path(__file__).with_name("spark_results.json")
PAGE: Final = TOP / "docs" / "spark.md"
BEGIN: Final = "<!-- make spark-releases -->\n"
END: Final = "<!-- end -->\n"
_HOME: Final = TOP / ".cache" / "spark"


def read_results() -> dict[str, Result]:
    """The stored results of the combinations, by their key."""
    document = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return {key: Result(**result) for key, result in document.items()}


def table(results: Mapping[str, Result]) -> str:
    """One line per release, one column per Python: how many tests passed."""
    lines = [f"| Spark | {' | '.join(f'Python {python}' for python in PYTHONS)} |", "|---" * (1 + len(PYTHONS)) + "|"]
    for spark in SPARKS:
        cells = [_cell(results.get(row.key)) for row in ROWS if row.release == spark]
        lines.append(f"| {spark} | {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def _cell(result: Result | None) -> str:
    if result is None:
        return "not run"
    outcome = f"{result.tests} tests passed" if not result.failed else f"**{result.failed} of {result.tests} failed**"
    return f"{outcome}{'' if result.long else ' (few)'}"


def page(text: str, results: Mapping[str, Result]) -> str:
    """The page with the table of ``results`` in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(results)}{END}{after}"


def interpreter(minor: str) -> str | None:
    """A Python of that line on this machine, by its name or in pyenv's directory; None: there is none."""
    places = (os.environ.get("PYENV_ROOT", ""), str(Path.home() / ".pyenv"))
    known = [found for place in places if place for found in Path(place).glob(f"versions/{minor}.*/bin/python")]
    for candidate in (*map(str, known), shutil.which(f"python{minor}")):
        if candidate is not None:
            code = "import sys; print('%d.%d' % sys.version_info[:2])"
            reported = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False).stdout
            if reported.strip() == minor:
                return candidate
    return None


def environment_of(minor: str, base: str) -> Path:
    """A virtual environment with everything but Spark, and this tree in it; returns its Python.

    Kept while its needs match.
    """
    home = _HOME / f"python-{minor}"
    python = home / "bin" / "python"
    needed = subprocess.run(
        [sys.executable, "tools/requirements.py", "core", "dev", "spark", "tables", "values"],
        capture_output=True,
        text=True,
        check=True,
        cwd=TOP,
    ).stdout
    done = home / "done"
    if done.exists() and done.read_text() == needed:
        return python
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([base, "-m", "venv", home], check=True)
    install(python, *(each for each in needed.splitlines() if not each.startswith("pyspark")))
    (packages,) = home.glob("lib/python*/site-packages")
    # The kernel is one for all of these, as it keeps to the stable ABI.
    (packages / "cleanerd-tree.pth").write_text(f"{TOP}\n")
    own = next(file for file in distribution("cleanerd").files or () if file.name == "METADATA")
    source = Path(str(own.locate())).parent
    shutil.copytree(source, packages / source.name)
    done.write_text(needed)
    return python


def install(python: Path, *requirements: str) -> None:
    pinned = (TOP / "constraints.txt").read_text().splitlines()
    kept = _HOME / "constraints.txt"
    kept.write_text("".join(f"{line}\n" for line in pinned if not re.match(r"pyspark==", line)))
    call = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", kept, *requirements]
    subprocess.run(call, check=True)


def main() -> int:
    """Run the combinations, one after the other."""
    release, minor = os.environ.get("SPARK_RELEASE", ""), os.environ.get("SPARK_PYTHON", "")
    _HOME.mkdir(parents=True, exist_ok=True)
    ended = 0
    for row in sorted(ROWS, key=lambda row: row.mode):
        if not row.release.startswith(release) or not row.mode.startswith(minor):
            continue
        base = interpreter(row.mode)
        if base is None:
            sys.stderr.write(f"no Python {row.mode} on this machine: Spark {row.release} was not run with it\n")
            ended = 1
            continue
        python = environment_of(row.mode, base)
        install(python, f"pyspark=={row.release}")
        few = os.environ.get("SPARK_TESTS") == "few"
        requested = (
            replace(row, tests=tuple(each for each in row.tests if each not in TESTS or each in FEW)) if few else row
        )
        result = run(requested, long=False, python=str(python))
        if result is None:
            continue
        ended |= bool(result.failed)
        results = read_results() | {row.key: replace(result, long=not few)}
        kept = {each.key: asdict(results[each.key]) for each in ROWS if each.key in results}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
        PAGE.write_text(page(PAGE.read_text(), results))
    return ended


if __name__ == "__main__":
    sys.exit(main())
