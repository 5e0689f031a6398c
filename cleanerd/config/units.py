"""Sizes and times with units: ``128MiB``, ``15s``. Plain numbers keep the unit that Kafka gives the key."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

SIZE_UNITS: Final = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
TIME_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

SIZE_HINT: Final = "a size such as 128MiB (B, KiB, MiB, GiB, TiB) or a number of bytes"
TIME_HINT: Final = "a time such as 15s (ms, s, m, h, d)"

# Twenty digits are enough for every 64-bit number; longer ones are refused before they are parsed.
_PLAIN: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_WITH_UNIT: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?) ?([A-Za-z]+)", re.ASCII)


def parse_size(text: str) -> int:
    """Bytes.

    Raises:
        ValueError: not a size, an unknown unit (such as ``MB``, which is ambiguous), or a fraction of a byte.
    """
    return _parse(text, SIZE_UNITS, 1, SIZE_HINT)


def parse_time(text: str, unit_ms: int = 1) -> int:
    """A time in ``unit_ms``, the unit of the key: 1 for ``.ms``, 60000 for ``.minutes``, 3600000 for ``.hours``.

    Raises:
        ValueError: not a time, an unknown unit, or not a whole number of the key's unit.
    """
    return _parse(text, TIME_UNITS_MS, unit_ms, time_hint(unit_ms))


def time_hint(unit_ms: int) -> str:
    words = {1: "milliseconds", 60_000: "minutes", 3_600_000: "hours"}
    return f"{TIME_HINT} or a number of {words[unit_ms]}"


def format_size(size_bytes: int) -> str:
    """The shortest text that :func:`parse_size` reads as exactly ``size_bytes``."""
    return _format(size_bytes, SIZE_UNITS, 1)


def format_time(value: int, unit_ms: int = 1) -> str:
    """Text in the largest whole unit that :func:`parse_time` reads as exactly ``value``."""
    return _format(value, TIME_UNITS_MS, unit_ms)


def _parse(text: str, units: dict[str, int], base: int, hint: str) -> int:
    stripped = text.strip()
    if _PLAIN.fullmatch(stripped):
        return int(stripped)
    match = _WITH_UNIT.fullmatch(stripped)
    if match is None or match[2] not in units:
        raise ValueError(hint)
    value = Fraction(match[1]) * units[match[2]] / base
    if value.denominator != 1:
        raise ValueError(f"{hint}; {stripped} is not a whole number of them")
    return value.numerator


def _format(value: int, units: dict[str, int], base: int) -> str:
    # Kafka's "no limit" values are not times; 0 needs no unit.
    if value <= 0 or value >= 2**62:
        return str(value)
    for unit, factor in sorted(units.items(), key=lambda item: -item[1]):
        if value * base % factor == 0 and factor > 1:
            return f"{value * base // factor}{unit}"
    return str(value)
