"""How much a daemon may clean before its cleanings are verified (``cleanerd.canary``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

CANARY_HINT: Final = "off, a number such as 5 partitions, or a size such as 200 MiB per day (KiB, MiB, GiB, TiB)"

_PARTITIONS: Final = re.compile(r"([1-9][0-9]{0,8}) partitions?", re.ASCII)
_BYTES: Final = re.compile(r"([1-9][0-9]{0,8}) ?(KiB|MiB|GiB|TiB) per day", re.ASCII)
_UNITS: Final = {"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


@dataclass(frozen=True, slots=True)
class CanaryBudget:
    """At most ``partitions``, or at most ``day_bytes`` of logs per day; the other is None.

    ``text``: as the operator wrote it.
    """

    text: str
    partitions: int | None = None
    day_bytes: int | None = None

    def __str__(self) -> str:
        return self.text


def parse_canary(text: str) -> CanaryBudget | None:
    """``N partitions`` or ``N UNIT per day``; None for ``off``.

    Raises:
        ValueError: anything else.
    """
    words = " ".join(text.split())
    if words == "off":
        return None
    if found := _PARTITIONS.fullmatch(words):
        return CanaryBudget(words, partitions=int(found[1]))
    if found := _BYTES.fullmatch(words):
        return CanaryBudget(words, day_bytes=int(found[1]) << _UNITS[found[2]])
    raise ValueError(CANARY_HINT)
