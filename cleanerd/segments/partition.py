"""A partition directory: segments, snapshots, identity, and unexpected files."""

from __future__ import annotations

import functools
import os
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cleanerd.errors import CorruptionError
from cleanerd.format.checkpoint import EpochStart, read_epoch_checkpoint
from cleanerd.format.meta import read_partition_metadata
from cleanerd.format.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIMEINDEX_SUFFIX,
    TXNINDEX_SUFFIX,
    TopicPartition,
    parse_file_name,
)
from cleanerd.fsio.directory_time import CLOCK_TICK_NS, directory_time
from cleanerd.fsio.plain_file import open_place
from cleanerd.fsio.safe_open import MAX_FACTS_BYTES, MAX_IDENTITY_BYTES, close_quietly
from cleanerd.fsio.small_file import read_small_file_at, unreadable
from cleanerd.segments.segment import Segment

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable
    from pathlib import Path

    from cleanerd.segments.log_dir import LogDir

PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"
_ATTEMPTS: Final = 5
_OF_A_SEGMENT: Final = re.compile(r"[0-9]{20}\.", re.ASCII)
_UNFINISHED: Final = (SWAP_SUFFIX, CLEANED_SUFFIX)
_MAX_CACHED: Final = 1024
_MAX_CACHED_BYTES: Final = 256
"""Limits of cached leader epochs: the number of partitions, and the bytes of each."""

TIER_SUFFIX = ".tierstate"
"""The file in which Confluent's tiered storage lists a partition's segments."""

COMPANION_SUFFIXES = (INDEX_SUFFIX, TIMEINDEX_SUFFIX, TXNINDEX_SUFFIX, SNAPSHOT_SUFFIX)


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """A listing of a partition's directory: when a name in it changed last, and :func:`number_of` the names.

    ``changed_ns``: -1 if a later change may have the same time.
    """

    changed_ns: int
    number: int


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """One partition at one moment. ``segments`` ascend by base offset; the last is the active one (F-5).

    ``unfinished`` names ``.swap`` and ``.cleaned`` files of an interrupted replacement (S-21). ``last_stable_offset``
    is a running broker's; None: computed from the log (S-04). ``foreign`` names segment files of a kind that Kafka's
    brokers do not write (S-49). ``reported_end_offset`` is the end that a running broker reports; None: read from the
    log (C-86). ``lasting_start_offset``: the log start offset with which a broker killed now would start, since it is
    written once a minute; None: ``log_start_offset``. ``listed``: the names in the directory; None if there are more
    than the broker reported. Comparisons ignore it.
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
    reported_end_offset: int | None = None
    lasting_start_offset: int | None = None
    listed: DirectoryListing | None = field(default=None, compare=False, repr=False)
    foreign: tuple[str, ...] = field(default=(), compare=False)

    @property
    def active(self) -> Segment:
        """The segment that the broker appends to. cleanerd does not change it (S-06)."""
        return self.segments[-1]

    def end_of(self, index: int) -> int:
        """The base offset of the segment after ``segments[index]``."""
        return self.segments[index + 1].base

    def leader_epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote ``offset``; -1 if the epoch checkpoint begins later (F-9)."""
        epoch = -1
        for start in self.leader_epochs:
            if start.start_offset > offset:
                break
            epoch = start.epoch
        return epoch


def read_partition(log_dir: LogDir, name: TopicPartition) -> PartitionLog:
    """List a partition directory and read its small files.

    Raises:
        CorruptionError: ``partition.metadata`` or ``leader-epoch-checkpoint`` does not parse, or no segment exists.
        CleanerdError: the directory or a file in it cannot be read.
    """
    path = log_dir.path / str(name)
    try:
        directory = open_place(path)
    except OSError as error:
        raise unreadable("cannot be listed", path, error) from error
    try:
        try:
            found = _list(path, directory)
        except OSError as error:
            raise unreadable("cannot be listed", path, error) from error
        if not found.segments:
            raise CorruptionError("has no segment", where=str(path), hint="start the broker once, it creates one")
        identity, changes = f"{path}/{PARTITION_METADATA}", f"{path}/{LEADER_EPOCHS}"
        metadata = read_small_file_at(PARTITION_METADATA, directory, identity, max_bytes=MAX_IDENTITY_BYTES)
        epochs = read_small_file_at(LEADER_EPOCHS, directory, changes, max_bytes=MAX_FACTS_BYTES)
    finally:
        close_quietly(directory)
    return PartitionLog(
        name=name,
        path=path,
        topic_id=None if metadata is None else read_partition_metadata(metadata, identity),
        segments=found.segments,
        snapshots=found.snapshots,
        leader_epochs=() if epochs is None else _epochs_in(epochs, changes),
        unfinished=found.unfinished,
        log_start_offset=max(log_dir.log_start_offsets.get(name, 0), found.segments[0].base),
        recovery_point=log_dir.recovery_points.get(name, 0),
        high_watermark=log_dir.high_watermarks.get(name, 0),
        cleaner_offset=log_dir.cleaner_offsets.get(name),
        foreign=found.foreign,
        listed=DirectoryListing(found.changed_ns, number_of(found.names)),
    )


def number_of(names: Iterable[tuple[str, int]]) -> int:
    """A hash of the names in a partition's directory; it changes if a file is added, removed or replaced.

    ``names``, with inodes; files that the broker is about to delete are ignored.
    """
    return hash(frozenset([each for each in names if not each[0].endswith(DELETED_SUFFIX)]))


def _epochs_in(data: bytes, where: str) -> tuple[EpochStart, ...]:
    """The entries of a ``leader-epoch-checkpoint``, cached: thousands of small partitions have equal ones."""
    if len(data) > _MAX_CACHED_BYTES:
        return _read_epochs(data, where)
    try:
        return _known_epochs(data)
    except CorruptionError:
        return _read_epochs(data, where)  # adds the file name to errors


def _read_epochs(data: bytes, where: str) -> tuple[EpochStart, ...]:
    try:
        return tuple(read_epoch_checkpoint(data, where))
    except CorruptionError as error:
        error.hint = "stop the broker and delete it: it starts without it, and writes a new one"
        raise


@functools.lru_cache(maxsize=_MAX_CACHED)
def _known_epochs(data: bytes) -> tuple[EpochStart, ...]:
    return tuple(read_epoch_checkpoint(data, ""))


@dataclass(slots=True)
class _Listing:
    """A listing of a directory. ``names`` with inodes; ``changed_ns``: see :class:`DirectoryListing`."""

    names: list[tuple[str, int]] = field(default_factory=list)
    segments: tuple[Segment, ...] = ()
    snapshots: tuple[int, ...] = ()
    unfinished: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    changed_ns: int = -1


def _list(path: Path, directory: int) -> _Listing:
    """List the files as of one moment: if a broker swaps segments during the listing, list again.

    Otherwise names from before and after a swap could be mixed, or an index be missing while it is renamed.
    """
    for attempt in range(_ATTEMPTS):
        before = directory_time(directory)
        try:
            found = _list_once(path, directory)
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        if before.changed_ns == directory_time(directory).changed_ns:
            found.changed_ns = before.to_compare_ns
            if before.shows_changes:
                break
            # Acquiring a claim is such a change too. Names in two listings in a row existed in between.
            if found.names == _names(directory):
                break
        time.sleep(CLOCK_TICK_NS / 1e9)
    return found


def _names(directory: int) -> list[tuple[str, int]]:
    with os.scandir(directory) as entries:
        return [(entry.name, entry.inode()) for entry in entries]


def _list_once(path: Path, directory: int) -> _Listing:
    found = _Listing()
    stats: dict[int, os.stat_result] = {}
    companions: dict[int, list[str]] = {}
    unfinished: list[str] = []
    foreign: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            found.names.append((name, entry.inode()))
            parsed = parse_file_name(name)
            if parsed is None:
                if _OF_A_SEGMENT.match(name) and not name.endswith(DELETED_SUFFIX):
                    foreign.append(name)
                continue
            base, suffix = parsed
            if suffix.endswith(_UNFINISHED):
                unfinished.append(name)
                continue
            known = suffix == SEGMENT_SUFFIX or suffix in COMPANION_SUFFIXES
            # A directory with an index's name could be renamed, but not removed.
            if known and not entry.is_file(follow_symlinks=False):
                raise CorruptionError("is not a plain file", where=str(path / name))
            if suffix == SEGMENT_SUFFIX:
                stats[base] = entry.stat(follow_symlinks=False)
            elif known:
                companions.setdefault(base, []).append(suffix)
    active = max(stats, default=-1)
    found.segments = tuple(
        [
            Segment.from_stat(
                base, stat, frozenset(companions.get(base, ())), is_active=base == active, sealed=base != active
            )
            for base, stat in sorted(stats.items())
        ]
    )
    found.snapshots = tuple(sorted([base for base, suffixes in companions.items() if SNAPSHOT_SUFFIX in suffixes]))
    found.unfinished = tuple(sorted(unfinished))
    found.foreign = tuple(sorted(foreign))
    return found
