"""``trash/PLAN.json`` in the state directory: the backups of ``--keep-replaced``, for ``undo`` (S-40).

An entry is one cleaning of one partition, in its own file. It describes the log below the end of that cleaning, before
and after, so that ``undo`` can detect later changes.

Its first line is the entry, each further line a group, written before its swap. A last line without an end was not
followed by a swap, and is ignored.
"""

from __future__ import annotations

import os
import secrets
import uuid  # noqa: TC003 - pydantic resolves the annotation
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import ConfigDict, Field

from cleanerd.cleaner.manifest import PLAN_ID, FileFact, FileKind
from cleanerd.errors import UnsupportedLogError, system_error
from cleanerd.format.adapters import Long, Offset  # noqa: TC001 - as uuid
from cleanerd.format.names import TopicPartition
from cleanerd.fsio.json_text import line_bytes
from cleanerd.fsio.safe_open import MAX_KEPT_BYTES, close_quietly, open_to_write, write_all
from cleanerd.fsio.state_files import (
    DAMAGE,
    NewerFormatError,
    make_directory,
    opened,
    read_state_file,
    set_aside,
    write_state_file,
)
from cleanerd.state.document import Document, validated
from cleanerd.state.places import DirectoryPlaces

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.segments.log_dir import LogDir

KEPT_DIR: Final = "trash"

_Moment = Annotated[int, Field(ge=0, le=253_402_300_799_999)]
"""Milliseconds up to the year 9999, the last that can be shown."""
_STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The identity of a file; renames and links keep it."""

    bytes: Offset
    inode: int
    mtime_ns: int

    __pydantic_config__ = _STRICT

    @classmethod
    def of(cls, status: os.stat_result) -> FileIdentity:
        """The identity of the file with this ``stat``."""
        return cls(status.st_size, status.st_ino, status.st_mtime_ns)

    def is_of(self, found: FileIdentity | None) -> bool:
        """Whether ``found`` is this file. A broker that swapped it in set its time to whole milliseconds."""
        java = replace(self, mtime_ns=self.mtime_ns // 1_000_000 * 1_000_000)
        return found in (self, java)


@dataclass(frozen=True, slots=True)
class KeptSegment:
    """A replaced segment; its files are in the entry's directory under their own names."""

    base: Offset
    files: dict[FileKind, FileIdentity]

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class KeptGroup:
    """Replaced segments and their replacement: the ``output`` files; ``output_log``: the ``.log``'s identity."""

    base: Offset
    end: Offset
    segments: tuple[KeptSegment, ...]
    output: dict[FileKind, FileFact]
    output_log: FileIdentity

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class KeptEntry:
    """One cleaning of one partition. ``kept``: the directory with the replaced files.

    ``place``: the cleaned log directory, by the name of its directory in the state directory (U-46). ``sources``: the
    logs of all segments that the cleaning covered, by base offset, before it. ``checkpoint``, ``cleanerd_checkpoint``
    and ``rules``: Kafka's checkpoint and cleanerd's state before. ``end_offset``: the highest value of both afterwards,
    unless another cleaning followed. ``aborted``: the aborted transactions that reach beyond the sources, as (producer,
    first offset, offset of the ABORT marker).
    """

    plan: str
    topic: str
    partition: int
    topic_id: uuid.UUID | None
    place: str
    log_dir: str
    kept: str
    cleaned_ms: _Moment
    end_offset: Offset
    checkpoint: Long | None
    cleanerd_checkpoint: dict[str, Any] | None
    sources: Annotated[dict[Offset, FileIdentity], Field(min_length=1)]
    groups: tuple[KeptGroup, ...]
    rules: str | None = None
    aborted: tuple[tuple[Long, Offset, Offset], ...] = ()

    __pydantic_config__ = _STRICT

    @property
    def name(self) -> TopicPartition:
        """Topic and partition as one value."""
        return TopicPartition(self.topic, self.partition)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the kept files."""
        return sum(f.bytes for group in self.groups for segment in group.segments for f in segment.files.values())


@dataclass(frozen=True, slots=True)
class _Head:
    entry: KeptEntry


_HEAD: Final = Document("", _Head)


@dataclass(frozen=True, slots=True)
class KeptSize:
    """One cleaning: its entry without groups and sources, and its size.

    ``file`` shows whether it changed. ``seen_ms``: the monotonic clock at its first reading.
    """

    entry: KeptEntry
    size_bytes: int
    file: tuple[int, ...]
    seen_ms: int


_SUFFIX: Final = ".json"


class KeptSegments:
    """The entries. Every method raises CleanerdError if a file cannot be read or written."""

    def __init__(self, root: Path) -> None:
        """``root``: the state directory."""
        self._root = root
        self._places = DirectoryPlaces(root)
        self.path = root / KEPT_DIR
        self.warnings: list[str] = []
        self.newer: dict[str, UnsupportedLogError] = {}
        """Files of a newer release, by plan. They stay, and do no harm."""

    def is_of(self, entry: KeptEntry, log_dir: LogDir) -> bool:
        """Whether ``entry`` belongs to ``log_dir``, not to a copy of it or the original (U-46)."""
        return entry.place == self._places.name_of(log_dir.place)

    def entries(self) -> tuple[KeptEntry, ...]:
        """All entries, the oldest first by the clock.

        A damaged file is renamed with a warning and counts as absent. So does one of a newer release, which
        :attr:`newer` lists.
        """
        found = (self._find_entry(plan) for plan in self._plans())
        return tuple(sorted((e for e in found if e is not None), key=lambda entry: (entry.cleaned_ms, entry.plan)))

    def _find_entry(self, plan: str) -> KeptEntry | None:
        try:
            return self.entry(plan)
        except UnsupportedLogError as error:
            self.newer[plan] = error.without_frames()
            return None

    def _plans(self) -> list[str]:
        try:
            with opened(self.path, self._root) as directory:
                names = os.listdir(directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise system_error("cannot be read", str(self.path), error) from error
        plans = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
        return [plan for plan in plans if PLAN_ID.fullmatch(plan)]

    def _signature(self, plan: str) -> tuple[int, ...]:
        path = self._file(plan)
        try:
            with opened(self.path, self._root) as directory:
                status = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise system_error("cannot be read", str(path), error) from error
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def sizes(self, known: dict[str, KeptSize], steady_ms: int) -> tuple[KeptSize, ...]:
        """The sizes of all cleanings, the oldest first.

        ``known`` has earlier results, and is updated. ``steady_ms``: the monotonic clock now. Only new or changed
        entries are read: one of thousands of segments takes seconds.
        """
        before, found = dict(known), []
        for plan in self._plans():
            file = self._signature(plan)
            one = before.get(plan)
            if one is None or one.file != file:
                entry = self._find_entry(plan)
                if entry is None:
                    continue
                seen_ms = steady_ms if one is None else one.seen_ms
                one = KeptSize(replace(entry, groups=(), sources={}), entry.kept_bytes, file, seen_ms)
            found.append(one)
        known.clear()
        known.update((one.entry.plan, one) for one in found)
        return tuple(sorted(found, key=lambda one: (one.entry.cleaned_ms, one.entry.plan)))

    def entry(self, plan: str) -> KeptEntry | None:
        """The entry of one cleaning; None: there is none. A damaged file is renamed, as in :meth:`entries`."""
        path = self._file(plan)
        try:
            return _parse(read_state_file(path, self._root, max_bytes=MAX_KEPT_BYTES), plan, str(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise system_error("cannot be read", str(path), error) from error
        except DAMAGE:
            self._set_aside(path)
            return None

    def require_writable(self, owner: os.stat_result) -> None:
        """Check now, before segments are rewritten, that entries can be written; thread-safe."""
        probe = self.path / f"probe-{secrets.token_hex(8)}"
        self._write(probe, b"", owner)
        self._unlink(probe)

    def save(self, entry: KeptEntry, owner: os.stat_result) -> None:
        """Store ``entry``, replacing one with its plan id. On the disk when this returns."""
        lines = [_HEAD.to_line(_Head(replace(entry, groups=()))), *map(line_bytes, entry.groups)]
        self._write(self._file(entry.plan), b"".join(line + b"\n" for line in lines), owner)

    def add(self, plan: str, group: KeptGroup) -> None:
        """Add ``group`` to the entry of ``plan``, which this process has written. On the disk when this returns."""
        path = self._file(plan)
        try:
            with opened(self.path, self._root) as directory:
                descriptor = open_to_write(path.name, dir_fd=directory, flags=os.O_APPEND)
                try:
                    write_all(descriptor, line_bytes(group) + b"\n")
                    os.fsync(descriptor)
                finally:
                    close_quietly(descriptor)
        except OSError as error:
            raise system_error("cannot be written", str(path), error) from error

    def remove(self, entry: KeptEntry) -> None:
        """Remove the entry with this plan id."""
        self._unlink(self._file(entry.plan))

    def _file(self, plan: str) -> Path:
        return self.path / f"{plan}{_SUFFIX}"

    def _set_aside(self, path: Path) -> None:
        try:
            aside = set_aside(path, self._root)
        except OSError as error:
            raise system_error("damaged, and cannot be set aside", str(path), error) from error
        self.warnings.append(f"{path}: damaged; set aside as {aside.name}, and the cleanings in it cannot be undone")

    def _write(self, path: Path, data: bytes, owner: os.stat_result) -> None:
        try:
            make_directory(self._root, owner)
            make_directory(self.path, owner, self._root)
            write_state_file(path, data, owner, self._root)
        except OSError as error:
            raise system_error("cannot be written", str(path), error) from error

    def _unlink(self, path: Path) -> None:
        try:
            with opened(self.path, self._root) as directory:
                with suppress(FileNotFoundError):
                    os.unlink(path.name, dir_fd=directory)
                os.fsync(directory)
        except OSError as error:
            raise system_error("cannot be removed", str(path), error) from error


def _parse(data: bytes, plan: str, where: str) -> KeptEntry:
    """The entry in ``data``.

    Raises:
        UnsupportedLogError: a newer cleanerd wrote it. One of ``DAMAGE``: it is not such a file.
    """
    first, *more = data.split(b"\n")
    try:
        entry = _HEAD.parse(first).entry
    except NewerFormatError as error:
        hint = "a newer cleanerd kept segments: undo that with the newer one"
        raise UnsupportedLogError(str(error), where=where, hint=hint) from None
    if entry.plan != plan:
        raise ValueError("it is another plan's")
    groups = groups_of(entry)
    for line in more[:-1]:
        add_group(groups, validated(KeptGroup, line))
    entry = replace(entry, groups=tuple(groups.values()))
    _check(entry)
    return entry


def _check(entry: KeptEntry) -> None:
    """Check that the parts fit together, as an undo needs; raises ValueError."""
    if "\0" in entry.log_dir + entry.kept:
        raise ValueError("a path in it has a NUL, which no system call takes")
    for group in entry.groups:
        bases = [segment.base for segment in group.segments]
        if bases[:1] != [group.base] or any(low >= high for low, high in pairwise([*bases, group.end])):
            raise ValueError(f"the segments of group {group.base} do not ascend to its end")
        if not entry.sources.keys() >= set(bases):
            raise ValueError(f"group {group.base} replaced segments outside the cleaning")
        if "log" not in group.output or any("log" not in segment.files for segment in group.segments):
            raise ValueError(f"a segment of group {group.base} lacks its log")


def groups_of(entry: KeptEntry) -> dict[int, KeptGroup]:
    """The groups of ``entry`` by base, in their order."""
    return {group.base: group for group in entry.groups}


def add_group(groups: dict[int, KeptGroup], group: KeptGroup) -> None:
    """Add a group at the end, or replace the one with its base, without validating thousands again."""
    groups.pop(group.base, None)
    groups[group.base] = group
