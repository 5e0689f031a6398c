"""A proxy in front of a store's server that fails as stores and networks do.

Every request of the code under test goes through it, and is counted.
"""

from __future__ import annotations

import http.client
import re
import threading
import zlib
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Answer = tuple[int, bytes, dict[str, str]]
"""Status, body and headers."""


@dataclass
class Faulty:
    """``fault`` gets the number, method, path and range of a request, and returns the fault; None: no fault.

    ``drop``: no answer; ``cut``: half of one; ``whole``: the whole object instead of a range. Any other word has an
    entry in ``answers``, with the store's own message: ``slow`` when it throttles, ``denied`` for unknown credentials.
    ``page``: the maximum of names in one answer to a listing; 0: the server's own.
    """

    endpoint: str
    answers: Mapping[str, Answer]
    fault: Callable[[int, str, str, str], str | None] | None = None
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    page: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def requested(self, method: str, path: str, wanted: str) -> str | None:
        """The fault for a request."""
        with self._lock:
            number = len(self.requests)
            self.requests.append((method, path, wanted))
        return None if self.fault is None else self.fault(number, method, path, wanted)

    def in_pages(self, path: str) -> str:
        """The request changed so that the server answers with a page, if it can."""
        return path

    def a_page(self, _path: str, data: bytes) -> bytes:
        """A page of the server's answer to a listing, if the server cannot make one."""
        return data


def now_and_then(fault: str) -> Callable[[int, str, str, str], str | None]:
    """Every distinct request fails once: the first time, the second or the third.

    Not every third of all requests: with several tasks running, one of them may meet the third each time it tries.
    """
    requests: Counter[str] = Counter()
    lock = threading.Lock()

    def failing(_number: int, method: str, path: str, wanted: str) -> str | None:
        question = f"{method} {re.sub('upload_?[iI]d=[^&]*', '', path)} {wanted}"
        with lock:
            requests[question] += 1
            return fault if requests[question] == 1 + zlib.crc32(question.encode()) % 3 else None

    return failing


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Faulty
    behind: tuple[str, int]

    def _forward(self) -> None:
        path = unquote(self.path)
        wanted = self.headers.get("Range") or self.headers.get("x-ms-range", "")
        fault = self.store.requested(self.command, path, wanted)
        body = self._body()
        if fault == "drop":
            self.close_connection = True
            return
        if fault in self.store.answers:
            self._answer(*self.store.answers[fault])
            return
        connection = http.client.HTTPConnection(*self.behind, timeout=60)
        hops = ("connection", "transfer-encoding", "expect", "content-length")
        if fault == "whole":
            hops += ("range", "x-ms-range")
        headers = {key: value for key, value in self.headers.items() if key.lower() not in hops}
        connection.request(self.command, self.store.in_pages(self.path), body, headers)
        answer = connection.getresponse()
        data = self.store.a_page(self.path, answer.read())
        kept = {k: v for k, v in answer.getheaders() if k.lower() not in ("connection", "transfer-encoding", "server")}
        connection.close()
        self._answer(answer.status, data, kept, half=fault == "cut")

    def _body(self) -> bytes:
        """The whole body, in chunks too, if the client does not send its length before."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = bytearray()
        while count := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(count)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return bytes(body)

    def _answer(self, status: int, data: bytes, headers: dict[str, str], *, half: bool = False) -> None:
        self.send_response(status)
        for key, value in headers.items():
            if key.lower() != "content-length":
                self.send_header(key, value)
        size = headers.get("Content-Length", headers.get("content-length"))
        self.send_header("Content-Length", str(len(data)) if self.command != "HEAD" or size is None else size)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if half else data)
        if half:
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def put_before(store: Faulty, behind: tuple[str, int]) -> Callable[[], None]:
    """Start a proxy in front of the server at ``behind``, for ``store``, whose endpoint it becomes.

    Returns a stop function.
    """
    handler = type("Handler", (_Proxy,), {"store": store, "behind": behind})
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    proxy.daemon_threads = True
    threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
    store.endpoint = f"http://127.0.0.1:{proxy.server_address[1]}"

    def stop() -> None:
        proxy.shutdown()
        proxy.server_close()

    return stop
