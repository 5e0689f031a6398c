"""``--keep-replaced DIR``: the segments that a swap replaces get a second name outside of the log directories (S-40).

Links cost no space and no time, but they change a file's ctime: they are made when the plan's witnesses have been
compared, and before the first rename. The entry in ``trash.json`` comes before the swap as well: what it promises that
never came to pass, ``undo`` can see.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from cleanerd.apply.files import PartitionFiles
from cleanerd.apply.kept_place import agree
from cleanerd.apply.kept_segments import FileMark, KeptEntry, KeptGroup, KeptSegment, KeptSegments, with_group
from cleanerd.cleaner.keep_dir import not_linkable, require_keep_dir
from cleanerd.cleaner.manifest import KINDS, FileKind, staged_name
from cleanerd.errors import CleanerdError
from cleanerd.format.names import file_name, parse_file_name
from cleanerd.log.log_dir import META_PROPERTIES
from cleanerd.log.state_files import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cleanerd.apply.session import LockedDir
    from cleanerd.cleaner.manifest import StagedGroup
    from cleanerd.log.partition import PartitionLog

_PROBE: Final = ".cleanerd-link-probe"


def require_keepable(kept: Path, log_dirs: Sequence[Path]) -> None:
    """Refuse a directory that replaced segments cannot be kept in, before anything is done; makes a link there to see.

    Raises:
        RefusedError: as :func:`require_keep_dir`, or links cannot be made there.
    """
    require_keep_dir(kept, log_dirs)
    for path in log_dirs:
        _try_link(kept.resolve(), path)


def _try_link(kept: Path, log_dir: Path) -> None:
    """Only a link shows whether links can be made: bind mounts and access rules count too."""
    probe = f"{_PROBE}-{os.getpid()}"
    try:
        with opened(log_dir) as source, opened(kept) as place:
            os.link(META_PROPERTIES, probe, src_dir_fd=source, dst_dir_fd=place, follow_symlinks=False)
            with contextlib.suppress(OSError):
                os.unlink(probe, dir_fd=place)
    except OSError as error:
        raise not_linkable(log_dir, kept, error.strerror or str(error)) from error


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
        require: Callable[[PartitionFiles], None] | None = None,
    ) -> None:
        """Nothing is written yet. ``sources`` are the logs of all segments that the cleaning covers.

        ``require`` refuses the directory ``kept``, by raising, whenever it was opened; None: the operator named it.

        Raises:
            CleanerdError: ``trash.json`` cannot be read.
        """
        self._locked = locked
        self._files = files
        self._directory = f"{plan_id}/{log.name}"
        self._place = kept.resolve() if require is None else kept
        self._require = require
        self._trash = KeptSegments(locked.store.root)
        state = locked.store.load(locked.log_dir, log)
        before = None if state is None or state.clean_point is None else asdict(state.clean_point)
        begun = [entry for entry in self._trash.entries() if entry.plan == plan_id]
        self._entry = (
            begun[0]
            if begun
            else KeptEntry(
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
                rules=None if state is None else state.rules,
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
        with self._opened() as place:
            agree(place, plan_id, self._locked.log_dir.path)
            _make(place, self._directory)
            place.fsync_directory(plan_id)
            segments = tuple(self._link(place, base) for base in staged.sources)
            place.fsync_directory(self._directory)
        output = self._files.stat(staged_name(plan_id, staged.base, "log"))
        if output is None:
            raise CleanerdError("the staged log vanished", where=str(self._files.path))
        group = KeptGroup(staged.base, staged.end, segments, staged.files, FileMark.of(output))
        self._entry = with_group(self._entry, group)
        self._trash.put(self._entry, self._locked.store.owner(self._locked.log_dir))

    def linked(self) -> frozenset[int]:
        """Bases of segments that got their second name already: an apply was cut short, and their ctime is not old."""
        with self._opened() as place:
            return frozenset(
                parsed[0]
                for name in place.names(self._directory)
                if (parsed := parse_file_name(name)) is not None and self._is_kept(place, name)
            )

    @contextlib.contextmanager
    def _opened(self) -> Iterator[PartitionFiles]:
        with PartitionFiles(self._place) as place:
            if self._require is not None:
                self._require(place)
            yield place

    def _link(self, place: PartitionFiles, base: int) -> KeptSegment:
        marks: dict[FileKind, FileMark] = {}
        for kind in KINDS:
            name = file_name(base, f".{kind}")
            status = self._files.stat(name)
            if status is not None:
                if not self._is_kept(place, name):
                    place.link_from(self._files, name, f"{self._directory}/{name}")
                marks[kind] = FileMark.of(status)
        return KeptSegment(base, marks)

    def _is_kept(self, place: PartitionFiles, name: str) -> bool:
        """Whether ``name`` is the same file in the log and in the place."""
        one, two = place.stat(f"{self._directory}/{name}"), self._files.stat(name)
        return one is not None and two is not None and os.path.samestat(one, two)


def _make(place: PartitionFiles, name: str) -> None:
    """A directory of ``place``'s owner, unless it is there."""
    if not place.is_directory(name):
        place.mkdir(name)
