"""Limits repeated work to a small share of the time, so that it becomes less frequent with more partitions."""

from __future__ import annotations

from typing import Final

OF_THE_LOOP: Final = 200
"""The event loop spends at most one part in this many of its time on passes over all partitions."""

OF_A_VIEW: Final = 400
"""The same share for views of all partitions."""


def pause_seconds(took_seconds: float, share: int) -> float:
    """The pause after work that took ``took_seconds``, so that it takes one part in ``share`` of the time."""
    return share * took_seconds
