"""Every topic key that cleanerd reads: how its text is parsed, Kafka's default, and its broker synonyms.

Synonyms, types, ranges and defaults are those that Kafka 4.3.1 prints (ServerTopicConfigSynonyms, LogConfig), those of
KIP-280 and KIP-87, and cleanerd's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from cleanerd.config import strategy_keys
from cleanerd.config.kafka_values import (
    INT_MAX,
    LONG_MAX,
    BooleanRule,
    BrokerRetention,
    ChoiceRule,
    HeaderNameRule,
    NumberRule,
    PolicyRule,
    RatioRule,
    WordRule,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.config.kafka_values import ValueRule

INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker key that applies where the topic key is not set; ``factor`` converts its unit to the topic key's."""

    name: str
    value: ValueRule
    factor: int = 1

    def in_topic_unit(self, value: object) -> object:
        """The broker key's value in the topic key's unit; -1 means no limit, in every unit."""
        return value * self.factor if isinstance(value, int) and self.factor != 1 and value >= 0 else value


@dataclass(frozen=True, slots=True)
class KeyRule:
    """One topic key: its parser, Kafka's default, and the broker keys that apply if the topic does not set it.

    ``about``, ``example``: for keys that cleanerd's own settings may have too, ``[topics."orders"]``.
    """

    value: ValueRule
    default: object
    synonyms: tuple[Synonym, ...]
    about: str = ""
    example: str = ""


def _rule(value: ValueRule, default: object, *names: str, about: str = "", example: str = "") -> KeyRule:
    return KeyRule(value, default, tuple(Synonym(name, value) for name in names), about, example)


def _choice(choices: tuple[str, ...], *names: str, about: str, example: str) -> KeyRule:
    """One of ``choices``; missing or empty means the first (R280-2)."""
    return _rule(ChoiceRule(choices, empty=choices[0]), choices[0], *names, about=about, example=example)


_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_WEEK_MS: Final = 604_800_000

REMOTE_STORAGE: Final = "remote.storage.enable"
VENDORS_TIER: Final = "confluent.tier.enable"
"""Confluent's own tiered storage: a setting of topics, and of brokers as their default."""

TOPIC_RULES: Final[Mapping[str, KeyRule]] = MappingProxyType({
    "cleanup.policy": _rule(
        PolicyRule(), frozenset({"delete"}), "log.cleanup.policy", example="compact",
        about="Compacted topics are cleaned. Set this for a topic whose configuration cleanerd cannot find.",
    ),
    strategy_keys.STRATEGY: _choice(
        strategy_keys.STRATEGIES, "log.cleaner.compaction.strategy", example="header",
        about="Which record of a key is retained: that with the highest offset, timestamp, or version in a "
        "header. timestamp and header need cleanerd delegate: the broker's own cleaner keeps the highest offset.",
    ),
    strategy_keys.STRATEGY_HEADER: _rule(
        HeaderNameRule(), "", "log.cleaner.compaction.strategy.header", example="version",
        about="The header with the version. If it is blank, the topic is cleaned by offset.",
    ),
    strategy_keys.HEADER_ENCODING: _choice(
        strategy_keys.ENCODINGS, example="long",
        about="How the version is written: 8 bytes, big-endian and signed, or a zigzag varlong.",
    ),
    strategy_keys.WINNER_RETENTION: _choice(
        strategy_keys.WINNER_RETENTIONS, example="write-time",
        about="When retention may delete a record that was retained by timestamp or header: by its own time, or by "
        "the time of its key's last write, which the rewritten batch then gets. For cleanup.policy=compact,delete.",
    ),
    strategy_keys.TOMBSTONE_MODE: _choice(
        strategy_keys.TOMBSTONE_MODES, example="null",
        about="What deletes a key. null: a null value. flag: only KIP-87's flag in the record's attributes. header: a "
        "header, or a null value. flag and header need cleanerd delegate.",
    ),
    strategy_keys.TOMBSTONE_HEADER: _rule(
        HeaderNameRule(), "", example="deleted",
        about="With tombstone.mode=header: the header that makes a record a tombstone, unless the header's value is "
        "empty, 0 or false.",
    ),
    strategy_keys.TOMBSTONE_GUARD: _choice(
        strategy_keys.GUARDS, example="horizon",
        about="Whether a tombstone of the timestamp and header strategies is removed after its delete horizon, or "
        "stays indefinitely, to protect its key against late writes.",
    ),
    strategy_keys.TOMBSTONE_REPLICATED: _choice(
        strategy_keys.REPLICATED, example="required",
        about="Whether tombstones and transaction markers wait, after their delete horizon, until the metadata log "
        "has shown every replica in the ISR. ignore: like Kafka, where deleted keys come back if a replica "
        "was away for longer than delete.retention.ms.",
    ),
    "min.cleanable.dirty.ratio": _rule(
        RatioRule(), 0.5, "log.cleaner.min.cleanable.ratio", example="0.5",
        about="The topic is cleaned if its dirty ratio is above this.",
    ),
    "min.compaction.lag.ms": _rule(
        NumberRule(0, LONG_MAX), 0, "log.cleaner.min.compaction.lag.ms", example="0",
        about="Records younger than this are not cleaned.",
    ),
    "max.compaction.lag.ms": _rule(
        NumberRule(1, LONG_MAX), LONG_MAX, "log.cleaner.max.compaction.lag.ms", example="7d",
        about="A log with a dirty record older than this is cleaned at any dirty ratio.",
    ),
    "delete.retention.ms": _rule(
        NumberRule(0, LONG_MAX), 86_400_000, "log.cleaner.delete.retention.ms", example="1d",
        about="How long a tombstone stays after the first cleaning that found it.",
    ),
    "segment.bytes": _rule(
        NumberRule(14, INT_MAX), 1_073_741_824, "log.segment.bytes", example="1GiB",
        about="Segments are merged up to this size.",
    ),
    "segment.index.bytes": _rule(
        NumberRule(4, INT_MAX), 10_485_760, "log.index.size.max.bytes", example="10MiB",
        about="Largest index of a segment.",
    ),
    "index.interval.bytes": _rule(
        NumberRule(0, INT_MAX), 4096, "log.index.interval.bytes", example="4KiB",
        about="Bytes of log between two index entries.",
    ),
    "max.message.bytes": _rule(
        NumberRule(0, INT_MAX), 1_048_588, "message.max.bytes", example="1MiB",
        about="A rewritten batch that is larger is written anyway, counted and logged.",
    ),
    "file.delete.delay.ms": _rule(NumberRule(0, LONG_MAX), 60_000, "log.segment.delete.delay.ms"),
    # Kafka's minutes and hours are INT: a number that only fits a long is rejected there too.
    "segment.ms": KeyRule(
        NumberRule(1, LONG_MAX),
        _WEEK_MS,
        (Synonym("log.roll.ms", NumberRule(1, LONG_MAX)), Synonym("log.roll.hours", NumberRule(1, INT_MAX), _HOUR_MS)),
    ),
    "retention.ms": KeyRule(
        NumberRule(-1, LONG_MAX),
        _WEEK_MS,
        (
            Synonym("log.retention.ms", BrokerRetention(LONG_MAX)),
            Synonym("log.retention.minutes", BrokerRetention(INT_MAX), _MINUTE_MS),
            Synonym("log.retention.hours", BrokerRetention(INT_MAX), _HOUR_MS),
        ),
        "With compact,delete: segments are merged only while they span at most a tenth of it, so that the broker can "
        "delete by age.",
        "7d",
    ),
    "compression.type": _rule(WordRule(), "producer", "compression.type"),
    "preallocate": _rule(BooleanRule(), False, "log.preallocate"),
    REMOTE_STORAGE: _rule(
        BooleanRule(), False, example="true",
        about="A tiered topic is not cleaned. Set this for a tiered topic that cleanerd does not recognize by its "
        "configuration or files. It does not change whether the topic is tiered.",
    ),
    VENDORS_TIER: _rule(BooleanRule(), False, VENDORS_TIER),
})  # fmt: skip

PRODUCER_EXPIRATION: Final = "producer.id.expiration.ms"
BROKER_ONLY_RULES: Final[Mapping[str, KeyRule]] = MappingProxyType({
    PRODUCER_EXPIRATION: _rule(NumberRule(1, INT_MAX), 86_400_000, PRODUCER_EXPIRATION),
})  # fmt: skip

TOPIC_KEYS: Final = frozenset(TOPIC_RULES) | {INTERNAL_SEGMENT_BYTES}
"""Every topic key that cleanerd reads: the allow-list of U-24 for topics."""

BROKER_KEYS: Final = frozenset(
    synonym.name for rule in (*TOPIC_RULES.values(), *BROKER_ONLY_RULES.values()) for synonym in rule.synonyms
)
"""Every broker key that cleanerd reads: the allow-list of U-24 for brokers and ``server.properties``."""

_SYNONYMS: Final = {
    synonym.name: (synonym, rule)
    for rule in (*TOPIC_RULES.values(), *BROKER_ONLY_RULES.values())
    for synonym in rule.synonyms
}


def rule_of_broker_key(broker_key: str) -> tuple[ValueRule, Any]:
    """How a broker key is parsed, and Kafka's default in the unit of its topic key."""
    synonym, rule = _SYNONYMS[broker_key]
    return synonym.value, rule.default
