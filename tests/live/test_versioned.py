"""A topic of the header strategy, cleaned live while late writes come in: at every moment every key is right."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cleanerd.format.names import TopicPartition as Name
from cleanerd.policy.version import encode_version, parse_version
from cleanerd.verify.partition import Question, verify_partition
from tests.live.load import create_topics
from tests.live.rounds import Rounds, with_agent
from tests.live.scene import directory_of
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

TOPIC: Final = "versions"
KEYS: Final = 30
LATE_SHARE: Final = 0.3
STRATEGY: Final = (f"topics.{TOPIC}.compaction.strategy=header", f"topics.{TOPIC}.compaction.strategy.header=version")
NO_LAG: Final = str(2**63 - 1)

Rank = tuple[int, int]
"""Version and offset."""


class LateWriter:
    """Writes until it is stopped: a third of its records are older than what their key has already."""

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
        """By key, of what was acknowledged so far."""
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


def read(broker: Broker, expected: dict[bytes, tuple[Rank, bytes | None]]) -> dict[bytes, tuple[Rank, bytes | None]]:
    """Read from the beginning until every key has the expected version or a later one; the winners of what was read."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "v", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[bytes, tuple[Rank, bytes | None]] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while any(found.get(key, ((-1, -1), None))[0] < rank for key, (rank, _) in expected.items()):
            assert time.monotonic() < deadline, "a winner is not readable"
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


def test_late_writes_while_swaps_run(broker_43: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R280-10, U-2, U-3: the highest version stays wherever it lies, and higher offsets that lost go."""
    broker = broker_43(jvm_args=with_agent())
    create_topics(broker, [TOPIC], segment_bytes=15_000, max_compaction_lag_ms=NO_LAG)
    rounds = Rounds(broker, tmp_path / "state", STRATEGY)
    rounds.note_swaps(monkeypatch)
    deadline = time.monotonic() + PATIENCE_SECONDS
    with LateWriter(broker) as writer:
        while len(rounds.dropping) < 12:
            assert time.monotonic() < deadline, [result.reason for result in rounds.results[-3:]]
            rounds.clean()
            expected = writer.winners()
            seen = read(broker, expected)
            assert all(seen[key][0] >= rank for key, (rank, _) in expected.items())
            time.sleep(0.6)
    rounds.clean()
    assert writer.problems == []
    assert [result.reason for result in rounds.results if result.error is not None] == []
    assert read(broker, writer.winners()) == writer.winners()
    assert any(rank[1] < writer.highest[key] for key, (rank, _) in writer.winners().items()), "U-26"
    assert {result.strategy for result in rounds.results} == {"header"}
    assert not (broker.log_dirs[0] / "cleaner-offset-checkpoint").read_text().count(TOPIC), "U-10: not Kafka's rules"


def test_not_delegated(rounds: Rounds) -> None:
    """U-8: by what the broker itself goes by; nothing is asked of it."""
    rounds.assignments = tuple(words.replace(TOPIC, "not-delegated") for words in STRATEGY)
    create_topics(rounds.broker, ["not-delegated"], min_cleanable_dirty_ratio="0.9")
    (result,) = rounds.clean(Name("not-delegated", 0))
    assert result.outcome == "skipped"
    assert "cleanerd delegate" in result.reason


def test_room_that_the_broker_sets_aside(rounds: Rounds) -> None:
    """U-1, F-1: with `preallocate` the active segment ends in zeros; an expired tombstone goes all the same."""
    topic = "preallocated"
    rounds.assignments = tuple(words.replace(TOPIC, topic) for words in STRATEGY)
    create_topics(rounds.broker, [topic], preallocate="true", delete_retention_ms="0", max_compaction_lag_ms=NO_LAG)
    producer = Producer({"bootstrap.servers": rounds.broker.bootstrap})
    for version, (key, value) in enumerate([("k", b"1"), ("k", None), *((f"f{n}", b"x" * 900) for n in range(50))]):
        headers = [("version", encode_version(version, "long"))]
        producer.produce(topic, key=key.encode(), value=value, partition=0, headers=headers)
        producer.flush(PATIENCE_SECONDS)
    path = directory_of(rounds.broker, topic)
    *_, active = sorted(path.glob("*.log"))
    assert not any(active.read_bytes()[-100:]), "nothing was set aside"
    results = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not results or not results[-1].dropped.tombstone:
        assert time.monotonic() < deadline, [(result.reason, result.notes) for result in results]
        results += rounds.clean(Name(topic, 0), purge=True)
        time.sleep(0.5)
    assert [result.reason for result in results if result.error is not None] == []
    assert not any("wait" in note or "cannot be read" in note for result in results for note in result.notes)
    assert verify_partition(path, Question(time.time_ns() // 1_000_000)).findings.errors == 0
