"""Topic configurations reported by a broker in ZooKeeper mode: ``topics.json`` in the state directory.

Such a broker has no topic configuration on its disks, so cleanerd queries it while it runs, and stores the answer in
one JSON file. Each of a broker's log directories has an entry with its topics: a broker on a copy has the same cluster
and node, but may have other topic configurations (U-46).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cleanerd.state.document import Document

FILE_NAME: Final = "topics.json"
KEPT_MS: Final = 7 * 24 * 60 * 60_000
"""A topic that was not queried since is deleted, or its log directory does not belong to the broker any more."""


@dataclass(frozen=True, slots=True)
class CachedTopic:
    """A topic's id, with hyphens (empty: it has none, or the broker does not report it), and its configuration.

    ``queried_ms``: when it was queried. ``has_both_values``: whether the topic itself sets both values of
    ``cleanerd delegate`` (U-96); None: not stored, by an earlier release.
    """

    topic_id: str
    values: Mapping[str, str]
    queried_ms: int
    has_both_values: bool | None = None


@dataclass(frozen=True, slots=True)
class CachedTopics:
    """The topics of one log directory as a broker of one cluster reported them, last at ``queried_ms``.

    ``place``: the log directory's name in the state directory.
    """

    cluster_id: str
    node_id: int
    place: str
    queried_ms: int
    topics: Mapping[str, CachedTopic]

    @property
    def about(self) -> tuple[str, int, str]:
        """The broker and log directory that it describes."""
        return self.cluster_id, self.node_id, self.place


@dataclass(frozen=True, slots=True)
class _AllTopics:
    brokers: tuple[CachedTopics, ...] = ()


_DOCUMENT: Final = Document(FILE_NAME, _AllTopics)


class TopicCache:
    """The file. Reading does not raise: unusable files count as absent, see ``warnings``."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self.warnings: list[str] = []

    def of(self, cluster_id: str, node_id: int, place: str) -> CachedTopics | None:
        return next((each for each in self._load() if each.about == (cluster_id, node_id, place)), None)

    def save(self, topics_now: CachedTopics) -> CachedTopics:
        """Store the topics beside the broker's other ones; returns all of them. A failure is a warning."""
        try:
            with _DOCUMENT.locked(self._state_dir):
                others = []
                for each in self._load():
                    if each.about != topics_now.about:
                        others.append(each)
                        continue
                    since_ms = topics_now.queried_ms - KEPT_MS
                    kept = {name: topic for name, topic in each.topics.items() if topic.queried_ms > since_ms}
                    topics_now = replace(topics_now, topics=kept | dict(topics_now.topics))
                _DOCUMENT.write(self._state_dir, _AllTopics((*others, topics_now)))
        except OSError as error:
            problem = f"cannot be written ({error.strerror}): the broker's topic configuration is not cached"
            self.warnings.append(f"{self._state_dir / FILE_NAME}: {problem}")
        return topics_now

    def _load(self) -> tuple[CachedTopics, ...]:
        return (_DOCUMENT.load(self._state_dir, self.warnings) or _AllTopics()).brokers
