"""An agent's announcement and its side of the login, made by the test, and a listening port."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import socket
import threading
from typing import TYPE_CHECKING

from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "5" * 64


def announce(path: Path, port: int, *, mode: int = 0o600, **changes: object) -> None:
    """A file as an agent writes it."""
    facts = {"cleanerd_agent": 1, "port": port, "secret": SECRET, "network": os.readlink("/proc/self/ns/net")}
    path.write_text(json.dumps(facts | changes))
    path.chmod(mode)


class Listening:
    """A loopback port and the received bytes; ``behave`` gets each connection."""

    def __init__(self, behave: Callable[[socket.socket], None]) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        self.came: list[bytes] = []
        self._behave = behave
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(PATIENCE_SECONDS)
                self.came.append(connection.recv(40))
                self._behave(connection)
                while data := connection.recv(4096):
                    self.came.append(data)

    def close(self) -> None:
        if self.server.fileno() < 0:
            return
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self._thread.join(PATIENCE_SECONDS)


def proof(side: str, clients: bytes, agents: bytes, secret: bytes = bytes.fromhex(SECRET)) -> bytes:
    """By the formula in agent/README.md."""
    return hmac.digest(secret, f"cleanerd-agent 1: {side}".encode() + clients + agents, hashlib.sha256)
