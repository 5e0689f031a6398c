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

`make compatibility` runs the tests of each row and writes this page.

* *Down*: cleanerd works while the broker is stopped, or stages beside it for its next start.
* *Live*: the broker's agent swaps.
* *By*: a running broker, or the release's own classes on the same files, confirmed the result.

| Kafka | mode | what was run | by | tests | date | result |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Result:
    """How a row ended: how many tests ran, how many of them failed, on which day (UTC), whether long ones were in."""

    tests: int
    failed: int
    date: str
    long: bool


def read_results() -> dict[str, Result]:
    """What is known of the rows, by their key."""
    document: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return {key: Result(**result) for key, result in document.items()}


def page(results: Mapping[str, Result]) -> str:
    """The whole page."""
    lines = []
    for row in ROWS:
        result = results.get(row.key)
        end = " | | not run yet |"
        if result is not None:
            message = "passed" if not result.failed else f"**{result.failed} failed**"
            end = f" {result.tests}{'' if result.long else ', the quick ones'} | {result.date} | {message} |"
        lines.append(f"| {row.release} | {row.mode} | {row.what} | {row.by} |{end}\n")
    return _HEAD + "".join(lines) + "\n" + REST.read_text()
