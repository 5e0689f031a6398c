"""Topic configurations reported by a broker in ZooKeeper mode: ``topics.json`` in the state directory.

Such a broker has no topic configuration on its disks, so cleanerd queries it while it runs, and stores the answer in
one JSON file. Each of a broker's log directories has an entry with its topics: a broker on a copy has the same cluster
and node, but may have other topic configurations (U-46).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cleanerd import __version__
from cleanerd.fsio.json_text import document_bytes
from cleanerd.fsio.state_files import (
    entries_of,
    locked,
    make_directory,
    owner_of,
    require_format,
    write_state_file,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT: Final = 1
FILE_NAME: Final = "topics.json"
KEPT_MS: Final = 7 * 24 * 60 * 60_000
"""A topic that was not queried since is deleted, or its log directory does not belong to the broker any more."""


@dataclass(frozen=True, slots=True)
class CachedTopic:
    """A topic's id, with hyphens (empty: it has none, or the broker does not report it), and its configuration.

    ``asked_ms``: when it was.
    """

    topic_id: str
    values: Mapping[str, str]
    asked_ms: int


@dataclass(frozen=True, slots=True)
class CachedTopics:
    """The topics of one log directory as a broker of one cluster reported them, last at ``asked_ms``.

    ``place``: what the state directory calls that log directory.
    """

    cluster_id: str
    node_id: int
    place: str
    asked_ms: int
    topics: Mapping[str, CachedTopic]

    @property
    def about(self) -> tuple[str, int, str]:
        """Which broker and log directory it is about."""
        return self.cluster_id, self.node_id, self.place


class TopicCache:
    """The file. Reading never fails: what cannot be used counts as absent, see ``warnings``."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / FILE_NAME
        self.warnings: list[str] = []

    def of(self, cluster_id: str, node_id: int, place: str) -> CachedTopics | None:
        return next((each for each in self._load() if each.about == (cluster_id, node_id, place)), None)

    def save(self, topics_now: CachedTopics) -> CachedTopics:
        """Store it, beside that broker's other topics; returns all of them.

        Where it cannot be kept, that is a warning.
        """
        directory = self.path.parent
        try:
            make_directory(directory, owner_of(directory))
            with locked(self.path.with_suffix(".lock"), directory.stat()):
                others = []
                for each in self._load():
                    if each.about != topics_now.about:
                        others.append(each)
                        continue
                    since_ms = topics_now.asked_ms - KEPT_MS
                    kept = {name: topic for name, topic in each.topics.items() if topic.asked_ms > since_ms}
                    topics_now = replace(topics_now, topics=kept | dict(topics_now.topics))
                entries = [_document(each) for each in (*others, topics_now)]
                document = {"format": FORMAT, "cleanerd": __version__, "brokers": entries}
                write_state_file(self.path, document_bytes(document), directory.stat())
        except OSError as error:
            self.warnings.append(
                f"{self.path}: cannot be written ({error.strerror}): the broker's topic configuration is not cached"
            )
        return topics_now

    def _load(self) -> list[CachedTopics]:
        return entries_of(self.path, _read, self.warnings)


def _read(data: bytes) -> list[CachedTopics]:
    """Raises one of ``DAMAGE``: it is not such a file."""
    document = json.loads(data)
    require_format(document, FORMAT)
    return [_entry(entry) for entry in document["brokers"]]


def _document(topics_now: CachedTopics) -> dict[str, Any]:
    """Readable by earlier releases: only topics with a time of their own have an extra field."""
    document = asdict(topics_now)
    for topic in document["topics"].values():
        if topic["asked_ms"] == topics_now.asked_ms:
            del topic["asked_ms"]
    return document


def _entry(entry: dict[str, Any]) -> CachedTopics:
    return CachedTopics(
        cluster_id=str(entry["cluster_id"]),
        node_id=int(entry["node_id"]),
        place=str(entry["place"]),
        asked_ms=int(entry["asked_ms"]),
        topics={
            str(topic): CachedTopic(
                str(topics_now["topic_id"]),
                {str(k): str(v) for k, v in topics_now["values"].items()},
                int(topics_now.get("asked_ms", entry["asked_ms"])),
            )
            for topic, topics_now in entry["topics"].items()
        },
    )
