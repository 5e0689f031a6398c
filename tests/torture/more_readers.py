"""More readers for hostile bytes: settings, and the daemon's files in its state directory."""

from __future__ import annotations

import difflib
import json
import os
import zlib
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from cleanerd.admin.client_config import read_client_config
from cleanerd.config import names
from cleanerd.config.generate import generate
from cleanerd.config.load import read_settings
from cleanerd.daemon.control_api import Operation, read_operations
from cleanerd.daemon.estimate_cache import EstimateCache
from cleanerd.daemon.registry.pauses import load_pauses
from cleanerd.daemon.status.trend import TrendRing
from cleanerd.host.clock import LastTime
from cleanerd.resolution.broker_facts import _server_properties as server_properties
from cleanerd.state.last_time import read_clock
from cleanerd.state.zk_topics import TopicCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cleanerd.segments.log_dir import LogDir

    Found = tuple[str, tuple[bytes, ...], Callable[[bytes], object]]

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


def writer(path: Path) -> Callable[[bytes], None]:
    """Writes the file at ``path`` in as few calls as possible."""
    name = os.fspath(path)

    def write(data: bytes) -> None:
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(file, data)
        finally:
            os.close(file)

    return write


class _FirstName:
    """Replaces :mod:`difflib`, whose search costs a hundred times everything else."""

    def __init__(self, *_: object) -> None:
        pass

    @staticmethod
    def get_close_matches(_key: str, known: list[str], **_options: object) -> list[str]:
        return known[:1]

    SequenceMatcher: Any = None

    def ratio(self) -> float:
        return 0.5


_FirstName.SequenceMatcher = _FirstName


@contextmanager
def _names_in_one_of(data: bytes, many: int = 64) -> Iterator[None]:
    """Suggestions for a wrong name are searched in one of ``many`` inputs."""
    searched = zlib.crc32(data) % many == 0
    names.difflib = difflib if searched else _FirstName  # type: ignore[assignment]
    try:
        yield
    finally:
        names.difflib = difflib


def settings(root: Path, log_dir: LogDir) -> list[Found]:
    """Files and arguments of operators. Problems are returned as a list of errors, each with a message."""
    file, properties = root / "cleanerd.toml", root / "client.properties"
    put_file, put_properties = writer(file), writer(properties)

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
        put_file(data)
        with _names_in_one_of(data):
            whole([file], [], {})

    def words(data: bytes) -> None:
        text = data.decode(errors="surrogateescape")
        name, _, value = text.partition("=")
        with _names_in_one_of(data):
            whole([], [text], {"CLEANERD_" + name.upper().replace(".", "_"): value})

    def client(data: bytes) -> None:
        put_properties(data)
        read_client_config(properties)

    def server(data: bytes) -> None:
        put_properties(data)
        server_properties(properties, log_dir, running=False)

    return [
        ("server.properties", _SERVER, server),
        ("settings file", (generate().encode(), *_TOML), toml),
        ("settings words", _ASSIGNMENTS, words),
        ("client properties", _PROPERTIES, client),
    ]


def kept_by_the_daemon(root: Path) -> list[Found]:
    """Files of the state directory. An unusable file is reported and ignored."""
    root.mkdir()
    estimate = {"method": "sample", "bytes": 5, "low": 1, "high": 9, "read_bytes": 7}
    closed = {"base": 0, "dev": 1, "inode": 2, "size": 3, "mtime_ns": 4}
    saving = {
        "bytes_before": 9,
        "bytes_after": 4,
        "first_dirty_offset": 0,
        "first_uncleanable_offset": 8,
        "clean_bytes": 0,
        "dirty_bytes": 9,
        "estimate": estimate,
        "closed": closed,
    }
    of = {"log_dir": "/a", "topic": "orders", "partition": 0, "topic_id": None, "fingerprint": "f", "saving": saving}
    point = dict.fromkeys(("slot", "reclaimed_bytes", "cleanings", "dirty_bytes", "held_us"), 3)
    topics = {"orders": {"topic_id": "", "values": {"cleanup.policy": "compact"}, "queried_ms": 5}}
    reported = {"cluster_id": "c", "node_id": 1, "place": "p", "queried_ms": 5, "topics": topics}
    operation = asdict(Operation(1, "pause", ("a-0",), 0, 1))

    def clock() -> None:
        found = read_clock(root, [])
        found.read_ms()
        found.observe()
        found.last()

    readers: dict[str, tuple[dict[str, object], Callable[[], object]]] = {
        "clock.json": (asdict(LastTime("boot", 5, 6, (7, 8), counted=False)), clock),
        "savings.json": ({"savings": [of]}, lambda: EstimateCache(root, lambda _work, _done: None)),
        "trend.json": ({"points": [point]}, lambda: TrendRing(root)),
        "daemon.json": ({"paused": True, "paused_partitions": ["a-0"]}, lambda: load_pauses(root)),
        "operations.json": ({"operations": [operation]}, lambda: read_operations(root)),
        "topics.json": ({"brokers": [reported]}, lambda: TopicCache(root).of("c", 1, "p")),
    }

    def of_file(name: str, read: Callable[[], object]) -> Callable[[bytes], object]:
        put = writer(root / name)

        def reader(data: bytes) -> object:
            put(data)
            return read()

        return reader

    return [
        (name, (json.dumps({"format": 1, **document}).encode(),), of_file(name, read))
        for name, (document, read) in readers.items()
    ]
