"""Delays SIGINT and SIGTERM while a group is swapped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def signals_wait() -> Iterator[None]:
    """SIGINT and SIGTERM are delivered after the block, so that a group is swapped completely.

    Handlers are exchanged, because blocking the signals in this thread does not help: any other thread (NumPy's) may
    receive them, and Python runs the handler here nevertheless.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    waiting: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    exchanged = {number: handler for number, handler in handlers.items() if handler not in {None, signal.SIG_IGN}}
    for number in exchanged:
        signal.signal(number, lambda received, _frame: waiting.append(received))
    try:
        yield
    finally:
        for number, handler in exchanged.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])
