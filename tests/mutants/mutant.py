"""A planted mistake: one text in one file replaced by another, and the tests that must fail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class StaleMutantError(Exception):
    """The table no longer matches the sources."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` occurs exactly once in ``file``; with ``new`` instead every one of ``tests`` fails.

    ``rule`` is the broken rule. ``tests`` are ``path::function``; for a file under ``kernel/`` tests of cargo.
    """

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def is_kernel(self) -> bool:
        """Judged by cargo."""
        return self.file.startswith("kernel/")

    @property
    def is_agent(self) -> bool:
        """In the agent's Java, which is built again and loaded into real brokers."""
        return self.file.startswith("agent/")

    def applied(self, text: str) -> str:
        """``text`` with the mistake in it.

        Raises:
            StaleMutantError: ``old`` does not occur in it exactly once.
        """
        found = text.count(self.old)
        if found != 1:
            raise StaleMutantError(f"{self.name}: the old text occurs {found} times in {self.file}, not once")
        return text.replace(self.old, self.new)
