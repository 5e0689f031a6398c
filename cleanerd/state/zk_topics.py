"""What a broker in ZooKeeper mode said of its topics' configuration: ``topics.json`` in the state directory.

Such a broker keeps nothing of it on its disks, so it is asked while it runs, and what it said is kept for when it does
not. One JSON file. Each of a broker's log directories asks for the topics that it holds, and has an entry of its own:
a broker that runs on a copy has the same cluster and node, and may have other topic configurations (U-46).
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
"""A topic that nobody has asked for since is deleted, or its log directory is none of the broker's any more."""


@dataclass(frozen=True, slots=True)
class CachedTopic:
    """A topic's id, with hyphens (empty: it has none, or the broker does not tell it), and its configuration.

    ``asked_ms``: when it was.
    """

    topic_id: str
    values: Mapping[str, str]
    asked_ms: int


@dataclass(frozen=True, slots=True)
class CachedTopics:
    """What a broker of one cluster said, at ``asked_ms`` last, of the topics that one log directory holds.

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
        """What one broker of a cluster said last of the topics in ``place``."""
        return next((each for each in self._load() if each.about == (cluster_id, node_id, place)), None)

    def save(self, topics_now: CachedTopics) -> CachedTopics:
        """Keep it, beside what that broker said of other topics; returns all of it.

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
                f"{self.path}: cannot be written ({error.strerror}): what the broker says of its topics is not kept"
            )
        return topics_now

    def _load(self) -> list[CachedTopics]:
        return entries_of(self.path, _read, self.warnings)


def _read(data: bytes) -> list[CachedTopics]:
    """Raises one of ``DAMAGE``: it is no such file."""
    document = json.loads(data)
    require_format(document, FORMAT)
    return [_entry(entry) for entry in document["brokers"]]


def _document(topics_now: CachedTopics) -> dict[str, Any]:
    """As earlier releases read it: of a topic only a time of its own is written beside what they know."""
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
