"""A producer that knows the strategy and the tombstones of its topics, with confluent-kafka.

Tombstones follow R87-7, ``enable.idempotence`` R192-5, delivery reports R192-6. librdkafka cannot set the bit of
KIP-87: for ``tombstone.mode=flag`` see :mod:`cleanerd.client.kafka_flag` (U-25).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient

from cleanerd.client import idempotence
from cleanerd.client.delivery import Deliveries, Delivery
from cleanerd.client.errors import ClientError, FlagModeError, IdempotenceError
from cleanerd.client.rules import Headers, RulesByTopic, TopicRules
from cleanerd.errors import ConfigError

CONNECT_SECONDS: Final = 30.0
_FULL_QUEUE_POLL_SECONDS: Final = 0.1

_REPORTS: Final = "give on_delivery= to produce()"
_NOT_OURS: Final = {
    "transactional.id": "use confluent_kafka.Producer with the headers of TopicRules.version_pair and tombstone_pair",
    "on_delivery": _REPORTS,
    "delivery_cb": _REPORTS,
    "dr_cb": _REPORTS,
}


class Producer:
    """Writes records that fit the topic's strategy and tombstone mode.

    ``config`` is librdkafka's, except that ``enable.idempotence`` accepts ``requested`` (the default), ``required`` and
    ``off``. The first two query a broker when the producer is created, and the topic's configuration before its first
    record. ``rules``: those of all topics, or one each by name. Not thread-safe.

    Raises:
        ConfigError: an invalid ``enable.idempotence``, or a key that only confluent-kafka's own producer accepts.
        IdempotenceError: it is required and not supported; or no broker answered within ``connect_timeout_s``.
        FlagModeError: ``rules`` have ``tombstone.mode=flag``.
        ClientError: librdkafka refuses the settings.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        rules: TopicRules | Mapping[str, TopicRules] | None = None,
        *,
        connect_timeout_s: float = CONNECT_SECONDS,
    ) -> None:
        self._rules = RulesByTopic(rules)
        for each in self._rules.every():
            _refuse_flag(each)
        for key, hint in _NOT_OURS.items():
            if key in config:
                raise ConfigError(f"{key} is not for this producer", where="client", hint=hint)
        self._mode = idempotence.read_mode(config)
        self._config = {key: value for key, value in config.items() if key != idempotence.KEY}
        self._timeout_s = connect_timeout_s
        self._deliveries = Deliveries(acknowledged=_acks(config) != "0")
        self._producers: dict[bool, confluent_kafka.Producer] = {}
        self._why_not: dict[str, str] = {}
        self._idempotent_topics: dict[str, bool] = {}
        self._broker_can = self._mode != "off" and self._check_broker()
        self._admin = (
            AdminClient(idempotence.connection(config), logger=idempotence.SILENT) if self._broker_can else None
        )
        self._producer(idempotent=self._broker_can)

    @property
    def is_idempotent(self) -> bool:
        """Whether it writes idempotently to topics that support it."""
        return self._broker_can

    @property
    def why_not_idempotent(self) -> dict[str, str]:
        """Why ``requested`` is not on: by topic, and under "" because of the broker or the settings."""
        return dict(self._why_not)

    def produce(
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
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        """Queue a record; ``on_delivery`` is called from :meth:`poll` or :meth:`flush` when it was delivered or failed.

        ``tombstone``: None leaves it to the value, null deletes. True with a value needs ``tombstone.mode=header`` and
        adds that header. ``version`` adds the strategy's header after the caller's, because the last one counts.

        Raises:
            TombstoneError, VersionError: see :class:`~cleanerd.client.rules.TopicRules`.
            FlagModeError: the topic's tombstones are flags.
            IdempotenceError: it is required, and this topic's message format does not support it.
            ClientError: librdkafka refuses the record.
        """
        rules = self._rules.of(topic)
        given_headers: Headers = tuple(headers)
        deletes = rules.resolve_tombstone(value, given_headers, tombstone)
        given_headers = rules.resolve_version(given_headers, version)
        if rules.tombstone_mode == "header" and deletes and (tombstone or value is not None):
            given_headers = (*given_headers, rules.tombstone_pair())
        options: dict[str, Any] = {"headers": list(given_headers)}
        if partition is not None:
            options["partition"] = partition
        if timestamp_ms is not None:
            options["timestamp"] = timestamp_ms

        def report(error: KafkaError | None, message: Message) -> None:
            delivery = self._deliveries.of(error, message)
            if on_delivery is not None:
                on_delivery(delivery)

        producer = self._producer(idempotent=self._is_idempotent_for(topic))
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=report, **options)
            except BufferError:
                producer.poll(_FULL_QUEUE_POLL_SECONDS)
            except KafkaException as error:
                raise ClientError(f"cannot be produced to {topic}: {error}") from error
            else:
                return

    def poll(self, timeout_s: float = 0.0) -> int:
        """Serve delivery reports; returns how many there were.

        Raises:
            ClientError: librdkafka met a fatal error; the producer is unusable.
        """
        try:
            return sum(producer.poll(timeout_s) for producer in self._producers.values())
        except KafkaException as error:
            raise ClientError(f"the producer failed: {error}") from error

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until all records are delivered or failed; returns how many are still queued.

        ``timeout_s``: the limit per producer.

        Raises:
            ClientError: as :meth:`poll`.
        """
        try:
            return sum(
                producer.flush() if timeout_s is None else producer.flush(timeout_s)
                for producer in self._producers.values()
            )
        except KafkaException as error:
            raise ClientError(f"the producer failed: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.flush()

    def _check_broker(self) -> bool:
        reason = idempotence.broker_obstacle_reason(self._config, self._timeout_s)
        if reason is None:
            return True
        self._refuse_if_required(reason)
        self._why_not[""] = reason
        return False

    def _is_idempotent_for(self, topic: str) -> bool:
        if self._admin is None:
            return False
        if topic not in self._idempotent_topics:
            reason = idempotence.topic_obstacle_reason(self._admin, topic, self._timeout_s)
            if reason is not None:
                self._refuse_if_required(reason)
                self._why_not[topic] = reason
            self._idempotent_topics[topic] = reason is None
        return self._idempotent_topics[topic]

    def _refuse_if_required(self, reason: str) -> None:
        if self._mode == "required":
            raise IdempotenceError(
                f"{idempotence.KEY} is required, but {reason}",
                hint="with the value requested, the producer writes without it if it must",
            )

    def _producer(self, *, idempotent: bool) -> confluent_kafka.Producer:
        """Idempotence applies to a whole producer, so a topic that does not support it gets another one."""
        if idempotent not in self._producers:
            try:
                self._producers[idempotent] = confluent_kafka.Producer({**self._config, idempotence.KEY: idempotent})
            except KafkaException as error:
                raise ClientError(f"librdkafka does not take the settings: {error}") from error
        return self._producers[idempotent]


def _refuse_flag(rules: TopicRules) -> None:
    if rules.tombstone_mode == "flag":
        raise FlagModeError(
            "confluent-kafka can neither set nor see record attributes, so not the tombstone flag of KIP-87 either",
            hint="use cleanerd.client.kafka_flag, or tombstone.mode=header",
        )


def _acks(config: Mapping[str, Any]) -> str:
    return str(config.get("acks", config.get("request.required.acks", "all")))
