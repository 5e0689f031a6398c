"""A client of the agent's socket that can send any bytes."""

from __future__ import annotations

import fcntl
import json
import struct
import termios
import time
from typing import TYPE_CHECKING, Any

from cleanerd.broker import agent_transport
from cleanerd.closeable import Closeable
from cleanerd.errors import AgentUnavailableError
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

SOCKET = ".cleanerd-agent.sock"
GLANCES_SECONDS = 30.0


class RefusedError(Exception):
    """The agent answered ``ok: false``."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer['code']}: {answer['error']}")
        self.code: str = answer["code"]
        self.answer = answer


class Asking(Closeable):
    """One connection; waits for an agent that is just starting."""

    def __init__(self, path: Path) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._socket = agent_transport.connect(path, PATIENCE_SECONDS)
                break
            except (FileNotFoundError, ConnectionRefusedError, AgentUnavailableError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        self._socket.settimeout(PATIENCE_SECONDS)
        self._lines = self._socket.makefile("rb")

    def close(self) -> None:
        """Close the connection."""
        self._lines.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes unchanged."""
        self._socket.sendall(data)

    def unread(self) -> int:
        """Number of sent bytes that the agent has not read yet."""
        count: int = struct.unpack("i", fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)))[0]
        return count

    def answer(self) -> dict[str, Any] | None:
        """The next response; None if the agent closed the connection."""
        try:
            line = self._lines.readline()
        except ConnectionResetError:
            return None
        found: dict[str, Any] | None = json.loads(line) if line else None
        return found

    def ask(self, op: str, **members: object) -> dict[str, Any]:
        """Send a request and return the result.

        The broker's cleaner briefly holds every compacted log at times, whatever its dirty ratio; such refusals are
        retried.

        Raises:
            RefusedError: the agent refused.
            ConnectionError: it closed the connection.
        """
        deadline = time.monotonic() + GLANCES_SECONDS
        while True:
            self.send(json.dumps({"v": 1, "id": "t", "op": op, **members}).encode() + b"\n")
            answer = self.answer()
            if answer is None or answer["ok"] or not answer["error"].endswith("in_progress"):
                break
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        if answer is None:
            raise ConnectionError(f"the agent closed the connection instead of answering {op}")
        assert answer["id"] == "t"
        if not answer["ok"]:
            raise RefusedError(answer)
        result: dict[str, Any] = answer["result"]
        return result
