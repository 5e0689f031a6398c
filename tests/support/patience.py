"""How long a test waits for what has to come."""

from __future__ import annotations

from typing import Final

PATIENCE_SECONDS: Final = 240.0
"""The limit of every wait that ends as soon as what it waits for is there.

It costs a good run nothing, so it is far above what the slowest machine needs: a test that is red because a disk or a
broker was slow tells nothing of cleanerd. A wait whose *length* is what a test is about has its own number.
"""
