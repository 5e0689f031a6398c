"""A partition directory as found: segments, snapshots, identity, and what does not belong there."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.errors import CorruptionError
from cleanerd.format.checkpoint import EpochStart, read_epoch_checkpoint
from cleanerd.format.meta import read_partition_metadata
from cleanerd.format.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIMEINDEX_SUFFIX,
    TXNINDEX_SUFFIX,
    TopicPartition,
    parse_file_name,
)
from cleanerd.log.plain_file import open_place
from cleanerd.log.safe_open import MAX_FACTS_BYTES, MAX_IDENTITY_BYTES, close_quietly
from cleanerd.log.segment import Segment
from cleanerd.log.small_file import read_small_file_at, unreadable

if TYPE_CHECKING:
    import uuid
    from pathlib import Path

    from cleanerd.log.log_dir import LogDir

PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"
_ATTEMPTS: Final = 5
_CLOCK_TICK_NS: Final = 10_000_000
"""A directory's time is that of the kernel's last tick, 10 ms ago at most: two changes in one tick look like one."""

COMPANION_SUFFIXES = (INDEX_SUFFIX, TIMEINDEX_SUFFIX, TXNINDEX_SUFFIX, SNAPSHOT_SUFFIX)


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """One partition at one moment. ``segments`` ascend by base offset; the last is the active one (F-5).

    ``unfinished`` names ``.swap`` and ``.cleaned`` files: somebody's replacement that was cut short (S-21).
    ``last_stable_offset`` is a running broker's; None: to be worked out from the log (S-04).
    ``told_end_offset`` is where a running broker says that it ends; None: that is to be read from the log (C-86).
    ``lasting_start_offset`` is the log start offset that a broker that is killed now would start with: a running one
    writes its own down once a minute. None: that is ``log_start_offset``.
    """

    name: TopicPartition
    path: Path
    topic_id: uuid.UUID | None
    segments: tuple[Segment, ...]
    snapshots: tuple[int, ...]
    leader_epochs: tuple[EpochStart, ...]
    unfinished: tuple[str, ...]
    log_start_offset: int
    recovery_point: int
    high_watermark: int
    cleaner_offset: int | None
    last_stable_offset: int | None = None
    told_end_offset: int | None = None
    lasting_start_offset: int | None = None

    @property
    def active(self) -> Segment:
        """The segment that the broker appends to. Never touched (S-06)."""
        return self.segments[-1]

    def end_of(self, index: int) -> int:
        """The base offset of the segment after ``segments[index]``: where its range ends."""
        return self.segments[index + 1].base

    def leader_epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote ``offset``; -1 when the checkpoint does not reach back to it (F-9)."""
        epoch = -1
        for start in self.leader_epochs:
            if start.start_offset > offset:
                break
            epoch = start.epoch
        return epoch


def read_partition(log_dir: LogDir, name: TopicPartition) -> PartitionLog:
    """List a partition directory and read its small files.

    Raises:
        CorruptionError: ``partition.metadata`` or ``leader-epoch-checkpoint`` does not parse, or there is no segment.
        CleanerdError: the directory or a file in it cannot be read.
    """
    path = log_dir.path / str(name)
    try:
        directory = open_place(path)
    except OSError as error:
        raise unreadable("cannot be listed", path, error) from error
    try:
        try:
            segments, snapshots, unfinished = _list(path, directory)
        except OSError as error:
            raise unreadable("cannot be listed", path, error) from error
        if not segments:
            raise CorruptionError("holds no segment", where=str(path), hint="start the broker once, it creates one")
        identity, changes = f"{path}/{PARTITION_METADATA}", f"{path}/{LEADER_EPOCHS}"
        metadata = read_small_file_at(PARTITION_METADATA, directory, identity, max_bytes=MAX_IDENTITY_BYTES)
        epochs = read_small_file_at(LEADER_EPOCHS, directory, changes, max_bytes=MAX_FACTS_BYTES)
    finally:
        close_quietly(directory)
    return PartitionLog(
        name=name,
        path=path,
        topic_id=None if metadata is None else read_partition_metadata(metadata, identity),
        segments=tuple(segments),
        snapshots=tuple(snapshots),
        leader_epochs=() if epochs is None else tuple(read_epoch_checkpoint(epochs, changes)),
        unfinished=tuple(unfinished),
        log_start_offset=max(log_dir.log_start_offsets.get(name, 0), segments[0].base),
        recovery_point=log_dir.recovery_points.get(name, 0),
        high_watermark=log_dir.high_watermarks.get(name, 0),
        cleaner_offset=log_dir.cleaner_offsets.get(name),
    )


def _list(path: Path, directory: int) -> tuple[list[Segment], list[int], list[str]]:
    """The files, as they were at one moment: a broker that swaps segments meanwhile has it listed again.

    Else names from before a swap and from after it could stand side by side, or an index be missing that is only
    between two names.
    """
    for attempt in range(_ATTEMPTS):
        before_ns = os.fstat(directory).st_mtime_ns
        names: list[tuple[str, int]] = []
        try:
            found = _list_once(path, directory, names)
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        if before_ns == os.fstat(directory).st_mtime_ns:
            if abs(time.time_ns() - before_ns) > _CLOCK_TICK_NS:
                break
            # A claim that was just taken is such a change. What two listings in a row show stood there in between.
            if names == _names(directory):
                break
        time.sleep(_CLOCK_TICK_NS / 1e9)
    return found


def _names(directory: int) -> list[tuple[str, int]]:
    with os.scandir(directory) as entries:
        return [(entry.name, entry.inode()) for entry in entries]


def _list_once(path: Path, directory: int, names: list[tuple[str, int]]) -> tuple[list[Segment], list[int], list[str]]:
    """``names`` gets all that stands there, with the inodes."""
    stats: dict[int, os.stat_result] = {}
    companions: dict[int, set[str]] = {}
    unfinished: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            names.append((entry.name, entry.inode()))
            parsed = parse_file_name(entry.name)
            if parsed is None:
                continue
            base, suffix = parsed
            if suffix.endswith((SWAP_SUFFIX, CLEANED_SUFFIX)):
                unfinished.append(entry.name)
                continue
            known = suffix == SEGMENT_SUFFIX or suffix in COMPANION_SUFFIXES
            # A directory with an index's name could be renamed out of the way, but not removed.
            if known and not entry.is_file(follow_symlinks=False):
                raise CorruptionError("is not a plain file", where=str(path / entry.name))
            if suffix == SEGMENT_SUFFIX:
                stats[base] = entry.stat(follow_symlinks=False)
            elif suffix in COMPANION_SUFFIXES:
                companions.setdefault(base, set()).add(suffix)
    active = max(stats, default=-1)
    segments = [
        Segment.from_stat(
            base, stat, frozenset(companions.get(base, ())), is_active=base == active, sealed=base != active
        )
        for base, stat in sorted(stats.items())
    ]
    snapshots = sorted(base for base, suffixes in companions.items() if SNAPSHOT_SUFFIX in suffixes)
    return segments, snapshots, sorted(unfinished)
