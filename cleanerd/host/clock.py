"""The time for deletions: the wall clock, unless it has jumped (U-42).

A clock set a day ahead, by hand, a time server or a faulty start, would make all tombstones of that day look expired,
and deleted records do not come back. So a clock that is ahead is trusted only after an hour; until then the time
continues from the last trusted one by the steady clock. A clock that is behind is trusted at once: waiting longer loses
nothing. In both cases either time may be right, so for that hour future times count from the later one: a horizon set
by a clock that is behind would pass too early once the clock is corrected.

The trusted time survives a restart: see ``last_time.py``. While the machine was off no clock was watched, so the time
is then at least the last known one, and a clock ahead of that need not be wrong. Using the earlier time for an hour
does no harm, so it is reported only if the difference is more than a day.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

STEP_MS: Final = 60_000
"""A smaller step is a time server's correction and not a jump."""

TRUSTED_AFTER_MS: Final = 3_600_000
"""Time to notice a clock set ahead by mistake; a machine that starts with a wrong clock does not wait."""

OFF_MS: Final = 86_400_000
"""A machine that was off for less is not reported."""


@dataclass(frozen=True, slots=True)
class LastTime:
    """The state of the clock when it was last saved.

    ``boot``: identifies the machine's start, empty if unknown. ``wall_ms``: the trusted time when the steady clock
    showed ``steady_ms``. ``since``: both clocks when they first differed, None while they agree. ``counted``: the
    machine was not off during the time before.
    """

    boot: str
    steady_ms: int
    wall_ms: int
    since: tuple[int, int] | None = None
    counted: bool = True


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """The steady clock, which continues while the machine sleeps: waking up is not a jump."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Clock:
    """``now_ms`` from any thread; ``observe`` from one, regularly. ``jumps`` counts those ahead.

    ``last``: the saved state, None if there is none; then the clock is trusted. ``boot``: as in :class:`LastTime`.
    """

    def __init__(
        self,
        wall: Callable[[], int] = wall_ms,
        steady: Callable[[], int] = steady_ms,
        *,
        last: LastTime | None = None,
        boot: str = "",
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._boot = boot
        self._anchor = (wall(), steady())
        self._since: tuple[int, int] | None = None
        self._counted = True
        self.jumps = 0
        if last is not None:
            self._go_on(last)
            self.observe()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.read_ms()[0]

    def read_ms(self) -> tuple[int, int]:
        """Milliseconds since the epoch, and how much later it may be; not 0 while the clock is in doubt."""
        wall, expected = self._now()
        return (min(wall, expected), abs(wall - expected)) if abs(wall - expected) > STEP_MS else (wall, 0)

    def last(self) -> LastTime:
        """The state to save for a restart."""
        wall, expected = self._now()
        believed = wall if abs(wall - expected) <= STEP_MS else expected
        return LastTime(self._boot, self._steady(), believed, self._since, self._counted)

    def observe(self) -> str:
        """Follow the wall clock; returns a report while it is not trusted."""
        wall, expected = self._now()
        steady = self._steady()
        if abs(wall - expected) <= STEP_MS or self._has_lasted(wall, steady):
            self._anchor, self._since, self._counted = (wall, steady), None, True
            return ""
        off = wall - expected
        if self._since is None:
            self._since = wall, steady
            self.jumps += off > (0 if self._counted else OFF_MS)
        return self._describe(off)

    def _describe(self, off_ms: int) -> str:
        span = _span(TRUSTED_AFTER_MS)
        if off_ms < 0:
            return (
                f"the clock is behind the last known time by {_span(-off_ms)}: for {span} the tombstones of cleanings "
                "stay longer, by the later time; set the clock right (timedatectl), or wait if the new time is right"
            )
        if self._counted:
            return (
                f"the clock jumped ahead by {_span(off_ms)}: for {span} nothing is deleted by the new time; set the "
                "clock right (timedatectl), or wait if the new time is right"
            )
        if off_ms <= OFF_MS:
            return ""
        return (
            f"the machine was started, and its clock is {_span(off_ms)} ahead of the last known time: for {span} "
            "nothing is deleted by it; if the machine was off for less, set the clock right (timedatectl)"
        )

    def _go_on(self, last: LastTime) -> None:
        """Continue from the saved state: by the steady clock if the machine did not restart, else from its time."""
        wall, steady = self._anchor
        if last.boot and last.boot == self._boot and last.steady_ms <= steady:
            self._anchor, self._since, self._counted = (last.wall_ms, last.steady_ms), last.since, last.counted
        elif last.since is None or wall - last.since[0] < TRUSTED_AFTER_MS:
            self._anchor, self._counted = (last.wall_ms, steady), False
        # Otherwise it was reported an hour ago or earlier. A process that runs briefly on another machine cannot wait.

    def _has_lasted(self, wall: int, steady: int) -> bool:
        """Whether it has been off by this much for long enough; a further jump restarts the wait."""
        if self._since is None:
            return False
        wall_at, steady_at = self._since
        off = wall - (wall_at + steady - steady_at)
        if abs(off) > STEP_MS:
            self._since = wall, steady
            self.jumps += off > 0
            return False
        return steady - steady_at >= TRUSTED_AFTER_MS

    def _now(self) -> tuple[int, int]:
        """The wall clock's time, and the expected one by the steady clock."""
        wall_at, steady_at = self._anchor
        return self._wall(), wall_at + self._steady() - steady_at


def _span(milliseconds: int) -> str:
    return str(timedelta(seconds=round(milliseconds / 1000)))
