"""The time when cleanerd last ran, in ``clock.json`` of the state directory (U-42).

The daemon writes it every minute and when it ends, ``clean`` and ``stage`` at their end. Without a readable file the
clock is trusted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cleanerd.host.clock import Clock, LastTime
from cleanerd.state.document import Document

FILE_NAME: Final = "clock.json"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MAX_MS: Final = 2**53 - 1


def read_clock(state_dir: Path, warnings: list[str]) -> Clock:
    """The clock, which continues from the stored time; ``warnings`` names a file that cannot be used."""
    return Clock(last=_DOCUMENT.load(state_dir, warnings), boot=boot_id())


def save_time(state_dir: Path, last: LastTime) -> str:
    """Store the time. Returns why that failed, or an empty text."""
    return _DOCUMENT.try_write(state_dir, last)


def boot_id(place: Path = _BOOT_ID) -> str:
    """The id of this boot; empty if /proc hides it from this process."""
    try:
        return place.read_text().strip()
    except OSError:
        return ""


def _check(last: LastTime) -> None:
    if not all(0 <= each <= _MAX_MS for each in (last.steady_ms, last.wall_ms, *(last.since or ()))):
        raise ValueError("a time in it is not one in milliseconds")


_DOCUMENT: Final = Document(FILE_NAME, LastTime, check=_check)
