"""More readers for hostile bytes: settings, what the daemon keeps in its state directory, what a browser sends."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from cleanerd.admin.client_config import read_client_config
from cleanerd.daemon.fleet.pauses import load_pauses
from cleanerd.daemon.kept_savings import KeptSavings
from cleanerd.daemon.operations import Operation, read_operations
from cleanerd.daemon.showing.trend import TrendRing
from cleanerd.log.clock import LastTime
from cleanerd.log.last_time import read_clock
from cleanerd.log.topic_memory import TopicMemory
from cleanerd.scope.broker_facts import _server_properties as server_properties
from cleanerd.settings.generate import generate
from cleanerd.settings.load import read_settings
from tests.daemon.serving import serving
from tests.daemon.views import busy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cleanerd.log.log_dir import LogDir

    Found = tuple[str, tuple[bytes, ...], Callable[[bytes], object]]

ANSWER_SECONDS: Final = 0.5
"""Whoever sends half a request gets no answer."""

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
)  # fmt: skip
_TOML: Final = (
    b'"cleanerd.log.dirs" = ["/a", "/b"]\n"log.cleaner.threads" = 2\n[topics.orders]\n"delete.retention.ms" = "1d"\n',
    b"""[topics."a*"]
"cleanup.policy" = "compact"
"compaction.strategy" = "header"
"compaction.strategy.header" = "v"
""",
    b"""cleanerd.windows = "mon-fri 22:00-06:00 Europe/Vienna"
cleanerd.http.listen = "[::1]:0"
"cleanerd.disk.reserve" = "5%"
"log.cleaner.io.max.bytes.per.second" = 1.5e308
""",
)
_ASSIGNMENTS: Final = (
    b"log.cleaner.dedupe.buffer.size=128m",
    b"cleanerd.windows=sat,sun 00:00-24:00",
    b"topics.a.b.max.compaction.lag.ms=7d",
    b"cleanerd.disk.reserve=10%",
    b"cleanerd.http.listen=:10280",
    b"topics.*.min.cleanable.dirty.ratio=0.5",
    b"cleanerd.broker.version=3.9.2",
    b"cleanerd.spark.threshold.keys=1e6",
)
_SERVER: Final = (b"node.id=1\nlog.dirs=/a,/b\nlog.cleaner.threads=2\n", b"broker.id=0\nzookeeper.connect=x\n")
_PROPERTIES: Final = (
    b"""bootstrap.servers=a:9092
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
ssl.truststore.location=/none
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";
""",
    b"security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location=/none\nrequest.timeout.ms=5000\n",
)


def settings(root: Path, log_dir: LogDir) -> list[Found]:
    """Files and words of operators. What is wrong comes as a list of errors; each has to have its text."""
    file, properties = root / "cleanerd.toml", root / "client.properties"

    def whole(paths: list[Path], words: list[str], environ: dict[str, str]) -> None:
        found, problems = read_settings(paths, words, {"HOME": "/", **environ})
        if (found is None) != bool(problems):
            raise AssertionError("settings and errors at once, or none of both")
        for problem in problems:
            str(problem)
        if found is not None:
            found.topic_overrides("orders")
            found.broker_defaults()

    def toml(data: bytes) -> None:
        file.write_bytes(data)
        whole([file], [], {})

    def words(data: bytes) -> None:
        text = data.decode(errors="surrogateescape")
        name, _, value = text.partition("=")
        whole([], [text], {"CLEANERD_" + name.upper().replace(".", "_"): value})

    def client(data: bytes) -> None:
        properties.write_bytes(data)
        read_client_config(properties)

    def server(data: bytes) -> None:
        properties.write_bytes(data)
        server_properties(properties, log_dir)

    return [
        ("server.properties", _SERVER, server),
        ("settings file", (generate().encode(), *_TOML), toml),
        ("settings words", _ASSIGNMENTS, words),
        ("client properties", _PROPERTIES, client),
    ]


def kept_by_the_daemon(root: Path) -> list[Found]:
    """Files of the state directory. One that cannot be used counts as absent, and that is told."""
    root.mkdir()
    estimate = {"method": "sample", "bytes": 5, "low": 1, "high": 9, "read_bytes": 7}
    closed = {"base": 0, "dev": 1, "inode": 2, "size": 3, "mtime_ns": 4}
    saving = {
        "bytes_before": 9,
        "bytes_after": 4,
        "clean_offset": 0,
        "bound_offset": 8,
        "clean_bytes": 0,
        "dirty_bytes": 9,
        "estimate": estimate,
        "closed": closed,
    }
    of = {"log_dir": "/a", "topic": "orders", "partition": 0, "topic_id": None, "fingerprint": "f", "saving": saving}
    point = dict.fromkeys(("slot", "reclaimed_bytes", "cleans", "dirty_bytes", "held_us"), 3)
    topics = {"orders": {"topic_id": "", "values": {"cleanup.policy": "compact"}}}
    told = {"cluster_id": "c", "node_id": 1, "asked_ms": 5, "topics": topics}
    operation = asdict(Operation(1, "pause", ("a-0",), 0, 1))

    def clock() -> None:
        found = read_clock(root, [])
        found.read_ms()
        found.observe()
        found.last()

    readers: dict[str, tuple[dict[str, object], Callable[[], object]]] = {
        "clock.json": (asdict(LastTime("boot", 5, 6, (7, 8), counted=False)), clock),
        "savings.json": ({"savings": [of]}, lambda: KeptSavings(root, lambda _work, _done: None)),
        "trend.json": ({"points": [point]}, lambda: TrendRing(root)),
        "daemon.json": ({"paused": True, "paused_partitions": ["a-0"]}, lambda: load_pauses(root)),
        "operations.json": ({"operations": [operation]}, lambda: read_operations(root)),
        "topics.json": ({"brokers": [told]}, lambda: TopicMemory(root).of("c", 1)),
    }

    def of_file(name: str, read: Callable[[], object]) -> Callable[[bytes], object]:
        def reader(data: bytes) -> object:
            (root / name).write_bytes(data)
            return read()

        return reader

    return [
        (name, (json.dumps({"format": 1, **document}).encode(),), of_file(name, read))
        for name, (document, read) in readers.items()
    ]


@contextmanager
def http() -> Iterator[Found]:
    """What comes to the daemon's port: an answer that is no error of ours, or none, and the next one is served."""
    with serving(busy(3)) as served:

        def ask(data: bytes) -> None:
            with socket.create_connection(("127.0.0.1", served.port), ANSWER_SECONDS) as connection:
                answer = _answer(connection, data)
            if b"HTTP/1.1 500" in answer or b"HTTP/1.0 500" in answer:
                raise AssertionError(answer[:300])
            if served.get("/healthz").status != 200:
                raise AssertionError("the next one is not served")

        yield "HTTP", _REQUESTS, ask


def _answer(connection: socket.socket, data: bytes) -> bytes:
    """All that comes until the other side has had enough, or half a request gets nothing."""
    answer = bytearray()
    try:
        connection.sendall(data + _LAST_REQUEST)
        while piece := connection.recv(1 << 16):
            answer += piece
    except (TimeoutError, ConnectionError):
        pass
    return bytes(answer)
