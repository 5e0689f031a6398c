"""A writer of late records, with versions older than their key already has, and a reader of the retained ones."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from cleanerd.policy.version import encode_version, parse_version
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from cleanerd_lab.demo.broker import Broker

TOPIC: Final = "versions"
KEYS: Final = 30
LATE_SHARE: Final = 0.3
STRATEGY: Final = (f"topics.{TOPIC}.compaction.strategy=header", f"topics.{TOPIC}.compaction.strategy.header=version")
NO_LAG: Final = str(2**63 - 1)
Rank = tuple[int, int]
"""Version and offset."""


class LateWriter:
    """Writes until it is stopped; a third of its records have an older version than their key."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._dice = random.Random(7)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._lock = threading.Lock()
        self.problems: list[str] = []
        self._winners: dict[bytes, tuple[Rank, bytes | None]] = {}
        self.highest: dict[bytes, int] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_SECONDS)

    def winners(self) -> dict[bytes, tuple[Rank, bytes | None]]:
        """The retained record by key, of the acknowledged ones."""
        with self._lock:
            return dict(self._winners)

    def _write(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._broker.bootstrap, "compression.type": "lz4", "batch.size": 3000}
        )
        newest = dict.fromkeys(range(KEYS), 0)
        while not self._stop.is_set():
            for _ in range(20):
                number = self._dice.randrange(KEYS)
                if self._dice.random() < LATE_SHARE:
                    version = self._dice.randrange(newest[number] + 1)
                else:
                    version = newest[number] = newest[number] + self._dice.randrange(3)
                value = None if self._dice.random() < 0.1 else b"%d:" % version + self._dice.randbytes(60)
                self._send(producer, b"k%d" % number, version, value)
            producer.poll(0)
            time.sleep(0.03)
        if producer.flush(PATIENCE_SECONDS):
            self.problems.append("not everything was written")

    def _send(self, producer: Producer, key: bytes, version: int, value: bytes | None) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.problems.append(str(error))
                return
            with self._lock:
                rank = (version, message.offset())
                self.highest[key] = max(self.highest.get(key, -1), message.offset())
                if key not in self._winners or self._winners[key][0] < rank:
                    self._winners[key] = (rank, value)

        headers = [("version", encode_version(version, "long"))]
        producer.produce(TOPIC, key=key, value=value, partition=0, headers=headers, on_delivery=delivered)


def read_winners(
    broker: Broker, expected: dict[bytes, tuple[Rank, bytes | None]]
) -> dict[bytes, tuple[Rank, bytes | None]]:
    """Read from the beginning until every key has the expected version or a later one; returns the retained records."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "v", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[bytes, tuple[Rank, bytes | None]] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while any(found.get(key, ((-1, -1), None))[0] < rank for key, (rank, _) in expected.items()):
            assert time.monotonic() < deadline, "a retained record is not readable"
            for message in consumer.consume(500, 0.5):
                assert message.error() is None, message.error()
                ((_, data),) = message.headers() or []
                version = parse_version(data if isinstance(data, bytes) else None, "long")
                rank = (-1 if version is None else version, message.offset() or 0)
                key = message.key() or b""
                if key not in found or found[key][0] < rank:
                    found[key] = (rank, message.value())
    finally:
        consumer.close()
    return found
