"""Hostile requests to the daemon's port, given to the server's protocol directly or through a socket.

A connection per input costs ten times the server's own work. So most inputs go directly to the protocol object that the
event loop would use, and a small share also through a socket.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvloop

from cleanerd.daemon.http.server import HttpServer
from tests.daemon.serving import explain_little, serving
from tests.daemon.views import Stage, busy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.daemon.serving import Served
    from tests.torture.more_readers import Found

ANSWER_SECONDS: Final = 0.5
"""A client that sends half a request gets no response."""

_BY_SOCKET: Final = 2000
_TURNS: Final = 60
"""Turns of the event loop: a request without a response by then waits for more input."""

_LAST_REQUEST: Final = b"\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_REQUESTS: Final = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip;q=0.5\r\nIf-None-Match: W/\"a\", \"b\"\r\n\r\n",
    b"GET /metrics HTTP/1.0\r\nHost: localhost:10280\r\nAccept: application/openmetrics-text; q=0.9\r\n\r\n",
    b"GET /explain/orders-0 HTTP/1.1\r\nHost: [::1]\r\n\r\nHEAD /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /status HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    b"PUT /partition/%2e%2e%2fa HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    b"GET /status/orders-1?x=%ff&y=1#z HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nCookie: a=b; c=\"d\"\r\nRange: bytes=0-5\r\n\r\n",
    b"GET /page/index.js HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: br, gzip\r\nIf-None-Match: *\r\n\r\n",
)  # fmt: skip


class _Transport(asyncio.Transport):
    """Collects the responses."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.answer = bytearray()

    def write(self, data: Any) -> None:
        self.answer += data

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class _AtOnce:
    """Replaces the server's thread: work is done at once."""

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:  # noqa: BLE001 - as a thread hands it over
            done.set_exception(error)
        return done

    def shutdown(self, **_: Any) -> None:
        pass


class _InProcess:
    """A server whose connections get their bytes directly."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._server = HttpServer("127.0.0.1:0", Stage(busy(3)), explain_little)
        self._loop.run_until_complete(self._server.start())
        thread, self._server._thread = self._server._thread, _AtOnce()  # type: ignore[assignment]
        assert thread is not None
        thread.shutdown()

    def ask(self, data: bytes) -> bytes:
        """The whole response before the server closes or waits for more input."""
        return self._loop.run_until_complete(self._ask(data))

    async def _ask(self, data: bytes) -> bytes:
        assert self._server._connections is not None
        protocol, transport = self._server._connections(), _Transport()
        protocol.connection_made(transport)
        protocol.data_received(data)  # type: ignore[attr-defined]
        for _ in range(_TURNS):
            if transport.closed:
                break
            await asyncio.sleep(0)
        protocol.connection_lost(None)
        await asyncio.sleep(0)
        return bytes(transport.answer)

    async def _end_tasks(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def stop(self) -> None:
        self._loop.run_until_complete(self._server.stop())
        self._loop.run_until_complete(self._end_tasks())
        self._loop.close()


@contextmanager
def http() -> Iterator[Found]:
    """The daemon's port: the response must not be a server error, or absent, and the next request is served."""
    inside = _InProcess()
    with serving(busy(3)) as served:

        def ask(data: bytes) -> None:
            _require_well(inside.ask(data + _LAST_REQUEST))
            if zlib.crc32(data) % _BY_SOCKET == 0:
                _by_socket(served, data)

        yield "HTTP", _REQUESTS, ask
    inside.stop()


def _require_well(answer: bytes) -> None:
    if b"HTTP/1.1 500" in answer or b"HTTP/1.0 500" in answer:
        raise AssertionError(answer[:300])


def _by_socket(served: Served, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port), ANSWER_SECONDS) as connection:
        _require_well(_answer(connection, data))
    if served.get("/healthz").status != 200:
        raise AssertionError("the next one is not served")


def _answer(connection: socket.socket, data: bytes) -> bytes:
    """The response until the server closes, or half a request gets none."""
    answer = bytearray()
    try:
        connection.sendall(data + _LAST_REQUEST)
        while piece := connection.recv(1 << 16):
            answer += piece
    except (TimeoutError, ConnectionError):
        pass
    return bytes(answer)
