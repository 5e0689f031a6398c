"""What a directory's time tells: that a name in it came, went or was replaced since, unless that was just now."""

from __future__ import annotations

import time
from typing import Final

CLOCK_TICK_NS: Final = 10_000_000
"""A directory's time is that of the kernel's last tick, 10 ms ago at most: two changes in one tick look like one."""


def tells_changes(changed_ns: int) -> bool:
    """Whether a directory whose time is ``changed_ns`` gets another one when a name in it changes now."""
    return abs(time.time_ns() - changed_ns) > CLOCK_TICK_NS
