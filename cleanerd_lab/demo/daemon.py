"""Runs ``cleanerd run`` as a service manager would: a process, its page, its end by SIGTERM."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from cleanerd.errors import CleanerdError
from cleanerd_lab.bench.process import environment_of
from cleanerd_lab.demo.command import CONFIG_NAME
from cleanerd_lab.demo.patience import PATIENCE_SECONDS
from cleanerd_lab.demo.ports import free_port
from cleanerd_lab.demo.signals import signals_wait

if TYPE_CHECKING:
    from pathlib import Path

_PAUSE_SECONDS: Final = 0.2


class DaemonError(CleanerdError):
    """The daemon failed; the message ends with the end of its log."""


class Daemon:
    """One ``cleanerd run`` with its settings and its log in ``work_dir``."""

    def __init__(self, work_dir: Path, config: str) -> None:
        self.port = free_port()
        self.config = f'"cleanerd.http.listen" = "127.0.0.1:{self.port}"\n{config}'
        self._work_dir = work_dir
        self._config_file = work_dir / CONFIG_NAME
        self._log_file = work_dir / "cleanerd.segments"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the status page."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Start it and wait until it has scanned everything once.

        Raises:
            DaemonError: it ended, or was not ready in time.
        """
        self._config_file.write_text(self.config)
        with self._log_file.open("ab") as log, signals_wait():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cleanerd", "run", "--config", str(self._config_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment_of(self._work_dir / "bytecode"),
                process_group=0,  # Ctrl-C is for its parent
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise self._failure(f"cleanerd run ended with exit code {self._process.returncode}")
            try:
                if self.status()["ready"]:
                    return
            except OSError:
                pass  # it does not listen yet
            time.sleep(_PAUSE_SECONDS)
        raise self._failure(f"cleanerd run was not ready within {PATIENCE_SECONDS:.0f} s")

    def status(self) -> dict[str, Any]:
        """The current ``/status``.

        Raises:
            OSError: it does not answer.
        """
        with urllib.request.urlopen(f"{self.url}status", timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 - our own
            found: dict[str, Any] = json.load(answer)
        return found

    def stop(self) -> float:
        """Send SIGTERM; returns the seconds until its end.

        Raises:
            DaemonError: it did not end in time, or failed.
        """
        if self._process is None:
            return 0.0
        started = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._failure(f"cleanerd run did not end within {PATIENCE_SECONDS:.0f} s of SIGTERM") from None
        self._process = None
        if code not in {0, 128 + signal.SIGTERM}:
            raise self._failure(f"cleanerd run ended with exit code {code}")
        return time.monotonic() - started

    def kill(self) -> None:
        """Kill it. Does nothing if it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _failure(self, message: str) -> DaemonError:
        log_end = self._log_file.read_text(errors="replace")[-3000:]
        return DaemonError(f"{message}; the end of its log:\n{log_end}", where=str(self._log_file))
