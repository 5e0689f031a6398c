"""One entry of a broker's ``log.dirs``: identity, checkpoints, partitions."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Self

from cleanerd.errors import ConfigError, CorruptionError
from cleanerd.format import meta
from cleanerd.format.checkpoint import offset_in_checkpoint, read_offset_checkpoint
from cleanerd.format.meta import MetaProperties, read_meta_properties
from cleanerd.format.names import (
    FUTURE_SUFFIX,
    TopicPartition,
    parse_future_dir,
    parse_topic_partition_dir,
    uuid_to_base64,
)
from cleanerd.fsio.directory_time import directory_time
from cleanerd.fsio.safe_open import MAX_FACTS_BYTES, MAX_IDENTITY_BYTES, close_quietly, open_trusted_directory
from cleanerd.fsio.small_file import read_small_file, read_small_file_at, unreadable
from cleanerd.segments.remote import RemotePath

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable
    from pathlib import Path

CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CHECKPOINTS = (CLEANER_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
"""Kafka's checkpoints of all partitions of a log directory: four files of the same format."""
META_PROPERTIES = meta.META_PROPERTIES
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_WITHOUT_CHECKPOINT = {
    CLEANER_CHECKPOINT: "it starts without it, and each log is dirty from its start",
    RECOVERY_POINT_CHECKPOINT: "it starts without it, and reads its logs again where they are not known to be flushed",
    LOG_START_CHECKPOINT: "it starts without it, but records that DeleteRecords removed from a segment are back",
    HIGH_WATERMARK_CHECKPOINT: "it starts without it, and learns the high watermarks again",
}
"""The consequence of deleting a damaged checkpoint, as observed on brokers."""

METADATA_TOPIC = "__cluster_metadata"

_CACHED_DIRS = 16
"""More log directories than a broker usually has."""

_INCOMING_REPLICAS: dict[Path, tuple[tuple[int, ...], frozenset[TopicPartition]]] = {}
"""Recent results of :func:`incoming_replicas`, with their time: every partition uses them."""

_CACHED_CHECKPOINTS = 2 * _CACHED_DIRS
"""Limit of cached checkpoints: a partition needs two per log directory at a time."""


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """Where a log directory is. ``path`` is resolved; ``file_system`` is the file system's id (``statvfs``).

    ``directory_id``: ``directory.id`` as Kafka writes it; None where the broker is too old to have one.
    """

    directory_id: str | None
    path: str
    inode: int
    file_system: int

    @classmethod
    def of(cls, path: Path, directory_id: uuid.UUID | None) -> Self:
        """The place of the log directory at ``path``. Raises OSError."""
        written_id = None if directory_id is None else uuid_to_base64(directory_id)
        return cls(written_id, os.path.realpath(path), os.stat(path).st_ino, os.statvfs(path).f_fsid)

    @property
    def name(self) -> str:
        """The name of its directory in the state directory, if it has one."""
        place = json.dumps([self.path, self.inode, self.file_system])
        digest = hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return f"{self.directory_id or 'path'}-{digest}"

    def may_have_been(self, before: DirectoryPlace) -> bool:
        """Whether the ids allow that this is the same directory. A broker adds an id when it is upgraded."""
        return before.directory_id in {None, self.directory_id}


class OneOffset(Mapping[TopicPartition, int]):
    """The offset of one partition, as a checkpoint with this entry only. A dict takes five times the memory."""

    __slots__ = ("_name", "_offset")

    def __init__(self, name: TopicPartition, offset: int) -> None:
        self._name = name
        self._offset = offset

    def __getitem__(self, name: object) -> int:
        if name != self._name:
            raise KeyError(name)
        return self._offset

    def __iter__(self) -> Iterator[TopicPartition]:
        yield self._name

    def __len__(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory at one moment.

    The four mappings are Kafka's checkpoint files; a missing file reads as an empty mapping (C-86, S-02: no high
    watermark and no recovery point means that nothing is cleanable). ``partitions`` leaves out ``__cluster_metadata``
    and partitions that are being moved or deleted (``-future``, ``-delete``, ``-stray``; S-21). ``linked``: partitions
    whose directory is a symbolic link. It is not followed, because it may lead to a directory that the lock does not
    cover.
    """

    path: Path
    place: DirectoryPlace
    meta: MetaProperties
    partitions: tuple[TopicPartition, ...]
    cleaner_offsets: Mapping[TopicPartition, int]
    recovery_points: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    has_high_watermarks: bool
    clean_shutdown: bool
    linked: tuple[TopicPartition, ...] = ()


@dataclass(slots=True)
class LogDirMemory:
    """Earlier results for one log directory, for repeated readings in one thread.

    Content with the same bytes and names is not parsed again: the result is the same object.
    """

    checkpoints: dict[Path, tuple[bytes, dict[TopicPartition, int]]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    partitions: tuple[TopicPartition, ...] = ()

    def checkpoint(self, path: Path, data: bytes) -> dict[TopicPartition, int]:
        """The offsets of the file ``path`` with the content ``data``. Callers must not change the result."""
        known = self.checkpoints.get(path)
        if known is None or known[0] != data:
            known = self.checkpoints[path] = data, read_offset_checkpoint(data, str(path))
        return known[1]

    def partitions_of(self, names: list[str]) -> tuple[TopicPartition, ...]:
        if names != self.names:
            self.names, self.partitions = names, _partitions(names)
        return self.partitions


def read_log_dir(path: Path, memory: LogDirMemory | None = None) -> LogDir:
    """Read a log directory's own files; opens no partition. ``memory``: of the same directory.

    Raises:
        ConfigError: not a log directory of a broker.
        CorruptionError: a checkpoint or ``meta.properties`` does not parse.
        CleanerdError: a file cannot be read.
    """
    try:
        directory = open_trusted_directory(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "is not a directory" if path.exists() else "does not exist"
        raise ConfigError(what, where=str(path), hint="name a directory from the broker's log.dirs") from error
    except OSError as error:
        raise unreadable("cannot be read", path, error) from error
    try:
        return _read(path, directory, memory or LogDirMemory())
    finally:
        close_quietly(directory)


def _read(path: Path, directory: int, known: LogDirMemory) -> LogDir:
    meta_bytes = read_small_file_at(META_PROPERTIES, directory, path / META_PROPERTIES, max_bytes=MAX_IDENTITY_BYTES)
    if meta_bytes is None:
        raise ConfigError(
            f"has no {META_PROPERTIES}, so it is not a broker's log directory",
            where=str(path),
            hint="name a directory from the broker's log.dirs, not a partition inside it",
        )
    entries = _scan(path)
    identity = read_meta_properties(meta_bytes, str(path / META_PROPERTIES))
    high_watermarks = _checkpoint(path / HIGH_WATERMARK_CHECKPOINT, directory, known)
    return LogDir(
        path=path,
        place=_place(path, identity),
        meta=identity,
        partitions=known.partitions_of(_dirs(entries)),
        cleaner_offsets=_checkpoint(path / CLEANER_CHECKPOINT, directory, known) or {},
        recovery_points=_checkpoint(path / RECOVERY_POINT_CHECKPOINT, directory, known) or {},
        log_start_offsets=_checkpoint(path / LOG_START_CHECKPOINT, directory, known) or {},
        high_watermarks=high_watermarks or {},
        has_high_watermarks=high_watermarks is not None,
        clean_shutdown=_is_there(path / CLEAN_SHUTDOWN),
        linked=_partitions(entry.name for entry in entries if entry.is_symlink()),
    )


def _place(path: Path, identity: MetaProperties) -> DirectoryPlace:
    try:
        return DirectoryPlace.of(path, identity.directory_id)
    except OSError as error:
        raise unreadable("cannot be read", path, error) from error


def _is_there(path: Path) -> bool:
    """Whether the name exists; a disk error is raised."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unreadable("cannot be read", path, error) from error
    return True


def partition_names(path: Path) -> tuple[TopicPartition, ...]:
    """The partitions of a log directory, from its directory names only.

    Raises:
        CleanerdError: it cannot be listed.
    """
    if isinstance(path, RemotePath):
        return _partitions(place.name for place in path.dirs())
    return _partitions(_dirs(_scan(path)))


def incoming_replicas(log_dir: Path, clock_ns: Callable[[], int] | None = None) -> frozenset[TopicPartition]:
    """The partitions that are being moved into this log directory now (``-future``, S-21).

    Empty if the directory cannot be read: no replica becomes active there, and other directories must not wait for it.
    """
    try:
        # Another disk may be mounted there later: time, names and owners come from one opened directory.
        descriptor = os.open(log_dir, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return frozenset()
    try:
        written = directory_time(descriptor, clock_ns)
        state, known = (*written.of, written.changed_ns), _INCOMING_REPLICAS.get(log_dir)
        if known is not None and known[0] == state and written.shows_changes:
            return known[1]
        moving = [name for name in os.listdir(descriptor) if name.endswith(FUTURE_SUFFIX)]
        found = frozenset(name for name in map(parse_future_dir, moving) if name is not None)
    except OSError:
        return frozenset()
    finally:
        close_quietly(descriptor)
    if written.shows_changes:  # otherwise the directory changed just now, and may change again unseen
        if len(_INCOMING_REPLICAS) >= _CACHED_DIRS:
            _INCOMING_REPLICAS.clear()
        _INCOMING_REPLICAS[log_dir] = state, found
    return found


def cleaner_offset(log_dir: Path, name: TopicPartition) -> int | None:
    """The first dirty offset of one partition in Kafka's cleaner checkpoint now; None if it has no entry.

    Raises:
        CorruptionError: this partition's entry does not parse.
        CleanerdError: it cannot be read.
    """
    return _offset_in(f"{log_dir}/{CLEANER_CHECKPOINT}", name)


def lasting_start_offset(log_dir: Path, name: TopicPartition) -> int:
    """The log start offset with which a broker starts if it is killed now, unless its first segment begins above that.

    Raises:
        CorruptionError: this partition's entry does not parse.
        CleanerdError: it cannot be read.
    """
    return _offset_in(f"{log_dir}/{LOG_START_CHECKPOINT}", name) or 0


def _offset_in(path: str, name: TopicPartition) -> int | None:
    """The offset of ``name`` in the file.

    The file is read again only after a change: for many partitions each call costs one ``stat``.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable("cannot be read", path, error) from error
    data = _bytes_of(path, (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return None if data is None else offset_in_checkpoint(data, path, name)


@functools.lru_cache(maxsize=_CACHED_CHECKPOINTS)
def _bytes_of(path: str, _file: tuple[int, ...]) -> bytes | None:
    return read_small_file(path, max_bytes=MAX_FACTS_BYTES)


def _dirs(entries: Iterable[os.DirEntry[str]]) -> list[str]:
    return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _partitions(names: Iterable[str]) -> tuple[TopicPartition, ...]:
    parsed = map(parse_topic_partition_dir, names)
    found = [name for name in parsed if name is not None and name.topic != METADATA_TOPIC]
    found.sort(key=attrgetter("topic", "partition"))
    return tuple(found)


def _checkpoint(path: Path, directory: int, memory: LogDirMemory) -> dict[TopicPartition, int] | None:
    data = read_small_file_at(path.name, directory, path, max_bytes=MAX_FACTS_BYTES)
    try:
        return None if data is None else memory.checkpoint(path, data)
    except CorruptionError as error:
        error.hint = f"stop the broker and delete it: {_WITHOUT_CHECKPOINT[path.name]}"
        raise


def _scan(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError as error:
        raise unreadable("cannot be listed", path, error) from error
