"""What of a topic's configuration decides who wins: strategy and tombstones (KIP-280, KIP-87), and their fingerprint.

The words are here; who said them and which say counts is ``topic_config``'s business.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any, Final

from cleanerd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.log.topic_config import TopicConfig

STRATEGY: Final = "compaction.strategy"
STRATEGY_HEADER: Final = "compaction.strategy.header"
HEADER_ENCODING: Final = "compaction.strategy.header.encoding"
TOMBSTONE_MODE: Final = "tombstone.mode"
TOMBSTONE_HEADER: Final = "tombstone.header"
TOMBSTONE_GUARD: Final = "tombstone.guard"

KEYS: Final = frozenset({STRATEGY, STRATEGY_HEADER, HEADER_ENCODING, TOMBSTONE_MODE, TOMBSTONE_HEADER, TOMBSTONE_GUARD})
"""The topic keys of this page. Internal topics have the defaults of all of them (R280-12)."""

STRATEGIES: Final = ("offset", "timestamp", "header")
ENCODINGS: Final = ("long", "varlong")
TOMBSTONE_MODES: Final = ("null", "flag", "header")
GUARDS: Final = ("horizon", "forever")

DEFAULT_EXCLUDE: Final = ("__*", "_schemas", "connect-*", "*-changelog", "*-repartition")
"""Topics that the daemon's default strategy never reaches: other programs rely on how Kafka compacts them (U-5)."""

EXCLUDE_KEY: Final = "cleanerd.strategy.exclude"


KAFKAS_FINGERPRINT: Final = "strategy=offset;tombstone.mode=null"
"""That of the rules that a stock broker's cleaner follows."""


def is_excluded(topic: str, patterns: tuple[str, ...]) -> bool:
    """Whether a glob of ``cleanerd.strategy.exclude`` matches ``topic`` (U-5)."""
    return any(fnmatch.fnmatchcase(topic, pattern) for pattern in patterns)


def settle(topic: str, values: dict[str, Any], origins: dict[str, str]) -> tuple[str, ...]:
    """What follows from the strategy's keys together: falls back in place, returns what the operator should know.

    ``compaction.strategy=header`` without a header name is ``offset`` (R280-7). ``tombstone.mode=header`` without one
    is an error: the seeds ask for no fall-back, and every guess would be silent about deletes. With ``null`` instead a
    record that its producer meant as a delete would be kept as a value for ever.

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
        f"{STRATEGY} is header ({origins[STRATEGY]}), but {STRATEGY_HEADER} is blank: cleaned by offset (R280-7); name "
        f"the header with topics.{topic}.{STRATEGY_HEADER}=NAME"
    )
    values[STRATEGY] = "offset"
    origins[STRATEGY] = f"fall-back: {STRATEGY_HEADER} is blank"
    return (warning,)


def fingerprint(config: TopicConfig) -> str:
    """What of the topic's settings decides who wins (U-6); stored with the clean point.

    Header name and encoding count for the header strategy only, the tombstones' header for mode ``header`` only: a
    setting that decides nothing changes nothing. The guard is not in it: it says how long a tombstone stays.
    """
    parts = [f"strategy={config.compaction_strategy}"]
    if config.compaction_strategy == "header":
        parts.append(f"header={_escaped(config.compaction_strategy_header)}")
        parts.append(f"encoding={config.compaction_strategy_header_encoding}")
    parts.append(f"tombstone.mode={config.tombstone_mode}")
    if config.tombstone_mode == "header":
        parts.append(f"tombstone.header={_escaped(config.tombstone_header)}")
    return ";".join(parts)


def fingerprint_differences(before: str, after: str) -> Mapping[str, tuple[str, str]]:
    """What differs between two fingerprints: name -> (before, after), an empty text where one of them lacks it."""
    old, new = (dict(part.partition("=")[::2] for part in text.split(";")) for text in (before, after))
    names = [*old, *(name for name in new if name not in old)]
    return {name: (old.get(name, ""), new.get(name, "")) for name in names if old.get(name) != new.get(name)}


def _escaped(name: str) -> str:
    """A header's name may hold anything; a semicolon in it must not look like the next part."""
    return name.replace("%", "%25").replace(";", "%3B")
