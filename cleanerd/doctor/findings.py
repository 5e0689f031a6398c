"""The findings of ``cleanerd doctor``: severity, text, place, and fix."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from cleanerd.errors import worst_exit_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.errors import CleanerdError

Level = Literal["ok", "note", "warning", "problem"]
LEVELS: Final[tuple[Level, ...]] = ("ok", "note", "warning", "problem")
"""From good to bad: only a problem keeps cleanerd from its work."""


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

    def ok(self, check: str, what: str, where: object) -> None:
        self.all.append(CheckResult("ok", check, what, str(where)))

    def note(self, check: str, what: str, where: object, fix: str = "") -> None:
        """Information; no action is needed."""
        self.all.append(CheckResult("note", check, what, str(where), fix))

    def warning(self, check: str, what: str, where: object, fix: str) -> None:
        """It works, but less, less safely or not on everything."""
        self.all.append(CheckResult("warning", check, what, str(where), fix))

    def problem(self, check: str, what: str, where: object, fix: str, *, exit_code: int) -> None:
        """Keeps cleanerd from its work; ``exit_code`` is what a cleaning would end with."""
        self.all.append(CheckResult("problem", check, what, str(where), fix, exit_code))

    def failed(self, check: str, error: CleanerdError, fix: str) -> None:
        """A problem from an error; ``fix`` is used if the error has no hint."""
        position = getattr(error, "position", -1)
        place = f"{error.where or '?'} at byte {position}" if position >= 0 else error.where or ""
        self.problem(check, error.message, place, error.hint or fix, exit_code=error.exit_code)


def exit_code(findings: Sequence[CheckResult]) -> int:
    """0 without a problem, else the worst problem's code."""
    return worst_exit_code({finding.exit_code for finding in findings if finding.level == "problem"})
