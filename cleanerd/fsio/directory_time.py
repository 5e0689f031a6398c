"""What a directory's time tells: that a name in it came, went or was replaced since, unless that was just now."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLOCK_TICK_NS: Final = 10_000_000
"""A directory's time is that of the kernel's last tick, 10 ms ago at most: two changes in one tick look like one."""

NEVER: Final = -1
"""No directory's time."""


class DirectoryTime(NamedTuple):
    """``tells_changes``: whatever changes from the moment on that it was asked for gives the directory another time.

    ``of``: which directory's it is, by device and inode; another one may be mounted in its place.
    """

    changed_ns: int
    tells_changes: bool
    of: tuple[int, int]

    @property
    def to_compare_ns(self) -> int:
        """What its time is compared with later: ``NEVER`` where a later change may leave it as it is."""
        return self.changed_ns if self.tells_changes else NEVER


def directory_time(directory: int | str | Path, clock_ns: Callable[[], int] | None = None) -> DirectoryTime:
    """When a name in it changed last; to be asked for before the names are, however long that takes.

    ``clock_ns`` gives the time in nanoseconds; None: the wall clock's.

    Raises:
        OSError: it cannot be asked.
    """
    now_ns = (clock_ns or time.time_ns)()  # first: what changes between the two calls must not be taken for older
    status = os.stat(directory)
    changed_ns = status.st_mtime_ns
    return DirectoryTime(changed_ns, abs(now_ns - changed_ns) > CLOCK_TICK_NS, (status.st_dev, status.st_ino))
