"""Two client libraries without common code, each reading from the beginning to the end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as RdTopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PyTopicPartition

from tests.brokers.ledger import Partition, Record
from tests.brokers.traffic import SILENT
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class Read:
    """One partition as a consumer read it from the beginning.

    ``end`` is the end that the client reports, ``position`` the offset that it would fetch or commit next.
    """

    records: tuple[Record, ...]
    end: int
    position: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Reading:
    """All partitions, and every error that the application would have seen."""

    partitions: Mapping[Partition, Read]
    errors: tuple[str, ...]


Times = dict[Partition, list[int]]
Answers = dict[Partition, list[int | None]]


def read_with_librdkafka(
    bootstrap: str, partitions: Sequence[Partition], *, isolation: str = "read_committed"
) -> Reading:
    """Read records from the beginning until the end of every partition was reported."""
    errors: list[str] = []
    consumer = _rd_consumer(bootstrap, errors, isolation)
    try:
        consumer.assign([RdTopicPartition(p.topic, p.number, 0) for p in partitions])
        records: dict[Partition, list[Record]] = {partition: [] for partition in partitions}
        ends: dict[Partition, int] = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(ends) < len(partitions):
            assert time.monotonic() < deadline, f"no end within {PATIENCE_SECONDS} s: {set(partitions) - set(ends)}"
            for message in consumer.consume(1000, 0.2):
                partition = _rd_partition(message)
                error = message.error()
                if error is None:
                    records[partition].append(_rd_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ends[partition] = message.offset() or 0
                else:
                    errors.append(f"{partition}: {error}")
        positions = consumer.position([RdTopicPartition(p.topic, p.number) for p in partitions])
        return Reading(
            {
                partition: Read(
                    tuple(records[partition]),
                    ends[partition],
                    position.offset,
                    _rd_high_watermark(consumer, partition),
                )
                for partition, position in zip(partitions, positions, strict=True)
            },
            tuple(errors),
        )
    finally:
        consumer.close()


def _rd_consumer(bootstrap: str, errors: list[str], isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "never-commits",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "error_cb": lambda error: errors.append(str(error)),
        },
        logger=SILENT,
    )


def _rd_partition(message: Any) -> Partition:
    return Partition(message.topic(), message.partition())


def _rd_record(message: Any) -> Record:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)


def _rd_high_watermark(consumer: Consumer, partition: Partition) -> int:
    _, high = consumer.get_watermark_offsets(RdTopicPartition(partition.topic, partition.number), PATIENCE_SECONDS)
    return int(high)


def read_with_kafka_python(bootstrap: str, partitions: Sequence[Partition]) -> Reading:
    """Read committed records from the beginning until every position has reached its end offset."""
    consumer = _py_consumer(bootstrap)
    try:
        names = [PyTopicPartition(p.topic, p.number) for p in partitions]
        consumer.assign(names)
        consumer.seek_to_beginning(*names)
        ends = consumer.end_offsets(names)
        records: dict[Partition, list[Record]] = {partition: [] for partition in partitions}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while behind := [name for name in names if consumer.position(name) < ends[name]]:
            assert time.monotonic() < deadline, f"no end within {PATIENCE_SECONDS} s: {behind}"
            for name, found in consumer.poll(timeout_ms=200, max_records=5000).items():
                records[Partition(name.topic, name.partition)] += [_py_record(record) for record in found]
        return Reading(
            {
                Partition(name.topic, name.partition): Read(
                    tuple(records[Partition(name.topic, name.partition)]),
                    ends[name],
                    consumer.position(name),
                    ends[name],
                )
                for name in names
            },
            (),
        )
    finally:
        consumer.close(autocommit=False)


def _py_consumer(bootstrap: str) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        check_crcs=True,
        fetch_max_wait_ms=50,
    )


def _py_record(record: Any) -> Record:
    headers = tuple((name, value) for name, value in record.headers)
    return Record(record.offset, record.timestamp, record.key, record.value, headers)


def times_with_librdkafka(bootstrap: str, times: Times, isolation: str = "read_committed") -> Answers:
    """``offsets_for_times``; None if there is no such record below the reader's end at that ``isolation``."""
    consumer = _rd_consumer(bootstrap, [], isolation)
    try:
        answers: Answers = {partition: [] for partition in times}
        for requested in _rounds(times):
            question = [RdTopicPartition(p.topic, p.number, time_ms) for p, time_ms in requested.items()]
            for answer in consumer.offsets_for_times(question, PATIENCE_SECONDS):
                assert answer.error is None, answer
                offset = None if answer.offset == _NO_OFFSET else answer.offset
                answers[Partition(answer.topic, answer.partition)].append(offset)
        return answers
    finally:
        consumer.close()


def times_with_kafka_python(bootstrap: str, times: Times) -> Answers:
    """The same by the other library."""
    consumer = _py_consumer(bootstrap)
    try:
        answers: Answers = {partition: [] for partition in times}
        for requested in _rounds(times):
            question = {PyTopicPartition(p.topic, p.number): time_ms for p, time_ms in requested.items()}
            for name, answer in consumer.offsets_for_times(question).items():
                answers[Partition(name.topic, name.partition)].append(None if answer is None else answer.offset)
        return answers
    finally:
        consumer.close(autocommit=False)


def _rounds(times: Times) -> list[dict[Partition, int]]:
    """The i-th time of every partition in one request: a request may name a partition once."""
    longest = max(len(requested) for requested in times.values())
    return [{p: requested[i] for p, requested in times.items() if i < len(requested)} for i in range(longest)]
