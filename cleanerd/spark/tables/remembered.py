"""What a table remembers with each of its commits: by which rules it was made, and up to which offset, as of when."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cleanerd.errors import ConfigError
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir
from cleanerd.log.state_files import DAMAGE
from cleanerd.spark.record_scan import rules_from_item, rules_to_item

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.verify.rules import KeyRules

PROPERTY: Final = "cleanerd.snapshot"
"""Its name among the properties of a commit."""

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Topic:
    """``topic_id``: hexadecimal, None where the partition's directory does not say. ``keep_deleted``: their rows stay.

    They are needed where versions decide: a later record may lose against a tombstone.
    """

    topic_id: str | None
    rules: KeyRules
    keep_deleted: bool

    def after(self, before: Topic | None) -> Topic:
        """With the id that was known ``before``, where none is said now: a copy need not have the file that says it."""
        return self if before is None or self.topic_id is not None else replace(self, topic_id=before.topic_id)


@dataclass(frozen=True, slots=True)
class Mark:
    """What the log held from ``log_start`` to ``end_offset`` (exclusive) at ``as_of_ms`` is in the table."""

    log_start: int
    end_offset: int
    as_of_ms: int


@dataclass(frozen=True, slots=True)
class Remembered:
    """``whole_log``: records that were not acknowledged too, so nobody knows whether they stayed."""

    topics: Mapping[str, Topic]
    marks: Mapping[TopicPartition, Mark]
    whole_log: bool = False

    def to_text(self) -> str:
        """As a commit carries it."""
        topics = {
            name: {"topic_id": each.topic_id, "keep_deleted": each.keep_deleted, "rules": rules_to_item(each.rules)}
            for name, each in sorted(self.topics.items())
        }
        marks = {
            str(name): [mark.log_start, mark.end_offset, mark.as_of_ms] for name, mark in sorted(self.marks.items())
        }
        document = {"format": _FORMAT, "whole_log": self.whole_log, "topics": topics, "partitions": marks}
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str, where: str) -> Remembered:
        """What :meth:`to_text` made ``text`` of.

        Raises:
            ConfigError: it is not of that form.
        """
        try:
            return _from(json.loads(text))
        except DAMAGE:
            raise ConfigError(
                f"what the table remembers of its last snapshot cannot be read: {text[:60]!r}",
                where=where,
                hint="another release of cleanerd may have written it; --replace writes the table anew",
            ) from None


def _from(document: Any) -> Remembered:
    if document["format"] != _FORMAT or not isinstance(document["whole_log"], bool):
        raise ValueError
    topics = {}
    for name, each in document["topics"].items():
        topic_id = each["topic_id"]
        if not (topic_id is None or isinstance(topic_id, str)) or not isinstance(each["keep_deleted"], bool):
            raise ValueError
        topics[name] = Topic(topic_id, rules_from_item(each["rules"]), each["keep_deleted"])
    marks = {}
    for text, numbers in document["partitions"].items():
        name = parse_topic_partition_dir(text)
        if name is None or not all(type(each) is int and each >= 0 for each in numbers):
            raise ValueError
        marks[name] = Mark(*numbers)
    if not {name.topic for name in marks} <= topics.keys():
        raise ValueError
    return Remembered(topics, marks, document["whole_log"])
