"""Reports the service's state to systemd: datagrams to ``$NOTIFY_SOCKET``. Silent without it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


class Notifier:
    """The service manager's socket. Errors are ignored, even if it does not listen."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environ is None else environ
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.watchdog_seconds = _watchdog_seconds(environment)
        self._shown = ""
        self._begun = False
        self._owed = ""

    @property
    def is_active(self) -> bool:
        """Whether a service manager listens; otherwise no text is needed."""
        return self._address.startswith(("/", "@"))

    def ready(self, status: str) -> None:
        """The daemon has started or reloaded. If that message is lost, systemd ends the daemon: see :meth:`resend`."""
        self._begun = True
        self._shown = _line(status)
        message = f"READY=1\nSTATUS={self._shown}"
        self._owed = "" if self._send(message) else message

    def resend(self) -> None:
        """Send a message again that did not fit into the socket's queue."""
        if self._owed and self._send(self._owed):
            self._owed = ""

    def status(self, text: str) -> None:
        """One line for ``systemctl status``, if it changed."""
        if (line := _line(text)) != self._shown and self._send(f"STATUS={line}"):
            self._shown = line

    def reloading(self) -> None:
        """The daemon reads its settings; ``reloaded`` ends that. Not sent during the start, which it would end."""
        if self._begun:
            self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def reloaded(self, status: str) -> None:
        """The settings were read, or refused."""
        if self._begun:
            self.ready(status)

    def stopping(self) -> None:
        """The daemon is ending."""
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        """Tell systemd that the daemon is still alive."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> bool:
        """Whether it was sent, or no service manager listens."""
        if not self.is_active:
            return True
        # A name that begins with @ is in the abstract namespace.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as line:
                line.sendto(message.encode(), address)
        except OSError:
            return False
        return True


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """The interval of watchdog messages: half of systemd's limit; None without a limit, or for another process."""
    text, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not text.isdecimal() or int(text) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(text) / 2_000_000


def _line(text: str) -> str:
    return " ".join(text.split())
