"""What is wrong, and where."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field

NOWHERE = -1


class Severity(enum.StrEnum):
    """``error``: a reader or a broker gets something wrong. ``warning``: worth a look, Kafka copes with it."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. ``position`` (byte in ``file``) and ``offset`` are -1 where there is none.

    ``rule`` is the id of the specification's rule: F-.. the format, S-.. the file protocol, C-.. the cleaner.
    """

    severity: Severity
    rule: str
    file: str
    position: int
    offset: int
    what: str

    def to_json(self) -> dict[str, object]:
        """The fields by name; null for no position and no offset."""
        return {
            "severity": self.severity.value,
            "rule": self.rule,
            "file": self.file,
            "position": None if self.position == NOWHERE else self.position,
            "offset": None if self.offset == NOWHERE else self.offset,
            "what": self.what,
        }


@dataclass(slots=True)
class Findings:
    """All that was found: the first ``limit`` of each rule are kept, the others only counted."""

    limit: int | None = None
    kept: list[Finding] = field(default_factory=list)
    _counts: Counter[tuple[str, Severity]] = field(default_factory=Counter)

    def error(self, rule: str, file: str, what: str, *, position: int = NOWHERE, offset: int = NOWHERE) -> None:
        """Add an error."""
        self._add(Finding(Severity.ERROR, rule, file, position, offset, what))

    def warning(self, rule: str, file: str, what: str, *, position: int = NOWHERE, offset: int = NOWHERE) -> None:
        """Add a warning."""
        self._add(Finding(Severity.WARNING, rule, file, position, offset, what))

    @property
    def errors(self) -> int:
        """How many errors there were, kept or not."""
        return sum(count for (_, severity), count in self._counts.items() if severity is Severity.ERROR)

    @property
    def warnings(self) -> int:
        """How many warnings there were, kept or not."""
        return sum(self._counts.values()) - self.errors

    @property
    def omitted(self) -> int:
        """How many findings are only counted."""
        return sum(self._counts.values()) - len(self.kept)

    def in_order(self) -> list[Finding]:
        """The findings that were kept, by file and place."""
        return sorted(self.kept, key=lambda each: (each.file, each.position, each.offset, each.rule))

    def wants(self, rule: str) -> bool:
        """Whether another error of ``rule`` would be kept: finding out where it lies may cost something."""
        return self.limit is None or self._counts[rule, Severity.ERROR] < self.limit

    def count_error(self, rule: str, count: int = 1) -> None:
        """Count errors without keeping them."""
        self._counts[rule, Severity.ERROR] += count

    def _add(self, finding: Finding) -> None:
        key = (finding.rule, finding.severity)
        if self.limit is None or self._counts[key] < self.limit:
            self.kept.append(finding)
        self._counts[key] += 1
