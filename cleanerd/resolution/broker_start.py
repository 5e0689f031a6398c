"""States of a log directory in which its broker does not start, or ignores or deletes a partition (U-60).

Each was tried on a broker.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.broker.lock_file import is_held
from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.meta import read_partition_metadata
from cleanerd.format.names import TopicPartition, broker_takes_dir, parse_future_dir, uuid_to_base64
from cleanerd.fsio.plain_file import read_plain
from cleanerd.humanize import counted
from cleanerd.resolution.broker_facts import BrokerFacts, meta_of
from cleanerd.resolution.log_dirs import log_dirs_in
from cleanerd.segments.cleanable_range import log_end_offset
from cleanerd.segments.log_dir import LOG_START_CHECKPOINT
from cleanerd.segments.partition import PARTITION_METADATA, read_partition
from cleanerd.segments.reading import SegmentReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cleanerd.segments.log_dir import LogDir

_SHOWN: Final = 3
_MOUNT: Final = (
    "the root of a file system has this directory: make a directory below the mount point the log directory, and move "
    "everything else into it; to remove lost+found helps until the next check of the file system"
)


@dataclass(frozen=True, slots=True)
class StartObstacle:
    """An effect on the broker's next start, its origin, and what you can do before.

    ``refused``: a cleaning refuses the partition with the same message.
    """

    what: str
    where: Path
    fix: str
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.fix})"


def start_obstacles(log_dir: LogDir, facts: BrokerFacts | None) -> list[StartObstacle]:
    """All obstacles in ``log_dir``. Reads names, the small files that name owners, and the ends of some logs.

    ``facts``: None if the broker's configuration cannot be read; then only the names in the directory are judged.
    Unreadable directories and files are skipped: reading the log reports them.
    """
    if facts is None:
        return [*_directories(log_dir), *_starts_beyond_its_end(log_dir)]
    return [
        *_directories(log_dir),
        *_starts_beyond_its_end(log_dir),
        *_identities(log_dir, facts),
        *_other_owners(log_dir, facts),
        *_twins(log_dir, facts),
    ]


def start_warnings(log_dir: LogDir, facts: BrokerFacts) -> list[str]:
    """The obstacles that no cleaning refuses, in words: for every command and mode, and for the daemon's page."""
    return [str(each) for each in start_obstacles(log_dir, facts) if not each.refused]


def _directories(log_dir: LogDir) -> Iterator[StartObstacle]:
    try:
        with os.scandir(log_dir.path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())  # the broker follows links
    except OSError:
        return
    for name in names:
        if not broker_takes_dir(name):
            fix = _MOUNT if name == "lost+found" else "move it out of the log directory"
            yield StartObstacle(
                "the broker does not start with a directory that is not named as a partition", log_dir.path / name, fix
            )
        elif (moved := parse_future_dir(name)) is not None and moved in log_dir.partitions:
            what = f"the broker does not start with it beside {moved}: a replica never moves within a directory"
            yield StartObstacle(what, log_dir.path / name, "delete it")


def _starts_beyond_its_end(log_dir: LogDir) -> Iterator[StartObstacle]:
    """Logs of a stopped broker whose segments were lost, or whose checkpoint is from another time or log."""
    if not log_dir.clean_shutdown and is_held(log_dir.path):
        return  # the file is up to a minute older than the log
    for name, start in log_dir.log_start_offsets.items():
        if name not in log_dir.partitions:
            continue
        try:
            log = read_partition(log_dir, name)
            if start <= log.active.base:
                continue
            with SegmentReader.open(str(log.path), chunk_bytes=256 * 1024) as reader:
                end = log_end_offset(log, reader, may_be_torn=True)
        except CleanerdError:
            continue
        if start > end:
            yield StartObstacle(
                f"ends at offset {end}, below its start {start} in {LOG_START_CHECKPOINT}: the broker deletes all of "
                "its segments when it starts",
                log.path,
                f"if no other replica has its records, write {log.segments[0].base} for it in that file",
            )


def _identities(log_dir: LogDir, facts: BrokerFacts) -> Iterator[StartObstacle]:
    """Check ``partition.metadata``: a broker in KRaft mode needs it; one in ZooKeeper mode writes it."""
    if log_dir.meta.version == 0:
        return
    missing: dict[str, list[TopicPartition]] = {}
    damaged: dict[str, list[TopicPartition]] = {}
    for name in log_dir.partitions:
        path = f"{log_dir.path}/{name}/{PARTITION_METADATA}"
        try:
            read_partition_metadata(read_plain(path), path)
        except FileNotFoundError:
            missing.setdefault(name.topic, []).append(name)
        except CorruptionError:
            damaged.setdefault(name.topic, []).append(name)
        except OSError:
            continue
    for what, found, refused in (
        ("is missing: the broker takes it for stray, renames it and begins with an empty log", missing, False),
        ("is damaged: the broker does not start with it", damaged, True),
    ):
        for topic, names in found.items():
            where = log_dir.path / str(names[0]) / PARTITION_METADATA
            others = "" if len(names) == 1 else f" (so it is in {_some(names[1:])})"
            yield StartObstacle(what + others, where, _write_identity(facts, topic), refused)


def _write_identity(facts: BrokerFacts, topic: str) -> str:
    known = facts.topic_id(topic)
    if known is None:
        return "write the lines 'version: 0' and 'topic_id: ID' into it; kafka-topics.sh --describe shows the ID"
    return f"write the lines 'version: 0' and 'topic_id: {uuid_to_base64(known)}' into it"


def _other_owners(log_dir: LogDir, facts: BrokerFacts) -> Iterator[StartObstacle]:
    listed = log_dirs_in(facts.server_properties or {})
    if log_dir.path not in listed:
        return
    own = log_dir.meta
    for path in listed:
        meta = None if path == log_dir.path else meta_of(path)
        if meta is None:
            continue
        if meta.directory_id is not None and meta.directory_id == own.directory_id:
            what = f"has the directory.id of {path}: the broker does not start with both"
            yield StartObstacle(what, log_dir.path, "take the copy out of log.dirs")
        for what, theirs, ours in (
            ("cluster", meta.cluster_id, own.cluster_id),
            ("node", meta.node_id, own.node_id),
        ):
            if theirs is not None and ours is not None and theirs != ours:
                yield StartObstacle(
                    f"belongs to {what} {ours}, {path} to {what} {theirs}: the broker does not start with both",
                    log_dir.path,
                    "take the other's directory out of log.dirs",
                )


def _twins(log_dir: LogDir, facts: BrokerFacts) -> Iterator[StartObstacle]:
    by_place: dict[Path, list[TopicPartition]] = {}
    for name in log_dir.partitions if facts.siblings else ():
        twin = facts.duplicate_of(name)
        if twin is not None:
            by_place.setdefault(twin, []).append(name)
    for place, names in by_place.items():
        yield StartObstacle(
            f"has {_some(names)}, and {place} has it as well: the broker does not start with both",
            log_dir.path,
            "move one of the two out of its log directory; if a disk failed during a move, the one on that disk",
        )


def _some(names: Sequence[TopicPartition]) -> str:
    shown = ", ".join(map(str, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} and {counted(len(names) - _SHOWN, 'other partition')}"
