"""The progress of a running cleaning, and the way to stop it between two chunks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cleanerd.cleaner.cleaner import CleaningStopped

if TYPE_CHECKING:
    from cleanerd.daemon.view import RunPhase
    from cleanerd.daemon.work.throttle import Throttle


class JobProgress:
    """Written by the worker, read by the views; every field is replaced atomically."""

    def __init__(self, throttle: Throttle, dirty_bytes: int) -> None:
        self._throttle = throttle
        self._dirty_bytes = dirty_bytes
        self._stop = threading.Event()
        self._deciding = False
        self.current: RunPhase = "survey"
        self.done_bytes = 0
        self.total_bytes = 0

    def stop(self) -> None:
        """Stop it at the next chunk; the log stays valid."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stop.is_set()

    def check(self) -> None:
        """Stop here if requested.

        Raises:
            Stopped: a stop was requested.
        """
        if self._stop.is_set():
            raise CleaningStopped

    def phase(self, name: str, total_bytes: int) -> None:
        """The next phase begins."""
        self.check()
        self._deciding = name != "rewrite"
        self.current = "index" if self._deciding else "rewrite"
        self.done_bytes = 0
        self.total_bytes = total_bytes

    def advance(self, done_bytes: int) -> None:
        self.check()
        self.done_bytes += done_bytes
        if self._deciding:
            # The dirty section is read first, then the clean section.
            self.current = "index" if self.done_bytes < self._dirty_bytes else "decide"
        elif self.done_bytes >= self.total_bytes:
            self.current = "swap"
        self._throttle.read(done_bytes, self.check)

    def wrote(self, done_bytes: int) -> None:
        self.check()
        self._throttle.wrote(done_bytes, self.check)
