"""A small compacted topic ``t`` on a real broker: its settings, records for it, and its contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from cleanerd_lab.demo.broker import Broker

CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "segment.bytes": "1048576"}
PROPERTIES = {
    "log.segment.bytes": "1048576",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
}


def produce(broker: Broker, first: int, count: int) -> None:
    """Write ``count`` records of 100 keys; the value is the record's number."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "batch.size": 32768})
    for number in range(first, first + count):
        producer.produce("t", key=b"key-%d" % (number % 100), value=b"%d " % number + b"x" * 1000, partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0


def read(broker: Broker) -> dict[int, tuple[bytes, int]]:
    """Key and number of every record, by offset."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    partition = TopicPartition("t", 0, 0)
    _, end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=PATIENCE_SECONDS)
    consumer.assign([partition])
    found: dict[int, tuple[bytes, int]] = {}
    while max(found, default=-1) < end - 1:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None, f"only {len(found)} records arrived"
        if message.error() is None:
            found[message.offset() or 0] = (message.key() or b"", int((message.value() or b"").split()[0]))
    consumer.close()
    return found
