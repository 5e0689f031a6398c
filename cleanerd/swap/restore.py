"""Replace one segment by several: restore replaced segments (S-40), or split an overflowed one (C-67) (F-12).

It is a swap with several outputs, as Kafka makes one when it splits a segment, with the barriers that Kafka leaves out.
Described here for an undo; the other case is in :mod:`cleanerd.swap.split`. What the loader does with every state in
between:

1. All files arrive as ``.cleaned``: *not yet*.
2. Those of the later segments become ``.swap``. The first segment's are ``.cleaned`` still, and they have the smallest
   base offset, so the loader throws everything away: *not yet*. Barrier.
3. Those of the first segment become ``.swap``. While one ``.cleaned`` is left: *not yet*; with the last rename: *put
   back*. This is the commit point. Barrier.
4. The files of the old segment become ``.deleted``, or the loader removes them itself. Barrier. 5. The logs get their
names, ascending, with a barrier after each: the loader removes every segment between the first
   and the last ``.log.swap``, so one that has its name already must be below all that have not.
6. The indexes get theirs. Barrier.

Groups go in *descending* order: a tombstone is back before the older values that it hides (the reverse of S-30).

One state cannot be avoided: a loader that is past the commit point and is itself cut short between its renames, which
are in no particular order. Then its next start can remove a segment that had its name already. Kafka has that hole
wherever it replaces one segment by several. It opens only if the broker is started on an interrupted undo, and that
start is interrupted too. ``cleanerd undo`` and ``clean`` close it before they do anything else, and the kept segments
are removed last of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pydantic import ConfigDict

from cleanerd.broker.lock_file import FileOwner
from cleanerd.cleaner.manifest import (
    KINDS,
    PLAN_ID,
    RESTORE,
    FileFact,
    FileKind,
    read_document,
    staged_name,
    staging_path,
)
from cleanerd.format.adapters import Offset  # noqa: TC001 - pydantic resolves the annotation
from cleanerd.format.names import DELETED_SUFFIX
from cleanerd.state.document import Document
from cleanerd.swap.group_swap import (
    MOVE_ORDER,
    CommitGuard,
    cleaned_name,
    final_name,
    force_rebuild_if_torn,
    swap_name,
)
from cleanerd.swap.journal import Journal
from cleanerd.swap.unfinished import refuse_unfinished, require_retirable
from cleanerd.swap.validate import has_fact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cleanerd.swap.files import PartitionFiles

_STRICT = ConfigDict(strict=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class RestoredSegment:
    """One segment to restore; ``files`` always contains ``log``."""

    base: Offset
    files: dict[FileKind, FileFact]

    __pydantic_config__ = _STRICT

    def kinds(self) -> tuple[FileKind, ...]:
        """The kinds of file it has, in the order of ``KINDS``."""
        return tuple(kind for kind in KINDS if kind in self.files)


@dataclass(frozen=True, slots=True)
class RestoreGroup:
    """``segments``, ascending, replace the segment ``base``; the next one begins at ``end``."""

    base: Offset
    end: Offset
    segments: tuple[RestoredSegment, ...]

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """``.kstage/<plan id>/restore.json``: all files that it names are on the disk. Groups descend."""

    plan: str
    groups: tuple[RestoreGroup, ...]

    __pydantic_config__ = _STRICT

    def to_json(self) -> bytes:
        """The bytes of the file that :meth:`from_json` reads."""
        return _DOCUMENT.to_bytes(self) + b"\n"

    @classmethod
    def from_json(cls, data: bytes, where: str) -> RestorePlan:
        """The plan in ``data``, checked so that its numbers can be used in file names.

        Raises:
            UnsupportedLogError: a newer cleanerd wrote it.
            CorruptionError: anything else that is not such a plan.
        """
        return read_document(data, where, _DOCUMENT)


def _check(plan: RestorePlan) -> None:
    """Check that the parts fit together; raises ValueError."""
    if PLAN_ID.fullmatch(plan.plan) is None:
        raise ValueError(f"{plan.plan[:60]!r} is not a plan id")
    if any(later.base < earlier.end for later, earlier in pairwise(plan.groups)):
        raise ValueError("the groups do not descend")
    for group in plan.groups:
        edges = (*(segment.base for segment in group.segments), group.end)
        if not group.segments or edges[0] != group.base or any(left >= right for left, right in pairwise(edges)):
            raise ValueError(f"the segments of group {group.base} do not ascend to its end")
        if any("log" not in segment.files for segment in group.segments):
            raise ValueError(f"a segment of group {group.base} lacks its log")


_DOCUMENT: Final = Document(RESTORE, RestorePlan, check=_check, only_known=True)


def write_restore(files: PartitionFiles, plan: RestorePlan) -> None:
    """Write ``restore.json`` last, flushed: all files that it names are on the disk.

    Raises:
        CleanerdError: it cannot be written.
    """
    directory = staging_path(plan.plan)
    owner = files.stat(".")
    temporary = f"{directory}/{RESTORE}.tmp"
    files.write(
        temporary, plan.to_json(), FileOwner(owner.st_uid, owner.st_gid, 0o644) if owner else FileOwner(-1, -1, 0o644)
    )
    files.fsync(temporary)
    files.rename(temporary, f"{directory}/{RESTORE}")
    files.fsync_directory(directory)


def restore_group(
    files: PartitionFiles, plan_id: str, group: RestoreGroup, journal: Journal, lock: CommitGuard
) -> None:
    """Replace the segment of ``group`` by the staged segments. Groups come in descending order.

    Before the first of them the caller has checked that nothing is unfinished (U-34), which reads every name in the
    directory. Here only the group's own names are read, since there may be thousands of groups.

    Raises:
        RefusedError: another swap is in doubt, or the old segment cannot be removed (U-34). Nothing was changed.
        LogDirBusyError: the lock was lost. Do not change anything any more, not even to clean up.
        CleanerdError: the system refused a step: :func:`~cleanerd.swap.recover.recover` makes the group old or new.
    """
    names = _existing_names(files, group)
    refuse_unfinished(files, names)  # U-34
    require_retirable(files, sorted({final_name(group.base, kind) for kind in KINDS} & names), names)
    for segment in group.segments:
        for kind in MOVE_ORDER:
            if kind in segment.files:
                files.rename(staged_name(plan_id, segment.base, kind), cleaned_name(segment.base, kind))
    files.fsync_directory()
    journal.begin(group)
    lock.check()
    first, *later = group.segments
    if later:
        _to_swap(files, reversed(later))
        files.fsync_directory()
    _to_swap(files, [first])
    files.fsync_directory()
    complete_restore(files, group)
    journal.done(group)


def complete_restore(files: PartitionFiles, group: RestoreGroup) -> None:
    """Steps 4 to 6 from the current state of a committed group, whose names must be on the disk.

    Raises:
        CleanerdError: the system refused a step; call again.
    """
    names = _existing_names(files, group)
    base, first = group.base, group.segments[0]
    if swap_name(base, "log") in names:
        for kind in KINDS:
            # A missing .swap file means that a loader renamed it: the file is already the right one.
            arrived = kind in first.files and swap_name(base, kind) not in names
            if final_name(base, kind) in names and not arrived:
                files.rename(final_name(base, kind), final_name(base, kind) + DELETED_SUFFIX)
        files.fsync_directory()
    for segment in group.segments:
        if swap_name(segment.base, "log") in names:
            files.rename(swap_name(segment.base, "log"), final_name(segment.base, "log"))
            files.fsync_directory()
    for segment in group.segments:
        for kind in segment.kinds():
            if kind != "log" and swap_name(segment.base, kind) in names:
                files.rename(swap_name(segment.base, kind), final_name(segment.base, kind))
    files.fsync_directory()
    names = _existing_names(files, group)
    for kind in KINDS:
        if final_name(base, kind) + DELETED_SUFFIX in names:
            files.unlink(final_name(base, kind) + DELETED_SUFFIX)
    files.fsync_directory()


def _existing_names(files: PartitionFiles, group: RestoreGroup) -> set[str]:
    """The existing names among those that the files of ``group`` can have."""
    bases = {group.base, *(segment.base for segment in group.segments)}
    names = (name(base, kind) for base in bases for kind in KINDS for name in (final_name, cleaned_name, swap_name))
    deleted = (final_name(group.base, kind) + DELETED_SUFFIX for kind in KINDS)
    return {name for name in (*names, *deleted) if files.stat(name) is not None}


def restore_names(files: PartitionFiles, plan: RestorePlan, unfinished: set[str]) -> set[str]:
    """The names in ``unfinished`` that are staged files of ``plan``."""
    candidates = (
        (name(segment.base, kind), fact)
        for group in plan.groups
        for segment in group.segments
        for kind, fact in segment.files.items()
        for name in (cleaned_name, swap_name)
    )
    return {name for name, fact in candidates if name in unfinished and has_fact(files, name, fact)}


def resolve_restore(files: PartitionFiles, plan: RestorePlan) -> tuple[list[int], list[int]]:
    """Complete or revert every group of an interrupted undo; returns the bases of restored and of unchanged groups.

    Raises:
        CleanerdError: the system refused a step; call again.
    """
    journal = Journal(files, plan.plan).entries()
    completed: list[int] = []
    rolled_back: list[int] = []
    for group in plan.groups:
        if group.base in journal.done:
            continue
        names = files.names()
        if _is_committed(files, group, names, begun=group.base in journal.begun):
            for segment in group.segments:
                force_rebuild_if_torn(files, segment, names)
            complete_restore(files, group)
            completed.append(group.base)
        elif names & {name(s.base, k) for s in group.segments for k in s.files for name in (cleaned_name, swap_name)}:
            _roll_back(files, group)
            rolled_back.append(group.base)
    return completed, rolled_back


def _is_committed(files: PartitionFiles, group: RestoreGroup, names: frozenset[str], *, begun: bool) -> bool:
    """Whether the group is past step 3, however many of the later steps are done."""
    first, *later = group.segments
    wanted = [(segment.base, kind) for segment in group.segments for kind in segment.files]
    if not begun or any(cleaned_name(base, kind) in names for base, kind in wanted):
        return False
    if any(final_name(segment.base, "log") in names for segment in later):
        return True  # step 5, by us or a loader: such a file exists after the commit point only
    if swap_name(group.base, "log") in names:
        # No file was removed yet, or the removal has begun. A loader that was undoing at a power failure can have left
        # some of the .swap files; if all exist, it is the commit point.
        whole = all(swap_name(base, kind) in names for base, kind in wanted)
        return whole or final_name(group.base, "log") not in names
    return has_fact(files, final_name(group.base, "log"), first.files["log"])


def _roll_back(files: PartitionFiles, group: RestoreGroup) -> None:
    """Revert the undo. The first segment's ``.cleaned`` files protect the rest, so they are removed last."""
    first, *later = group.segments
    names = files.names()
    for step in (
        [swap_name(s.base, kind) for s in group.segments for kind in s.kinds() if kind != "log"],
        [swap_name(s.base, "log") for s in reversed(group.segments)],
        [cleaned_name(s.base, kind) for s in later for kind in s.kinds()],
        [cleaned_name(first.base, kind) for kind in first.kinds()],
    ):
        present = [name for name in step if name in names]
        for name in present:
            files.unlink(name)
        if present:
            files.fsync_directory()


def _to_swap(files: PartitionFiles, segments: Iterable[RestoredSegment]) -> None:
    for segment in segments:
        for kind in segment.kinds():
            files.rename(cleaned_name(segment.base, kind), swap_name(segment.base, kind))
