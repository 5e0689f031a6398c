"""Limits repeated work to a small share of the time, so that more partitions make it rarer, not dearer."""

from __future__ import annotations

from typing import Final

OF_THE_LOOP: Final = 200
"""The event loop passes over all partitions in at most this part of its time."""

OF_A_VIEW: Final = 400
"""Views of all partitions are built in at most this part of the time."""


def pause_seconds(took_seconds: float, share: int) -> float:
    """How long something that took ``took_seconds`` is not done again, so that it has one part in ``share``."""
    return share * took_seconds
