"""When a cleaning may begin: days of the week and times of the day (``cleanerd.windows``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_MINUTES: Final = 24 * 60
WINDOWS_HINT: Final = "times such as 22:00-06:00, Mon-Fri 22:00-06:00, Sat,Sun; several with semicolons, or nothing"

_TIMES: Final = re.compile(r"([0-9]{2}):([0-9]{2})-([0-9]{2}):([0-9]{2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Window:
    """One period on each of ``days`` (0 is Monday), in minutes of the day.

    A period that ends no later than it begins ends on the next day; ``days`` are the days on which it begins.
    """

    days: frozenset[int]
    start: int
    end: int

    def holds(self, weekday: int, minute: int) -> bool:
        """Whether the window is open at that time."""
        if self.start < self.end:
            return weekday in self.days and self.start <= minute < self.end
        evening = weekday in self.days and minute >= self.start
        return evening or ((weekday - 1) % 7 in self.days and minute < self.end)


@dataclass(frozen=True, slots=True)
class Windows:
    """All windows, as written in ``text``; without any, cleanings may always begin."""

    text: str = ""
    windows: tuple[Window, ...] = ()

    def is_open(self, now: datetime) -> bool:
        """Whether a cleaning may begin at ``now``, which is local time."""
        minute = now.hour * 60 + now.minute
        return not self.windows or any(window.holds(now.weekday(), minute) for window in self.windows)

    def __str__(self) -> str:
        return self.text


def parse_windows(text: str) -> Windows:
    """``[DAYS] [HH:MM-HH:MM]``, separated by semicolons; DAYS are ``Mon``, ``Mon-Fri`` or a list of these.

    Raises:
        ValueError: anything else.
    """
    parts = [part.strip() for part in text.split(";")] if text.strip() else []
    return Windows("; ".join(parts), tuple(_window(part) for part in parts))


def _window(text: str) -> Window:
    days, start, end = frozenset(range(7)), 0, _DAY_MINUTES
    words = text.split()
    if not 1 <= len(words) <= 2:
        raise ValueError(WINDOWS_HINT)
    if match := _TIMES.fullmatch(words[-1]):
        start, end = _minute(match[1], match[2]), _minute(match[3], match[4])
        if start in {end, _DAY_MINUTES}:
            raise ValueError(WINDOWS_HINT)
        words = words[:-1]
    if words:
        if len(words) > 1:
            raise ValueError(WINDOWS_HINT)
        days = frozenset(day for part in words[0].split(",") for day in _days(part))
    return Window(days, start, end)


def _minute(hours: str, minutes: str) -> int:
    minute = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or minute > _DAY_MINUTES:
        raise ValueError(WINDOWS_HINT)
    return minute


def _days(text: str) -> list[int]:
    names = [name.capitalize() for name in text.split("-")]
    if not 1 <= len(names) <= 2 or not all(name in _DAYS for name in names):
        raise ValueError(WINDOWS_HINT)
    first, last = _DAYS.index(names[0]), _DAYS.index(names[-1])
    return [(first + step) % 7 for step in range((last - first) % 7 + 1)]
