"""The logs that a profile or a snapshot is made of: segments of many partitions, and the work of reading them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd.errors import ConfigError
from cleanerd.log.log_dir import LOG_START_CHECKPOINT
from cleanerd.spark.record_scan import Fact, SegmentWork
from cleanerd.spark.sides import partition_dirs
from cleanerd.verify.finding import Findings
from cleanerd.verify.listing import list_partition
from cleanerd.verify.log_dir import read_surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.spread import Item
    from cleanerd.verify.listing import SegmentFile
    from cleanerd.verify.rules import KeyRules


@dataclass(frozen=True, slots=True)
class Log:
    """One partition in one log directory."""

    log_dir: Path
    name: TopicPartition
    segments: tuple[SegmentFile, ...]
    log_start: int
    rules: KeyRules

    @property
    def sealed_bytes(self) -> int:
        """Bytes of all segments but the active one."""
        return sum(file.size_bytes for file in self.segments if file.sealed)


def find_logs(
    log_dirs: Sequence[Path], wanted: Sequence[TopicPartition], rules_of: Callable[[str], KeyRules]
) -> list[Log]:
    """The partitions of ``log_dirs``, or those ``wanted``; ``rules_of`` a topic says what decides between its records.

    Raises:
        ConfigError: there is none, a wanted one is missing, or one is in two directories: a replica, or a move.
        CleanerdError: a directory cannot be listed.
    """
    found: dict[TopicPartition, Log] = {}
    for log_dir in log_dirs:
        around = read_surroundings(log_dir, Findings())
        for name, path in partition_dirs(log_dir).items():
            if wanted and name not in wanted:
                continue
            if name in found:
                raise ConfigError(
                    f"is in {found[name].log_dir} too", where=str(path), hint="name the directories of one broker only"
                )
            segments = list_partition(path).segments
            if segments:
                start = around.of(LOG_START_CHECKPOINT, name) or 0
                found[name] = Log(log_dir, name, segments, start, rules_of(name.topic))
    where = ", ".join(str(each) for each in log_dirs)
    for name in wanted:
        if name not in found:
            raise ConfigError("no such partition", where=str(name), hint=f"in {where}")
    if not found:
        raise ConfigError("holds no partition", where=where)
    return [found[name] for name in sorted(found)]


def size_of_all(logs: Sequence[Log]) -> int:
    """Bytes in the segments of ``logs``."""
    return sum(file.size_bytes for log in logs for file in log.segments)


def work_on(
    logs: Sequence[Log], hidden: Sequence[list[list[int]]], hash_key: bytes, *, strict: bool = False
) -> tuple[list[SegmentFile], list[tuple[int, Item]]]:
    """The segments by number, and the work of scanning each; ``hidden`` is what is not committed in each log."""
    files: list[SegmentFile] = []
    items = []
    for part, (log, uncommitted) in enumerate(zip(logs, hidden, strict=True)):
        for segment in log.segments:
            work = SegmentWork(
                part=part,
                file=len(files),
                segment=segment,
                sides=Fact.AFTER,
                hash_key=hash_key,
                rules=log.rules,
                hidden=uncommitted,
                log_start=log.log_start,
                strict=strict,
            )
            files.append(segment)
            items.append((segment.size_bytes, work.to_item()))
    return files, items
