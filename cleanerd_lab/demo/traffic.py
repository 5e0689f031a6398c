"""Real traffic: compacted topics, one per codec, written by several idempotent producers at once."""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cleanerd.format.batch import CODEC_NAMES
from cleanerd_lab.demo.broker import BrokerError
from cleanerd_lab.demo.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PRODUCERS: Final = 3
DELETE_SHARE: Final = 0.04
UPDATES_A_KEY: Final = 12
"""How often a key is written on average."""

OFF_LIMITS: Final = {"min.cleanable.dirty.ratio": "1.0"}
"""With this ratio Kafka's cleaner finds no log dirty enough."""
SPAN_MS: Final = 3_600_000
"""The records' timestamps span an hour, so that segments end by age with few bytes."""
TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(2 * 1024 * 1024),
    "segment.ms": str(SPAN_MS // 6),
    **OFF_LIMITS,
}

FLUSHES: Final = 20

_WORDS: Final = ("placed", "paid", "packed", "shipped", "delivered", "returned")


@dataclass(slots=True)
class AcknowledgedTopic:
    """The acknowledged records of one topic's only partition: offset -> key and value, None for a delete."""

    topic: str
    codec: str
    records: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)

    @property
    def deletes(self) -> int:
        """Acknowledged records without a value."""
        return sum(value is None for _, value in self.records.values())

    def last_values(self) -> dict[bytes, bytes | None]:
        """Each key's value at the highest acknowledged offset."""
        return {key: value for _, (key, value) in sorted(self.records.items())}


def topic_name(codec: str) -> str:
    """The demonstration's topic for this codec."""
    return f"orders-{codec}"


def create_topics(bootstrap: str, names: Sequence[str], config: Mapping[str, str], *, partitions: int = 1) -> None:
    """Create topics.

    Raises:
        BrokerError: the broker refused.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=SILENT)
    created = admin.create_topics(
        [NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config)) for name in names]
    )
    for name, future in created.items():
        try:
            future.result(timeout=PATIENCE_SECONDS)
        except KafkaException as error:
            raise BrokerError(f"topic {name} cannot be created: {error}") from error


def write(bootstrap: str, codec: str, records: int, *, seed: int, topic: str | None = None) -> AcknowledgedTopic:
    """Write ``records`` updates and deletes and wait until all are acknowledged.

    Raises:
        BrokerError: a record was not acknowledged.
    """
    written = AcknowledgedTopic(topic or topic_name(codec), codec)
    failed: list[KafkaError] = []

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        offset, key = message.offset(), message.key()
        if error is not None:
            failed.append(error)
        elif offset is not None and key is not None:
            written.records[offset] = (key, message.value())

    producers = [_producer(bootstrap, codec) for _ in range(PRODUCERS)]
    source = random.Random(seed)  # noqa: S311 - the same traffic in every run, nothing secret
    start_ms = time.time_ns() // 1_000_000 - SPAN_MS
    # Regularly they wait for each other; otherwise one would be done before the next one has started.
    flush_every = max(records // FLUSHES, 1)
    keys = max(records // UPDATES_A_KEY, 1)
    for number in range(records):
        producer = producers[number % PRODUCERS]
        key = b"order-%06d" % source.randrange(keys)
        value = None if source.random() < DELETE_SHARE else _value(source, number)
        while True:
            try:
                timestamp_ms = start_ms + number * SPAN_MS // records
                producer.produce(written.topic, key=key, value=value, timestamp=timestamp_ms, on_delivery=acknowledged)
                break
            except BufferError:
                producer.poll(0.1)
        if number % flush_every == 0:
            _flush(producers)
    _flush(producers)
    if failed or len(written.records) != records:
        reason = failed[0].str() if failed else "no answer in time"
        raise BrokerError(f"{records - len(written.records)} records of {topic} were not acknowledged: {reason}")
    return written


def _flush(producers: Sequence[Producer]) -> None:
    for producer in producers:
        producer.flush(PATIENCE_SECONDS)


def codecs() -> tuple[str, ...]:
    """``none`` and the four that Kafka knows."""
    return CODEC_NAMES


def _producer(bootstrap: str, codec: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 10,
            "batch.num.messages": 100,
        },
        logger=SILENT,
    )


def _value(source: random.Random, number: int) -> bytes:
    return b'{"update":%d,"status":"%s","amount":%d,"customer":"%s","delivery":{"address":"%s","attempts":%d}}' % (
        number,
        source.choice(_WORDS).encode(),
        source.randrange(100_000),
        source.randbytes(8).hex().encode(),
        source.randbytes(40).hex().encode(),
        source.randrange(4),
    )


SILENT: Final = logging.getLogger("cleanerd_lab.demo.clients")
"""The clients' messages about a starting broker are not shown."""
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
