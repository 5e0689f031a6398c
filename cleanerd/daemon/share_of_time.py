"""What is done again and again on the event loop, or beside cleanings, takes a twentieth of the time at the most."""

from __future__ import annotations

from typing import Final

_SHARE: Final = 20


def rest_seconds(took_seconds: float) -> float:
    """How long it is not done again after it took ``took_seconds``: the more partitions there are, the less often."""
    return _SHARE * took_seconds
