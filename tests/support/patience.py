"""How long a test waits for an event."""

from __future__ import annotations

from typing import Final

PATIENCE_SECONDS: Final = 240.0
"""The limit of every wait that ends with its event.

It costs a good run nothing, so it is far above the needs of the slowest machine: a test that is red because a disk or a
broker was slow says nothing about cleanerd. A wait whose *length* a test is about has its own number.
"""
