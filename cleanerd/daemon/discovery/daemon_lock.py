"""One daemon manages a log directory: the lock that it holds while it may change files there."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.errors import LogDirBusyError, RefusedError
from cleanerd.fsio.held_file import DAEMON_FILE, HeldFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from cleanerd.daemon.discovery.log_dir_scan import DirMode, LogDirScan


class DaemonLock:
    """The lock of one directory; a daemon that only observes takes none, and writes nothing.

    ``taken``: the other daemon that holds it. ``warnings``: why the lock cannot be used: a read-only file system, one
    without locks, or missing permission. Then work continues; each partition has its own claim.
    """

    def __init__(self, log_dir: Path, take: Callable[[Path, str], HeldFile] = HeldFile.acquire) -> None:
        self._take = take
        self._log_dir = log_dir
        self._held: HeldFile | None = None
        self._ended = threading.Event()
        self._giving_back = threading.Lock()
        self.taken = ""
        self.warnings: tuple[str, ...] = ()

    def checked(self, mode: DirMode) -> DirMode:
        """``mode``, or a waiting mode while another daemon has the directory."""
        self.taken, self.warnings = "", ()
        if mode.mode == "observe":
            self.release()
            return mode
        held = self._held  # another thread may release it at any moment
        if held is not None and not held.is_in_place(self._log_dir):
            self.release()
        if self._held is None and not self._ended.is_set():
            try:
                self._held = self._take(self._log_dir, DAEMON_FILE)
                if self._ended.is_set():  # ended meanwhile
                    self.release()
            except LogDirBusyError as error:
                self.taken = error.message
                return replace(mode, reason=f"waits: {error.message}", work=None)
            except OSError as error:
                what = f"{self._log_dir / DAEMON_FILE}: cannot be locked ({error.strerror})"
                self.warnings = (f"{what}: a second daemon in this directory cannot be detected",)
        return mode

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        with self._giving_back:
            held, self._held = self._held, None
        if held is not None:
            held.release()

    def end(self) -> None:
        """Release it permanently, from any thread: a running scan does not take it again."""
        self._ended.set()
        self.release()


def require_free(found: Iterable[LogDirScan]) -> None:
    """At the start, before any work; a directory that a reload adds waits until it is free.

    Raises:
        RefusedError: another daemon manages one of the log directories.
    """
    for scan in found:
        if scan.taken:
            raise RefusedError(
                scan.taken,
                where=str(scan.path),
                hint="one daemon manages a log directory: stop the other one, or take the directory out of "
                "cleanerd.log.dirs",
            )
