"""``--keep-replaced DIR``: the segments that a swap replaces get a second name outside of the log directories (S-40).

Links cost no space and no time, but they change a file's ctime: they are made when the plan's witnesses have been
compared, and before the first rename. The entry in ``trash.json`` comes before the swap as well: what it promises that
never came to pass, ``undo`` can see.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from cleanerd.apply.files import PartitionFiles
from cleanerd.apply.trash import FileMark, KeptGroup, KeptSegment, Trash, TrashEntry, with_group
from cleanerd.cleaner.manifest import KINDS, FileKind, staged_name
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.format.names import file_name, parse_file_name
from cleanerd.log.log_dir import META_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cleanerd.apply.session import LockedDir
    from cleanerd.cleaner.manifest import StagedGroup
    from cleanerd.log.partition import PartitionLog

_PROBE: Final = ".cleanerd-link-probe"


def require_keepable(kept: Path, log_dirs: Sequence[Path], *, probe: bool = True) -> None:
    """Refuse a directory that replaced segments cannot be kept in, before anything is done.

    ``probe``: make a link there, for a moment; without it only the file systems are compared, and nothing is written.

    Raises:
        RefusedError: it is missing, lies in a log directory, or on another file system.
    """
    if not kept.is_dir():
        raise RefusedError("is no directory", where=str(kept), hint="make it; it is for --keep-replaced")
    place = kept.resolve()
    inside = [path.resolve() for path in log_dirs if place.is_relative_to(path.resolve())]
    inside += [path for path in (place, *place.parents) if (path / META_PROPERTIES).exists()]
    if inside:
        raise RefusedError(
            f"lies in the log directory {inside[0]}",
            where=str(kept),
            hint="a broker takes a strange directory there for a partition; name one outside of every log directory",
        )
    for path in log_dirs:
        if probe:
            _try_link(place, path)
        elif path.is_dir() and path.stat().st_dev != place.stat().st_dev:
            raise _not_linkable(path, kept, os.strerror(errno.EXDEV))


def _try_link(kept: Path, log_dir: Path) -> None:
    """Only a link shows whether links can be made: bind mounts and access rules count too."""
    probe = kept / f"{_PROBE}-{os.getpid()}"
    try:
        os.link(log_dir / META_PROPERTIES, probe, follow_symlinks=False)
    except OSError as error:
        raise _not_linkable(log_dir, kept, error.strerror or str(error)) from error
    with contextlib.suppress(OSError):
        probe.unlink()


def _not_linkable(log_dir: Path, kept: Path, reason: str) -> RefusedError:
    return RefusedError(
        f"files of {log_dir} cannot be linked here: {reason}",
        where=str(kept),
        hint="name a directory on the same file system and mount, and run as the files' owner",
    )


class Keeper:
    """Keeps what one plan replaces. A plan whose apply was cut short goes on with the entry that it has."""

    def __init__(
        self,
        locked: LockedDir,
        kept: Path,
        files: PartitionFiles,
        log: PartitionLog,
        plan_id: str,
        *,
        end_offset: int,
        sources: Mapping[int, FileMark],
    ) -> None:
        """Nothing is written yet. ``sources`` are the logs of all segments that the cleaning covers.

        Raises:
            CleanerdError: ``trash.json`` cannot be read.
        """
        self._locked = locked
        self._files = files
        self._directory = f"{plan_id}/{log.name}"
        self._place = kept.resolve()
        self._trash = Trash(locked.store.root)
        state = locked.store.load(locked.log_dir, log)
        before = None if state is None or state.clean_point is None else asdict(state.clean_point)
        begun = [entry for entry in self._trash.entries() if entry.plan == plan_id]
        self._entry = (
            begun[0]
            if begun
            else TrashEntry(
                plan=plan_id,
                topic=log.name.topic,
                partition=log.name.partition,
                topic_id=log.topic_id,
                directory_id=locked.log_dir.meta.directory_id,
                log_dir=str(locked.log_dir.path.resolve()),
                kept=str(self._place / self._directory),
                cleaned_ms=time.time_ns() // 1_000_000,
                end_offset=max(end_offset, log.cleaner_offset or 0),
                checkpoint=log.cleaner_offset,
                clean_point=before,
                sources=dict(sources),
                groups=(),
            )
        )

    def keep(self, staged: StagedGroup) -> None:
        """Link the sources of ``staged``, which is about to be swapped in. On the disk when this returns.

        Raises:
            CleanerdError: they cannot be linked, or ``trash.json`` cannot be written. The log is as it was.
        """
        plan_id = self._entry.plan
        with PartitionFiles(self._place) as place:
            _make(place, plan_id)
            _make(place, self._directory)
            place.fsync_directory()
            place.fsync_directory(plan_id)
        with PartitionFiles(self._place / self._directory) as place:
            segments = tuple(self._link(place, base) for base in staged.sources)
            place.fsync_directory()
        output = self._files.stat(staged_name(plan_id, staged.base, "log"))
        if output is None:
            raise CleanerdError("the staged log vanished", where=str(self._files.path))
        group = KeptGroup(staged.base, staged.end, segments, staged.files, FileMark.of(output))
        self._entry = with_group(self._entry, group)
        self._trash.put(self._entry, self._locked.store.owner(self._locked.log_dir))

    def linked(self) -> frozenset[int]:
        """Bases of segments that got their second name already: an apply was cut short, and their ctime is not old."""
        directory = self._place / self._directory
        if not directory.is_dir():
            return frozenset()
        with PartitionFiles(directory) as place:
            return frozenset(
                parsed[0]
                for name in place.names()
                if (parsed := parse_file_name(name)) is not None and _is_same(place, self._files, name)
            )

    def _link(self, place: PartitionFiles, base: int) -> KeptSegment:
        marks: dict[FileKind, FileMark] = {}
        for kind in KINDS:
            name = file_name(base, f".{kind}")
            status = self._files.stat(name)
            if status is not None:
                if not _is_same(place, self._files, name):
                    place.link_from(self._files, name, name)
                marks[kind] = FileMark.of(status)
        return KeptSegment(base, marks)


def _is_same(place: PartitionFiles, other: PartitionFiles, name: str) -> bool:
    """Whether ``name`` is the same file in both directories."""
    one, two = place.stat(name), other.stat(name)
    return one is not None and two is not None and os.path.samestat(one, two)


def _make(place: PartitionFiles, name: str) -> None:
    """A directory of ``place``'s owner, unless it is there."""
    if not place.is_directory(name):
        place.mkdir(name)
