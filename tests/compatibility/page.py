"""docs/compatibility.md from the matrix and its results."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.compatibility.matrix import ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

TOP: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = TOP / "docs" / "compatibility.md"
REST: Final = Path(__file__).with_name("rest.md")

_HEAD: Final = """\
# Tested versions

cleanerd works with Kafka 3.3 to 4.4. `make compatibility` runs the tests below and writes this table.

* **Offline**: the broker is stopped when the segments are swapped. **Live**: the running broker's agent swaps them.
* **Confirmed by**: a broker that read the result, or that release's own classes on the same files.
* A star (*) marks a test that was run without its longest cases.

| Kafka | way | tested | confirmed by |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Result:
    """How a row ended: how many tests ran, how many of them failed, on which day (UTC), whether long ones were in."""

    tests: int
    failed: int
    date: str
    long: bool


def read_results() -> dict[str, Result]:
    """The stored results of the rows, by their key."""
    document: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return {key: Result(**result) for key, result in document.items()}


def page(results: Mapping[str, Result]) -> str:
    """The whole page."""
    cells: dict[tuple[str, str, str], list[str]] = {}
    for row in ROWS:
        cells.setdefault((row.release, row.mode, row.by), []).append(_cell(row.what, results.get(row.key)))
    lines = [f"| {release} | {mode} | {'. '.join(tested)} | {by} |\n" for (release, mode, by), tested in cells.items()]
    return _HEAD + "".join(lines) + "\n" + REST.read_text()


def _cell(what: str, result: Result | None) -> str:
    what = what[0].upper() + what[1:]
    if result is None:
        return f"{what} (**not run yet**)"
    failed = f" (**{result.failed} of {result.tests} failed**)" if result.failed else ""
    return f"{what}{'' if result.long else ' *'}{failed}"
