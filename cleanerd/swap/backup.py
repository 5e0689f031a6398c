"""``--keep-replaced DIR``: replaced segments get a second name outside of the log directories (S-40).

Links take no space and no time, but they change a file's ctime. So they are made after the plan's witnesses were
compared, and before the first rename by cleanerd or the broker. The entry in ``trash/`` is written before the swap as
well: ``undo`` can see which swaps were not made.

Beside a running broker another process can replace a source before it gets its link. So a link is used only if it
refers to the segment of the plan, and the backup of a refused swap is released.
"""

from __future__ import annotations

import contextlib
import os
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from cleanerd.cleaner.manifest import KINDS, FileKind, StagedGroup, staged_name
from cleanerd.errors import CleanerdError, RefusedError, StalePlanError
from cleanerd.format.names import file_name, parse_file_name
from cleanerd.fsio.state_files import opened
from cleanerd.host.clock import wall_ms
from cleanerd.segments.keep_dir import not_linkable, require_keep_dir
from cleanerd.segments.log_dir import META_PROPERTIES, LogDir
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.kept_place import agree, delete_kept
from cleanerd.swap.kept_segments import (
    FileIdentity,
    KeptEntry,
    KeptGroup,
    KeptSegment,
    KeptSegments,
    add_group,
    groups_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.survey import Survey
    from cleanerd.policy.transaction import AbortedTransactions
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.state.cleaner_checkpoint import StateStore

_PROBE: Final = ".cleanerd-link-probe"


def require_keepable(kept: Path, log_dirs: Sequence[Path]) -> None:
    """Refuse a directory that cannot store replaced segments, before any change; tries a link there.

    Raises:
        CleanerdError: as :func:`require_keep_dir`, or links cannot be made there.
    """
    require_keep_dir(kept, log_dirs)
    for path in log_dirs:
        _try_link(kept.resolve(), path)


def _try_link(kept: Path, log_dir: Path) -> None:
    """Only a link shows whether links can be made, because bind mounts and access rules matter too."""
    probe = f"{_PROBE}-{os.getpid()}"
    try:
        with opened(log_dir) as source, opened(kept) as place:
            with suppress(FileNotFoundError):
                os.unlink(probe, dir_fd=place)  # left by a killed process; in containers all have the same number
            os.link(META_PROPERTIES, probe, src_dir_fd=source, dst_dir_fd=place, follow_symlinks=False)
            with suppress(OSError):
                os.unlink(probe, dir_fd=place)
    except OSError as error:
        raise not_linkable(log_dir, kept, error.strerror or str(error)) from error


@dataclass(frozen=True, slots=True)
class BackupPlace:
    """The directory for replaced segments.

    ``room``: makes space for that many more bytes; returns why there is none, or an empty text. ``require`` refuses the
    directory, by raising, whenever it is opened; None: the operator named it. ``now_ms``: the later time if the clock
    is in doubt, because backups are deleted by age (U-42).
    """

    path: Path
    room: Callable[[int], str] = lambda _bytes: ""
    require: Callable[[PartitionFiles], None] | None = None
    now_ms: Callable[[], int] = wall_ms


class Backup:
    """The backup of the segments that one plan replaces. An interrupted apply continues with its existing entry."""

    def __init__(
        self,
        log_dir: LogDir,
        store: StateStore,
        place: BackupPlace,
        files: PartitionFiles,
        log: PartitionLog,
        plan_id: str,
        *,
        end_offset: int,
        sources: Mapping[int, FileIdentity],
        aborted: AbortedTransactions,
    ) -> None:
        """Writes nothing yet.

        ``sources``: the logs of all segments that the cleaning covers. ``aborted``: the transactions that count as
        aborted.

        Raises:
            CleanerdError: the stored entry of the plan cannot be read.
        """
        self._log_dir = log_dir
        self._store = store
        self._files = files
        self._directory = f"{plan_id}/{log.name}"
        self._place = place.path.resolve() if place.require is None else place.path
        self._require = place.require
        self._kept_segments = KeptSegments(store.root)
        self._is_put = False
        state = store.load(log_dir, log)
        before = None if state is None or state.cleanerd_checkpoint is None else asdict(state.cleanerd_checkpoint)
        entry = self._kept_segments.entry(plan_id)
        self._entry = (
            self._resume(entry)
            if entry is not None
            else KeptEntry(
                plan=plan_id,
                topic=log.name.topic,
                partition=log.name.partition,
                topic_id=log.topic_id,
                place=store.directory_name(log_dir),
                log_dir=str(log_dir.path.resolve()),
                kept=str(self._place / self._directory),
                cleaned_ms=place.now_ms(),
                end_offset=max(end_offset, log.cleaner_offset or 0),
                checkpoint=log.cleaner_offset,
                cleanerd_checkpoint=before,
                rules=None if state is None else state.rules,
                sources=dict(sources),
                groups=(),
                aborted=_reaching_out(log, max(sources), aborted),
            )
        )
        self._groups = groups_of(self._entry)

    @classmethod
    def of_plan(
        cls,
        place: BackupPlace,
        log_dir: LogDir,
        store: StateStore,
        files: PartitionFiles,
        found: Survey,
        plan: CleaningPlan,
    ) -> Self:
        """The backup of a new plan."""
        return cls(
            log_dir,
            store,
            place,
            files,
            found.log,
            plan.plan_id,
            end_offset=max(plan.end_offset, found.proven_offset),
            sources={
                source.base: FileIdentity(source.segment.size_bytes, source.segment.inode, source.segment.mtime_ns)
                for source in plan.sources
            },
            aborted=plan.aborted,
        )

    def _resume(self, entry: KeptEntry) -> KeptEntry:
        """The backup from before the interruption, because ``undo`` expects all of it in one place.

        Raises:
            RefusedError: it is in another directory than the current one, or belongs to another log directory.
        """
        if not self._kept_segments.is_of(entry, self._log_dir):
            raise RefusedError(
                f"this plan was begun in {entry.log_dir}: {self._log_dir.path} is a copy of that, or the original",
                where=str(self._files.path),
                hint="stage it again here",
            )
        kept = str(self._place / self._directory)
        if os.path.realpath(kept) != os.path.realpath(entry.kept) and os.path.isdir(entry.kept):
            raise RefusedError(
                f"the segments replaced so far are kept in {entry.kept}",
                where=str(self._place),
                hint="name the directory that it was kept in",
            )
        return replace(entry, kept=kept)

    def keep(self, staged: StagedGroup) -> None:
        """Link the sources of ``staged`` before its swap; on the disk when this returns.

        Raises:
            StalePlanError: a source is not the planned segment any more.
            CleanerdError: they cannot be linked, or the entry cannot be written. The log is unchanged.
        """
        plan_id = self._entry.plan
        with self._opened() as place:
            agree(place, plan_id, self._log_dir.path)
            _make(place, self._directory)
            place.fsync_directory(plan_id)
            segments = tuple(self._link(place, base) for base in staged.sources)
            place.fsync_directory(self._directory)
        output = self._files.stat(staged_name(plan_id, staged.base, "log"))
        if output is None:
            raise CleanerdError("the staged log vanished", where=str(self._files.path))
        group = KeptGroup(staged.base, staged.end, segments, staged.files, FileIdentity.of(output))
        add_group(self._groups, group)
        if self._is_put:
            self._kept_segments.add(plan_id, group)
        else:
            self._save_entry()

    def release(self, staged: StagedGroup) -> None:
        """Remove the links to the sources of ``staged``, which was certainly not swapped in.

        Errors are ignored: ``undo`` detects groups that were not swapped.
        """
        with suppress(CleanerdError):
            bases = set(staged.sources)
            with self._opened() as place:
                for name in sorted(place.names(self._directory)):
                    parsed = parse_file_name(name)
                    if parsed is not None and parsed[0] in bases:
                        place.unlink(f"{self._directory}/{name}")
                self._groups.pop(staged.base, None)
                if not self._groups:
                    delete_kept(place, self._entry, self._log_dir.path)
            if not self._groups:
                self._kept_segments.remove(self._entry)
                self._is_put = False
            elif self._is_put:
                self._save_entry()

    def _save_entry(self) -> None:
        entry = replace(self._entry, groups=tuple(self._groups.values()))
        self._kept_segments.save(entry, self._store.owner(self._log_dir))
        self._is_put = True

    def linked(self) -> frozenset[int]:
        """Bases of segments with a second name: an apply was interrupted, and their ctime is recent."""
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
        """Raises StalePlanError if it is not the planned log; U-33: or if a file is not a plain one."""
        identities: dict[FileKind, FileIdentity] = {}
        for kind in KINDS:
            name = file_name(base, f".{kind}")
            if self._files.stat(name) is None:
                continue
            if not self._is_kept(place, name):
                if place.stat(f"{self._directory}/{name}") is not None:
                    # An apply was interrupted, and a broker rebuilt this file. Its segment is not swapped yet.
                    self._require_decided(base, self._files.stat(file_name(base, ".log")))
                    place.unlink(f"{self._directory}/{name}")
                place.link_from(self._files, name, f"{self._directory}/{name}")
            status = place.stat(f"{self._directory}/{name}")
            if status is None or not stat.S_ISREG(status.st_mode):
                raise RefusedError("is not a plain file: it is not kept", where=self._files.where(name))
            identities[kind] = FileIdentity.of(status)
        self._require_decided(base, place.stat(f"{self._directory}/{file_name(base, '.log')}"))
        return KeptSegment(base, identities)

    def _require_decided(self, base: int, found: os.stat_result | None) -> None:
        """Raises StalePlanError if ``found`` is not the log of the planned segment."""
        if found is None or FileIdentity.of(found) != self._entry.sources.get(base):
            raise StalePlanError(f"segment {base} was replaced before it could be kept", where=str(self._files.path))

    def _is_kept(self, place: PartitionFiles, name: str) -> bool:
        """Whether ``name`` is the same file in the log and in the backup."""
        one, two = place.stat(f"{self._directory}/{name}"), self._files.stat(name)
        return one is not None and two is not None and os.path.samestat(one, two)


def _reaching_out(log: PartitionLog, last_base: int, aborted: AbortedTransactions) -> tuple[tuple[int, int, int], ...]:
    """The ``aborted`` transactions with data up to segment ``last_base`` and a marker above it.

    See :class:`KeptEntry`.
    """
    end = next(segment.base for segment in log.segments if segment.base > last_base)
    rows = aborted.entries[(aborted.entries["first_offset"] < end) & (aborted.entries["last_offset"] >= end)]
    return tuple((int(row["producer_id"]), int(row["first_offset"]), int(row["last_offset"])) for row in rows)


def _make(place: PartitionFiles, name: str) -> None:
    """Create a directory with the owner of ``place``, unless it exists."""
    if not place.is_directory(name):
        place.mkdir(name)
