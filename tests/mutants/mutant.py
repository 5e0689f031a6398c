"""A planted mistake: one text in one file replaced by another, and the tests that must turn red."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class StaleMutantError(Exception):
    """The table no longer fits the sources."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` stands exactly once in ``file``; with ``new`` in its place every one of ``tests`` fails.

    ``rule`` is the rule that is broken. ``tests`` are ``path::function``; for a file under ``kernel/`` tests of cargo.
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
        """In the agent's Java, which is built anew and loaded into real brokers."""
        return self.file.startswith("agent/")

    def applied(self, text: str) -> str:
        """``text`` with the mistake in it.

        Raises:
            StaleMutantError: ``old`` does not stand in it exactly once.
        """
        found = text.count(self.old)
        if found != 1:
            raise StaleMutantError(f"{self.name}: the old text stands {found} times in {self.file}, not once")
        return text.replace(self.old, self.new)
