"""A finding: a fault and its place."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleanerd.verify.kinds import FindingKind

NOWHERE = -1


class Severity(enum.StrEnum):
    """``error``: a reader or a broker fails or misreads data. ``warning``: Kafka handles it, but check it."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. ``position`` (byte in ``file``) and ``offset`` are -1 if there is none."""

    severity: Severity
    kind: FindingKind
    file: str
    position: int
    offset: int
    what: str

    @property
    def rule(self) -> str:
        """The id of the violated rule (docs/rules.md)."""
        return self.kind.rule

    def to_json(self) -> dict[str, object]:
        """The fields by name; null for no position and no offset."""
        return {
            "severity": self.severity.value,
            "kind": self.kind.text,
            "rule": self.rule,
            "file": self.file,
            "position": None if self.position == NOWHERE else self.position,
            "offset": None if self.offset == NOWHERE else self.offset,
            "what": self.what,
        }


@dataclass(slots=True)
class Findings:
    """All findings: the first ``limit`` of each kind are stored, the others only counted."""

    limit: int | None = None
    kept: list[Finding] = field(default_factory=list)
    _counts: Counter[tuple[FindingKind, Severity]] = field(default_factory=Counter)

    def error(self, kind: FindingKind, file: str, what: str, *, position: int = NOWHERE, offset: int = NOWHERE) -> None:
        """Add an error: the log is wrong there."""
        self._add(Finding(Severity.ERROR, kind, file, position, offset, what))

    def warning(
        self, kind: FindingKind, file: str, what: str, *, position: int = NOWHERE, offset: int = NOWHERE
    ) -> None:
        """Add a warning: the data may be right, but should be checked."""
        self._add(Finding(Severity.WARNING, kind, file, position, offset, what))

    @property
    def errors(self) -> int:
        """How many errors there were, stored or not."""
        return sum(count for (_, severity), count in self._counts.items() if severity is Severity.ERROR)

    @property
    def warnings(self) -> int:
        """How many warnings there were, stored or not."""
        return sum(self._counts.values()) - self.errors

    @property
    def omitted(self) -> int:
        """How many findings are only counted."""
        return sum(self._counts.values()) - len(self.kept)

    def in_order(self) -> list[Finding]:
        """The stored findings, by file and place."""
        return sorted(self.kept, key=lambda each: (each.file, each.position, each.offset, each.kind.text))

    def has_room_for(self, kind: FindingKind) -> bool:
        """Whether another error of ``kind`` would be stored: finding its place may be expensive."""
        return self.limit is None or self._counts[kind, Severity.ERROR] < self.limit

    def count_error(self, kind: FindingKind) -> None:
        """Count an error without storing it."""
        self._counts[kind, Severity.ERROR] += 1

    def as_warnings(self, because: str) -> Findings:
        """A collector that reports findings as warnings, with the reason ``because``."""
        return _AsWarnings(self.limit, _findings=self, _because=because)

    def _add(self, finding: Finding) -> None:
        key = (finding.kind, finding.severity)
        if self.limit is None or self._counts[key] < self.limit:
            self.kept.append(finding)
        self._counts[key] += 1


@dataclass(slots=True)
class _AsWarnings(Findings):
    _findings: Findings = field(default_factory=Findings)
    _because: str = ""

    def _add(self, finding: Finding) -> None:
        what = f"{finding.what}; {self._because}"
        self._findings.warning(finding.kind, finding.file, what, position=finding.position, offset=finding.offset)
