"""Lists a partition directory with any contents: unlike ``segments.partition``, it accepts strange files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cleanerd.errors import system_error
from cleanerd.format.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIMEINDEX_SUFFIX,
    TXNINDEX_SUFFIX,
    file_name,
    parse_file_name,
)
from cleanerd.fsio.plain_file import read_plain
from cleanerd.segments.remote import RemotePath

STAGING: Final = ".kstage"
NO_END: Final = 2**63 - 1
_INDEXES: Final = (INDEX_SUFFIX, TIMEINDEX_SUFFIX, TXNINDEX_SUFFIX)


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A ``.log`` file. Its offsets are in ``base .. end`` (exclusive); ``sealed``: a later segment exists."""

    path: Path
    base: int
    end: int
    size_bytes: int
    sealed: bool

    def companion(self, suffix: str) -> Path:
        return self.path.parent / file_name(self.base, suffix)


@dataclass(frozen=True, slots=True)
class Listing:
    """A partition directory.

    ``leftovers``: files of a replacement or deletion. ``orphans``: files without their log.
    """

    path: Path
    segments: tuple[SegmentFile, ...]
    snapshots: tuple[int, ...]
    leftovers: tuple[Path, ...]
    orphans: tuple[Path, ...]


def list_partition(path: Path, *, deleted_too: bool = False) -> Listing:
    """List the directory ``path``.

    ``deleted_too``: a ``.log.deleted`` replaces a missing ``.log``, as in a directory of replaced segments.

    Raises:
        CleanerdError: it cannot be listed.
    """
    logs: dict[int, Path] = {}
    replaced: dict[int, Path] = {}
    indexes: list[tuple[int, Path]] = []
    snapshots: list[int] = []
    leftovers: list[Path] = []
    for place in places_in(path):
        parsed = parse_file_name(place.name)
        if parsed is None:
            if place.name == STAGING:
                leftovers.append(place)
            continue
        base, suffix = parsed
        if suffix == SEGMENT_SUFFIX:
            logs[base] = place
        elif suffix == SNAPSHOT_SUFFIX:
            snapshots.append(base)
        elif suffix in _INDEXES:
            indexes.append((base, place))
        elif deleted_too and suffix == SEGMENT_SUFFIX + DELETED_SUFFIX:
            replaced[base] = place
        elif suffix.endswith((SWAP_SUFFIX, CLEANED_SUFFIX, DELETED_SUFFIX)):
            leftovers.append(place)
    return Listing(
        path=path,
        segments=in_order({**replaced, **logs}),
        snapshots=tuple(sorted(snapshots)),
        leftovers=tuple(leftovers),
        orphans=tuple(file for base, file in indexes if base not in logs and base not in replaced),
    )


def in_order(logs: dict[int, Path]) -> tuple[SegmentFile, ...]:
    """The segments of one log, each ending where the next begins.

    Raises:
        CleanerdError: a file's ``stat`` fails.
    """
    bases = sorted(logs)
    return tuple(
        SegmentFile(logs[base], base, end, size_of(logs[base]), sealed=end != NO_END)
        for base, end in zip(bases, [*bases, NO_END][1:], strict=True)
    )


def places_in(path: Path) -> list[Path]:
    """The entries of a directory, sorted; raises as :func:`names_in`."""
    return list(path.children()) if isinstance(path, RemotePath) else [path / name for name in names_in(path)]


def dirs_in(path: Path) -> list[Path]:
    """The directories among its entries; raises as :func:`names_in`."""
    if isinstance(path, RemotePath):
        return list(path.dirs())
    return [each for each in places_in(path) if each.is_dir()]


def is_there(path: Path) -> bool:
    """Whether the name exists.

    Raises:
        CleanerdError: a store does not answer.
    """
    return path.status() is not None if isinstance(path, RemotePath) else path.exists()


def is_dir(path: Path) -> bool:
    """Whether the name is a directory; raises as :func:`is_there`."""
    if isinstance(path, RemotePath):
        found = path.status()
        return found is not None and found.is_dir
    return path.is_dir()


def names_in(path: Path) -> list[str]:
    """The names in a directory, sorted.

    Raises:
        CleanerdError: it cannot be listed.
    """
    if isinstance(path, RemotePath):
        return [each.name for each in path.children()]
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        raise system_error("cannot be listed", str(path), error) from error


def size_of(path: Path) -> int:
    """The size of a file.

    Raises:
        CleanerdError: its ``stat`` fails.
    """
    if isinstance(path, RemotePath):
        if path.listed is not None:
            return path.listed.st_size
        with path.opened() as file:
            return file.listed.st_size
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError as error:
        raise system_error("cannot be read", str(path), error) from error


def changed_ms(path: Path) -> int:
    """When a file was last written, ms since 1970; :data:`NO_END` if a store does not report it.

    Raises:
        CleanerdError: its ``stat`` fails.
    """
    if isinstance(path, RemotePath):
        return NO_END
    try:
        return os.stat(path, follow_symlinks=False).st_mtime_ns // 1_000_000
    except OSError as error:
        raise system_error("cannot be read", str(path), error) from error


def bytes_of(path: Path, *, has_room: bool = False) -> bytes | None:
    """The content of a small file; None: it does not exist.

    ``has_room``: the file is an index, whose preallocated end is not read (:func:`safe_open.read_and_close`).

    Raises:
        CleanerdError: it cannot be read.
    """
    try:
        return path.small(has_room=has_room) if isinstance(path, RemotePath) else read_plain(path, has_room=has_room)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise system_error("cannot be read", str(path), error) from error
