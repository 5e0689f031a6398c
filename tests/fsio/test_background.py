"""A thread that makes calls in order, beside signals whose handlers raise."""

from __future__ import annotations

import random
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from cleanerd.fsio.background import Background
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from types import FrameType


class _StoppedError(BaseException):
    """Raised by a signal's handler."""


def test_calls_are_made_in_order() -> None:
    """Each result comes once, errors included."""
    made: list[int] = []

    def call(number: int) -> None:
        made.append(number)
        if number == 1:
            raise ValueError(number)

    with Background() as thread:
        for number in range(3):
            thread.submit(call, number)
        thread.result()
        with pytest.raises(ValueError, match="1"):
            thread.result()
        thread.result()
        thread.submit(call, 1)
        thread.idle()
        thread.submit(call, 3)
        thread.result()
    assert made == [0, 1, 2, 1, 3]


def test_closing_waits_for_the_call_that_is_made() -> None:
    """Calls that were not begun are not made."""
    begun, go_on, made = threading.Event(), threading.Event(), []

    def call(number: int) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        made.append(number)

    thread = Background()
    thread.submit(call, 0)
    thread.submit(call, 1)
    assert begun.wait(PATIENCE_SECONDS)
    threading.Timer(0.1, go_on.set).start()
    thread.close()
    thread.close()
    assert made == [0]


def test_a_signal_at_any_moment() -> None:
    """The handler raises in the middle of a call, as that of the commands does; closing still ends."""

    def handler(_number: int, _frame: FrameType | None) -> None:
        raise _StoppedError

    before = signal.signal(signal.SIGALRM, handler)
    stopped = 0
    until = time.monotonic() + 2
    try:
        while time.monotonic() < until:
            thread = Background()
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 2e-3))
                while True:
                    thread.submit(time.sleep, 1e-5)
                    thread.result()
            except _StoppedError:
                stopped += 1
            thread.close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped > 100
