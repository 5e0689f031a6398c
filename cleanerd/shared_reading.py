"""Something that several threads read: one of them reads it, and the others use the same reading."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

TOGETHER_SECONDS: Final = 60.0
"""An older reading is not shared: the disk or the broker of a thread that needs it now has hung."""


class SharedReading(Generic[T]):
    """The last reading; the lock's owner reads, or checks whether this one is recent enough."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: tuple[float, T] | None = None

    def get(
        self,
        read: Callable[[], T],
        *,
        since: float,
        patience_seconds: float,
        serves: Callable[[T], bool] = lambda _: True,
    ) -> T:
        """The last reading, if it began at ``since`` or later and ``serves``; else what ``read`` returns now.

        ``since``: monotonic seconds. A thread that waits for another one's reading for more than ``patience_seconds``
        reads itself. An error of ``read`` is raised, and nothing is kept.
        """
        if not self._lock.acquire(timeout=patience_seconds):
            return read()
        try:
            now = self._clock()
            kept, self._kept = self._kept, None
            if kept is None or kept[0] < max(since, now - TOGETHER_SECONDS) or not serves(kept[1]):
                kept = now, read()
            self._kept = kept
            return kept[1]
        finally:
            self._lock.release()
