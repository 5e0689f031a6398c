"""A fake broker: it sends any configured answer, also those that no release in the tests would send (U-29).

It speaks ApiVersions v0, Metadata v4, DescribeConfigs v1, InitProducerId v0 and Produce v3..v7; every other version is
not offered.
"""

from __future__ import annotations

import contextlib
import socketserver
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
API_VERSIONS: Final = 18
INIT_PRODUCER_ID: Final = 22
DESCRIBE_CONFIGS: Final = 32

OFFERED: Final = {
    PRODUCE: (3, 7),
    FETCH: (4, 4),  # never requested, but librdkafka treats a broker without it as one of message format v0
    METADATA: (4, 4),
    API_VERSIONS: (0, 0),
    INIT_PRODUCER_ID: (0, 0),
    DESCRIBE_CONFIGS: (1, 1),
}
UNSUPPORTED_VERSION: Final = 35
DUPLICATE_SEQUENCE_NUMBER: Final = 46

TOPIC: Final = 2
BROKER: Final = 4


@dataclass(slots=True)
class Answers:
    """The answers of the stub.

    ``apis``: key -> oldest and newest version. ``configs``: (resource type, name) -> values. ``produce``: (error code,
    base offset, log append time) for the produce requests in turn; the last one stays. ``init_producer_id``: its error
    code. ``config_error``: that of DescribeConfigs.
    """

    apis: dict[int, tuple[int, int]] = field(default_factory=lambda: dict(OFFERED))
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    produce: list[tuple[int, int, int]] = field(default_factory=lambda: [(0, 0, -1)])
    init_producer_id: int = 0
    config_error: int = 0


class StubBroker:
    """Listens on 127.0.0.1 while the context lasts. ``asked`` has the keys of the received requests, in order."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.requested: list[int] = []
        self.batches: list[bytes] = []
        stub = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):
                    while (size := self._read(4)) is not None:
                        request = self._read(struct.unpack(">i", size)[0])
                        if request is None:
                            return
                        answer = stub.answer(request)
                        self.request.sendall(struct.pack(">i", len(answer)) + answer)

            def _read(self, count: int) -> bytes | None:
                data = b""
                while len(data) < count:
                    part = self.request.recv(count - len(data))
                    if not part:
                        return None
                    data += part
                return data

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Connection)
        self.port: int = self._server.server_address[1]

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: bytes) -> bytes:
        """The answer to a request, correlation id first."""
        key, version, correlation, client_size = struct.unpack_from(">hhih", request)
        body = request[10 + max(client_size, 0) :]
        self.requested.append(key)
        oldest, newest = self.answers.apis.get(key, (1, 0))
        if not oldest <= version <= newest and key != API_VERSIONS:
            raise ConnectionError(f"request {key} v{version} is not offered")
        known = {
            API_VERSIONS: lambda: self._api_versions(0 if version == 0 else UNSUPPORTED_VERSION),
            METADATA: lambda: self._metadata(body),
            INIT_PRODUCER_ID: lambda: struct.pack(">ihqh", 0, self.answers.init_producer_id, 4711, 0),
            DESCRIBE_CONFIGS: lambda: self._configs(body),
            PRODUCE: lambda: self._produce(body, version),
        }
        return struct.pack(">i", correlation) + known[key]()

    def _api_versions(self, error: int) -> bytes:
        apis = b"".join(struct.pack(">hhh", key, *versions) for key, versions in sorted(self.answers.apis.items()))
        return struct.pack(">hi", error, len(self.answers.apis)) + apis

    def _metadata(self, body: bytes) -> bytes:
        count, at = struct.unpack_from(">i", body)[0], 4
        topics = b""
        for _ in range(max(count, 0)):
            name, at = _string(body, at)
            # One partition with leader 1 and replicas and in-sync replicas [1].
            topics += struct.pack(">h", 0) + _text(name) + struct.pack(">?i", False, 1)
            topics += struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)
        brokers = struct.pack(">ii", 1, 1) + _text("127.0.0.1") + struct.pack(">i", self.port) + struct.pack(">h", -1)
        return struct.pack(">i", 0) + brokers + _text("stub") + struct.pack(">ii", 1, max(count, 0)) + topics

    def _configs(self, body: bytes) -> bytes:
        count, at = struct.unpack_from(">i", body)[0], 4
        results = b""
        for _ in range(count):
            kind, at = body[at], at + 1
            name, at = _string(body, at)
            keys = struct.unpack_from(">i", body, at)[0]
            at += 4
            for _ in range(max(keys, 0)):
                _, at = _string(body, at)
            values = self.answers.configs.get((kind, name), {})
            error = self.answers.config_error
            results += struct.pack(">h", error) + struct.pack(">h", -1) + bytes([kind]) + _text(name)
            results += struct.pack(">i", len(values))
            for key, value in values.items():
                results += _text(key) + _text(value) + struct.pack(">?b?i", False, 5, False, 0)
        return struct.pack(">ii", 0, count) + results

    def _produce(self, body: bytes, version: int) -> bytes:
        # transactional id (null), acks, timeout, one topic with one partition
        at = 2 + 2 + 4 + 4
        topic, at = _string(body, at)
        partition, size = struct.unpack_from(">4xii", body, at)
        self.batches.append(body[at + 12 : at + 12 + size])
        error, base_offset, append_time = self.answers.produce[0]
        if len(self.answers.produce) > 1:
            self.answers.produce.pop(0)
        result = struct.pack(">ihqq", partition, error, base_offset, append_time)
        if version >= 5:
            result += struct.pack(">q", 0)
        return struct.pack(">i", 1) + _text(topic) + struct.pack(">i", 1) + result + struct.pack(">i", 0)


def _string(data: bytes, at: int) -> tuple[str, int]:
    size = struct.unpack_from(">h", data, at)[0]
    end = at + 2 + max(size, 0)
    return data[at + 2 : end].decode(), end


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
