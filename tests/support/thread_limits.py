"""A system that starts no more threads: root, who may run these tests, has no limit of processes."""

from __future__ import annotations

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
