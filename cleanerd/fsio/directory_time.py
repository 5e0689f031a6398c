"""A directory's modification time, to detect whether a name in it was added, removed or replaced."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

CLOCK_TICK_NS: Final = 10_000_000
"""A directory's time is that of the kernel's last tick, at most 10 ms ago: changes in one tick have equal times."""

NEVER: Final = -1
"""A time that no directory has."""


class DirectoryTime(NamedTuple):
    """The time of a directory. ``shows_changes``: every later change gives the directory another time.

    ``of``: the directory's device and inode, because another one may be mounted in its place.
    """

    changed_ns: int
    shows_changes: bool
    of: tuple[int, int]

    @property
    def to_compare_ns(self) -> int:
        """The time to compare later ones with; ``NEVER`` if a later change may have the same time."""
        return self.changed_ns if self.shows_changes else NEVER


def directory_time(directory: int | str | Path, clock_ns: Callable[[], int] | None = None) -> DirectoryTime:
    """When a name in the directory changed last; call it before listing the names.

    ``clock_ns``: the time in nanoseconds; None: the wall clock.

    Raises:
        OSError: the directory cannot be read.
    """
    now_ns = (clock_ns or time.time_ns)()  # first: a change between the two calls must not appear older
    status = os.stat(directory)
    changed_ns = status.st_mtime_ns
    return DirectoryTime(changed_ns, abs(now_ns - changed_ns) > CLOCK_TICK_NS, (status.st_dev, status.st_ino))
