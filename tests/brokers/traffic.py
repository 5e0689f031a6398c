"""Producers that stay open while the broker is stopped, and their records."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.brokers.ledger import Headers, Partition, Record
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from confluent_kafka import KafkaError, Message

# librdkafka requires a message's timeout to be shorter than its transaction's
PATIENCE_MS: Final = int(PATIENCE_SECONDS * 1000)
SILENT: Final = logging.getLogger("tests.brokers.clients")
SILENT.disabled = True


@dataclass(frozen=True, slots=True)
class Draft:
    """A record to be written. ``timestamp_ms`` may be replaced by the broker (LogAppendTime)."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


class Writer(Protocol):
    """A producer: the common interface of both client libraries."""

    name: str
    problems: list[str]

    def write(self, partition: Partition, drafts: Sequence[Draft]) -> list[Record]:
        """Write, wait for all acknowledgements, return the acknowledged records."""
        ...

    def close(self) -> None: ...


class Librdkafka:
    """confluent-kafka, idempotent by default. ``problems``: its errors besides deliveries."""

    def __init__(self, name: str, bootstrap: str, **config: Any) -> None:
        self.name = name
        self.problems: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "message.timeout.ms": PATIENCE_MS,
                "reconnect.backoff.max.ms": 500,
                "error_cb": self._complain,
                **config,
            },
            logger=SILENT,
        )

    def write(self, partition: Partition, drafts: Sequence[Draft]) -> list[Record]:
        acknowledged: list[Record] = []
        for draft in drafts:
            self.send(partition, draft, acknowledged)
        assert self._producer.flush(PATIENCE_SECONDS) == 0, f"{self.name}: {partition}: not all was acknowledged"
        assert len(acknowledged) == len(drafts), f"{self.name}: {partition}: {self.problems}"
        return acknowledged

    def send(self, partition: Partition, draft: Draft, acknowledged: list[Record]) -> None:
        """Write one record; a later poll or flush appends the acknowledgement to ``acknowledged``."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            # exceptions raised in this callback would be lost
            offset = message.offset()
            if error is not None or offset is None:
                self.problems.append(f"{partition}: {error or 'acknowledged without an offset'}")
                return
            _, timestamp_ms = message.timestamp()
            acknowledged.append(Record(offset, timestamp_ms, draft.key, draft.value, draft.headers))

        self._producer.produce(
            partition.topic,
            partition=partition.number,
            key=draft.key,
            value=draft.value,
            timestamp=draft.timestamp_ms,
            headers=list(draft.headers),
            on_delivery=delivered,
        )
        self._producer.poll(0)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)

    def _complain(self, error: KafkaError) -> None:
        # an absent broker is the subject of these tests
        if error.fatal() or error.name() not in {"_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE"}:
            self.problems.append(f"{error.name()}: {error}")


class Transactional(Librdkafka):
    """Every write is one transaction; ``abort`` is one that consumers must never see."""

    def __init__(self, name: str, bootstrap: str) -> None:
        super().__init__(name, bootstrap, **{"transactional.id": name, "transaction.timeout.ms": PATIENCE_MS})
        self._producer.init_transactions(PATIENCE_SECONDS)

    def write(self, partition: Partition, drafts: Sequence[Draft]) -> list[Record]:
        self._producer.begin_transaction()
        records = super().write(partition, drafts)
        self._producer.commit_transaction(PATIENCE_SECONDS)
        return records

    def abort(self, partition: Partition, drafts: Sequence[Draft]) -> list[Record]:
        records = self.leave_open(partition, drafts)
        self._producer.abort_transaction(PATIENCE_SECONDS)
        return records

    def leave_open(self, partition: Partition, drafts: Sequence[Draft]) -> list[Record]:
        """Write and neither commit nor abort."""
        self._producer.begin_transaction()
        return super().write(partition, drafts)

    def commit(self) -> None:
        """Commit the open transaction."""
        self._producer.commit_transaction(PATIENCE_SECONDS)


class KafkaPython:
    """kafka-python, with or without idempotence."""

    def __init__(self, name: str, bootstrap: str, *, idempotent: bool, codec: str | None = None) -> None:
        self.name = name
        self.problems: list[str] = []
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=idempotent,
            acks="all",
            compression_type=codec,
            linger_ms=2,
            batch_size=2048,
            reconnect_backoff_max_ms=500,
        )

    def write(self, partition: Partition, drafts: Sequence[Draft]) -> list[Record]:
        # it refuses null as a header's value
        drafts = [
            replace(draft, headers=tuple((name, value or b"") for name, value in draft.headers)) for draft in drafts
        ]
        futures = [
            self._producer.send(
                partition.topic,
                partition=partition.number,
                key=draft.key,
                value=draft.value,
                timestamp_ms=draft.timestamp_ms,
                headers=list(draft.headers),
            )
            for draft in drafts
        ]
        self._producer.flush(timeout=PATIENCE_SECONDS)
        answers = [future.get(timeout=PATIENCE_SECONDS) for future in futures]
        return [
            Record(answer.offset, answer.timestamp, draft.key, draft.value, draft.headers)
            for draft, answer in zip(drafts, answers, strict=True)
        ]

    def close(self) -> None:
        self._producer.close(timeout=0)


@dataclass(slots=True)
class Drafts:
    """Generates records: few hot keys, some rare ones, deletes, headers, unordered timestamps. Seeded."""

    random: random.Random
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    count: int = 0

    def make(
        self,
        count: int,
        writer: str,
        *,
        hot_keys: int = 40,
        rare: float = 0.1,
        deletes: float = 0.1,
        keyless: float = 0.0,
    ) -> list[Draft]:
        """``count`` drafts whose values begin with the writer's name."""
        return [self._one(writer, hot_keys, rare, deletes, keyless) for _ in range(count)]

    def draft(self, key: bytes, writer: str) -> Draft:
        """One record with that key."""
        self.count += 1
        return Draft(key, f"{writer}:{self.count}".encode(), self.now_ms - 3_600_000 + self.count)

    def _one(self, writer: str, hot_keys: int, rare: float, deletes: float, keyless: float) -> Draft:
        self.count += 1
        draw = self.random.random
        key: bytes | None = f"key-{self.random.randrange(hot_keys)}".encode()
        if draw() < rare:
            key = f"rare-{self.count}".encode()
        if draw() < keyless:
            key = None
        value: bytes | None = f"{writer}:{self.count}:".encode() + self.random.randbytes(40)
        if key is not None and draw() < deletes:
            value = None
        headers: Headers = (("seen-by", b"\x00\xff"), ("none", None)) if draw() < 0.2 else ()
        # An hour ago, give or take ten minutes: in the past for every clock, unordered.
        timestamp_ms = self.now_ms - 3_600_000 + self.count + self.random.randrange(-600_000, 600_000)
        return Draft(key, value, timestamp_ms, headers)


def in_pieces(drafts: Sequence[Draft], size: int) -> Iterator[Sequence[Draft]]:
    """Pieces of at most ``size``, so that several writers take turns in one partition."""
    for start in range(0, len(drafts), size):
        yield drafts[start : start + size]
