"""The state in each of a table's commits: the rules, the offsets, and their time."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from cleanerd.errors import ConfigError
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir
from cleanerd.fsio.state_files import DAMAGE
from cleanerd.verify.rules import KeyRules

PROPERTY: Final = "cleanerd.snapshot"
"""Its name among the properties of a commit."""

_FORMAT: Final = 2
_WITHOUT_EPOCHS: Final = 1
UNKNOWN_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class Topic:
    """``topic_id``: hexadecimal, None if the partition's directory has none.

    ``keep_deleted``: rows of deleted keys stay. They are needed if versions decide: a later record may lose to a
    tombstone.
    """

    topic_id: str | None
    rules: KeyRules
    keep_deleted: bool

    def after(self, before: Topic | None) -> Topic:
        """With the earlier id if there is none now: a copy may lack its file."""
        return self if before is None or self.topic_id is not None else replace(self, topic_id=before.topic_id)


@dataclass(frozen=True, slots=True)
class Watermark:
    """The table contains the log from ``log_start`` to ``end_offset`` (exclusive) as of ``as_of_ms``.

    ``leader_epoch``: that of the last of these offsets, -1 if unknown.
    """

    log_start: int
    end_offset: int
    as_of_ms: int
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class TableState:
    """The state. ``whole_log``: with records that were not acknowledged, which may have been truncated since.

    ``run``: identifies the commit, because the same log with other schemas gives other rows.
    """

    topics: Mapping[str, Topic]
    watermarks: Mapping[TopicPartition, Watermark]
    whole_log: bool = False
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def to_text(self) -> str:
        """The text in a commit."""
        topics = {
            name: {"topic_id": each.topic_id, "keep_deleted": each.keep_deleted, "rules": _rules_document(each.rules)}
            for name, each in sorted(self.topics.items())
        }
        watermarks = {
            str(name): [watermark.log_start, watermark.end_offset, watermark.as_of_ms, watermark.leader_epoch]
            for name, watermark in sorted(self.watermarks.items())
        }
        document = {
            "format": _FORMAT,
            "whole_log": self.whole_log,
            "run": self.run,
            "topics": topics,
            "partitions": watermarks,
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str, where: str) -> TableState:
        """The reverse of :meth:`to_text`.

        Raises:
            ConfigError: it is not of that form.
        """
        try:
            return _from(json.loads(text))
        except DAMAGE:
            raise ConfigError(
                f"the record of its last snapshot in the table cannot be read: {text[:60]!r}",
                where=where,
                hint="another release of cleanerd may have written it; --replace writes the table again",
            ) from None


def _rules_document(rules: KeyRules) -> dict[str, Any]:
    names = {name: None if value is None else value.hex() for name, value in _names(asdict(rules)).items()}
    return {**asdict(rules), **names}


def _rules_from(document: Mapping[str, Any]) -> KeyRules:
    names = {name: None if value is None else bytes.fromhex(value) for name, value in _names(document).items()}
    return KeyRules(**{**document, **names})


def _names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The names of headers, which need not be text."""
    return {name: fields[name] for name in ("header", "tombstone_header")}


def _from(document: Any) -> TableState:
    is_old = document["format"] == _WITHOUT_EPOCHS
    run = "" if is_old else document["run"]
    is_known = is_old or document["format"] == _FORMAT
    if not (is_known and isinstance(document["whole_log"], bool) and isinstance(run, str)):
        raise ValueError
    topics = {}
    for name, each in document["topics"].items():
        topic_id = each["topic_id"]
        if not (topic_id is None or isinstance(topic_id, str)) or not isinstance(each["keep_deleted"], bool):
            raise ValueError
        topics[name] = Topic(topic_id, _rules_from(each["rules"]), each["keep_deleted"])
    watermarks = {}
    for text, stored in document["partitions"].items():
        name = parse_topic_partition_dir(text)
        begin, end, as_of_ms, epoch = numbers = [*stored, UNKNOWN_EPOCH] if is_old else stored
        if name is None or any(type(each) is not int for each in numbers):
            raise ValueError
        if min(begin, end, as_of_ms, epoch - UNKNOWN_EPOCH) < 0:
            raise ValueError
        watermarks[name] = Watermark(begin, end, as_of_ms, epoch)
    if not {name.topic for name in watermarks} <= topics.keys():
        raise ValueError
    return TableState(topics, watermarks, document["whole_log"], run)
