"""cleanerd_lab.demo.signals: started processes are known before Ctrl-C ends the demonstration, or they would stay."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

import pytest

from cleanerd_lab.demo import daemon
from cleanerd_lab.demo.daemon import Daemon
from cleanerd_lab.demo.signals import signals_wait

if TYPE_CHECKING:
    from pathlib import Path


class Stopped(BaseException):
    """As the command line makes of a signal."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits(number: signal.Signals) -> None:
    def stop(*_: object) -> NoReturn:
        raise Stopped

    def interrupted() -> None:
        with signals_wait():
            signal.raise_signal(number)
            done.append(number)

    done: list[int] = []
    before = signal.signal(number, stop)
    try:
        with pytest.raises(Stopped):
            interrupted()
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, before)
    assert done == [number]


def test_a_daemon_that_was_just_started_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes when the process exists and its object does not."""
    started: list[subprocess.Popen[bytes]] = []

    class Slow(subprocess.Popen[bytes]):
        def __init__(self, *_arguments: object, **_more: object) -> None:
            super().__init__([sys.executable, "-c", "import time; time.sleep(600)"])
            started.append(self)
            signal.raise_signal(signal.SIGTERM)

    def stop(*_: object) -> NoReturn:
        raise Stopped

    # The moment between the start of a process and the creation of its object.
    monkeypatch.setattr(daemon.subprocess, "Popen", Slow)
    before = signal.signal(signal.SIGTERM, stop)
    made = Daemon(tmp_path, "")
    try:
        with pytest.raises(Stopped):
            made.start()
        made.kill()
        assert started[0].poll() is not None
    finally:
        signal.signal(signal.SIGTERM, before)
        started[0].kill()
        started[0].wait()
