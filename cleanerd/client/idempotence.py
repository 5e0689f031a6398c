"""``enable.idempotence`` as in KIP-192: ``requested``, ``required``, ``off`` (R192-5).

librdkafka only has on and off. Whether on would work is checked first:

* the broker: a short-lived idempotent producer with the same settings gets a producer id, or a fatal error with the
  reason. So the broker itself judges ApiVersions, authorization and contradicting settings (``acks=1``).
* the topic: its ``message.format.version``, if the broker has such a key (before 4.0) and still uses it (while
  ``inter.broker.protocol.version`` is below 3.0). Formats below 0.11 have no sequence numbers.
"""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Mapping
from typing import Any, Final, Literal

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from cleanerd.client.errors import IdempotenceError
from cleanerd.errors import ConfigError

Mode = Literal["requested", "required", "off"]
MODES: Final[tuple[Mode, ...]] = ("requested", "required", "off")
KEY: Final = "enable.idempotence"

_OLD_NAMES: Final[dict[str, Mode]] = {"true": "required", "false": "off"}
_POLL_SECONDS: Final = 0.05
_STATISTICS_MS: Final = 50
_CALLBACKS: Final = (
    "on_delivery",
    "delivery_cb",
    "dr_cb",
    "error_cb",
    "stats_cb",
    "throttle_cb",
    "logger",
    "partitioner",
)
_FIRST_FORMAT: Final = (0, 11)
_FORMAT_IGNORED_SINCE: Final = (3, 0)

SILENT: Final = logging.getLogger("cleanerd.client.probe")
"""Failures here are returned as a reason, so librdkafka need not print them too."""
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


def read_mode(config: Mapping[str, Any]) -> Mode:
    """The mode in ``config``; ``requested`` by default.

    ``true`` and ``false`` are accepted, with a DeprecationWarning (KIP-192).

    Raises:
        ConfigError: another value.
    """
    text = str(config.get(KEY, "requested")).strip().lower()
    if text in _OLD_NAMES:
        mode = _OLD_NAMES[text]
        warnings.warn(f"{KEY}={text} is deprecated, say {mode}", DeprecationWarning, stacklevel=3)
        return mode
    for mode in MODES:
        if text == mode:
            return mode
    raise ConfigError(f"{KEY} is {config[KEY]!r}", where="client", hint=f"one of {', '.join(MODES)}")


def connection(config: Mapping[str, Any]) -> dict[str, Any]:
    """``config`` without the caller's own entries: callbacks and the mode."""
    return {key: value for key, value in config.items() if key not in {*_CALLBACKS, KEY}}


def broker_obstacle_reason(config: Mapping[str, Any], timeout_s: float) -> str | None:
    """None if a broker gave a producer id; else its reason, or that of the settings.

    Raises:
        IdempotenceError: no broker answered within ``timeout_s``.
    """
    states: list[str] = []
    problems: list[str] = []
    settings = {
        **connection(config),
        KEY: True,
        "statistics.interval.ms": _STATISTICS_MS,
        "stats_cb": lambda text: states.append(json.loads(text).get("eos", {}).get("idemp_state", "")),
        "error_cb": lambda error: problems.append(error.str()),
    }
    try:
        producer = Producer(settings, logger=SILENT)
    except KafkaException as error:
        return f"the settings contradict it: {_text(error)}"
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            producer.poll(_POLL_SECONDS)
        except KafkaException as error:
            return _text(error)
        if states and states[-1] == "Assigned":
            return None
    client_problem = f"; the client says: {problems[-1]}" if problems else ""
    raise IdempotenceError(
        f"no broker gave a producer id within {timeout_s:g} s{client_problem}",
        hint=f"is bootstrap.servers right? {KEY}=off skips this check",
    )


def topic_obstacle_reason(admin: AdminClient, topic: str, timeout_s: float) -> str | None:
    """Why the topic's message format has no sequence numbers; None if it has, or if that is unknown.

    A topic that does not exist or must not be described counts as supported: every format since 0.11 is.
    """
    topic_format = _describe(admin, ConfigResource(ConfigResource.Type.TOPIC, topic), timeout_s).get(
        "message.format.version"
    )
    if topic_format is None or _release(topic_format) >= _FIRST_FORMAT:
        return None
    try:
        partitions = admin.list_topics(topic, timeout=timeout_s).topics[topic].partitions
    except KafkaException:
        return None
    for leader in {partition.leader for partition in partitions.values()}:
        broker = _describe(admin, ConfigResource(ConfigResource.Type.BROKER, str(leader)), timeout_s)
        protocol = broker.get("inter.broker.protocol.version")
        if protocol is not None and _release(protocol) < _FORMAT_IGNORED_SINCE:
            return f"message.format.version of topic {topic} is {topic_format}, sequence numbers came with 0.11"
    return None


def _describe(admin: AdminClient, resource: ConfigResource, timeout_s: float) -> dict[str, str]:
    try:
        entries = admin.describe_configs([resource], request_timeout=timeout_s)[resource].result(timeout_s)
    except (KafkaException, TimeoutError):
        return {}
    return {key: entry.value for key, entry in entries.items() if entry.value is not None}


def _release(version: str) -> tuple[int, ...]:
    """``0.10.2-IV0`` as (0, 10, 2)."""
    return tuple(int(part) for part in version.split("-", maxsplit=1)[0].split(".") if part.isdigit())


def _text(error: KafkaException) -> str:
    cause = error.args[0] if error.args else error
    return cause.str() if isinstance(cause, KafkaError) else str(cause)
