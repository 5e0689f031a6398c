"""How long a test waits for an event."""

from __future__ import annotations

import os
from typing import Final

PATIENCE_SECONDS: Final = float(os.environ.get("PATIENCE_SECONDS", "240"))
"""The limit of every wait that ends with its event; ``make mutants`` sets a shorter one, as a mistake may prevent it.

It costs a good run nothing, so it is far above the needs of the slowest machine: a test that is red because a disk or a
broker was slow says nothing about cleanerd. A wait whose *length* a test is about has its own number.
"""
