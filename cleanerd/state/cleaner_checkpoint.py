"""cleanerd's checkpoint of a partition: its first dirty offset, and facts that show whether this still holds (U-10).

One JSON file per partition in ``cleanerd.state.dir``. The offset is a hint: a missing, damaged or outdated file costs
work, not data. The rules of the last cleaning are more than a hint, so an unreadable file is not treated as a missing
one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from cleanerd.config.fingerprint import KAFKAS_FINGERPRINT, describe_fingerprint
from cleanerd.errors import machine_error
from cleanerd.format.names import TopicPartition, uuid_to_base64
from cleanerd.fsio import safe_open
from cleanerd.fsio.safe_open import MAX_FACTS_BYTES
from cleanerd.fsio.state_files import (
    DAMAGE,
    NewerFormatError,
    UnreadableState,
    held,
    make_directory,
    read_state_file,
    set_aside,
    write_state_file,
)
from cleanerd.state.document import Document
from cleanerd.state.last_settings import LastSettings, by_name
from cleanerd.state.places import PARTITIONS, DirectoryPlaces

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.segment import Segment

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LastSegment:
    """The last segment of the last cleaning; another file in its place means that the log has diverged.

    The device number is ignored: the same disk may have another one after a reboot, or on another host.
    """

    base: int
    dev: int = field(compare=False)
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, segment: Segment) -> LastSegment:
        """The identity of ``segment`` as it is now."""
        return cls(segment.base, segment.dev, segment.inode, segment.size_bytes, segment.mtime_ns)


@dataclass(frozen=True, slots=True)
class CleanerdCheckpoint:
    """Everything below ``offset`` is clean under the compaction settings of ``fingerprint``.

    ``last_output``: the last segment that a cleaning wrote. It detects a log that was restored to an earlier state,
    where all later facts may be equal. ``checkpoint``: Kafka's checkpoint at that time. None: unknown. ``log_start``:
    for versioned strategies, where the log began. Data below it was ignored (U-2), and returns if a broker is killed
    before it stores the new log start. None: that data was cleaned too. ``unproven_below``: below this offset only
    Kafka's checkpoint says that the log is clean. None: unknown.
    """

    offset: int
    leader_epoch: int
    fingerprint: str
    last_segment: LastSegment
    last_output: LastSegment | None = None
    checkpoint: int | None = None
    log_start: int | None = None
    unproven_below: int | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """When a quarantine began, the number of failures in a row, and when the daemon tries again."""

    since_ms: int
    failures: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition's stored state. ``quarantine`` is the reason why it was not cleaned, or None.

    ``next_purge_ms``: when tombstones or markers of the clean section reach their delete horizon; None:
    there are none. ``removal_known_below``: this is known below this offset; None: unknown. ``rules``: the fingerprint
    of the last cleaning if that moved no checkpoint. ``quarantined_segment``: the segment that caused the quarantine.
    """

    cleanerd_checkpoint: CleanerdCheckpoint | None
    quarantine: str | None
    last_result: dict[str, Any] | None
    retry: Retry | None = None
    next_purge_ms: int | None = None
    removal_known_below: int | None = None
    rules: str | None = None
    quarantined_segment: LastSegment | None = None

    @property
    def cleaned_by(self) -> str | None:
        """The fingerprint of the last cleaning's rules; None: unknown."""
        if self.rules is None and self.cleanerd_checkpoint is not None:
            return self.cleanerd_checkpoint.fingerprint
        return self.rules


STATE: Final = Document("", PartitionState)
"""A partition's state file; it names the partition too."""


class StateStore:
    """The state directory. Reading does not raise: unusable files count as absent, see ``warnings``.

    ``keeps_damaged``: a damaged file is not moved, for a reader that may change nothing. ``standing``: the
    current warnings, by file. ``failures``: the number of files that could not be read or written, or were damaged.
    """

    def __init__(self, root: Path, *, keeps_damaged: bool = False) -> None:
        self.root = root
        self._keeps_damaged = keeps_damaged
        self.warnings: list[str] = []
        self.standing: dict[Path, str] = {}
        self.failures = 0
        self._newer: set[Path] = set()
        self.rules = LastSettings(root)
        self.places = DirectoryPlaces(root)
        self._made: set[str] = set()
        self._directories: dict[str, Path] = {}

    def read_only(self) -> Self:
        """The same state directory for questions: no damaged file is moved, and warnings are counted apart."""
        store = type(self)(self.root, keeps_damaged=True)
        store.rules, store.places = self.rules, self.places
        return store

    def path(self, log_dir: LogDir, log: PartitionLog) -> Path:
        """The partition's file: by place (U-46) and topic id; a re-created topic has a new one (S-51)."""
        return self.directory(log_dir) / state_file_name(log.name, log.topic_id)

    def directory_name(self, log_dir: LogDir) -> str:
        """The name of the directory with the state of ``log_dir``."""
        return self.places.name_of(log_dir.place)

    def directory(self, log_dir: LogDir) -> Path:
        """Where the files of ``log_dir``'s partitions are."""
        name = self.directory_name(log_dir)
        found = self._directories.get(name)
        if found is None:  # every scan uses this
            found = self._directories[name] = self.root / PARTITIONS / name
        return found

    def load(self, log_dir: LogDir, log: PartitionLog) -> PartitionState | None:
        """The partition's state, or None.

        A damaged file is renamed to ``<name>.damaged``; one of a newer release is not changed.
        """
        if self.rules.is_empty():
            return None
        directory, file = self.directory(log_dir), state_file_name(log.name, log.topic_id)
        try:
            with held(directory, self.root) as opened:
                found = STATE.parse(safe_open.read_whole(file, dir_fd=opened, max_bytes=MAX_FACTS_BYTES))
        except FileNotFoundError:
            return None
        except OSError as error:
            path = directory / file
            # One directory that is closed to us is one warning, however many partitions it knows.
            is_closed = isinstance(error, PermissionError) and not os.access(self.root, os.R_OK | os.X_OK)
            where = self.root if is_closed else path
            self._failed(where, f"{where}: cannot be read ({error.strerror}); ignored")
        except NewerFormatError as error:
            path = directory / file
            # It stays: it is not damaged, and may still show the settings of the last cleaning.
            self._failed(path, f"{path}: {error}; ignored until the next cleaning")
            self._newer.add(path)
        except DAMAGE as error:
            path = directory / file
            self.failures += 1
            if self._keeps_damaged:
                self.warnings.append(f"{path}: damaged ({error}); ignored")
                return None
            self.warnings.append(f"{path}: damaged ({error}); set aside and ignored")
            try:
                set_aside(path, self.root)
            except OSError as problem:
                self.warnings.append(f"{path}: cannot be set aside ({problem.strerror})")
        else:
            if self._newer and (path := directory / file) in self._newer:
                self._clear_warning(path)
            return found
        return None

    def save(self, log_dir: LogDir, log: PartitionLog, state: PartitionState) -> None:
        """Replace the partition's state atomically (tmp, fsync, rename, fsync of the directory)."""
        path = self.path(log_dir, log)
        try:
            self._write(path, log_dir, log, state)
        except OSError as error:
            warning = f"cannot be written ({error.strerror}); only Kafka's checkpoint shows how far the log is clean"
            self._failed(path, f"{path}: {warning}")
        else:
            self._clear_warning(path)

    def adopt(self, log_dir: LogDir, logs: Iterable[PartitionLog], name: str) -> tuple[int, int]:
        """Give ``log_dir``, a copy, the state in the directory ``name``, which was that of its original (U-46).

        Returns for how many of ``logs`` the checkpoint is valid in the copy, and for how many only the compaction
        settings are adopted. ``log_dir`` gets the state when all is written, so an interrupted run can be repeated.

        Raises:
            OSError: a file cannot be read or written.
        """
        owner, kept, lost = self.owner(log_dir), 0, 0
        for log in logs:
            path = self.root / PARTITIONS / name / state_file_name(log.name, log.topic_id)
            try:
                state = STATE.parse(read_state_file(path, self.root, max_bytes=MAX_FACTS_BYTES))
            except (FileNotFoundError, *DAMAGE):
                continue
            if state.cleanerd_checkpoint is None:
                continue
            point = _in_copy(state.cleanerd_checkpoint, log)
            kept, lost = kept + (point is not None), lost + (point is None)
            found = replace(state, cleanerd_checkpoint=point, rules=state.cleaned_by)
            data = STATE.to_bytes(found, topic=log.name.topic, partition=log.name.partition)
            write_state_file(path, data, owner, self.root)
        self.places.adopt(name, log_dir.place, owner)
        return kept, lost

    def require_rules(self, log_dir: LogDir, log: PartitionLog, rules: str) -> None:
        """Store durably that ``rules``, a fingerprint, clean the partition (U-6).

        Called before the first segment is replaced, because a process killed after that stores nothing. Kafka's rules
        need no entry: they apply if no others are known.

        Raises:
            MachineError: it cannot be stored.
        """
        if rules == KAFKAS_FINGERPRINT:
            return
        state = self.load(log_dir, log) or PartitionState(None, None, None)
        if rules == state.cleaned_by:
            return
        path = self.path(log_dir, log)
        try:
            self._write(path, log_dir, log, replace(state, rules=rules))
        except OSError as error:
            what = (
                f"nothing was cleaned: the topic's strategy {describe_fingerprint(rules)} cannot be stored: "
                f"{error.strerror}"
            )
            hint = "free space for the state directory, or make it writable"
            self._failed(path, f"{path}: cannot be written ({error.strerror})")
            raise machine_error(error)(what, where=str(path), hint=hint) from error
        self._clear_warning(path)

    def _write(self, path: Path, log_dir: LogDir, log: PartitionLog, state: PartitionState) -> None:
        """Replace the file atomically, creating missing directories above it; raises OSError."""
        owner = self.owner(log_dir)

        def write() -> None:
            self.places.register(log_dir.place, owner)
            if state.cleaned_by is None:
                self._set_aside_unreadable(path)
            data = STATE.to_bytes(state, topic=log.name.topic, partition=log.name.partition)
            write_state_file(path, data, owner, self.root)

        self.in_place(f"{PARTITIONS}/{self.directory_name(log_dir)}", owner, write)

    def in_place(self, name: str, owner: os.stat_result, work: Callable[[], T]) -> T:
        """Run ``work`` in the directory ``name``, two levels below the root; it is created if need be.

        Its existence is checked once per store, and when it is missing. Raises OSError.
        """
        if name in self._made:
            with suppress(FileNotFoundError):
                return work()
        directory = self.root / name
        for each in (self.root, directory.parent, directory):
            make_directory(each, owner, self.root)
        self._made.add(name)
        return work()

    def _set_aside_unreadable(self, path: Path) -> None:
        """Rename an unreadable file instead of replacing it with less information (U-6). Raises OSError."""
        state = self.rules.of_partition(path.parent.name, path.stem)
        if isinstance(state, UnreadableState) and state.where == str(path):
            set_aside(path, self.root)

    def _failed(self, path: Path, warning: str) -> None:
        self.failures += 1
        if warning not in self.warnings:
            self.warnings.append(warning)
        self.standing[path] = warning

    def _clear_warning(self, path: Path) -> None:
        self.standing.pop(path, None)
        self._newer.discard(path)

    def recheck(self) -> None:
        """Drop warnings after an operator has fixed the cause. A newer release's file keeps its warning."""
        for path in list(self.standing):
            if path in self._newer and os.path.exists(path):
                continue
            directory = next(each for each in path.parents if each == self.root.parent or os.path.exists(each))
            if os.access(directory, os.W_OK | os.X_OK) and (not os.path.exists(path) or os.access(path, os.R_OK)):
                self.standing.pop(path, None)

    def owner(self, log_dir: LogDir) -> os.stat_result:
        """The owner of a new state directory: the broker's user.

        Otherwise a cleaning by root would leave files that the daemon, running as that user, cannot read or replace.
        """
        try:
            return os.stat(self.root)
        except (FileNotFoundError, NotADirectoryError):
            return os.stat(log_dir.path)


def _in_copy(point: CleanerdCheckpoint, log: PartitionLog) -> CleanerdCheckpoint | None:
    """The checkpoint with the files of a copy; None: a segment has another size or time there."""
    by_base = {segment.base: LastSegment.of(segment) for segment in log.segments}

    def is_same(before: LastSegment | None) -> bool:
        if before is None:
            return True
        now = by_base.get(before.base)
        return now is not None and (now.size, now.mtime_ns) == (before.size, before.mtime_ns)

    if not (is_same(point.last_segment) and is_same(point.last_output)):
        return None
    output = None if point.last_output is None else by_base[point.last_output.base]
    return replace(point, last_segment=by_base[point.last_segment.base], last_output=output)


def last_closed(log: PartitionLog) -> LastSegment | None:
    """The last segment before the active one."""
    return LastSegment.of(log.segments[-2]) if len(log.segments) > 1 else None


def state_file_name(name: TopicPartition, topic_id: uuid.UUID | None) -> str:
    """The name of the partition's state file."""
    return f"{topic_part(name.topic, topic_id)}-{name.partition}.json"


def topic_part(topic: str, topic_id: uuid.UUID | None) -> str:
    """The prefix of a topic's state files."""
    return by_name(topic) if topic_id is None else uuid_to_base64(topic_id)


def last_below(log: PartitionLog, offset: int) -> Segment | None:
    """The last segment that begins below ``offset``; None: there is none."""
    return next((segment for segment in reversed(log.segments) if segment.base < offset), None)


def segment_at(log: PartitionLog, base: int) -> LastSegment | None:
    """The identity of the segment ``base`` as it is now; None if it does not exist."""
    return next((LastSegment.of(each) for each in log.segments if each.base == base), None)
