"""The topic configuration that a client needs: strategy and tombstones (R280, R87)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Self, cast

from cleanerd.client.errors import TombstoneError, VersionError
from cleanerd.errors import ConfigError
from cleanerd.policy.version import VERSION_ENCODINGS, VersionEncoding, encode_version, parse_version

Strategy = Literal["offset", "timestamp", "header"]
TombstoneMode = Literal["null", "flag", "header"]
Headers = tuple[tuple[str, bytes | None], ...]

STRATEGIES: Final = ("offset", "timestamp", "header")
TOMBSTONE_MODES: Final = ("null", "flag", "header")

KEYS: Final = {
    "strategy": "compaction.strategy",
    "version_header": "compaction.strategy.header",
    "version_encoding": "compaction.strategy.header.encoding",
    "tombstone_mode": "tombstone.mode",
    "tombstone_header": "tombstone.header",
}
"""cleanerd's names of these settings."""

TOMBSTONE_FLAG: Final = 0x20
"""Bit 5 of a v2 record's attributes (KIP-87). In a batch's attributes bit 5 means control batch: another byte."""
TOMBSTONE_VALUE: Final = b"true"
NO_TOMBSTONE: Final = frozenset({None, b"", b"0", b"false"})
"""Values of the tombstone header that mean "not a tombstone" (R87-4)."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """Strategy and tombstones of a topic, as cleanerd is configured for it. The defaults are Kafka's.

    A ``header`` strategy without a header name is ``offset``, with a warning (R280-7).

    Raises:
        ConfigError: an unknown value; ``tombstone_mode`` is ``header`` and ``tombstone_header`` blank.
    """

    strategy: Strategy = "offset"
    version_header: str = ""
    version_encoding: VersionEncoding = "long"
    tombstone_mode: TombstoneMode = "null"
    tombstone_header: str = ""

    def __post_init__(self) -> None:
        choices = (
            ("strategy", STRATEGIES),
            ("version_encoding", VERSION_ENCODINGS),
            ("tombstone_mode", TOMBSTONE_MODES),
        )
        for field, known in choices:
            if getattr(self, field) not in known:
                raise ConfigError(
                    f"{KEYS[field]} is {getattr(self, field)!r}", hint=f"one of {', '.join(known)}", where="client"
                )
        if self.tombstone_mode == "header" and not self.tombstone_header.strip():
            raise ConfigError(
                f"{KEYS['tombstone_mode']} is header and {KEYS['tombstone_header']} is blank",
                where="client",
                hint="name the header that marks a tombstone",
            )
        if self.strategy == "header" and not self.version_header.strip():
            object.__setattr__(self, "strategy", "offset")
            warnings.warn(
                f"{KEYS['strategy']} is header and {KEYS['version_header']} is blank: the offset decides",
                stacklevel=3,
            )

    @classmethod
    def of_config(cls, config: Mapping[str, str]) -> Self:
        """From settings under cleanerd's topic names (``compaction.strategy`` ..); others are ignored.

        A missing or empty value is the default (R280-2).

        Raises:
            ConfigError: as the class.
        """
        given = {field.name: config.get(KEYS[field.name], "").strip() for field in fields(cls)}
        return cls(**cast("dict[str, Any]", {name: value for name, value in given.items() if value}))

    def version(self, timestamp_ms: int, headers: Iterable[tuple[str, bytes | None]]) -> int | None:
        """The version that the strategy compares: timestamp, header, or None for a record without one (R280-4..6)."""
        if self.strategy == "timestamp":
            return timestamp_ms
        if self.strategy == "header":
            return parse_version(last_value(headers, self.version_header), self.version_encoding)
        return None

    def is_tombstone(
        self,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
        *,
        flagged: bool = False,
        magic: int = 2,
    ) -> bool:
        """Whether a record that was read deletes its key (R87-2..4). ``flagged``: bit 5 of its attributes."""
        if self.tombstone_mode == "flag" and magic >= 2:
            return flagged
        if value is None:
            return True
        if self.tombstone_mode == "header":
            return last_value(headers, self.tombstone_header) not in NO_TOMBSTONE
        return False

    def resolve_tombstone(self, value: bytes | None, headers: Headers, tombstone: bool | None) -> bool:  # noqa: FBT001
        """Whether a record to be written deletes its key; ``tombstone`` None leaves it to the value (R87-7).

        Raises:
            TombstoneError: False with a null value, or with the caller's own tombstone header; True with a value,
                although only a null value deletes.
        """
        if tombstone is False and value is None:
            raise TombstoneError(
                "tombstone=False with a null value: every stock consumer would take it for a delete (KIP-87)",
                hint="give it a value, an empty one for example",
            )
        if self.tombstone_mode == "null" and tombstone and value is not None:
            raise TombstoneError(
                "tombstone=True with a value, but in this topic only a null value deletes (tombstone.mode=null)",
                hint="leave the value out, or set tombstone.mode=header for the topic",
            )
        named = self.tombstone_mode == "header" and last_value(headers, self.tombstone_header) not in NO_TOMBSTONE
        if named and tombstone is False:
            raise TombstoneError(f"tombstone=False, but the header {self.tombstone_header} says otherwise")
        return bool(tombstone) or value is None or named

    def resolve_version(self, headers: Headers, version: int | None) -> Headers:
        """``headers`` with the version that the strategy will compare.

        A record without one loses to every record that has one (R280-6), so it is refused here.

        Raises:
            VersionError: the strategy is ``header`` and there is no valid version; or it is another one and there is a
                ``version``; or it does not fit into 64 bits.
        """
        if self.strategy != "header":
            if version is not None:
                hint = "give timestamp_ms= instead" if self.strategy == "timestamp" else "leave version= out"
                raise VersionError(f"version={version}, but compaction.strategy is {self.strategy}", hint=hint)
            return headers
        if version is not None:
            return (*headers, self.version_pair(version))
        if parse_version(last_value(headers, self.version_header), self.version_encoding) is None:
            raise VersionError(
                f"no version: this topic is compacted by the header {self.version_header}, a record without it loses",
                hint="give version=, or the header itself",
            )
        return headers

    def version_pair(self, version: int) -> tuple[str, bytes]:
        """The header of a record with this version, for any client library.

        Raises:
            VersionError: it does not fit into 64 bits.
        """
        try:
            return self.version_header, encode_version(version, self.version_encoding)
        except ValueError as error:
            raise VersionError(str(error)) from None

    def tombstone_pair(self) -> tuple[str, bytes]:
        """The header that makes a record a tombstone, for any client library."""
        return self.tombstone_header, TOMBSTONE_VALUE


def last_value(headers: Iterable[tuple[str, bytes | None]], name: str) -> bytes | None:
    """The value of the last header ``name``; None if it is null or missing (R280-5)."""
    found = None
    for key, value in headers:
        if key == name:
            found = value
    return found


class RulesByTopic:
    """One set of rules for all topics, or one per topic; other topics have Kafka's."""

    def __init__(self, rules: TopicRules | Mapping[str, TopicRules] | None) -> None:
        self._all = rules if isinstance(rules, TopicRules) else TopicRules()
        self._each = {} if rules is None or isinstance(rules, TopicRules) else dict(rules)

    def of(self, topic: str) -> TopicRules:
        """The rules of ``topic``."""
        return self._each.get(topic, self._all)

    def every(self) -> tuple[TopicRules, ...]:
        return (self._all, *self._each.values())
