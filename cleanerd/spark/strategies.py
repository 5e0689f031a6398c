"""The rules that decide between the records of a key, by topic, as a PySpark user states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cleanerd.config.strategy_keys import (
    HEADER_ENCODING,
    KEYS,
    STRATEGIES,
    STRATEGY,
    STRATEGY_HEADER,
    TOMBSTONE_GUARD,
    TOMBSTONE_HEADER,
    TOMBSTONE_MODE,
    WINNER_RETENTION,
)
from cleanerd.config.topic_config import INTERNAL_TOPICS, NEVER_CLEANED, read_key, resolve_topic_config
from cleanerd.errors import ConfigError
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules

StrategyText: TypeAlias = str | Mapping[str, str]
"""``offset``, ``timestamp``, ``header:NAME``; or a topic's keys: ``{"compaction.strategy": "header", ...}``."""

_ORIGIN: Final = "strategies"


@dataclass(frozen=True, slots=True)
class Strategies:
    """The given rules, by topic; ``default`` for all others. Kafka's rules if none are given."""

    by_topic: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    default: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, by_topic: Mapping[str, StrategyText], default: StrategyText | None = None) -> Strategies:
        """From words or keys.

        Raises:
            ConfigError: no such strategy or key.
        """
        return cls(
            {topic: _keys(setting, f"strategy of {topic}") for topic, setting in by_topic.items()},
            {} if default is None else _keys(default, "strategy"),
        )

    def rules(self, topic: str) -> KeyRules:
        """The rules of ``topic``.

        Raises:
            ConfigError: the given values contradict each other.
        """
        keys = self.by_topic.get(topic, self.default)
        if not keys or topic in NEVER_CLEANED | INTERNAL_TOPICS:
            return KAFKAS_RULES
        overrides = {key: read_key(key, text, _ORIGIN, topic) for key, text in keys.items()}
        return KeyRules.of(resolve_topic_config(topic, overrides=overrides, topic_configs=None))


def keys_of(rules: KeyRules) -> dict[str, str]:
    """``rules`` as a topic's keys."""
    keys = {
        STRATEGY: rules.strategy,
        HEADER_ENCODING: rules.encoding,
        TOMBSTONE_MODE: rules.tombstone_mode,
        TOMBSTONE_GUARD: rules.tombstone_guard,
        WINNER_RETENTION: rules.winner_retention,
    }
    if rules.header is not None:
        keys[STRATEGY_HEADER] = rules.header.decode()
    if rules.tombstone_header is not None:
        keys[TOMBSTONE_HEADER] = rules.tombstone_header.decode()
    return keys


def _keys(setting: StrategyText, where: str) -> Mapping[str, str]:
    if isinstance(setting, Mapping):
        for key in setting:
            if key not in KEYS:
                raise ConfigError(f"no such key: {key}", where=where, hint=f"there are {', '.join(sorted(KEYS))}")
        return {key: str(text) for key, text in setting.items()}
    strategy, _, header = setting.partition(":") if isinstance(setting, str) else ("", "", "")
    if strategy not in STRATEGIES or (strategy == "header") != bool(header.strip()):
        raise ConfigError(
            f"{setting!r} is not offset, timestamp or header:NAME, nor a table of a topic's keys", where=where
        )
    return {STRATEGY: strategy, **({STRATEGY_HEADER: header.strip()} if header else {})}
