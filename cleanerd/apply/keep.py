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
from cleanerd.apply.trash import FileMark, KeptGroup, KeptSegment, Trash, TrashEntry, with_group
from cleanerd.cleaner.manifest import KINDS, FileKind, staged_name
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.format.names import file_name
from cleanerd.log.log_dir import META_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.apply.session import LockedDir
    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.manifest import StagedGroup
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.survey import Survey

_PROBE: Final = ".cleanerd-link-probe"


def require_keepable(kept: Path, log_dirs: Sequence[Path]) -> None:
    """Refuse a directory that replaced segments cannot be kept in, before anything is done.

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
        _try_link(place, path)


def _try_link(kept: Path, log_dir: Path) -> None:
    """Only a link shows whether links can be made: bind mounts and access rules count too."""
    probe = kept / f"{_PROBE}-{os.getpid()}"
    try:
        os.link(log_dir / META_PROPERTIES, probe, follow_symlinks=False)
    except OSError as error:
        raise RefusedError(
            f"files of {log_dir} cannot be linked here: {error.strerror}",
            where=str(kept),
            hint="name a directory on the same file system and mount, and run as the files' owner",
        ) from error
    with contextlib.suppress(OSError):
        probe.unlink()


class Keeper:
    """Keeps what one plan replaces."""

    def __init__(self, locked: LockedDir, kept: Path, files: PartitionFiles, found: Survey, plan: CleaningPlan) -> None:
        """Nothing is written yet."""
        self._locked = locked
        self._files = files
        self._plan = plan
        self._place = kept.resolve()
        self._trash = Trash(locked.store.root)
        state = locked.store.load(locked.log_dir, found.log)
        before = None if state is None or state.clean_point is None else asdict(state.clean_point)
        checkpoint = found.log.cleaner_offset
        self._entry = TrashEntry(
            plan=plan.plan_id,
            topic=plan.name.topic,
            partition=plan.name.partition,
            topic_id=plan.topic_id,
            directory_id=plan.directory_id,
            log_dir=str(locked.log_dir.path.resolve()),
            kept=str(self._place / plan.plan_id / str(plan.name)),
            cleaned_ms=time.time_ns() // 1_000_000,
            end_offset=max(plan.end_offset, found.proven_offset, checkpoint or 0),
            checkpoint=checkpoint,
            clean_point=before,
            sources={
                source.base: FileMark(source.segment.size_bytes, source.segment.inode, source.segment.mtime_ns)
                for source in plan.sources
            },
            groups=(),
        )

    def keep(self, staged: StagedGroup, members: Sequence[SegmentDecision]) -> None:
        """Link the sources of ``staged``, which is about to be swapped in. On the disk when this returns.

        Raises:
            CleanerdError: they cannot be linked, or ``trash.json`` cannot be written. The log is as it was.
        """
        with PartitionFiles(self._place) as place:
            _make(place, self._plan.plan_id)
            _make(place, f"{self._plan.plan_id}/{self._plan.name}")
            place.fsync_directory()
            place.fsync_directory(self._plan.plan_id)
        with PartitionFiles(self._place / self._plan.plan_id / str(self._plan.name)) as place:
            segments = tuple(self._link(place, member.source.base) for member in members)
            place.fsync_directory()
        output = self._files.stat(staged_name(self._plan.plan_id, staged.base, "log"))
        if output is None:
            raise CleanerdError("the staged log vanished", where=self._plan.path)
        group = KeptGroup(staged.base, staged.end, segments, staged.files, FileMark.of(output))
        self._entry = with_group(self._entry, group)
        self._trash.put(self._entry, self._locked.store.owner(self._locked.log_dir))

    def _link(self, place: PartitionFiles, base: int) -> KeptSegment:
        marks: dict[FileKind, FileMark] = {}
        for kind in KINDS:
            name = file_name(base, f".{kind}")
            status = self._files.stat(name)
            if status is not None:
                place.link_from(self._files, name, name)
                marks[kind] = FileMark.of(status)
        return KeptSegment(base, marks)


def _make(place: PartitionFiles, name: str) -> None:
    """A directory of ``place``'s owner, unless it is there."""
    if not place.is_directory(name):
        place.mkdir(name)
