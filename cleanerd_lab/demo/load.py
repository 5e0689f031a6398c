"""Continuous load while cleanerd works: racing producers, readers that start over and over, and a model.

The model has one entry per key, the expected winner and the last record, from what the broker acknowledged. Timestamps
begin in the past and advance faster than the clock, so that segments end every few seconds with few bytes.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from cleanerd.client.producer import Producer
from cleanerd.errors import CleanerdError
from cleanerd_lab.demo.broker import BrokerError
from cleanerd_lab.demo.patience import PATIENCE_SECONDS
from cleanerd_lab.demo.race import DELETE_SHARE, LATE_SHARE, UNVERSIONED_SHARE, RaceUpdate
from cleanerd_lab.demo.reading import read_with_confluent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cleanerd.client.delivery import Delivery
    from cleanerd.client.rules import TopicRules

PARTITIONS: Final = 3
KEYS: Final = 1_500
RACERS: Final = 3
LATE_BY: Final = 3_000
"""An update is delayed by at most this many others."""

SEGMENT_MS: Final = 240_000
TIME_FACTOR: Final = 60
"""A second of the demonstration is a minute in its records: a segment ends every four seconds."""
START_MS: Final = -5 * 3_600_000
"""The first record's timestamp, relative to now."""
LAST_MS: Final = -3 * SEGMENT_MS
"""The latest timestamp, relative to now, except that of the last record."""

ROLL_KEY: Final = b"roll"
_ROUND_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 0.5


@dataclass(slots=True)
class ExpectedKey:
    """One key: the expected winner by the topic's rules, and the last record whatever its version."""

    standing: tuple[bool, int, int]
    value: bytes | None
    last_offset: int
    last_value: bytes | None


@dataclass(slots=True)
class Model:
    """The acknowledged records of a topic. A key is in one partition, so its offsets can be compared."""

    keys: dict[bytes, ExpectedKey] = field(default_factory=dict)
    last_offsets: dict[int, int] = field(default_factory=dict)
    records: int = 0
    bytes_written: int = 0
    out_of_order: int = 0
    deletes: int = 0
    slowest_ms: float = 0.0
    errors: list[str] = field(default_factory=list)

    def take(self, update: RaceUpdate, offset: int, partition: int = 0) -> None:
        """Add one acknowledged record. Reports of different producers come in any order."""
        self.records += 1
        self.last_offsets[partition] = max(offset, self.last_offsets.get(partition, offset))
        self.deletes += update.value is None
        standing = (update.version is not None, update.version or 0, offset)
        known = self.keys.get(update.key)
        if known is None:
            self.keys[update.key] = ExpectedKey(standing, update.value, offset, update.value)
            return
        if offset > known.last_offset:
            self.out_of_order += standing < known.standing
            known.last_offset, known.last_value = offset, update.value
        if standing > known.standing:
            known.standing, known.value = standing, update.value

    def expected(self) -> dict[bytes, bytes | None]:
        """Each key's value by the topic's rules."""
        return {key: known.value for key, known in self.keys.items()}

    def last_values(self) -> dict[bytes, bytes | None]:
        """Each key's value at its highest offset."""
        return {key: known.last_value for key, known in self.keys.items()}


def endless(seed: int, *, versioned: bool) -> Iterator[RaceUpdate]:
    """Endless updates in the order of their arrival. Versioned ones are sometimes late, or have no version."""
    source = random.Random(seed)  # noqa: S311 - the same traffic in every run, nothing secret
    held_up: list[tuple[int, int, RaceUpdate]] = []
    number = 0
    while True:
        number += 1
        key = b"key-%06d" % source.randrange(KEYS)
        value = None if source.random() < DELETE_SHARE else b'{"update":%d,"seal":"%s"}' % (number, _seal(source))
        version = number if versioned and source.random() >= UNVERSIONED_SHARE else None
        update = RaceUpdate(key, version, value)
        if versioned and source.random() < LATE_SHARE:
            heapq.heappush(held_up, (number + source.randrange(1, LATE_BY), number, update))
        else:
            yield update
        while held_up and held_up[0][0] <= number:
            yield heapq.heappop(held_up)[2]


def _seal(source: random.Random) -> bytes:
    return source.randbytes(50).hex().encode()


class Writer(threading.Thread):
    """Writes ``rate`` records per second to one topic until it is stopped. Use ``model`` after its end."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        rules: TopicRules,
        *,
        rate: int,
        seed: int,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__(name=f"writer of {topic}", daemon=True)
        self._clock_ns = clock_ns
        self.topic = topic
        self.model = Model()
        self._servers = bootstrap
        self._rules = rules
        self._rate = rate
        self._seed = seed
        self._begun_ms = clock_ns() // 1_000_000
        self._stop_now = threading.Event()

    def abandon(self) -> None:
        """Send no more records, without waiting for outstanding ones."""
        self._stop_now.set()

    def stop(self) -> None:
        """Send no more records; wait until all are acknowledged.

        Raises:
            BrokerError: some were not.
        """
        self.abandon()
        if self.ident is not None:
            self.join(PATIENCE_SECONDS)
        if self.is_alive() or self.model.errors:
            reason = self.model.errors[0] if self.model.errors else "no answer in time"
            raise BrokerError(f"records of {self.topic} were not acknowledged: {reason}")

    def run(self) -> None:
        """Produce in short rounds, in which each producer sends its share in random order."""
        try:
            self._write()
        except (CleanerdError, KafkaException) as error:
            self.model.errors.append(str(error))

    def _write(self) -> None:
        config = {"bootstrap.servers": self._servers, "linger.ms": 10, "log_level": 0}
        racers = [Producer(config, self._rules) for _ in range(RACERS)]
        old_program = Producer(config)
        source = random.Random(self._seed)  # noqa: S311 - as above
        updates = endless(self._seed, versioned=self._rules.strategy == "header")
        started, sent = time.monotonic(), 0
        while not self._stop_now.wait(_ROUND_SECONDS):
            due = int((time.monotonic() - started) * self._rate)
            for _ in range(due - sent):
                update = next(updates)
                self._send(old_program if update.version is None else source.choice(racers), update)
            sent = max(sent, due)
            for each in (*racers, old_program):
                each.poll()
        for each in (*racers, old_program):
            each.flush(PATIENCE_SECONDS)
        self._roll(old_program)
        if self.model.records != sent + PARTITIONS and not self.model.errors:
            self.model.errors.append("no answer in time")

    def _roll(self, producer: Producer) -> None:
        """A record with a late timestamp: every partition begins a new segment, so earlier ones can be cleaned."""
        now_ms = self._clock_ns() // 1_000_000
        for partition in range(PARTITIONS):
            update = RaceUpdate(ROLL_KEY + b"%d" % partition, None, b"")
            self._send(producer, update, partition=partition, timestamp_ms=now_ms)
        producer.flush(PATIENCE_SECONDS)

    def _send(
        self, producer: Producer, update: RaceUpdate, *, partition: int | None = None, timestamp_ms: int | None = None
    ) -> None:
        handed_over = time.monotonic()
        model = self.model

        def report(delivery: Delivery) -> None:
            model.slowest_ms = max(model.slowest_ms, 1000 * (time.monotonic() - handed_over))
            if delivery.error is not None or delivery.offset is None:
                model.errors.append(str(delivery.error or "the offset is not known"))
            else:
                model.take(update, delivery.offset, delivery.partition)

        model.bytes_written += len(update.key) + len(update.value or b"")
        producer.produce(
            self.topic,
            update.key,
            update.value,
            version=update.version,
            partition=partition,
            timestamp_ms=self._timestamp_ms() if timestamp_ms is None else timestamp_ms,
            on_delivery=report,
        )

    def _timestamp_ms(self) -> int:
        now_ms = self._clock_ns() // 1_000_000
        return min(self._begun_ms + START_MS + TIME_FACTOR * (now_ms - self._begun_ms), now_ms + LAST_MS)


class LoadReader(threading.Thread):
    """Reads topics from beginning to end, repeatedly, while segments are swapped."""

    def __init__(self, bootstrap: str, topics: tuple[str, ...]) -> None:
        super().__init__(name="reader", daemon=True)
        self.readings = 0
        self.records = 0
        self.errors: list[str] = []
        self._servers = bootstrap
        self._topics = topics
        self._stop_now = threading.Event()

    def abandon(self) -> None:
        """Begin no further reading."""
        self._stop_now.set()

    def stop(self) -> None:
        """Complete the current reading and stop."""
        self.abandon()
        if self.ident is not None:
            self.join(PATIENCE_SECONDS)

    def run(self) -> None:
        """Read one partition after the other."""
        while not self._stop_now.is_set():
            for topic in self._topics:
                for partition in range(PARTITIONS):
                    self._read(topic, partition)
                    if self._stop_now.wait(_PAUSE_SECONDS):
                        return

    def _read(self, topic: str, partition: int) -> None:
        try:
            read = read_with_confluent(self._servers, topic, partition)
        except (CleanerdError, KafkaException) as error:
            self.errors.append(str(error))
            return
        self.readings += 1
        self.records += len(read.records)
