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


@dataclass(frozen=True, slots=True)
class KeyRule:
    """One topic key: how its text is read, Kafka's default, and the broker keys that count when the topic is silent."""

    value: ValueRule
    default: object
    synonyms: tuple[Synonym, ...]


def _rule(value: ValueRule, default: object, *names: str) -> KeyRule:
    return KeyRule(value, default, tuple(Synonym(name, value) for name in names))


def _choice(choices: tuple[str, ...], *names: str) -> KeyRule:
    """One of ``choices``; missing or empty means the first (R280-2)."""
    return _rule(ChoiceRule(choices, empty=choices[0]), choices[0], *names)


_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_WEEK_MS: Final = 604_800_000

REMOTE_STORAGE: Final = "remote.storage.enable"
VENDORS_TIER: Final = "confluent.tier.enable"
"""Confluent's own tiered storage; a setting of topics and, as their default, of brokers."""

TOPIC_RULES: Final[Mapping[str, KeyRule]] = MappingProxyType({
    "cleanup.policy": _rule(PolicyRule(), frozenset({"delete"}), "log.cleanup.policy"),
    strategy_keys.STRATEGY: _choice(strategy_keys.STRATEGIES, "log.cleaner.compaction.strategy"),
    strategy_keys.STRATEGY_HEADER: _rule(HeaderNameRule(), "", "log.cleaner.compaction.strategy.header"),
    strategy_keys.HEADER_ENCODING: _choice(strategy_keys.ENCODINGS),
    strategy_keys.WINNER_RETENTION: _choice(strategy_keys.WINNER_RETENTIONS),
    strategy_keys.TOMBSTONE_MODE: _choice(strategy_keys.TOMBSTONE_MODES),
    strategy_keys.TOMBSTONE_HEADER: _rule(HeaderNameRule(), ""),
    strategy_keys.TOMBSTONE_GUARD: _choice(strategy_keys.GUARDS),
    strategy_keys.TOMBSTONE_REPLICATED: _choice(strategy_keys.REPLICATED),
    "min.cleanable.dirty.ratio": _rule(RatioRule(), 0.5, "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": _rule(NumberRule(0, LONG_MAX), 0, "log.cleaner.min.compaction.lag.ms"),
    "max.compaction.lag.ms": _rule(NumberRule(1, LONG_MAX), LONG_MAX, "log.cleaner.max.compaction.lag.ms"),
    "delete.retention.ms": _rule(NumberRule(0, LONG_MAX), 86_400_000, "log.cleaner.delete.retention.ms"),
    "segment.bytes": _rule(NumberRule(14, INT_MAX), 1_073_741_824, "log.segment.bytes"),
    "segment.index.bytes": _rule(NumberRule(4, INT_MAX), 10_485_760, "log.index.size.max.bytes"),
    "index.interval.bytes": _rule(NumberRule(0, INT_MAX), 4096, "log.index.interval.bytes"),
    "max.message.bytes": _rule(NumberRule(0, INT_MAX), 1_048_588, "message.max.bytes"),
    "file.delete.delay.ms": _rule(NumberRule(0, LONG_MAX), 60_000, "log.segment.delete.delay.ms"),
    # Kafka's minutes and hours are INT: a number that only fits a long is refused there too.
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
    ),
    "compression.type": _rule(WordRule(), "producer", "compression.type"),
    "preallocate": _rule(BooleanRule(), False, "log.preallocate"),
    REMOTE_STORAGE: _rule(BooleanRule(), False),
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

_DEFAULTS: Final = {
    synonym.name: rule.default
    for rule in (*TOPIC_RULES.values(), *BROKER_ONLY_RULES.values())
    for synonym in rule.synonyms
    if synonym.factor == 1
}


def default_of(broker_key: str) -> Any:
    """Kafka's default of a broker key that is in the unit of its topic key."""
    return _DEFAULTS[broker_key]
