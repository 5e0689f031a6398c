"""How often a request to a store or schema registry is repeated, and the pauses, from the environment."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Final

from cleanerd.errors import ConfigError

TRIES: Final = "CLEANERD_SPARK_TRIES"
PAUSE_SECONDS: Final = "CLEANERD_SPARK_PAUSE_SECONDS"
"""Variables in the environment of driver and executors."""

_LONGEST_PAUSES: Final = 25
"""A pause doubles up to this multiple of the first."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """``tries``: including the first one."""

    tries: int
    first_pause_seconds: float

    @classmethod
    def from_environment(cls, *, tries: int) -> RetryPolicy:
        """The policy from variables; missing or empty ones default to ``tries`` and 0.2 seconds.

        Raises:
            ConfigError: a variable is not a positive number.
        """
        return cls(max(int(number_in(TRIES, tries)), 1), number_in(PAUSE_SECONDS, 0.2))

    def pause_seconds(self, number: int, least_seconds: float = 0.0) -> float:
        """The pause after try ``number`` (from 0), randomised so that tasks do not retry together."""
        longest = self.first_pause_seconds * _LONGEST_PAUSES
        pause = min(max(self.first_pause_seconds * 2**number, least_seconds), longest)
        return float(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret


def number_in(variable: str, default: float) -> float:
    """The positive number in an environment variable; ``default`` if it is missing or empty.

    Raises:
        ConfigError: the variable is not a positive number.
    """
    text = os.environ.get(variable) or str(default)
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise ConfigError(f"{text[:40]!r} is not a positive number", where=f"environment {variable}")
    return found
