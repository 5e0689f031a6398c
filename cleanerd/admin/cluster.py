"""A cluster's admin interface: a topic's configuration, read and changed key by key (kafka-python's admin client).

Changes are incremental (KIP-339): a key that is not named keeps its value. The older request, which would reset every
other key of the topic, is never sent.
"""

from __future__ import annotations

import contextlib
import logging
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import (
    AuthorizationError,
    IncompatibleBrokerVersion,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    for_code,
)

from cleanerd.admin.client_config import ClientConfig
from cleanerd.admin.refused_login import refused_login
from cleanerd.errors import CleanerdError, ConfigError, RefusedError
from cleanerd.format.config_keys import READABLE_TOPIC_KEYS
from cleanerd.format.names import TopicPartition

CONNECT_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 20.0

_AT_ONCE: Final = 500
"""Limit of topics per request."""

_ON_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"
_UNKNOWN_TOPIC: Final = 3
_ERROR_PREFIX: Final = re.compile(r"^\[Error \d+\] \w+: ")

_ACCESS_ERRORS: Final = (AuthorizationError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError)


class AccessDeniedError(RefusedError):
    """The cluster does not accept the login, or the user lacks a permission. Another user can use Kafka's own tools.

    ``changes``: the intended changes of the topic, if known by then.
    """

    changes: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key of a topic: its ``own`` value (None: not set), the ``effective`` one, and the ``inherited`` one below it.

    ``inherited`` is None if the broker reports no such value: then it is Kafka's default.
    """

    own: str | None
    effective: str
    inherited: str | None


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as the cluster reports it. ``topic_id``: None if the broker does not report it. Only keys of U-24."""

    topic: str
    topic_id: uuid.UUID | None
    values: Mapping[str, KeyValue]

    @property
    def topic_level_configs(self) -> dict[str, str]:
        """The topic's own settings, for ``resolve_topic_config(topic_configs=...)``."""
        return {key: value.own for key, value in self.values.items() if value.own is not None}


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """A partition's current state in the cluster. ``leader``: -1 without one. ``assigned``: its brokers."""

    topic_id: uuid.UUID | None
    leader: int
    isr: frozenset[int]
    assigned: frozenset[int] = frozenset()

    def why_needed(self, broker: int, topic_id: uuid.UUID | None) -> str:
        """Why the replica on ``broker`` may be the only complete one (U-77); empty: its leader has all records."""
        if topic_id is not None and self.topic_id not in {None, topic_id}:
            return "the cluster has another topic of that name"
        if self.leader < 0:
            return "the cluster has no leader for it"
        if self.leader == broker:
            return "this broker leads it"
        return "this broker is in the ISR" if broker in self.isr else ""


class _ClusterAnswer(logging.Handler):
    """Collects the client library's log of failed connections, because its exceptions only report a timeout."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.why: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the reason that the library logs; a refused login is never replaced."""
        errors = [each for each in record.args if isinstance(each, BaseException)] if record.args else []
        for why in errors:
            if not isinstance(why, KafkaTimeoutError) and not isinstance(self.why, _ACCESS_ERRORS):
                self.why = why


class Cluster:
    """A connection to a cluster; a context manager. ``client``: TLS and login.

    Raises:
        AccessDeniedError: the cluster refuses the login.
        CleanerdError: no broker answers at ``bootstrap``, or TLS fails.
    """

    def __init__(
        self, bootstrap: str, client: ClientConfig | None = None, *, connect_seconds: float = CONNECT_SECONDS
    ) -> None:
        # The library's messages about failed connections become one error instead of log lines.
        logger = logging.getLogger("kafka")
        heard = _ClusterAnswer()
        logger.propagate = False
        self._bootstrap = bootstrap
        client = client or ClientConfig()
        options = {"request_timeout_ms": int(REQUEST_SECONDS * 1000), **client.kafka_python()}
        logger.addHandler(heard)
        try:
            self._client = KafkaAdminClient(
                bootstrap_servers=bootstrap.split(","), bootstrap_timeout_ms=int(connect_seconds * 1000), **options
            )
        except _ACCESS_ERRORS as error:
            raise self._access_error(error) from error
        except (KafkaError, OSError, ValueError) as error:
            if isinstance(heard.why, _ACCESS_ERRORS):
                raise self._access_error(heard.why) from error
            refused = refused_login(bootstrap, client)
            if refused is not None:
                raise self._access_error(refused) from error
            raise CleanerdError(
                f"no broker answers within {connect_seconds:.0f} s ({_reason(heard.why or error)})",
                where=f"bootstrap.servers={bootstrap}",
                hint=_connect_hint(client),
            ) from error
        finally:
            logger.addHandler(logging.NullHandler())
            logger.removeHandler(heard)

    def _access_error(self, error: BaseException) -> AccessDeniedError:
        return AccessDeniedError(
            f"the cluster does not let cleanerd in: {_reason(error)}",
            where=f"bootstrap.servers={self._bootstrap}",
            hint="see sasl.mechanism and sasl.jaas.config in the file of --command-config",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(KafkaError, OSError, RuntimeError):
            self._client.close()

    def cluster_id(self) -> str:
        """The cluster's id, the same as in ``meta.properties``."""
        with self._errors("the cluster"):
            return str(self._client.describe_cluster()["cluster_id"])

    def brokers(self) -> dict[int, str]:
        """The hosts of the running brokers, by id, as the cluster advertises them.

        Raises:
            CleanerdError: the cluster does not answer.
        """
        with self._errors("the cluster"):
            found = self._client.describe_cluster()["brokers"]
        return {int(each["broker_id"]): str(each["host"]) for each in found}

    def assigned_brokers(self) -> set[int]:
        """The brokers that have a replica of a visible topic, whether they run or not.

        Raises:
            CleanerdError: the cluster does not answer.
        """
        with self._errors("the cluster"):
            topics = self._client.describe_topics()
        partitions = (each for topic in topics if not topic["error_code"] for each in topic["partitions"])
        return {int(broker) for each in partitions for broker in each["replica_nodes"]}

    def topic(self, topic: str) -> TopicFacts | None:
        """The topic's configuration; None if it does not exist. The request does not create it.

        Raises:
            RefusedError: the user may not see it.
        """
        with self._errors(topic):
            (found,) = self._client.describe_topics([topic])
            if found["error_code"] == _UNKNOWN_TOPIC:
                return None
            if found["error_code"]:
                raise for_code(found["error_code"])
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            answer = self._client.describe_configs([resource], include_synonyms=True, config_filter="all")
        values = answer.get("topic", {}).get(topic, {})
        if not values:
            # If the broker answers with an error instead of values, the client ignores it.
            raise AccessDeniedError(
                "the cluster does not show the topic's configuration",
                where=topic,
                hint="the right to describe its configuration (DescribeConfigs) is missing",
            )
        return _facts(topic, found["topic_id"], values)

    def replicas(self, topics: Sequence[str]) -> dict[TopicPartition, LeaderAndIsr]:
        """Leader and ISR of each partition of ``topics``; a missing or invisible topic is left out.

        Raises:
            CleanerdError: the cluster does not answer.
        """
        found: dict[TopicPartition, LeaderAndIsr] = {}
        with self._errors("the cluster"):
            for topic in self._client.describe_topics(list(topics)):
                topic_id = uuid.UUID(str(topic["topic_id"])) if topic["topic_id"] else None
                for each in () if topic["error_code"] else topic["partitions"]:
                    name = TopicPartition(topic["name"], each["partition_index"])
                    isr, assigned = frozenset(each["isr_nodes"]), frozenset(each["replica_nodes"])
                    found[name] = LeaderAndIsr(topic_id, each["leader_id"], isr, assigned)
        return found

    def topics(self, names: Sequence[str], node_id: int) -> dict[str, TopicFacts]:
        """The configurations of many topics from one broker, which knows its own server.properties.

        Missing topics, and topics that the user may not see, are left out.

        Raises:
            CleanerdError: the broker does not exist, or does not answer.
        """
        found: dict[str, TopicFacts] = {}
        with self._errors("the cluster"):
            known = {each["broker_id"] for each in self._client.describe_cluster()["brokers"]}
        if node_id not in known:
            raise CleanerdError(
                f"the cluster at {self._bootstrap} does not know broker {node_id} now", where=f"broker {node_id}"
            )
        for start in range(0, len(names), _AT_ONCE):
            some = list(names[start : start + _AT_ONCE])
            with self._errors("the cluster"):
                described = self._client.describe_topics(some)
                there = {each["name"]: each["topic_id"] for each in described if not each["error_code"]}
                resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in there]
                answer = self._client._manager.run(self._describe_configs, resources, node_id)  # noqa: SLF001 - see there
            for topic, values in answer.get("topic", {}).items():
                if values:
                    found[topic] = _facts(topic, there[topic], values)
        return found

    async def _describe_configs(self, resources: list[Any], node_id: int) -> dict[str, dict[str, Any]]:
        """As the library's ``describe_configs``, but for a chosen broker: each has its own defaults."""
        client = self._client
        request = client._describe_configs_request(resources, include_synonyms=True)  # noqa: SLF001
        response = await client._manager.send(request, node_id=node_id)  # noqa: SLF001
        return dict(client._describe_configs_process_responses([response], "all"))  # noqa: SLF001

    def alter(self, topic: str, changes: Mapping[str, str | None], *, dry_run: bool) -> None:
        """Set keys of the topic, or unset those with None; ``dry_run``: only validate in the cluster.

        Raises:
            RefusedError: the cluster refuses them; nothing is changed.
        """
        operations = {key: ("DELETE" if text is None else "SET", text) for key, text in changes.items()}
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, operations)
        try:
            with self._errors(topic):
                answer = self._client.alter_configs(
                    [resource], validate_only=dry_run, raise_on_unknown=False, incremental=True
                )
            future = answer["topic"][topic]
            if future != "OK":
                kind = AccessDeniedError if "Authorization" in future.partition(":")[0] else RefusedError
                raise kind(f"the cluster refuses: {_ERROR_PREFIX.sub('', future)}", where=topic)
        except AccessDeniedError as error:
            error.changes = dict(changes)
            raise

    @contextlib.contextmanager
    def _errors(self, where: str) -> Iterator[None]:
        try:
            yield
        except IncompatibleBrokerVersion as error:
            raise RefusedError(
                "the cluster is too old: it cannot change one key of a topic and leave the others", where=where
            ) from error
        except _ACCESS_ERRORS as error:
            raise AccessDeniedError(f"the cluster refuses: {_error_message(error)}", where=where) from error
        except KafkaError as error:
            raise CleanerdError(
                f"the cluster at {self._bootstrap} does not answer: {_error_message(error)}", where=where
            ) from error


def require_bootstrap(servers: str | None, client: ClientConfig) -> str:
    """``bootstrap.servers`` of the settings, else of the client's own file.

    Raises:
        ConfigError: neither names them.
    """
    found = servers or client.servers
    if found is None:
        raise ConfigError(
            "bootstrap.servers is not set", hint="--set bootstrap.servers=HOST:PORT, or in a --config file"
        )
    return found


def _facts(topic: str, topic_id: object, values: Mapping[str, Any]) -> TopicFacts:
    known = {key: _value(value) for key, value in values.items() if key in READABLE_TOPIC_KEYS}
    # The library shows an id as Python does, with hyphens; Kafka and our file names use base64.
    return TopicFacts(topic, uuid.UUID(str(topic_id)) if topic_id else None, known)


def _value(value: Mapping[str, Any]) -> KeyValue:
    inherited = [synonym["value"] for synonym in value.get("synonyms") or () if synonym["source"] != _ON_TOPIC]
    return KeyValue(
        own=value["value"] if value["config_source"] == _ON_TOPIC else None,
        effective=value["value"],
        inherited=inherited[0] if inherited else None,
    )


def _connect_hint(client: ClientConfig) -> str:
    if client.uses_tls:
        return "is it running, is this its listener with TLS, and do certificates and names fit?"
    if client.login is not None:
        return f"is it running, and is this its listener for {client.protocol}?"
    return "is it running, and is this its plain-text listener? TLS and logins: --command-config FILE"


def _reason(error: BaseException) -> str:
    """Why there is no connection, in one line. The library's text contains no password."""
    return " ".join((_ERROR_PREFIX.sub("", str(error)) or type(error).__name__).split())[:300]


def _error_message(error: KafkaError) -> str:
    return _ERROR_PREFIX.sub("", str(error)) or type(error).__name__
