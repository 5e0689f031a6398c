"""The rules of a topic's last cleaning, from the state of any of its partitions (U-6).

Reads the partitions' state files and changes none. An unreadable or damaged file may have contained any rules: the
answer is ``UnreadableState``.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from cleanerd.format.names import uuid_to_base64
from cleanerd.fsio.directory_time import directory_time
from cleanerd.fsio.held_directories import HeldDirectory
from cleanerd.fsio.safe_open import MAX_FACTS_BYTES, names_in, read_whole
from cleanerd.fsio.state_files import DAMAGE, DAMAGED, UnreadableState, describe_damage
from cleanerd.state.document import validated
from cleanerd.state.places import PARTITIONS

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

T = TypeVar("T")

SUFFIX: Final = ".json"

_LONGEST_NAME: Final = 255 - len("name-") - len("-2147483647") - len(DAMAGED)
_NAME_KEPT: Final = 180
_MOST_TOPICS: Final = 20_000
"""Limit of cached topics, each with an answer per log directory; a cluster creates and deletes topics for years."""


def by_name(topic: str) -> str:
    """The prefix of the state files of a topic without an id.

    With a long name the file name would be too long, so the name is hashed; ``=`` is in no topic's name.
    """
    if len(topic) <= _LONGEST_NAME:
        return f"name-{topic}"
    return f"name-{topic[:_NAME_KEPT]}={hashlib.sha256(topic.encode()).hexdigest()[:32]}"


class LastSettings:
    """Answers from one state directory; a directory in it is listed again only after a change.

    The answers of ``most_topics`` are cached.
    """

    def __init__(self, root: Path, *, most_topics: int = _MOST_TOPICS) -> None:
        self._most_topics = most_topics
        self._root = str(root)
        self._may_be_empty = True
        self._names: dict[str, tuple[int, list[str]]] = {}
        self._rules: dict[tuple[str, str], tuple[int, str, str | None]] = {}

    def is_empty(self) -> bool:
        """Whether no state was ever stored; checked again while that is so, because a first start queries thousands."""
        if self._may_be_empty:
            try:
                os.lstat(f"{self._root}/{PARTITIONS}")
            except FileNotFoundError:
                return True
            except OSError:
                pass  # reading it reports the error
            self._may_be_empty = False
        return False

    def of_partition(self, directory: str, stem: str) -> str | UnreadableState | None:
        """The fingerprint in one partition's state file; ``stem`` is its name without the suffix."""
        return self._in(f"{PARTITIONS}/{directory}", lambda place, opened: _read_state(place, stem, opened))

    def of_topic(self, directory: str, topic: str) -> str | UnreadableState | None:
        """The fingerprint of a partition that has one; None when no cleaning is remembered.

        ``directory`` and ``topic`` are as in the names of state files: a log directory's, and a topic's without the
        partition. Each cleaning changes the directory, so the partition that answered before is read again first.
        """

        def read(place: str, opened: int) -> str | UnreadableState | None:
            written = directory_time(opened)
            changed_ns, last_stem, found = self._rules.get((directory, topic), (None, "", None))
            if changed_ns == written.changed_ns:
                return found
            unread, found = None, None
            for stem in chain(filter(None, [last_stem]), self._stems(directory, topic, opened)):
                answer = _read_state(place, stem, opened)
                if isinstance(answer, str):
                    last_stem, found = stem, answer
                    break
                unread = unread or answer
            if found is None and unread is not None:
                return unread  # a repair may leave the directory's time unchanged
            if len(self._rules) >= self._most_topics:
                self._rules.clear()
            self._rules[directory, topic] = written.to_compare_ns, last_stem, found
            return found

        return self._in(f"{PARTITIONS}/{directory}", read)

    def of_name(self, topic: str, topic_id: uuid.UUID | None) -> list[str | UnreadableState]:
        """The fingerprints of a topic's partitions in all log directories, without duplicates."""
        listed = self._directories()
        if isinstance(listed, UnreadableState):
            return [listed]
        found: dict[str | UnreadableState, None] = {}
        for directory in listed:

            def read(place: str, opened: int, directory: str = directory) -> None:
                topics = [by_name(topic)] if topic_id is None else [uuid_to_base64(topic_id), by_name(topic)]
                stems = [stem for each in topics for stem in self._stems(directory, each, opened)]
                stored = (_read_state(place, stem, opened) for stem in stems)
                found.update(dict.fromkeys(each for each in stored if each is not None))

            if unread := self._in(f"{PARTITIONS}/{directory}", read):
                found[unread] = None
        return list(found)

    def _directories(self) -> list[str] | UnreadableState:
        return self._in(PARTITIONS, lambda _, opened: sorted(names_in(".", opened))) or []

    def _stems(self, directory: str, topic: str, opened: int) -> Iterator[str]:
        """The stems of a topic's state files in ``directory``, ascending; with those that were set aside."""
        written = directory_time(opened)
        known = self._names.get(directory)
        if known is None or known[0] != written.changed_ns:
            known = self._names[directory] = written.to_compare_ns, sorted(names_in(".", opened))
        names, begin = known[1], f"{topic}-"
        first, end = bisect_left(names, begin), bisect_left(names, f"{topic}.")  # "." sorts after "-"
        split = (os.path.splitext(name) for name in names[first:end])
        found = {stem for stem, suffix in split if suffix in {SUFFIX, DAMAGED} and "-" not in stem[len(begin) :]}
        yield from sorted(found)

    def _in(self, name: str, read: Callable[[str, int], T]) -> T | UnreadableState | None:
        """The result of ``read`` with path and descriptor of the directory ``name``; None if it does not exist."""
        if self.is_empty():
            return None
        place = f"{self._root}/{name}"
        try:
            with HeldDirectory(self._root, name) as descriptor:
                return read(place, descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            return UnreadableState.refused(place, error)


@dataclass(frozen=True, slots=True)
class _RulesOfPoint:
    fingerprint: str


@dataclass(frozen=True, slots=True)
class RulesInState:
    """The fields of a partition's state file, from any release, that show the rules of the last cleaning."""

    cleanerd_checkpoint: _RulesOfPoint | None
    rules: str | None = None

    @property
    def fingerprint(self) -> str | None:
        if self.rules is None and self.cleanerd_checkpoint is not None:
            return self.cleanerd_checkpoint.fingerprint
        return self.rules


def first(answers: Iterable[str | UnreadableState | None]) -> str | UnreadableState | None:
    """The first fingerprint; if there is none, the first unreadable state."""
    unread = None
    for answer in answers:
        if isinstance(answer, str):
            return answer
        unread = unread or answer
    return unread


def _read_state(place: str, stem: str, directory: int) -> str | UnreadableState | None:
    """From the state file; if that has none, from one that was set aside."""
    try:
        data = read_whole(stem + SUFFIX, dir_fd=directory, max_bytes=MAX_FACTS_BYTES)
        stored = validated(RulesInState, data).fingerprint
    except FileNotFoundError:
        stored = None
    except OSError as error:
        return UnreadableState.refused(f"{place}/{stem}{SUFFIX}", error)
    except DAMAGE as error:
        return UnreadableState(f"{place}/{stem}{SUFFIX}", f"is {describe_damage(error)}")
    if stored is None and _is_there(stem + DAMAGED, directory):
        return UnreadableState(f"{place}/{stem}{DAMAGED}", "is damaged (it was set aside)")
    return stored


def _is_there(name: str, directory: int) -> bool:
    try:
        os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    return True
