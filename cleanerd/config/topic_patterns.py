"""Names of topic tables: a topic, or a glob such as ``orders-*``."""

from __future__ import annotations

import fnmatch
import re
from typing import Final

_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_WILDCARDS: Final = re.compile(r"\*|\?|\[[!\]]?[^\]]*\]")


def is_glob(topic: str) -> bool:
    """Whether a topic table's name is a glob. No valid topic name contains a wildcard."""
    return any(character in topic for character in "*?[")


def bad_topic_name(topic: str) -> str | None:
    """Why a topic table's name cannot match any topic; None if it can."""
    literal = _WILDCARDS.sub("", topic) if is_glob(topic) else topic
    if topic in {"", ".", ".."} or (literal and not _LEGAL_TOPIC.fullmatch(literal)):
        return f"{topic!r} cannot be a topic: letters, digits, '.', '_', '-', at most 249 (or a glob of them)"
    return None


def matches(pattern: str, topic: str) -> bool:
    """Whether the table named ``pattern`` applies to ``topic``."""
    return fnmatch.fnmatchcase(topic, pattern) if is_glob(pattern) else pattern == topic


def strength(pattern: str) -> tuple[bool, int]:
    """The precedence of tables that match a topic: its own name, then the glob with the most literal characters."""
    return (not is_glob(pattern), len(_WILDCARDS.sub("", pattern)))
