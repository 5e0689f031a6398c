"""A consumer whose records know whether they are tombstones, with confluent-kafka (R87-7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message, TopicPartition

from cleanerd.client.errors import ClientError, FlagModeError
from cleanerd.client.record import NO_TIMESTAMP, ConsumedRecord
from cleanerd.client.rules import RulesByTopic, TopicRules
from cleanerd.closeable import Closeable


class Consumer(Closeable):
    """confluent-kafka's consumer, with :class:`ConsumedRecord` for its messages and exceptions for its errors.

    ``config`` is librdkafka's; ``rules``: those of all topics, or one each by name. ``kafka``: confluent-kafka's own
    consumer, for other functions.

    Raises:
        FlagModeError: ``rules`` have ``tombstone.mode=flag``: librdkafka shows no record attributes (U-25).
        ClientError: librdkafka refuses the settings.
    """

    def __init__(
        self, config: Mapping[str, Any], rules: TopicRules | Mapping[str, TopicRules] | None = None, **options: Any
    ) -> None:
        self._rules = RulesByTopic(rules)
        if any(each.tombstone_mode == "flag" for each in self._rules.every()):
            raise FlagModeError(
                "confluent-kafka shows no record attributes, so not the tombstone flag of KIP-87 either",
                hint="use cleanerd.client.kafka_flag, or tombstone.mode=header",
            )
        try:
            self.kafka = confluent_kafka.Consumer(dict(config), **options)
        except KafkaException as error:
            raise ClientError(f"librdkafka does not take the settings: {error}") from error

    def subscribe(self, topics: Sequence[str]) -> None:
        """Read these topics as a member of the group ``group.id``."""
        self.kafka.subscribe(list(topics))

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions from the given offsets."""
        self.kafka.assign(list(partitions))

    def poll(self, timeout_s: float) -> ConsumedRecord | None:
        """The next record; None if none came within ``timeout_s``, or at the end of a partition.

        Raises:
            ClientError: the broker or librdkafka reported an error.
        """
        message = self.kafka.poll(timeout_s)
        return None if message is None or at_end(message) else consumed(message, self._rules)

    def commit(self) -> None:
        """Commit the positions of all assigned partitions and wait for the answer.

        Raises:
            ClientError: it was refused.
        """
        try:
            self.kafka.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:  # noqa: SLF001 - its public name
                raise ClientError(f"the positions were not committed: {error}") from error

    def close(self) -> None:
        """Leave the group and close the connections."""
        self.kafka.close()


def at_end(message: Message) -> bool:
    """Whether ``message`` marks the end of its partition (``enable.partition.eof``).

    Raises:
        ClientError: it is another error.
    """
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
        return True
    raise ClientError(f"{message.topic() or 'the topic'} cannot be read: {error.str()}")


def consumed(message: Message, rules: RulesByTopic) -> ConsumedRecord:
    """A message without an error as a :class:`ConsumedRecord`."""
    topic = message.topic() or ""
    kind, timestamp_ms = message.timestamp()
    return ConsumedRecord(
        topic=topic,
        partition=_minus_one_if_none(message.partition()),
        offset=_minus_one_if_none(message.offset()),
        timestamp_ms=NO_TIMESTAMP if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((pair[0], _bytes(pair[1])) for pair in message.headers() or ()),
        rules=rules.of(topic),
    )


def _minus_one_if_none(number: int | None) -> int:
    return -1 if number is None else number


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
