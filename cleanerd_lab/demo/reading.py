"""Reads a topic from beginning to end, with two independent client libraries."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.codec import has_gzip, has_lz4, has_snappy, has_zstd

from cleanerd_lab.demo.broker import BrokerError
from cleanerd_lab.demo.patience import PATIENCE_SECONDS
from cleanerd_lab.demo.traffic import SILENT

if TYPE_CHECKING:
    from collections.abc import Callable

_BATCH: Final = 2000
_RETRY_SECONDS: Final = 0.2
_NO_LEADER_YET: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)

KAFKA_PYTHON_CODECS: Final[dict[str, Callable[[], bool]]] = {
    "none": lambda: True,
    "gzip": has_gzip,
    "snappy": has_snappy,
    "lz4": has_lz4,
    "zstd": has_zstd,
}
"""Whether kafka-python can decompress a codec here: all except gzip need additional packages."""


@dataclass(frozen=True, slots=True)
class ConsumedPartition:
    """The records that a consumer received of a partition: offset -> key and value; its end, and the log's end."""

    client: str
    records: dict[int, tuple[bytes | None, bytes | None]]
    position: int
    end_offset: int


def read_with_confluent(bootstrap: str, topic: str, number: int = 0) -> ConsumedPartition:
    """Partition ``number`` with confluent-kafka (librdkafka).

    Raises:
        BrokerError: the client reported an error, or did not reach the end in time.
    """
    partition = TopicPartition(topic, number, 0)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "cleanerd-demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        },
        logger=SILENT,
    )
    records: dict[int, tuple[bytes | None, bytes | None]] = {}
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        end = _end_offset(consumer, partition, deadline)
        consumer.assign([partition])
        while time.monotonic() < deadline:
            # consume() waits for a full batch, but the end of the log should not be delayed.
            for message in consumer.consume(_BATCH, timeout=0.1):
                error, offset = message.error(), message.offset()
                if error is None and offset is not None:
                    records[offset] = (message.key(), message.value())
                    if offset + 1 >= end:  # while producers write, the consumer never reaches the end of the log
                        return ConsumedPartition("confluent-kafka", records, offset + 1, end)
                elif error is None:
                    continue
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    position = consumer.position([partition])[0].offset
                    return ConsumedPartition("confluent-kafka", records, position, end)
                else:
                    raise BrokerError(f"confluent-kafka cannot read {topic}: {error.str()}")
    finally:
        consumer.close()
    raise BrokerError(f"confluent-kafka did not reach the end of {topic} within {PATIENCE_SECONDS:.0f} s")


def _end_offset(
    consumer: Consumer, partition: TopicPartition, deadline: float, again_seconds: float = _RETRY_SECONDS
) -> int:
    """The log end, with retries: a broker that has just started may serve before it leads its partitions.

    Raises:
        BrokerError: no leader had answered by ``deadline`` (monotonic seconds), or another error came.
    """
    while True:
        try:
            watermarks = consumer.get_watermark_offsets(partition, timeout=max(1.0, deadline - time.monotonic()))
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET or time.monotonic() >= deadline:
                raise BrokerError(f"the end of {partition.topic} is not known: {error}") from error
            time.sleep(again_seconds)
        else:
            if watermarks is None:
                raise BrokerError(f"the end of {partition.topic} is not known: no answer")
            return int(watermarks[1])


def read_with_kafka_python(bootstrap: str, topic: str) -> ConsumedPartition:
    """Read with kafka-python (pure Python).

    Raises:
        BrokerError: it did not reach the end in time.
    """
    partition = KafkaPythonPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, check_crcs=True)
    records: dict[int, tuple[bytes | None, bytes | None]] = {}
    try:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if consumer.position(partition) >= end:
                return ConsumedPartition("kafka-python", records, consumer.position(partition), end)
            for message in consumer.poll(timeout_ms=500, max_records=_BATCH).get(partition, ()):
                records[message.offset] = (message.key, message.value)
    finally:
        consumer.close()
    raise BrokerError(f"kafka-python did not reach the end of {topic} within {PATIENCE_SECONDS:.0f} s")
