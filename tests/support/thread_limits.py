"""A system that starts no more threads: root, who may run these tests, has no limit of processes."""

from __future__ import annotations

import _thread
import itertools
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def no_more_threads(monkeypatch: pytest.MonkeyPatch, prefix: str, *, after: int) -> None:
    """From now on the system starts only ``after`` threads whose name begins with ``prefix``."""
    start, starts = threading.Thread.start, itertools.count()

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith(prefix) and next(starts) >= after:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)  # the limit of the system, which root does not have


def no_background_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the system starts no thread for reading ahead or writing behind."""

    def refused(*_arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refused)  # as above
