"""How long to wait after failures: twice as long after each one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait after the first failure, and the longest one. Milliseconds."""

    first_ms: int
    longest_ms: int

    def wait_ms(self, failures: int) -> int:
        """The wait after ``failures`` failures in a row."""
        doublings = min(max(failures, 1) - 1, 62)
        return min(self.first_ms << doublings, max(self.longest_ms, self.first_ms))
