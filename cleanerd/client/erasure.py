"""Writes the tombstone that a topic's strategy needs to delete a key, and reads it back (U-88).

The topic is read once, committed records only. A key may be in any partition, because partitioners differ, and under a
version strategy a tombstone has to be above every known version.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

from cleanerd.client.broker_topic import BrokerTopic
from cleanerd.client.errors import ClientError
from cleanerd.client.flag_topic import FlagTopic
from cleanerd.client.kafka_flag import FlagProducer
from cleanerd.client.producer import Producer
from cleanerd.closeable import Closeable
from cleanerd.errors import DELETE_RECORDS, RefusedError
from cleanerd.policy.version import MAX_VERSION

if TYPE_CHECKING:
    from cleanerd.client.latest_state import TopicSource
    from cleanerd.client.record import ConsumedRecord
    from cleanerd.client.rules import TopicRules

READ_SECONDS: Final = 3600.0
WRITE_SECONDS: Final = 60.0


def version_above(rules: TopicRules, largest: int | None, now_ms: int) -> dict[str, int]:
    """The producer's arguments that put a record above ``largest``, the largest version of its key; None: none.

    Raises:
        RefusedError: there is no larger one.
    """
    if largest is not None and largest >= MAX_VERSION:
        raise RefusedError(
            f"a record of the key has the largest version, {largest}: no tombstone can be above it",
            hint=f"delete the records up to it with {DELETE_RECORDS}",
        )
    if rules.strategy == "timestamp":
        return {"timestamp_ms": max(now_ms, -1 if largest is None else largest + 1)}
    return {"version": 0 if largest is None else largest + 1} if rules.strategy == "header" else {}


class KeyEraser(Closeable):
    """One key of one topic. ``confluent`` and ``kafka_python``: the connection, as options of the two libraries.

    ``source``: reads the topic; None: over that connection.

    Raises:
        ClientError: a client library refuses the settings.
    """

    def __init__(
        self,
        topic: str,
        key: bytes,
        rules: TopicRules,
        *,
        confluent: dict[str, Any],
        kafka_python: dict[str, Any],
        read_seconds: float = READ_SECONDS,
        source: TopicSource | None = None,
    ) -> None:
        self._topic, self._key, self._rules = topic, key, rules
        self._confluent, self._kafka_python = confluent, kafka_python
        self._read_seconds = read_seconds
        by_flag = rules.tombstone_mode == "flag"
        if source is None:
            source = FlagTopic(topic, rules, **kafka_python) if by_flag else BrokerTopic(confluent, topic, rules)
        self._source = source
        self.winners: dict[int, ConsumedRecord] = {}
        """By partition with the key, its winning record."""
        self.largest_version: int | None = None
        self.records = 0

    def read(self) -> None:
        """Read to the current end.

        Raises ClientError: the topic cannot be read to its end.
        """
        for number, beginning in self._source.begin().items():
            if beginning.again:
                self.winners.pop(number, None)
        for record in self._source.records(self._read_seconds):
            if record.key != self._key:
                continue
            self.records += 1
            if record.version is not None:
                known = self.largest_version
                self.largest_version = record.version if known is None else max(known, record.version)
            held = self.winners.get(record.partition)
            if held is None or held.rank < record.rank:
                self.winners[record.partition] = record

    @property
    def to_write(self) -> list[int]:
        """The partitions in which a value wins."""
        return sorted(number for number, record in self.winners.items() if not record.is_tombstone())

    def write(self, now_ms: int) -> None:
        """Write a tombstone to each of them, and read back that it wins there.

        Raises:
            RefusedError: no version is above the largest one.
            ClientError: the broker refuses it, or another record wins.
        """
        partitions, values = self.to_write, version_above(self._rules, self.largest_version, now_ms)
        if self._rules.tombstone_mode == "flag":
            self._write_flags(partitions, values)
        else:
            self._write_records(partitions, values)
        self.read()
        if self.to_write:
            raise ClientError(
                f"the tombstone was written, but a value still wins in partition {', '.join(map(str, self.to_write))}",
                where=self._topic,
                hint="a producer wrote the key again, or the broker changed the record: check message.timestamp.type "
                "and compression.type of the topic, then request again",
            )

    def _write_records(self, partitions: list[int], values: dict[str, int]) -> None:
        failed: list[str] = []
        with Producer({**self._confluent, "acks": "all"}, self._rules) as producer:
            for number in partitions:
                producer.produce(
                    self._topic,
                    self._key,
                    None,
                    tombstone=True,
                    partition=number,
                    on_delivery=lambda each: failed.append(str(each.error)) if each.error is not None else None,
                    version=values.get("version"),
                    timestamp_ms=values.get("timestamp_ms"),
                )
            left = producer.flush(WRITE_SECONDS)
        if failed or left:
            why = failed[0] if failed else f"no answer within {WRITE_SECONDS:g} s"
            raise ClientError(f"the tombstone could not be written: {why}", where=self._topic)

    def _write_flags(self, partitions: list[int], values: dict[str, int]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reading back shows whether the flag was stored
            producer = FlagProducer(self._rules, **{**self._kafka_python, "acks": "all"})
            with producer:
                sent = [
                    producer.send(
                        self._topic,
                        self._key,
                        None,
                        tombstone=True,
                        partition=number,
                        version=values.get("version"),
                        timestamp_ms=values.get("timestamp_ms"),
                    )
                    for number in partitions
                ]
                producer.flush(WRITE_SECONDS)
            for each in sent:
                if each.failed():
                    raise ClientError(f"the tombstone could not be written: {each.exception}", where=self._topic)

    def close(self) -> None:
        """Close the connections of the consumer that finds the versions."""
        self._source.close()
