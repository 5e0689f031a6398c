"""Producer and consumer for the tombstone flag of KIP-87, on kafka-python (``tombstone.mode=flag``, R87-2, R87-7).

confluent-kafka cannot do it (U-25). The flag lasts until the batch is recompressed: leave the topic's
``compression.type`` at ``producer``; a broker's own cleaner clears it (U-8, U-14).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import kafka
from kafka import errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from cleanerd.client.errors import ClientError
from cleanerd.client.kafka_flag_codec import FlagAccumulator, FlagFetcher, TombstoneHeaders
from cleanerd.client.record import ConsumedRecord
from cleanerd.client.rules import TopicRules
from cleanerd.closeable import Closeable
from cleanerd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FLAG_RULES: Final = TopicRules(tombstone_mode="flag")


class FlagProducer(Closeable):
    """Writes records to topics with ``tombstone.mode=flag``. ``configs`` are ``kafka.KafkaProducer``'s.

    Warns of a topic whose ``compression.type`` is not ``producer``, if it may read that: there the broker recompresses
    batches and clears the flag. ``kafka`` is kafka-python's own producer.

    Raises:
        ConfigError: the rules have another ``tombstone.mode``.
        ClientError: kafka-python refuses the settings, or the broker is older than message format v2.
    """

    def __init__(self, rules: TopicRules = FLAG_RULES, **configs: Any) -> None:
        self._rules = rules
        if rules.tombstone_mode != "flag":
            raise ConfigError(
                f"tombstone.mode is {rules.tombstone_mode}",
                where="client",
                hint="use cleanerd.client.producer.Producer",
            )
        try:
            self.kafka = kafka.KafkaProducer(**configs)
        except (errors.KafkaError, ValueError) as error:
            raise ClientError(f"kafka-python cannot produce: {error}") from error
        if self.kafka.config["api_version"] < (0, 11):
            self.kafka.close()
            raise ClientError("the broker is older than 0.11: its records have no attributes")
        # It makes its own accumulator and cannot be given one. Nothing has been sent yet.
        self.kafka._accumulator.__class__ = FlagAccumulator  # noqa: SLF001
        self._admin_configs = {key: value for key, value in configs.items() if key in KafkaAdminClient.DEFAULT_CONFIG}
        self._looked_at: set[str] = set()

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        tombstone: bool | None = None,
        version: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        """Queue a record; returns kafka-python's future of its metadata, whose offset is -1 where it is not known.

        ``tombstone``: None leaves it to the value, null sets the flag.

        Raises:
            TombstoneError, VersionError: see :class:`~cleanerd.client.rules.TopicRules`.
            ClientError: kafka-python does not take the record.
        """
        given = tuple(headers)
        deletes = self._rules.resolve_tombstone(value, given, tombstone)
        settled = self._rules.resolve_version(given, version)
        if topic not in self._looked_at:
            self._looked_at.add(topic)
            self._warn_of_compression(topic)
        wanted = TombstoneHeaders if deletes else list
        try:
            return self.kafka.send(
                topic, value, key, headers=wanted(settled), partition=partition, timestamp_ms=timestamp_ms
            )
        except (errors.KafkaError, TypeError, ValueError) as error:
            raise ClientError(f"cannot be sent to {topic}: {error}") from error

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all is delivered or failed.

        Raises:
            ClientError: not within ``timeout_s``.
        """
        try:
            self.kafka.flush(timeout_s)
        except errors.KafkaError as error:
            raise ClientError(f"not everything was sent: {error}") from error

    def close(self) -> None:
        """Flush and close the connections."""
        self.kafka.close()

    def _warn_of_compression(self, topic: str) -> None:
        try:
            admin = KafkaAdminClient(**self._admin_configs)
            try:
                answer = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
            finally:
                admin.close()
        except errors.KafkaError:
            return
        found = answer.get("topic", {}).get(topic, {}).get("compression.type", {}).get("value", "producer")
        if found != "producer":
            warnings.warn(
                f"compression.type of topic {topic} is {found}: the broker recompresses and clears the tombstone "
                "flag of KIP-87; set it to producer",
                stacklevel=3,
            )


class FlagConsumer(Closeable):
    """Reads records with their flags. ``configs`` are ``kafka.KafkaConsumer``'s, without deserializers.

    ``kafka`` is kafka-python's own consumer: subscribe, assign and seek with it.

    Raises:
        ClientError: kafka-python refuses the settings.
    """

    def __init__(self, *topics: str, rules: TopicRules = FLAG_RULES, **configs: Any) -> None:
        self._rules = rules
        try:
            self.kafka = kafka.KafkaConsumer(*topics, **configs)
        except (errors.KafkaError, ValueError, AssertionError) as error:
            raise ClientError(f"kafka-python cannot consume: {error}") from error
        # As in FlagProducer; nothing has been fetched yet.
        self.kafka._fetcher.__class__ = FlagFetcher  # noqa: SLF001

    def poll(self, timeout_s: float, *, max_records: int = 500) -> list[ConsumedRecord]:
        """Records that came within ``timeout_s``, perhaps none.

        Raises:
            ClientError: the broker or kafka-python reported an error.
        """
        try:
            found = self.kafka.poll(timeout_ms=int(timeout_s * 1000), max_records=max_records)
        except errors.KafkaError as error:
            raise ClientError(f"cannot be read: {error}") from error
        return [self._consumed(record) for records in found.values() for record in records]

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Records as they come; waits for more and never ends."""
        while True:
            yield from self.poll(1.0)

    def close(self) -> None:
        """Leave the group and close the connections."""
        self.kafka.close()

    def _consumed(self, record: Any) -> ConsumedRecord:
        return ConsumedRecord(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp,
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
            rules=self._rules,
            flagged=isinstance(record.headers, TombstoneHeaders),
            # kafka-python gives a checksum to the messages of v0 and v1 alone.
            magic=2 if record.checksum is None else 1,
        )
