"""The part of a log to read for a table, all of it or the new part; and the watermark to store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd.format.meta import read_partition_metadata
from cleanerd.segments.log_dir import HIGH_WATERMARK_CHECKPOINT
from cleanerd.segments.partition import PARTITION_METADATA
from cleanerd.segments.remote import RemotePath
from cleanerd.spark.tables.remembered import UNKNOWN_EPOCH, Topic, Watermark
from cleanerd.verify.epochs import read_epochs
from cleanerd.verify.finding import Findings
from cleanerd.verify.listing import bytes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.format.checkpoint import EpochStart
    from cleanerd.spark.logs import Log


@dataclass(frozen=True, slots=True)
class LogPart:
    """A log, or its new part."""

    log: Log
    first: int
    """Where the log begins."""
    begin: int
    end: int
    watermark: Watermark | None
    topic: Topic
    as_of_ms: int
    leader_epoch: int = UNKNOWN_EPOCH
    """The epoch of the last offset below ``end``."""

    @property
    def is_moved(self) -> bool:
        """Whether rows of the table may be below the log start."""
        return self.watermark is not None and self.first > self.watermark.log_start

    @property
    def now(self) -> Watermark:
        as_of_ms = self.as_of_ms if self.watermark is None else max(self.as_of_ms, self.watermark.as_of_ms)
        return Watermark(self.first, self.end, as_of_ms, self.leader_epoch)


def topics_of(logs: Sequence[Log], *, tombstones: bool) -> list[Topic]:
    """The topic of each of ``logs``; the topic id may be in only one of its partitions."""
    found: dict[str, Topic] = {}
    for log in logs:
        known = found.get(log.name.topic)
        if known is None or known.topic_id is None:
            topic_id = topic_id_of(log)
            found[log.name.topic] = Topic(topic_id, log.rules, tombstones or log.rules.by_version)
    return [found[log.name.topic] for log in logs]


def topic_id_of(log: Log) -> str | None:
    """The topic id in hexadecimal, None if its directory has none.

    Raises:
        CorruptionError: the id's file does not parse.
        CleanerdError: it cannot be read.
    """
    path = log.segments[0].path.parent / PARTITION_METADATA
    data = bytes_of(path)
    return None if data is None else read_partition_metadata(data, str(path)).hex


def first_of(log: Log) -> int:
    return max(log.log_start, log.segments[0].base)


def leader_epochs_of(log: Log) -> list[EpochStart]:
    """The beginnings of its leader epochs; empty without a readable file.

    Raises:
        CleanerdError: the file cannot be read.
    """
    return read_epochs(log.segments[0].path.parent, Findings())


def leader_epoch_at(starts: Sequence[EpochStart], offset: int) -> int:
    """The epoch of ``offset``, -1 if unknown."""
    return next((each.epoch for each in reversed(starts) if each.start_offset <= offset), UNKNOWN_EPOCH)


def as_of(log: Log, now_ms: int) -> int:
    """The log's time: the broker writes the checkpoint every few seconds, and a copy of it keeps its time.

    Raises:
        CleanerdError: a store does not answer.
    """
    path = log.log_dir / HIGH_WATERMARK_CHECKPOINT
    if isinstance(path, RemotePath):
        listed = path.status()
        return now_ms if listed is None else min(now_ms, listed.st_mtime_ns // 1_000_000)
    try:
        return min(now_ms, os.stat(path).st_mtime_ns // 1_000_000)
    except OSError:
        return now_ms  # no checkpoint: the whole log was requested
