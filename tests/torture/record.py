"""The finished cases of a run of several hours, so that it can continue: one line per case in a file."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.torture.calls_bench import Done

Key = tuple[str, str, int]
"""Job (or release), fault, and number of the call."""


class Record:
    """``calls``: by job and class, in the file's first line. ``played``: the result of every case."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.calls: dict[str, dict[str, int]] = json.loads(lines[0])["calls"] if lines else {}
        self.played: dict[Key, dict[str, Any]] = {}
        for line in lines[1:]:
            reported = json.loads(line)
            self.played[reported["job"], reported["fault"], reported["call"]] = reported

    def begin(self, calls: dict[str, dict[str, int]]) -> None:
        """Begin a run whose cases follow from ``calls``."""
        self.calls = calls
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps({"calls": calls}) + "\n")

    def note(self, key: Key, done: Done, wrong: list[str], seconds: float) -> None:
        """Add a case; its line is written at once, so that workers may share the file."""
        job, fault, call = key
        reported: dict[str, Any] = {"job": job, "fault": fault, "call": call, "code": done.code}
        reported |= {"struck": done.hits > 0, "seconds": round(seconds, 3)}
        if wrong:
            reported |= {"at": f"{done.call} of {done.path}", "wrong": wrong}
        self.played[key] = reported
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(reported).encode() + b"\n")

    def wrong(self, again: Callable[[Key], str]) -> list[str]:
        """A text for each case with a problem, beginning with the command that repeats it (``again``)."""
        bad = [(key, reported) for key, reported in self.played.items() if "wrong" in reported]
        return ["\n  ".join([again(key), reported["at"], *reported["wrong"]]) for key, reported in bad]

    def table(self) -> str:
        """One row per job, in Markdown."""
        rows = ["| job | calls | cases | calls that failed | reported | wrong |", "|---|--:|--:|--:|--:|--:|"]
        total = Counter[str]()
        for job, calls in self.calls.items():
            cases = [reported for (name, _, _), reported in self.played.items() if name == job]
            found = Counter(
                calls=sum(calls.values()),
                cases=len(cases),
                struck=sum(reported["struck"] for reported in cases),
                reported=sum(reported["code"] != 0 for reported in cases),
                wrong=sum("wrong" in reported for reported in cases),
            )
            total.update(found)
            rows.append(_row(f"`{job}`", found))
        seconds = sum(reported["seconds"] for reported in self.played.values())
        return "\n".join([*rows, _row("together", total), f"{seconds / 60:.0f} minutes of one worker"])


def _row(name: str, found: Counter[str]) -> str:
    numbers = (f"{found[each]:,}" for each in ("calls", "cases", "struck", "reported", "wrong"))
    return f"| {name} | {' | '.join(numbers)} |"
