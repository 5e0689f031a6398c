"""The length of the long tests: ``make test-all`` is about an hour on two cores, ``make test-all LENGTH=5`` a night."""

from __future__ import annotations

import os
from typing import Final

LENGTH: Final = float(os.environ.get("LENGTH", "1"))
"""The factor for the number of histories, states and kills."""


def at_length(count: int) -> int:
    """The number of cases that a long test runs."""
    return max(1, round(count * LENGTH))


def one_in(count: int) -> int:
    """A test that is too long for all cases runs one in this many; all, if LENGTH is large enough."""
    return max(1, round(count / LENGTH))
