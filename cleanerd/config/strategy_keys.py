"""The keys of a topic's strategy and tombstones (KIP-280, KIP-87): values, their combination, warnings.

``topic_config`` knows their origins and which of them apply; ``fingerprint`` hashes them.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any, Final

from cleanerd.config.kafka_values import LONG_MAX
from cleanerd.errors import ConfigError
from cleanerd.humanize import human_setting

STRATEGY: Final = "compaction.strategy"
STRATEGY_HEADER: Final = "compaction.strategy.header"
HEADER_ENCODING: Final = "compaction.strategy.header.encoding"
WINNER_RETENTION: Final = "compaction.winner.retention"
TOMBSTONE_MODE: Final = "tombstone.mode"
TOMBSTONE_HEADER: Final = "tombstone.header"
TOMBSTONE_GUARD: Final = "tombstone.guard"
TOMBSTONE_REPLICATED: Final = "cleanerd.tombstone.replicated"

KEYS: Final = frozenset(
    {
        STRATEGY,
        STRATEGY_HEADER,
        HEADER_ENCODING,
        WINNER_RETENTION,
        TOMBSTONE_MODE,
        TOMBSTONE_HEADER,
        TOMBSTONE_GUARD,
    }
)
"""The topic keys of this module. Internal topics have the defaults of all of them (R280-12)."""

STRATEGIES: Final = ("offset", "timestamp", "header")
ENCODINGS: Final = ("long", "varlong")
TOMBSTONE_MODES: Final = ("null", "flag", "header")
WINNER_RETENTIONS: Final = ("record-time", "write-time")
GUARDS: Final = ("horizon", "forever")
REPLICATED: Final = ("required", "ignore")

DEFAULT_EXCLUDE: Final = ("__*", "_schemas", "connect-*", "*-changelog", "*-repartition")
"""Topics to which the daemon's default strategy does not apply: other programs rely on Kafka's compaction (U-5)."""

_DELETE_RETENTION: Final = "delete.retention.ms"

EXCLUDE_KEY: Final = "cleanerd.strategy.exclude"


def is_excluded(topic: str, patterns: tuple[str, ...]) -> bool:
    """Whether a glob of ``cleanerd.strategy.exclude`` matches ``topic`` (U-5)."""
    return any(fnmatch.fnmatchcase(topic, pattern) for pattern in patterns)


def apply_fallbacks(topic: str, values: dict[str, Any], origins: dict[str, str]) -> tuple[str, ...]:
    """Apply the fallbacks of combined keys, in place; returns notes for the operator.

    ``compaction.strategy=header`` without a header name is ``offset`` (R280-7). ``tombstone.mode=header`` without one
    is an error: no proposal defines a fallback. With ``null`` instead, records meant as deletes would be retained as
    values indefinitely.

    Raises:
        ConfigError: ``tombstone.mode=header`` and ``tombstone.header`` is blank.
    """
    if values[TOMBSTONE_MODE] == "header" and not values[TOMBSTONE_HEADER]:
        raise ConfigError(
            f"{TOMBSTONE_MODE} of topic {topic} is header, but {TOMBSTONE_HEADER} is blank",
            where=origins[TOMBSTONE_MODE],
            hint=f"name the header that marks a tombstone: topics.{topic}.{TOMBSTONE_HEADER}=NAME",
        )
    if values[STRATEGY] != "header" or values[STRATEGY_HEADER]:
        return ()
    warning = (
        f"{STRATEGY} is header ({origins[STRATEGY]}), but {STRATEGY_HEADER} is blank: cleaned by offset; name "
        f"the header with topics.{topic}.{STRATEGY_HEADER}=NAME"
    )
    values[STRATEGY] = "offset"
    origins[STRATEGY] = f"fall-back: {STRATEGY_HEADER} is blank"
    return (warning,)


RETENTION_CAUTION: Final = (
    "With cleanup.policy=compact,delete the record that wins by version may be in an older segment than those it "
    "superseded: the broker's retention deletes it, and the key is gone although its last write is within retention "
    f"({WINNER_RETENTION}=write-time keeps it as long as its last write; cleanup.policy=compact keeps it)"
)


def cautions(topic: str, values: Mapping[str, Any], origins: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings for allowed settings that may surprise.

    R280-13: a tombstone retained by version guards its key against late data for ``delete.retention.ms`` only. U-61:
    retention may delete a retained record that is older than those it superseded. U-25: a broker that recompresses
    rewrites the records, without KIP-87's flag.
    """
    found = []
    if values[STRATEGY] != "offset" and values[TOMBSTONE_GUARD] == "horizon":
        # This key may be absent; the other always has a value.
        times = {key: values[key] for key in ("segment.ms", "max.compaction.lag.ms") if values[key] < LONG_MAX}
        longer = [key for key, time_ms in times.items() if values[_DELETE_RETENTION] < time_ms]
        if longer:
            others = " and ".join(f"{key} {human_setting(key, times[key])} ({origins[key]})" for key in longer)
            retention = human_setting(_DELETE_RETENTION, values[_DELETE_RETENTION])
            found.append(
                f"{_DELETE_RETENTION} of {topic} is {retention} ({origins[_DELETE_RETENTION]}), shorter than {others}: "
                f"an older version that arrives after a tombstone has expired brings its key back "
                f"({TOMBSTONE_GUARD}=forever keeps tombstones)"
            )
    by_record_time = values[STRATEGY] != "offset" and values[WINNER_RETENTION] == "record-time"
    if by_record_time and {"compact", "delete"} <= values["cleanup.policy"]:
        found.append(f"{STRATEGY} of {topic} is {values[STRATEGY]} ({origins[STRATEGY]}). {RETENTION_CAUTION}")
    if values[TOMBSTONE_MODE] == "flag" and values["compression.type"] != "producer":
        found.append(
            f"{TOMBSTONE_MODE} of {topic} is flag, but compression.type is {values['compression.type']} "
            f"({origins['compression.type']}): a broker that compresses again drops the flag; set it to producer"
        )
    return tuple(found)
