"""A proxy between cleanerd and the agent that sees every request and can trigger a kill at a chosen moment."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType


class Proxy:
    """Listens on ``path`` and forwards to the agent at ``upstream``.

    ``before_swap`` is called with each swap request before it reaches the agent, ``after_swap`` afterwards.
    ``requested_at`` and ``answered_at``: times of the last forwarded swap request and its response (0: none yet).
    """

    def __init__(self, path: Path, upstream: Path) -> None:
        self.path = path
        self._upstream = upstream
        self.before_swap: Callable[[dict[str, Any]], None] = lambda _request: None
        self.after_swap: Callable[[], None] = lambda: None
        self.requested_at = 0.0
        self.answered_at = 0.0
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> Self:
        self._listener.bind(str(self.path))
        self._listener.listen(8)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            agent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                agent.connect(str(self._upstream))
            except OSError:
                agent.close()
                client.close()
                continue
            threading.Thread(target=self._requests, args=(client, agent), daemon=True).start()
            threading.Thread(target=self._answers, args=(agent, client), daemon=True).start()

    def _requests(self, client: socket.socket, agent: socket.socket) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as lines:
            for line in lines:
                request = json.loads(line)
                if request["op"] == "swap":
                    self.before_swap(request)
                    self.answered_at, self.requested_at = 0.0, time.monotonic()
                agent.sendall(line)
                if request["op"] == "swap":
                    self.after_swap()
        with contextlib.suppress(OSError):
            agent.shutdown(socket.SHUT_RDWR)

    def _answers(self, agent: socket.socket, client: socket.socket) -> None:
        with agent, client:
            with contextlib.suppress(OSError), agent.makefile("rb") as lines:
                for line in lines:
                    if self.requested_at and not self.answered_at:
                        self.answered_at = time.monotonic()
                    client.sendall(line)
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
