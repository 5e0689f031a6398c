"""A schema registry on 127.0.0.1 that implements the part of Confluent's REST API that clients need.

It stores schemas, assigns ids and versions, resolves references, and fails as registries and networks do.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable


@dataclass
class RegistryServer:
    """``fault`` gets the number and path of a request and returns the fault; None: no fault.

    ``slow``: 429 with Retry-After; ``broken``: 500; ``drop``: no answer; ``cut``: half of one; ``noise``: 200 without
    JSON; ``hang``: no answer until the server stops; ``drip``: an answer that never ends, a byte at a time; ``denied``:
    401; ``elsewhere``: another server's 404; ``huge``: an infinite answer.
    """

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    fault: Callable[[int, str], str | None] | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)
    seen: list[str | None] = field(default_factory=list)
    """The Authorization header by request."""
    over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """As POST /subjects/SUBJECT/versions does; returns the id."""
        with self._lock:
            document = {"schema": schema, "schemaType": kind, "references": references or []}
            number = next((n for n, each in self.schemas.items() if each == document), len(self.schemas) + 1)
            self.schemas[number] = document
            versions = self.subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
            return number

    def forget(self, number: int) -> None:
        """As a hard delete."""
        del self.schemas[number]

    def requested(self, path: str) -> int:
        """How often."""
        return sum(each == path for _, each in self.requests)

    def path_of(self, url: str) -> str:
        """The path of a request below the registry's own."""
        return urlsplit(url).path.removeprefix(urlsplit(self.url).path)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and document."""
        if found := re.fullmatch(r"/schemas/ids/([0-9]+)", path):
            schema = self.schemas.get(int(found[1]))
            return (200, schema) if schema else (404, {"error_code": 40403, "message": "Schema not found"})
        if found := re.fullmatch(r"/subjects/([^/]+)/versions", path):
            assert method == "POST"
            kind, references = body.get("schemaType", "AVRO"), body.get("references")
            return 200, {"id": self.register(unquote(found[1]), body["schema"], kind, references)}
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/([^/]+)", path):
            return self._version(unquote(found[1]), found[2])
        if found := re.fullmatch(r"/subjects/([^/]+)", path):  # the request asks for the version of this schema
            for version, number in enumerate(self.subjects.get(unquote(found[1]), []), 1):
                if self.schemas[number]["schema"] == body["schema"]:
                    return 200, {"subject": unquote(found[1]), "version": version, "id": number, **self.schemas[number]}
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _version(self, subject: str, version: str) -> tuple[int, dict[str, Any]]:
        versions = self.subjects.get(subject)
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(versions) if version == "latest" else int(version)
        if not 1 <= number <= len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        found = versions[number - 1]
        return 200, {"subject": subject, "version": number, "id": found, **self.schemas[found]}


_ANSWERS: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "slow": (429, b'{"error_code": 42901, "message": "slow down"}', {"Retry-After": "1"}),
    "broken": (500, b'{"error_code": 50001, "message": "the store is away"}', {}),
    "denied": (401, b'{"error_code": 401, "message": "Unauthorized"}', {}),
    "elsewhere": (404, b"<html>not here</html>", {}),
    "noise": (200, b"<html>a proxy</html>", {}),
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    _registry: RegistryServer

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def handle(self) -> None:
        """A client that is not trusted, or does not trust us, has disconnected."""
        with contextlib.suppress(OSError):
            super().handle()

    def finish(self) -> None:
        """As in the base class, including unsent data."""
        with contextlib.suppress(OSError):
            super().finish()

    def _do(self) -> None:
        path = self._registry.path_of(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        number = len(self._registry.requests)
        self._registry.requests.append((self.command, path))
        self._registry.seen.append(self.headers.get("Authorization"))
        fault = None if self._registry.fault is None else self._registry.fault(number, path)
        if fault is None:
            status, document = self._registry.answer(self.command, path, json.loads(body or b"{}"))
            self._send(status, json.dumps(document).encode())
        else:
            self._fail(fault)

    do_GET = do_POST = do_DELETE = _do  # noqa: N815

    def _fail(self, fault: str) -> None:
        if fault in _ANSWERS:
            self._send(*_ANSWERS[fault])
            return
        self.close_connection = True
        if fault == "hang":
            self._registry.over.wait()
        elif fault != "drop":
            self._half(fault)

    def _half(self, fault: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        try:
            self.wfile.write(b'{"schema": "')
            while fault == "drip" and not self._registry.over.is_set():
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.01)
            while fault == "huge" and not self._registry.over.is_set():
                self.wfile.write(b" " * 65536)
        except OSError:
            pass  # the client has disconnected

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def start(tls: ssl.SSLContext | None = None) -> tuple[RegistryServer, Callable[[], None]]:
    """Start a server, with https if there is ``tls``; returns a stop function."""
    registry = RegistryServer()
    made = type("Handler", (_Handler,), {"_registry": registry})
    server = ThreadingHTTPServer(("127.0.0.1", 0), made)
    server.daemon_threads = True
    if tls is not None:
        # Each connection's own thread does the handshake, so that a stuck one does not block the others.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    # Readers cache schemas by the registry's URL as long as their process lives; another server may get the same port.
    registry.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}/{uuid.uuid4().hex}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="registry")
    thread.start()

    def stop() -> None:
        registry.over.set()
        server.shutdown()
        server.server_close()
        thread.join()

    return registry, stop
