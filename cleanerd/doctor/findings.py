"""The findings of ``cleanerd doctor``: severity, text, place, and fix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from cleanerd.errors import CleanerdError, worst_exit_code

Level = Literal["ok", "note", "warning", "problem"]
LEVELS: Final[tuple[Level, ...]] = ("ok", "note", "warning", "problem")
"""From good to bad: only a problem prevents cleanerd from working."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check's result. ``exit_code`` is 0 unless it is a problem."""

    level: Level
    check: str
    what: str
    where: str
    fix: str = ""
    exit_code: int = 0

    def to_json(self) -> dict[str, Any]:
        """The entry of ``doctor --json``."""
        return {"level": self.level, "check": self.check, "what": self.what, "where": self.where, "fix": self.fix}


@dataclass(slots=True)
class CheckResults:
    """All findings, in the order in which they were made."""

    all: list[CheckResult] = field(default_factory=list)

    def each_once(self) -> list[CheckResult]:
        """All findings without repetitions: several log directories have one topic, and the settings name it, too."""
        warned = {each.what for each in self.all if each.level in {"warning", "problem"}}
        return list(dict.fromkeys(each for each in self.all if each.level != "note" or each.what not in warned))

    def ok(self, check: str, what: str, where: object) -> None:
        self.all.append(CheckResult("ok", check, what, str(where)))

    def note(self, check: str, what: str, where: object, fix: str = "") -> None:
        """Add information; no action is needed."""
        self.all.append(CheckResult("note", check, what, str(where), fix))

    def warning(self, check: str, what: str, where: object, fix: str) -> None:
        """Add a warning: it works, but less, less safely or not everywhere."""
        self.all.append(CheckResult("warning", check, what, str(where), fix))

    def problem(self, check: str, what: str, where: object, fix: str, *, exit_code: int) -> None:
        """Add a problem that prevents cleanerd from working; ``exit_code``: that of a cleaning with this problem."""
        self.all.append(CheckResult("problem", check, what, str(where), fix, exit_code))

    def failed(self, check: str, error: CleanerdError, fix: str) -> None:
        """Add a problem from an error; ``fix`` is used if the error has no hint."""
        position = getattr(error, "position", -1)
        place = f"{error.where or '?'} at byte {position}" if position >= 0 else error.where or ""
        self.problem(check, error.message, place, error.hint or fix, exit_code=error.exit_code)


def exit_code(findings: Sequence[CheckResult]) -> int:
    """0 without a problem, else the worst problem's code."""
    return worst_exit_code({finding.exit_code for finding in findings if finding.level == "problem"})
