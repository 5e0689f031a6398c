"""A server of a staged view, in a thread with its own event loop; requests reach it as any client's would."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvloop

from cleanerd.daemon.http.server import HttpServer
from tests.daemon.views import Stage
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from cleanerd.daemon.view import DaemonView


@dataclass(frozen=True, slots=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body, decompressed if it was compressed."""
        body = gzip.decompress(self.body) if self.headers.get("content-encoding") == "gzip" else self.body
        return body.decode()

    def json(self) -> Any:
        return json.loads(self.text)


class Served:
    """A running server. ``stage`` holds what it shows, ``explains`` counts the queries to the core."""

    def __init__(self, stage: Stage, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self.stage = stage
        self.server = server
        self.loop = loop

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None) -> Answer:
        """Send one request on a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, headers=dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def stop(self) -> None:
        self.run(self.server.stop())

    def start(self) -> None:
        self.run(self.server.start())

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_SECONDS)


async def explain_little(name: str) -> dict[str, Any]:
    """An answer of the shape of ``explain --json``."""
    topic, _, number = name.rpartition("-")
    return {
        "topic": topic,
        "partition": int(number),
        "cleaned_now": False,
        "rule": "min.cleanable.dirty.ratio",
        "reason": "dirty ratio 0.250 is not above min.cleanable.dirty.ratio 0.5",
        "changes": "when 83886080 more bytes (80.0 MiB) are cleanable",
        "first_dirty_offset": 7_500,
        "first_dirty_origin": "cleanerd's own state",
        "limits": {"the active segment": 10_000, "the high watermark": 12_345},
        "limited_by": "the active segment",
        "notes": ["a note"],
        "warnings": [],
        "settings": {
            "delete.retention.ms": {"value": 86_400_000, "origin": "default"},
            "max.compaction.lag.ms": {"value": 2**63 - 1, "origin": "default"},
        },
    }


@contextlib.contextmanager
def serving(
    shown: DaemonView,
    explain: Callable[[str], Awaitable[dict[str, Any]]] = explain_little,
    *,
    listen: str = "127.0.0.1:0",
    **options: Any,
) -> Iterator[Served]:
    """Serve ``shown`` as long as the block lasts."""
    loop = uvloop.new_event_loop()  # as cleanerd run
    thread = threading.Thread(target=loop.run_forever, name="served", daemon=True)
    thread.start()
    stage = Stage(shown)
    served = Served(stage, HttpServer(listen, stage, explain, **options), loop)
    try:
        served.start()
        yield served
        served.stop()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SECONDS)
        loop.close()
