"""Resolves an operator's words to partitions: ``orders-0``, a topic, or a pattern such as ``orders-*``.

Every command and the daemon use this module. Several words are resolved together: if one is unknown it is reported, and
nothing is selected.
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from cleanerd.config.topic_config import INTERNAL_TOPICS, NEVER_CLEANED
from cleanerd.config.topic_patterns import matches
from cleanerd.errors import ConfigError, RefusedError
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir

_PATTERN: Final = frozenset("*?[")

_MOST_NAMED: Final = 20
"""How many unknown words an error repeats; the others are counted."""

_MAX_NAMES_COMPARED: Final = 3
_MOST_NAMES_COMPARED: Final = 500


@dataclass(frozen=True, slots=True)
class PartitionSelection(Collection[TopicPartition]):
    """The partitions of ``words``; false without words, which selects all.

    ``named``: the partitions in ``names`` that are given by their own or their topic's name; they are selected even if
    they are not compacted or excluded. A pattern selects only compacted topics that no setting excludes.
    """

    words: tuple[str, ...] = ()
    names: frozenset[TopicPartition] = frozenset()
    named: frozenset[TopicPartition] = frozenset()

    def __bool__(self) -> bool:
        # Unknown words in the readable directories must not select everything.
        return bool(self.words)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(sorted(self.names))

    def __len__(self) -> int:
        return len(self.names)


EVERYTHING: Final = PartitionSelection()


def select(
    words: Sequence[str], known: Iterable[TopicPartition], *, what: str, hint: str, partial: bool = False
) -> PartitionSelection:
    """The ``known`` partitions that ``words`` select.

    A word is a partition's name, else a topic's, else a pattern for either. ``what``: the error's term for an unknown
    one. ``partial``: not all partitions are known, so a word without a match is not an error.

    Raises:
        ConfigError: words that mean nothing: the first ones, and how many there are, with names that are near.
        RefusedError: a word names a topic that is never cleaned.
    """
    if not words:
        return EVERYTHING
    by_text = {str(name): name for name in known}
    by_topic: dict[str, set[TopicPartition]] = {}
    for name in by_text.values():
        by_topic.setdefault(name.topic, set()).add(name)
    named: set[TopicPartition] = set()
    matching: set[TopicPartition] = set()
    unknown: list[str] = []
    for word in dict.fromkeys(words):
        _refuse_never_cleaned(word)
        if word in by_text:
            named.add(by_text[word])
        elif word in by_topic:
            named |= by_topic[word]
        elif found := _matching(word, by_text):
            matching |= found
        else:
            unknown.append(word)
    if unknown and not partial:
        near = _nearest(unknown, [*by_topic, *by_text])
        raise ConfigError(what, where=_listed(unknown), hint=f"did you mean {near}? {hint}" if near else hint)
    return PartitionSelection(tuple(words), frozenset(named | matching), frozenset(named))


def _refuse_never_cleaned(word: str) -> None:
    name = parse_topic_partition_dir(word)
    if word in NEVER_CLEANED or (name is not None and name.topic in NEVER_CLEANED):
        raise RefusedError("is never cleaned: Kafka's own raft layer manages it", where=word)


def _matching(word: str, by_text: dict[str, TopicPartition]) -> set[TopicPartition]:
    if _PATTERN.isdisjoint(word):
        return set()
    return {name for text, name in by_text.items() if fnmatchcase(name.topic, word) or fnmatchcase(text, word)}


def _listed(unknown: Sequence[str]) -> str:
    more = len(unknown) - _MOST_NAMED
    return ", ".join(unknown[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _nearest(unknown: Sequence[str], names: Sequence[str]) -> str:
    """Suggestions for the first unknown words: each is compared with all names, and the daemon waits."""
    near = dict.fromkeys(
        match
        for word in unknown[:_MAX_NAMES_COMPARED]
        for match in difflib.get_close_matches(word, _likely(word, names), n=1)
    )
    return ", ".join(near)


def _likely(word: str, names: Sequence[str]) -> Sequence[str]:
    """Names that begin or end like the word; if there are few names, all.

    An exact comparison takes ten times as long.
    """
    if len(names) <= _MOST_NAMES_COMPARED:
        return names
    backwards = word[::-1]

    def alike(name: str) -> int:
        return _common(word, name) + _common(backwards, name[::-1])

    return heapq.nlargest(_MOST_NAMES_COMPARED, names, key=alike)


def _common(one: str, other: str) -> int:
    """The length of the common prefix."""
    at = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            return at
        at += 1
    return at


def why_excluded(topic: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> str:
    """Why settings leave the topic to Kafka; empty if they do not (U-11).

    Globs do not match internal topics: these have to be named.
    """
    if topic in INTERNAL_TOPICS and topic not in include:
        return f"an internal topic of Kafka, and cleanerd.topics.include does not name {topic}"
    if not any(matches(pattern, topic) for pattern in include):
        return "cleanerd.topics.include leaves it out"
    if any(matches(pattern, topic) for pattern in exclude):
        return "cleanerd.topics.exclude names it"
    return ""
