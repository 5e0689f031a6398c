"""Manages the HTTP server's connections: hanging clients, even hundreds, cost few descriptors and no memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

MOST: Final = 128
MOST_BODY_BYTES: Final = 64 * 1024 * 1024
IDLE_SECONDS: Final = 120.0
_SWEEP_SECONDS: Final = 15.0


class Connections:
    """Makes the protocol of each connection, and closes useless ones.

    A connection whose last request began ``idle_seconds`` ago is closed: it is idle, or its client does not read. Above
    ``most`` connections the one that was silent longest is closed. Above ``most_body_bytes`` of bodies that are being
    sent, each counted once, connections that have not read the oldest body are closed (D-13).
    """

    def __init__(
        self,
        server: web.Server,
        *,
        most: int = MOST,
        idle_seconds: float = IDLE_SECONDS,
        most_body_bytes: int = MOST_BODY_BYTES,
    ) -> None:
        self._server = server
        self._most = most
        self._idle_seconds = idle_seconds
        self._most_body_bytes = most_body_bytes
        self._active: dict[web.RequestHandler, float] = {}
        self._sending: dict[web.RequestHandler, bytes] = {}
        self._sweeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sweeper = asyncio.create_task(self._sweep_forever(), name="http-connections")

    async def stop(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        for protocol in list(self._active):
            self._cut(protocol)

    def __call__(self) -> asyncio.Protocol:
        """Make the protocol of a new connection."""
        if len(self._active) >= self._most:
            self._forget_closed()
        if len(self._active) >= self._most:
            self._cut(min(self._active, key=lambda each: self._active[each]))
        protocol = self._server()
        self._active[protocol] = asyncio.get_running_loop().time()
        return protocol

    def used(self, protocol: web.RequestHandler) -> None:
        """Note that a request began on the connection."""
        if protocol in self._active:
            self._active[protocol] = asyncio.get_running_loop().time()

    def sends(self, protocol: web.RequestHandler, body: bytes) -> Callable[[], object]:
        """Note that ``body`` is being sent there; call the returned function when it was sent."""
        self._sending.pop(protocol, None)
        self._sending[protocol] = body
        self._forget_closed()
        while len(bodies := {id(each): len(each) for each in self._sending.values()}) > 1:
            if sum(bodies.values()) <= self._most_body_bytes:
                break
            oldest = next(iter(self._sending.values()))
            for each in [each for each, sent in self._sending.items() if sent is oldest]:
                self._cut(each)
        return lambda: self._sending.pop(protocol, None)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self._idle_seconds / 2))
            self._forget_closed()
            limit = asyncio.get_running_loop().time() - self._idle_seconds
            for protocol in [each for each, at in self._active.items() if at < limit]:
                self._cut(protocol)

    def _forget_closed(self) -> None:
        # A new one has no transport yet either.
        limit = asyncio.get_running_loop().time() - 1
        for protocol in [each for each, at in self._active.items() if each.transport is None and at < limit]:
            self._forget(protocol)

    def _forget(self, protocol: web.RequestHandler) -> None:
        self._active.pop(protocol, None)
        self._sending.pop(protocol, None)

    def _cut(self, protocol: web.RequestHandler) -> None:
        """Abort the connection: a normal close would wait until the client has read."""
        self._forget(protocol)
        transport: asyncio.WriteTransport | None = protocol.transport
        if transport is not None:
            transport.abort()
