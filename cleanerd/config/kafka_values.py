"""How Kafka parses the text of a configuration value, and which values it allows.

A rule's ``read(text)`` returns the typed value or raises ValueError with the allowed values; the caller adds the key
and the origin. The text is as Kafka's parser expects it (plain numbers, no units), from KRaft metadata and
``server.properties``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

# Python's int() and float() accept more than Java: underscores, digits of other scripts, "infinity".
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?", re.ASCII)

# Kafka sets no limit. A longer name is a mistake, and is compared with every header of every record.
_HEADER_NAME_BYTES: Final = 1024


def shown(text: str) -> str:
    """A value in quotes for a message, shortened if necessary."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


class ConfigValue(NamedTuple):
    """A key's value, parsed, and the source that sets it."""

    value: Any
    origin: str


class ValueRule(Protocol):
    """Parses the text of one key."""

    def read(self, text: str) -> object:
        """The value; ValueError with the allowed values if the text is invalid."""

    @property
    def valid(self) -> str:
        """The allowed values, for messages."""


@dataclass(frozen=True, slots=True)
class NumberRule:
    """A whole number from ``least`` to ``most``, both included."""

    least: int
    most: int

    @property
    def valid(self) -> str:
        """The range; the largest values of Java's types are left out."""
        if self.most in {INT_MAX, LONG_MAX}:
            return f"a whole number, {self.least} or more" + (" (at most 2^31-1)" if self.most == INT_MAX else "")
        return f"a whole number from {self.least} to {self.most}"

    def read(self, text: str) -> int:
        """The number; blanks around it are ignored, as Kafka does."""
        stripped = text.strip()
        # 40 characters are enough for every long; int() of a million digits would take too long.
        if len(stripped) > 40 or not _INTEGER.fullmatch(stripped):
            raise ValueError(self.valid)
        value = int(stripped)
        if not self.least <= value <= self.most:
            raise ValueError(self.valid)
        return value


@dataclass(frozen=True, slots=True)
class BrokerRetention:
    """A broker's retention time: at least 1, or any negative number, which means no limit and becomes -1."""

    most: int

    @property
    def valid(self) -> str:
        """The range, in words for a message."""
        return "a whole number, 1 or more, or -1 (indefinitely)"

    def read(self, text: str) -> int:
        """The number, or -1. Unlike a topic a broker refuses 0 (tried on 4.3.1)."""
        value = NumberRule(-self.most - 1, self.most).read(text)
        if value == 0:
            raise ValueError(self.valid)
        return max(value, -1)


@dataclass(frozen=True, slots=True)
class RatioRule:
    """A number from 0 to 1, both included."""

    @property
    def valid(self) -> str:
        """The range, in words for a message."""
        return "a number from 0 to 1"

    def read(self, text: str) -> float:
        """The number; Java's type suffix (``0.5f``) is accepted, NaN is not."""
        stripped = text.strip()
        if len(stripped) > 400 or not _DECIMAL.fullmatch(stripped):
            raise ValueError(self.valid)
        value = float(stripped.rstrip("dDfF"))
        if not math.isfinite(value) or not 0 <= value <= 1:
            raise ValueError(self.valid)
        return value


@dataclass(frozen=True, slots=True)
class BooleanRule:
    """``true`` or ``false``, in any case."""

    @property
    def valid(self) -> str:
        """The two words, for a message."""
        return "true or false"

    def read(self, text: str) -> bool:
        """The boolean; only the two words are accepted."""
        word = text.strip().lower()
        if word not in {"true", "false"}:
            raise ValueError(self.valid)
        return word == "true"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """A cleanup policy: ``compact``, ``delete``, both with a comma, or nothing (keep everything)."""

    @property
    def valid(self) -> str:
        """The words that the list may contain, for a message."""
        return "a list of compact, delete"

    def read(self, text: str) -> frozenset[str]:
        """The set of policies, in lower case."""
        words = [word.strip().lower() for word in text.split(",")] if text.strip() else []
        if not set(words) <= {"compact", "delete"}:
            raise ValueError(self.valid)
        return frozenset(words)


@dataclass(frozen=True, slots=True)
class ChoiceRule:
    """One of ``choices``. An empty text means ``empty``."""

    choices: tuple[str, ...]
    empty: str

    @property
    def valid(self) -> str:
        """The choices, in words for a message."""
        return f"one of: {', '.join(self.choices)}"

    def read(self, text: str) -> str:
        """The choice (R280-2: an empty text means the default, an unknown one is an error)."""
        word = text.strip()
        if not word:
            return self.empty
        if word not in self.choices:
            raise ValueError(self.valid)
        return word


@dataclass(frozen=True, slots=True)
class WordRule:
    """Any text, in lower case, for a key that cleanerd only compares with known values."""

    @property
    def valid(self) -> str:
        """All values: a newer broker may have more."""
        return "a word"

    def read(self, text: str) -> str:
        return text.strip().lower()


@dataclass(frozen=True, slots=True)
class HeaderNameRule:
    """The name of a record header; blank means none."""

    @property
    def valid(self) -> str:
        return f"the name of a record header, at most {_HEADER_NAME_BYTES} bytes"

    def read(self, text: str) -> str:
        """The name without surrounding blanks: with one, no record would have the header."""
        name = text.strip()
        try:
            size_bytes = len(name.encode())
        except UnicodeEncodeError:
            raise ValueError(self.valid) from None
        if size_bytes > _HEADER_NAME_BYTES:
            raise ValueError(self.valid)
        return name
