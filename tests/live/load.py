"""Writers and readers that run while a broker's logs are cleaned."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.brokers.node import wait_until
from tests.live.ledger import Ledger, Place, Written
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from cleanerd_lab.demo.broker import Broker

KEYS: Final = 40
ABORTED_SHARE: Final = 0.3
_CONNECTIONS: Final = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})
# Errors of offset queries by time while leadership moves; librdkafka does not retry these.
_LEADERSHIP: Final = frozenset({
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.OFFSET_NOT_AVAILABLE, KafkaError._TIMED_OUT,
    KafkaError._DESTROY_BROKER, KafkaError._UNKNOWN_PARTITION, KafkaError._TIMED_OUT_QUEUE,
    *_CONNECTIONS,
})  # fmt: skip
_VALUE_BYTES: Final = 60
_PAUSE_SECONDS: Final = 0.005
_FLUSH_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Writing:
    """A topic and its way of writing."""

    topic: str
    kind: str
    codec: str

    def properties(self) -> dict[str, Any]:
        """Properties of the producer."""
        own: dict[str, Any] = {
            "plain": {"acks": "all"},
            "idempotent": {"enable.idempotence": True},
            # This is also the delivery timeout of a message, and a broker may be away for that long.
            "transactional": {"transactional.id": f"id-{self.topic}", "transaction.timeout.ms": 300_000},
        }[self.kind]
        return {"compression.type": self.codec, "linger.ms": 5, "batch.size": 3000, **own}


WRITINGS: Final = (
    Writing("plain-none", "plain", "none"),
    Writing("plain-gzip", "plain", "gzip"),
    Writing("idempotent-lz4", "idempotent", "lz4"),
    Writing("idempotent-snappy", "idempotent", "snappy"),
    Writing("transactional-zstd", "transactional", "zstd"),
)


def topic_config(broker: Broker, segment_bytes: int = 20_000, **more: str) -> dict[str, str]:
    """Settings of a compacted topic with small segments that only cleanerd cleans (the broker's dirty ratio is 1)."""
    key = "segment.bytes" if broker.version.startswith("3.") else "internal.segment.bytes"
    return {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "1",
        "file.delete.delay.ms": "500",
        "index.interval.bytes": "512",
        "segment.index.bytes": "65536",
        key: str(segment_bytes),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def create_topics(
    broker: Broker, topics: Sequence[str], *, partitions: int = 1, segment_bytes: int = 20_000, **more: str
) -> None:
    """Create compacted topics with small segments that only cleanerd cleans (the broker's dirty ratio is 1)."""
    config = topic_config(broker, segment_bytes, **more)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(t, partitions, 1, config=config) for t in topics]).values():
        future.result()
    # the response arrives before the broker has created the directories
    names = [f"{topic}-{number}" for topic in topics for number in range(partitions)]
    wait_until("the partitions are there", lambda: all(any((d / n).is_dir() for d in broker.log_dirs) for n in names))


def drop_pending(producer: Producer) -> None:
    """Forget what a fenced producer has not sent. To flush it instead may crash the client when it reports them."""
    with suppress(KafkaException):
        producer.purge(blocking=False)


@dataclass
class Load:
    """Threads that write and read until the block ends; without an error they flush and stop in order.

    ``to_the_end``: full reads continue after the last retained record, as far as their isolation level allows.
    ``tombstones``: the share of records without a value; such a key may be missing.
    """

    broker: Broker
    writings: Sequence[Writing] = WRITINGS
    partitions: int = 1
    brokers_come_and_go: bool = False
    to_the_end: bool = False
    tombstones: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)
    full_reads: int = 0
    times_requested: int = 0
    committed_seen: dict[Place, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.places = [Place(w.topic, p) for w in self.writings for p in range(self.partitions)]

    def __enter__(self) -> Self:
        jobs: list[Callable[[], None]] = [lambda w=writing: self._write(w) for writing in self.writings]  # type: ignore[misc]
        jobs += [lambda: self._read("read_committed"), lambda: self._read("read_uncommitted"), self._ask_times]
        for job in jobs:
            thread = threading.Thread(target=self._guarded, args=(job,), daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:  # noqa: BLE001 - it must be seen in the test, not in a thread
            # An error that the client reports while it calls back is the cause of a SystemError.
            self.ledger.complain(f"{type(error).__name__}: {error} ({error.__cause__!r})")

    def on_error(self, error: KafkaError) -> None:
        if self.brokers_come_and_go and error.code() in {*_CONNECTIONS, KafkaError.INVALID_TXN_STATE}:
            return  # `_write` handles transaction errors itself
        self.ledger.complain(f"client error: {error}")

    # -- writing ------------------------------------------------------------------------------------------------------

    def _write(self, writing: Writing) -> None:
        producer = self._producer(writing)
        transactional = writing.kind == "transactional"
        dice = random.Random(writing.topic)
        number = 0
        while not self._stop.is_set():
            if not transactional:
                for _ in range(10):
                    self._send(producer, writing, dice, number, self.ledger.add, self.ledger.complain)
                    number += 1
                producer.poll(0)
                time.sleep(_PAUSE_SECONDS * 10)
                continue
            producer.begin_transaction()
            batch: list[tuple[Place, int, Written]] = []
            failed: list[str] = []
            complain = failed.append if self.brokers_come_and_go else self.ledger.complain
            for _ in range(10):
                self._send(producer, writing, dice, number, lambda *record, batch=batch: batch.append(record), complain)
                number += 1
            try:
                if self.flush(producer, failed):
                    aborted = self.end(producer, aborted=dice.random() < ABORTED_SHARE)
                else:
                    producer, aborted = self._replacement(producer, writing), True
            except KafkaException as error:
                if not self.brokers_come_and_go or error.args[0].code() != KafkaError.INVALID_TXN_STATE:
                    raise
                # A broker died before it answered the first try. A new producer ends any open transaction.
                producer = self._producer(writing)
                aborted = not batch or not self._is_committed(*batch[-1][:2])
            if failed and not aborted:
                self.ledger.complain(f"a transaction was committed without some of its records: {failed[:3]}")
            for place, offset, record in batch:
                self.ledger.add(place, offset, record, aborted=aborted)
            time.sleep(_PAUSE_SECONDS * 10)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def _producer(self, writing: Writing) -> Producer:
        producer = Producer({
            "bootstrap.servers": self.broker.bootstrap, "error_cb": self.on_error, **writing.properties()
        })  # fmt: skip
        if writing.kind == "transactional":
            producer.init_transactions(PATIENCE_SECONDS)
        return producer

    def _consumer(self, isolation: str, *, to_the_end: bool) -> Consumer:
        return Consumer({
            "bootstrap.servers": self.broker.bootstrap, "group.id": "reader", "enable.auto.commit": False,
            "isolation.level": isolation, "error_cb": self.on_error, "fetch.wait.max.ms": 50,
            "enable.partition.eof": to_the_end, "auto.offset.reset": "earliest",
        })  # fmt: skip

    def _is_committed(self, place: Place, offset: int) -> bool:
        """Whether a read_committed consumer sees this record.

        It is the last of its transaction, so no cleaning removed it.
        """
        consumer = self._consumer("read_committed", to_the_end=True)
        deadline = time.monotonic() + PATIENCE_SECONDS
        try:
            consumer.assign([TopicPartition(place.topic, place.partition, offset)])
            while time.monotonic() < deadline:
                for message in consumer.consume(1, 1.0):
                    error = message.error()
                    if error is None or (
                        error.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) > offset
                    ):
                        return error is None and message.offset() == offset
        finally:
            consumer.close()
        raise TimeoutError(f"{place} at {offset}: neither committed nor aborted")

    def _replacement(self, producer: Producer, writing: Writing) -> Producer:
        """A new producer, which aborts the transaction of ``producer``; its pending records are dropped."""
        successor = self._producer(writing)
        drop_pending(producer)
        return successor

    def flush(self, producer: Producer, failed: list[str]) -> bool:
        """Wait until the transaction's records are sent; returns whether none is pending.

        While brokers stop and start it may fail. A leader that cannot reach a dead coordinator refuses records.
        librdkafka has counted them already, and the next transaction waits for an abort (3.6, less often 3.3).

        A producer with pending records must not abort and go on. librdkafka then gives their sequence numbers to the
        next batch. If the broker has stored the pending one, it acknowledges the next batch with the offset of the
        aborted records, and does not store it.
        """
        if not self.brokers_come_and_go:
            return producer.flush(PATIENCE_SECONDS) == 0
        for _ in range(_FLUSH_SECONDS):
            if failed or producer.flush(1) == 0:
                break
        return len(producer) == 0

    def end(self, producer: Producer, *, aborted: bool) -> bool:
        """End the transaction, with retries while brokers stop and start. Returns whether it was aborted."""
        limit = 30 if self.brokers_come_and_go else PATIENCE_SECONDS
        while True:
            try:
                (producer.abort_transaction if aborted else producer.commit_transaction)(limit)
            except KafkaException as error:
                if not self.brokers_come_and_go:
                    raise
                if error.args[0].txn_requires_abort():
                    aborted = True
                elif not error.args[0].retriable():
                    raise
            else:
                return aborted

    def _send(
        self,
        producer: Producer,
        writing: Writing,
        dice: random.Random,
        number: int,
        acknowledged: Callable[[Place, int, Written], None],
        complain: Callable[[str], None],
    ) -> None:
        place = Place(writing.topic, dice.randrange(self.partitions))
        key: bytes = b"k%d" % dice.randrange(KEYS)
        value: bytes | None = b"%d:" % number + os.urandom(_VALUE_BYTES).hex().encode()
        if self.tombstones and dice.random() < self.tombstones:
            value = None

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                complain(f"not delivered: {error}")
                return
            acknowledged(place, message.offset(), Written(key, value, message.timestamp()[1]))

        producer.produce(place.topic, key=key, value=value, partition=place.partition, on_delivery=delivered)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read(self, isolation: str) -> None:
        while not self._stop.is_set():
            if not any(self.ledger.expected(place) for place in self.places):
                time.sleep(0.1)
                continue
            self.read_all(isolation)
            self.full_reads += 1

    def read_all(self, isolation: str) -> dict[Place, dict[int, tuple[bytes, bytes | None]]]:
        """Read from the beginning at least to the last acknowledged offset; every retained record must appear."""
        consumer = self._consumer(isolation, to_the_end=self.to_the_end)
        try:
            return self._read_until_found(consumer, isolation)
        finally:
            consumer.close()

    def _read_until_found(
        self, consumer: Consumer, isolation: str
    ) -> dict[Place, dict[int, tuple[bytes, bytes | None]]]:
        missing = {
            (place, key): offset
            for place in self.places
            for key, offset in self.ledger.expected(place).items()
            if not self.tombstones or ((found := self.ledger.at(place, offset)) is not None and found.value is not None)
        }
        consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in self.places])
        found: dict[Place, dict[int, tuple[bytes, bytes | None]]] = {place: {} for place in self.places}
        last = dict.fromkeys(self.places, -1)
        unread = set(self.places if self.to_the_end else ())
        deadline = time.monotonic() + PATIENCE_SECONDS
        while missing or unread:
            for message in consumer.consume(500, 0.05 if self.to_the_end else 1.0):
                place, offset = Place(message.topic() or "", message.partition() or 0), message.offset() or 0
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(place)
                    continue
                if error is not None:
                    self.ledger.complain(f"{isolation}: {error}")
                    continue
                self._check_read(place, offset, message.key(), message.value(), isolation, last)
                found[place][offset] = (message.key() or b"", message.value())
                wanted = missing.get((place, message.key() or b""))
                if wanted is not None and wanted <= offset:
                    del missing[place, message.key() or b""]
            missing = {at: offset for at, offset in missing.items() if not self.ledger.is_cut(at[0], offset)}
            if time.monotonic() > deadline:
                self.ledger.complain(
                    f"{isolation}: never seen: {sorted(missing.items())[:5]} of {len(missing)}, {unread}"
                )
                break
        return found

    def _check_read(
        self,
        place: Place,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        isolation: str,
        last: dict[Place, int],
    ) -> None:
        if offset <= last[place]:
            self.ledger.complain(f"{isolation}: {place}: {offset} after {last[place]}")
        last[place] = offset
        known = self.ledger.at(place, offset)
        if known is not None and (known.key, known.value) != (key, value):
            aborted = " and aborted" if offset in self.ledger.aborted[place] else ""
            self.ledger.complain(
                f"{isolation}: {place} at {offset}: read {key!r} {(value or b'')[:12]!r}, but {known.key!r} "
                f"{(known.value or b'')[:12]!r} of {known.timestamp_ms} was acknowledged{aborted}"
            )
        if isolation == "read_committed":
            self.committed_seen.setdefault(place, set()).add(offset)

    def _ask_times(self) -> None:
        consumer = Consumer({
            "bootstrap.servers": self.broker.bootstrap, "group.id": "times", "error_cb": self.on_error
        })  # fmt: skip
        dice = random.Random("times")
        while not self._stop.is_set():
            time.sleep(0.1)
            place = dice.choice(self.places)
            offsets = list(self.ledger.expected(place).values())
            if not offsets:
                continue
            written = self.ledger.at(place, dice.choice(offsets))
            assert written is not None
            queried_ms = written.timestamp_ms
            try:
                (answer,) = consumer.offsets_for_times([TopicPartition(place.topic, place.partition, queried_ms)], 60)
            except KafkaException as error:
                if not (self.brokers_come_and_go and error.args[0].code() in _LEADERSHIP):
                    self.ledger.complain(f"offsets_for_times: {error}")
                continue
            if self.brokers_come_and_go and answer.error is not None and answer.error.code() in _LEADERSHIP:
                continue
            self.times_requested += 1
            known = self.ledger.at(place, answer.offset)
            if answer.error is not None or (known is not None and known.timestamp_ms < queried_ms):
                self.ledger.complain(f"offsets_for_times: {place} at {queried_ms}: {answer}")
        consumer.close()

    # -- at the end ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """After the block: no error occurred, and every key finally has the right value."""
        assert not self.ledger.problems, self.ledger.problems[:10]
        for isolation in ("read_committed", "read_uncommitted"):
            found = self.read_all(isolation)
            for place in self.places:
                self.check_winners(place, found[place], isolation)
        for place, seen in self.committed_seen.items():
            assert not seen & self.ledger.aborted[place], place
        assert not self.ledger.problems, self.ledger.problems[:10]

    def check_winners(self, place: Place, found: Mapping[int, tuple[bytes | None, bytes | None]], whose: str) -> None:
        """The latest committed record of every key exists; for a tombstone, it or no record of its key."""
        last: dict[bytes, tuple[int, bytes | None]] = {}
        for offset in sorted(found):
            key, value = found[offset]
            if self.ledger.at(place, offset) is not None and offset not in self.ledger.aborted[place]:
                last[key or b""] = offset, value
        for key, offset in self.ledger.expected(place).items():
            if key in self.ledger.unplaced[place]:
                continue
            written = self.ledger.at(place, offset)
            assert written is not None
            expected = [(offset, written.value), *([None] if written.value is None else [])]
            assert last.get(key) in expected, (whose, place, key, offset)
