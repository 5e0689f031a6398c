"""Commands of cleanerd as forks of a process that has imported it, which saves half a second of CPU each.

A fork ends, and can be killed, like a process of its own; `killing.py` also starts some real processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, cast

from tests.daemon.process import Daemon
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

_WARMED: Final = (("run", "--set", "cleanerd.nothing=1"), ("clean", "--live", "--yes", "/nonexistent"))
"""Both commands are refused, but only after everything is imported."""


class Fork:
    """The part of ``subprocess.Popen`` that the killing tests use."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask(wait=self.pid)
        return self.returncode

    def wait(self, timeout: float = PATIENCE_SECONDS) -> int:
        """The exit code; negative for a signal."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.02)
        return code

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send a signal to a child that was not waited for yet: until then its process id cannot be reused."""
        if self.returncode is None:
            os.kill(self.pid, number)


class ForkServer:
    """A process that forks commands; it ends with the block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.live.forks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_SECONDS)

    def start(self, arguments: Sequence[str], reported: Path) -> Fork:
        """Fork ``cleanerd ARGUMENTS``; its output is added to ``reported``."""
        return Fork(self, self.ask(arguments=list(arguments), reported=str(reported)))

    def ask(self, **request: Any) -> Any:
        """Send a request and return the server's answer."""
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


Cleaner = subprocess.Popen[bytes] | Fork


@dataclass
class ForkedDaemon(Daemon):
    """``cleanerd run`` as a fork."""

    forks: ForkServer | None = None

    def start(self) -> None:
        """Start it without waiting."""
        assert self.forks is not None
        words = [word for each in self.settings for word in ("--set", each)]
        self.process = cast("subprocess.Popen[bytes]", self.forks.start(["run", *words], self.log))

    def end_however_it_is(self) -> None:
        """End it in any state, also if it never started."""
        process: Cleaner | None = getattr(self, "process", None)
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()


def main() -> None:
    """Serve requests until the connection closes."""
    from cleanerd.cli.main import run  # noqa: PLC0415 - the other side needs none of it

    reported = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    for words in _WARMED:
        run(words)
    os.dup2(reported, 2)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            pid, status = os.waitpid(request["wait"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                _become(request["arguments"], request["reported"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _become(arguments: Sequence[str], reported: str) -> None:
    from cleanerd.cli.main import run  # noqa: PLC0415

    code = 1
    try:
        words, nothing = os.open(reported, os.O_WRONLY | os.O_CREAT | os.O_APPEND), os.open(os.devnull, os.O_RDONLY)
        for there, here in ((nothing, 0), (words, 1), (words, 2)):
            os.dup2(there, here)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        code = run(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - the fork ends here whatever happens
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
