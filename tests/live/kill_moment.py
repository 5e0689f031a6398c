"""The moment of a kill."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Strike:
    """A single SIGKILL; the first of several triggers fires it."""

    def __init__(self, kill: Callable[[], None], delay_seconds: float) -> None:
        self._kill = kill
        self._delay_seconds = delay_seconds
        self._lock = threading.Lock()
        self.done = threading.Event()

    def __call__(self) -> None:
        time.sleep(self._delay_seconds)
        with self._lock:
            if not self.done.is_set():
                self._kill()
                self.done.set()
