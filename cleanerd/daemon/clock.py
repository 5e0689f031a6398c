"""The time that deletes go by: the wall clock, unless it has just jumped ahead.

A wall clock that is put a day ahead - by a hand, by a time server gone wrong - makes every tombstone of that day look
expired, and what is deleted then does not come back when the clock does. So a jump ahead is believed only after it has
lasted, and until then time goes on from where it was, as the monotonic clock counts. But a clock that was behind and is
set right jumps ahead too, so what becomes due in future counts from the later of the two. A jump back is believed at
once: whoever waits longer than he has to loses nothing.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_MS: Final = 60_000
"""What a time server corrects at once is no jump."""

BELIEVED_AFTER_MS: Final = 3_600_000
"""Who put it ahead by mistake had that long to notice; a machine that began with a wrong clock waits no longer."""


def wall_ms() -> int:
    """Milliseconds since the epoch, as the machine says."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Goes on while the machine sleeps: waking up is no jump."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Clock:
    """``now_ms`` from any thread; ``observe`` from one, every round. ``jumps`` counts those ahead."""

    def __init__(self, wall: Callable[[], int] = wall_ms, steady: Callable[[], int] = steady_ms) -> None:
        self._wall = wall
        self._steady = steady
        self._mark = (wall(), steady())
        self._ahead: tuple[int, int] | None = None
        self.jumps = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.read_ms()[0]

    def read_ms(self) -> tuple[int, int]:
        """Milliseconds since the epoch, and how much later it is if the wall clock is right after all."""
        wall, expected = self._now()
        return (expected, wall - expected) if wall - expected > STEP_MS else (wall, 0)

    def observe(self) -> str:
        """Go along with the wall clock; as long as it is ahead and not believed, what there is to tell of that."""
        wall, expected = self._now()
        steady = self._steady()
        if wall - expected <= STEP_MS or self._has_lasted(wall, steady):
            self._mark, self._ahead = (wall, steady), None
            return ""
        if self._ahead is None:
            self._ahead = wall, steady
            self.jumps += 1
        return (
            f"the clock jumped ahead by {_span(wall - expected)}: for {_span(BELIEVED_AFTER_MS)} nothing is "
            "deleted by the new time; set the clock right (timedatectl), or restart cleanerd if the new time is right"
        )

    def _has_lasted(self, wall: int, steady: int) -> bool:
        """Whether it has been as far ahead as now for long enough; a further jump begins anew."""
        if self._ahead is None:
            return False
        wall_at, steady_at = self._ahead
        off = wall - (wall_at + steady - steady_at)
        if abs(off) > STEP_MS:
            self._ahead = wall, steady
            self.jumps += off > 0
            return False
        return steady - steady_at >= BELIEVED_AFTER_MS

    def _now(self) -> tuple[int, int]:
        """What the wall clock says, and what it should say by the monotonic one."""
        wall_at, steady_at = self._mark
        return self._wall(), wall_at + self._steady() - steady_at


def _span(milliseconds: int) -> str:
    return str(timedelta(seconds=milliseconds // 1000))
