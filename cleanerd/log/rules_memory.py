"""By which rules a topic was last cleaned, as far as the state directory remembers any of its partitions (U-6).

Reads the partitions' state files and changes none. What cannot be read counts as absent, as for whoever loads it.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Final

from cleanerd.log.safe_open import MAX_FACTS_BYTES, open_directory, open_trusted_directory, read_whole
from cleanerd.log.state_files import DAMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTITIONS: Final = "partitions"
SUFFIX: Final = ".json"


class RulesMemory:
    """Answers for one state directory; a directory in it is listed once while nothing in it changes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: dict[str, tuple[int, dict[str, list[str]]]] = {}
        self._rules: dict[tuple[str, str], tuple[int, str | None]] = {}

    def of_topic_id(self, directory: str, topic_id: str) -> str | None:
        """As :meth:`of_topic`, and if that log directory knows nothing, one of the others: an id is one topic's.

        A broker's partitions are spread over its log directories, and are moved between them.
        """
        others = (each for each in self._directories() if each != directory)
        found = (self.of_topic(each, topic_id) for each in (directory, *others))
        return next((each for each in found if each is not None), None)

    def of_topic(self, directory: str, topic: str) -> str | None:
        """The fingerprint of the first partition that has one; None when no cleaning is remembered.

        ``directory`` and ``topic`` are as in the names of state files: a log directory's, and a topic's without the
        partition.
        """
        with _opened(self._root, f"{PARTITIONS}/{directory}") as descriptor:
            if descriptor is None:
                return None
            written_ns = os.fstat(descriptor).st_mtime_ns
            known = self._rules.get((directory, topic))
            if known is None or known[0] != written_ns:
                names = self._listed(directory, descriptor, written_ns).get(topic, [])
                found = (_fingerprint(name, descriptor) for name in names)
                known = written_ns, next((each for each in found if each is not None), None)
                self._rules[directory, topic] = known
            return known[1]

    def of_name(self, topic: str, topic_id: str) -> list[str]:
        """The fingerprints of a topic's partitions in all log directories, each once; ``topic_id`` as Kafka does."""
        wanted = {topic_id, f"name-{topic}"}
        found: dict[str, None] = {}
        for directory in self._directories():
            with _opened(self._root, f"{PARTITIONS}/{directory}") as descriptor:
                if descriptor is None:
                    continue
                listed = self._listed(directory, descriptor, os.fstat(descriptor).st_mtime_ns)
                for name in (each for part in wanted for each in listed.get(part, [])):
                    fingerprint = _fingerprint(name, descriptor)
                    if fingerprint is not None:
                        found[fingerprint] = None
        return list(found)

    def _directories(self) -> list[str]:
        with _opened(self._root, PARTITIONS) as descriptor:
            return [] if descriptor is None else sorted(os.listdir(descriptor))

    def _listed(self, directory: str, descriptor: int, written_ns: int) -> dict[str, list[str]]:
        """The names of state files by topic."""
        known = self._names.get(directory)
        if known is None or known[0] != written_ns:
            by_topic: dict[str, list[str]] = {}
            for name in sorted(os.listdir(descriptor)):
                if name.endswith(SUFFIX):
                    by_topic.setdefault(name.removesuffix(SUFFIX).rpartition("-")[0], []).append(name)
            known = self._names[directory] = written_ns, by_topic
        return known[1]


@contextlib.contextmanager
def _opened(root: Path, below: str) -> Iterator[int | None]:
    """A descriptor of the directory ``below`` the state directory; None when it cannot be opened."""
    with contextlib.ExitStack() as stack:
        try:
            base = open_trusted_directory(root)
            stack.callback(os.close, base)
            descriptor = open_directory(below, dir_fd=base)
            stack.callback(os.close, descriptor)
        except OSError:
            yield None
        else:
            yield descriptor


def _fingerprint(name: str, directory: int) -> str | None:
    try:
        point = json.loads(read_whole(name, dir_fd=directory, max_bytes=MAX_FACTS_BYTES))["clean_point"]
        return None if point is None else str(point["fingerprint"])
    except (OSError, *DAMAGE):
        return None
