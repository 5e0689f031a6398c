"""The fingerprint of a topic's strategy and tombstone settings, which decide the retained records, as text (U-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.config.topic_config import TopicConfig

KAFKAS_FINGERPRINT: Final = "strategy=offset;tombstone.mode=null"
"""The fingerprint of the rules of Kafka's cleaner."""


def describe_settings(config: TopicConfig) -> str:
    """The compaction settings in a table cell: ``offset``, ``header:version``, ``offset, flag tombstones``."""
    return describe_fingerprint(fingerprint(config))


def describe_fingerprint(text: str) -> str:
    """As :func:`describe_settings`, of a fingerprint; ``text`` itself if it is not a fingerprint."""
    parts = parts_of(text)
    if "strategy" not in parts:
        return text or "unknown rules"
    strategy, mode = parts["strategy"], parts.get("tombstone.mode", "null")
    if strategy == "header":
        strategy += f":{parts.get('header', '')}"
        if parts.get("encoding", "long") != "long":
            strategy += f" ({parts['encoding']})"
    if mode == "header":
        return f"{strategy}, tombstones by header {parts.get('tombstone.header', '')}"
    return strategy if mode == "null" else f"{strategy}, {mode} tombstones"


def parts_of(text: str) -> dict[str, str]:
    """The parts of a fingerprint: name -> value."""
    parts = (part.partition("=")[::2] for part in text.split(";"))
    return {name: value.replace("%3B", ";").replace("%25", "%") for name, value in parts if name}


def fingerprint(config: TopicConfig) -> str:
    """The topic's settings that decide which record is retained (U-6), as text; stored with the cleanerd checkpoint.

    It contains header name and encoding for the header strategy only, and the tombstones' header for mode ``header``
    only: a setting without effect must not change it. The tombstone guard is not part of it: it only delays removal.
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
    """The differences of two fingerprints: name -> (before, after); an empty text for a missing name."""
    old, new = parts_of(before), parts_of(after)
    names = [*old, *(name for name in new if name not in old)]
    return {name: (old.get(name, ""), new.get(name, "")) for name in names if old.get(name) != new.get(name)}


def describe_changes(before: str, after: str) -> str:
    """How two fingerprints differ, in words: ``strategy offset -> header, header none -> version``."""
    differences = fingerprint_differences(before, after).items()
    return ", ".join(f"{name} {old or 'none'} -> {new or 'none'}" for name, (old, new) in differences)


def _escaped(name: str) -> str:
    """Escape semicolons in a header's name, because they separate the parts."""
    return name.replace("%", "%25").replace(";", "%3B")
