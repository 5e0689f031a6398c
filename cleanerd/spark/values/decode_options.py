"""The options for decoding: the columns and their schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cleanerd.errors import ConfigError

CONFLUENT: Final = "confluent"
NONE: Final = "none"
FRAMINGS: Final = (CONFLUENT, NONE)
SOURCES: Final = ("key", "value")
LIMIT: Final = 10_000
"""Limit of undecodable keys and values before a run is ended."""


def decoded_name(source: str) -> str:
    """The name of the column with the fields of ``source``, a key or a value."""
    return f"{source}_decoded"


def error_name(source: str) -> str:
    """The name of the column with the reason why it could not be decoded."""
    return f"{source}_error"


EXTRA: Final = {name: source for source in SOURCES for name in (decoded_name(source), error_name(source))}
"""The additional columns, each with its source column."""


@dataclass(frozen=True, slots=True)
class Decode:
    """The options for decoding. ``schemas``: a registry's URL, or a directory. ``columns``: ``value``, ``key``.

    ``value_schema``, ``key_schema``: ``SUBJECT`` or ``SUBJECT:VERSION``, which defines the columns; None: the newest of
    ``TOPIC-value``, ``TOPIC-key``. ``value_message``, ``key_message``: full names in Protobuf; None: the first.
    ``framing``: ``confluent``, a zero byte and a schema's id before the value, or ``none``. ``limit``: number of
    allowed failures.
    """

    schemas: str
    columns: tuple[str, ...] | str = ("value",)
    value_schema: str | None = None
    key_schema: str | None = None
    value_message: str | None = None
    key_message: str | None = None
    framing: str = CONFLUENT
    limit: int = LIMIT

    def __post_init__(self) -> None:
        """Raises ConfigError for invalid options."""
        for each in self.sources:
            if each not in SOURCES:
                raise ConfigError(f"{each!r} is none of {', '.join(SOURCES)}", where="decode")
        if not self.sources:
            raise ConfigError("names no column", where="decode", hint="value, or key,value")
        if self.framing not in FRAMINGS:
            raise ConfigError(f"{self.framing!r} is none of {', '.join(FRAMINGS)}", where="framing")
        if self.limit < 0:
            raise ConfigError("is below 0", where="undecodedLimit")

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns, in the order of a record."""
        texts = self.columns.split(",") if isinstance(self.columns, str) else self.columns
        words = {each.strip() for each in texts} - {""}
        return tuple(each for each in SOURCES if each in words) + tuple(sorted(words - {*SOURCES}))

    def to_options(self) -> dict[str, str]:
        """As options of the data source."""
        texts = {
            "decode": ",".join(self.sources),
            "schemas": self.schemas,
            "valueSchema": self.value_schema,
            "keySchema": self.key_schema,
            "valueMessage": self.value_message,
            "keyMessage": self.key_message,
            "framing": self.framing,
            "undecodedLimit": str(self.limit),
        }
        return {name: text for name, text in texts.items() if text is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """The additional columns, in their order."""
        return tuple(name for each in self.sources for name in (decoded_name(each), error_name(each)))
