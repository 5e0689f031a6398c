"""A topic over a broker, with confluent-kafka: the source of a :class:`~cleanerd.client.latest_state.LatestState`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from cleanerd.client.consumer import at_end, consumed
from cleanerd.client.errors import ClientError, FlagModeError
from cleanerd.client.latest_state import ReadingStart
from cleanerd.client.rules import RulesByTopic, TopicRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cleanerd.client.record import ConsumedRecord

_Answer = TypeVar("_Answer")

ANSWER_SECONDS: Final = 30.0
_BATCH: Final = 1000
_POLL_SECONDS: Final = 0.1
_CUT: Final = (KafkaError._LOG_TRUNCATION, KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001 - public names

_MOVING: Final = frozenset({
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE,
})  # fmt: skip
"""Leadership is moving: the next leader answers a moment later. librdkafka leaves the retry to its user."""
_RETRY_SECONDS: Final = 0.2

_GROUP: Final = {"group.id": "cleanerd-latest-state"}
"""No group is joined and nothing is committed, because partitions are assigned manually. librdkafka requires a name."""
_OURS: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
}


class BrokerTopic:
    """Reads all partitions of a topic from their log start to their last stable offset, then new records.

    ``config`` is librdkafka's: ``bootstrap.servers`` and security.

    Raises:
        FlagModeError: flags cannot be seen with confluent-kafka.
        ClientError: librdkafka refuses the settings.
    """

    def __init__(self, config: Mapping[str, Any], topic: str, rules: TopicRules | None = None) -> None:
        self.topic = topic
        self.rules = rules or TopicRules()
        if self.rules.tombstone_mode == "flag":
            raise FlagModeError(
                "confluent-kafka shows no record attributes, so not the tombstone flag of KIP-87 either",
                hint="use cleanerd.client.flag_topic.FlagTopic",
            )
        try:
            self._consumer = confluent_kafka.Consumer({**_GROUP, **config, **_OURS})
        except KafkaException as error:
            raise ClientError(f"librdkafka does not take the settings: {error}") from error
        self._next: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._void: set[int] = set()

    def begin(self) -> Mapping[int, ReadingStart]:
        """See :class:`~cleanerd.client.latest_state.TopicSource`.

        Raises:
            ClientError: the topic does not exist, or the broker does not answer.
        """
        beginnings = {}
        for partition in self._partitions():
            log_start, self._ends[partition] = self._watermarks(partition)
            known = partition in self._next
            again = not known or partition in self._void or self._ends[partition] < self._next[partition]
            if not known:
                self._consumer.incremental_assign([TopicPartition(self.topic, partition, log_start)])
                self._next[partition] = log_start
            elif again or self._next[partition] < log_start:
                self._seek(partition, log_start)
            self._void.discard(partition)
            beginnings[partition] = ReadingStart(log_start, again)
        return beginnings

    def reread(self, partition: int) -> None:
        """As :meth:`cleanerd.client.latest_state.TopicSource.reread`: this partition from its beginning."""
        self._seek(partition, OFFSET_BEGINNING)

    def records(self, timeout_s: float) -> Iterator[ConsumedRecord]:
        """See :class:`~cleanerd.client.latest_state.TopicSource`.

        Raises:
            ClientError: the broker reported an error, or the end was not reached in time.
        """
        deadline = time.monotonic() + timeout_s
        rules = RulesByTopic(self.rules)
        while behind := [partition for partition, end in self._ends.items() if self._next[partition] < end]:
            if time.monotonic() > deadline:
                raise ClientError(f"partitions {behind} of {self.topic} were not read to their end in {timeout_s:g} s")
            for message in self._consumer.consume(_BATCH, timeout=_POLL_SECONDS):
                partition, offset, error = message.partition(), message.offset(), message.error()
                if error is not None and error.code() in _CUT and partition is not None:
                    self._void.add(partition)
                if at_end(message):
                    if partition is not None and offset is not None:
                        # A marker or a cleaned end: there are no records up to here.
                        self._next[partition] = max(self._next[partition], offset)
                    continue
                record = consumed(message, rules)
                self._next[record.partition] = record.offset + 1
                yield record

    def close(self) -> None:
        """Close the connections to the brokers."""
        self._consumer.close()

    def _seek(self, partition: int, offset: int) -> None:
        try:
            self._consumer.seek(TopicPartition(self.topic, partition, offset))
        except KafkaException as error:
            raise ClientError(f"{self.topic}-{partition} cannot be read from offset {offset}: {error}") from error
        self._next[partition] = max(offset, 0)

    def _watermarks(self, partition: int) -> tuple[int, int]:
        """Log start and last stable offset."""

        def ask() -> tuple[int, int] | None:
            return self._consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=ANSWER_SECONDS)

        try:
            watermarks = _retry_while_leader_moves(ask)
        except KafkaException as error:
            raise ClientError(f"the ends of {self.topic}-{partition} are not known: {error}") from error
        if watermarks is None:
            raise ClientError(f"the ends of {self.topic}-{partition} are not known: no answer")
        return watermarks

    def _partitions(self) -> list[int]:
        def ask() -> list[int]:
            topic = self._consumer.list_topics(self.topic, timeout=ANSWER_SECONDS).topics[self.topic]
            if topic.error is not None:
                raise KafkaException(topic.error)
            return sorted(topic.partitions)

        try:
            return _retry_while_leader_moves(ask)
        except KafkaException as error:
            raise ClientError(f"topic {self.topic} cannot be described: {error.args[0].str()}") from error


def _retry_while_leader_moves(ask: Callable[[], _Answer]) -> _Answer:
    """The answer, with retries while leadership of the partition moves."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _MOVING or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
