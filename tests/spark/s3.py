"""An S3 server of this process, moto's, and in front of it a proxy that fails as stores and networks do.

Every request of the code under test goes through the proxy, which counts them.
"""

from __future__ import annotations

import http.client
import re
import threading
import zlib
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import boto3
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BUCKET = "archive"
SECRET = "a-secret-that-nobody-may-see"  # noqa: S105 - of a server that knows none
_SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)
_DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>InvalidAccessKeyId</Code>'
    b"<Message>The AWS Access Key Id you provided does not exist in our records.</Message></Error>"
)


@dataclass
class Store:
    """``fault`` gets the number, method, path and range of a request; its answer is what happens instead.

    None: what should. ``slow``: 503 SlowDown; ``denied``: 403; ``drop``: no answer; ``cut``: half of one.
    """

    endpoint: str
    client: Any
    fault: Callable[[int, str, str, str], str | None] | None = None
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def asked(self, method: str, path: str, wanted: str) -> str | None:
        """What happens with a request."""
        with self._lock:
            number = len(self.requests)
            self.requests.append((method, path, wanted))
        return None if self.fault is None else self.fault(number, method, path, wanted)

    def put(self, directory: Path, prefix: str) -> str:
        """Upload all of a directory; its URL."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.client.upload_file(str(path), BUCKET, f"{prefix}/{path.relative_to(directory)}")
        return f"s3a://{BUCKET}/{prefix}"


def now_and_then(fault: str) -> Callable[[int, str, str, str], str | None]:
    """Each request that is asked again and again fails once: the first time, the second or the third.

    Not every third of all requests: with several tasks at work one of them may meet the third each time it tries.
    """
    asked: Counter[str] = Counter()
    lock = threading.Lock()

    def failing(_number: int, method: str, path: str, wanted: str) -> str | None:
        question = f"{method} {re.sub('uploadId=[^&]*', '', path)} {wanted}"
        with lock:
            asked[question] += 1
            return fault if asked[question] == 1 + zlib.crc32(question.encode()) % 3 else None

    return failing


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store
    behind: tuple[str, int]

    def _forward(self) -> None:
        path = unquote(self.path)
        fault = self.store.asked(self.command, path, self.headers.get("Range", ""))
        body = self._body()
        if fault == "drop":
            self.close_connection = True
            return
        if fault in ("slow", "denied"):
            self._answer(*((503, _SLOW_DOWN) if fault == "slow" else (403, _DENIED)), {"Content-Type": "text/xml"})
            return
        connection = http.client.HTTPConnection(*self.behind, timeout=60)
        hops = ("connection", "transfer-encoding", "expect", "content-length")
        headers = {key: value for key, value in self.headers.items() if key.lower() not in hops}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        kept = {k: v for k, v in answer.getheaders() if k.lower() not in ("connection", "transfer-encoding", "server")}
        connection.close()
        self._answer(answer.status, data, kept, half=fault == "cut")

    def _body(self) -> bytes:
        """All of it, however it is sent: in chunks where the client does not say before how much it is."""
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


def start() -> tuple[Store, Callable[[], None]]:
    """The store, and what stops it."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    behind = moto.get_host_and_port()
    client = boto3.client(
        "s3", endpoint_url=f"http://{behind[0]}:{behind[1]}", region_name="us-east-1",
        aws_access_key_id="test", aws_secret_access_key=SECRET,
    )  # fmt: skip
    client.create_bucket(Bucket=BUCKET)
    store = Store("", client)
    handler = type("Handler", (_Proxy,), {"store": store, "behind": behind})
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    proxy.daemon_threads = True
    threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
    store.endpoint = f"http://127.0.0.1:{proxy.server_address[1]}"

    def stop() -> None:
        proxy.shutdown()
        proxy.server_close()
        moto.stop()

    return store, stop
