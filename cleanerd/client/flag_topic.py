"""A topic with flag tombstones over a broker, with kafka-python: the source of a ``LatestState`` that sees the flag."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from kafka import TopicPartition, errors

from cleanerd.client.errors import ClientError
from cleanerd.client.kafka_flag import FLAG_RULES, FlagConsumer
from cleanerd.client.latest_state import ReadingStart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cleanerd.client.record import ConsumedRecord
    from cleanerd.client.rules import TopicRules

_POLL_SECONDS: Final = 0.5
_OURS: Final = {
    "group_id": None,
    "enable_auto_commit": False,
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
}


class FlagTopic:
    """As :class:`~cleanerd.client.broker_topic.BrokerTopic`; ``configs`` are ``kafka.KafkaConsumer``'s.

    Raises:
        ClientError: kafka-python refuses the settings.
    """

    def __init__(self, topic: str, rules: TopicRules = FLAG_RULES, **configs: Any) -> None:
        self.topic = topic
        self._consumer = FlagConsumer(rules=rules, **{**configs, **_OURS})
        self._ends: dict[TopicPartition, int] = {}

    def begin(self) -> Mapping[int, ReadingStart]:
        """See :class:`~cleanerd.client.latest_state.TopicSource`.

        Raises:
            ClientError: the topic does not exist, or the broker does not answer.
        """
        client = self._consumer.kafka
        try:
            # Always queries the broker; partitions_for_topic alone may be minutes old.
            found = client.partitions_for_topic(self.topic) if self.topic in client.topics() else None
            if not found:
                raise ClientError(f"topic {self.topic} does not exist")
            partitions = [TopicPartition(self.topic, number) for number in sorted(found)]
            starts, self._ends = client.beginning_offsets(partitions), client.end_offsets(partitions)
            known = client.assignment()
            if known != set(partitions):
                positions = {partition: client.position(partition) for partition in known}
                client.assign(partitions)
                for partition in partitions:
                    client.seek(partition, positions.get(partition, starts[partition]))
            beginnings = {}
            for partition in partitions:
                position = client.position(partition)
                again = partition not in known or self._ends[partition] < position
                if again or position < starts[partition]:
                    client.seek(partition, starts[partition])
                beginnings[partition.partition] = ReadingStart(starts[partition], again)
        except errors.KafkaError as error:
            raise ClientError(f"the ends of {self.topic} are not known: {error}") from error
        return beginnings

    def reread(self, partition: int) -> None:
        """As :meth:`cleanerd.client.latest_state.TopicSource.reread`: this partition from its beginning."""
        self._consumer.kafka.seek_to_beginning(TopicPartition(self.topic, partition))

    def records(self, timeout_s: float) -> Iterator[ConsumedRecord]:
        """See :class:`~cleanerd.client.latest_state.TopicSource`.

        Raises:
            ClientError: the broker reported an error, or the end was not reached in time.
        """
        deadline = time.monotonic() + timeout_s
        while behind := self._behind():
            if time.monotonic() > deadline:
                raise ClientError(f"partitions {behind} of {self.topic} were not read to their end in {timeout_s:g} s")
            yield from self._consumer.poll(_POLL_SECONDS)

    def close(self) -> None:
        """Close the connections to the brokers."""
        self._consumer.close()

    def _behind(self) -> list[int]:
        position = self._consumer.kafka.position
        return [partition.partition for partition, end in self._ends.items() if position(partition) < end]
