"""Words for people, for every room that speaks to them."""

from __future__ import annotations

from typing import Final

_MANY: Final = {"batch": "batches", "is": "are", "begins": "begin"}


def counted(count: int, noun: str, verb: str = "") -> str:
    """``1 segment``, ``1,234 segments``; with a verb ``1 segment is``, ``2 segments are``."""
    words = [f"{count:,}", *(word if count == 1 else _MANY.get(word, f"{word}s") for word in (noun, verb) if word)]
    return " ".join(words)
