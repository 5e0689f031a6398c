"""The swap of one group: a crash between any two steps leaves exactly the old or the new segments (S-31 .. S-39).

Kafka's loader completes each state between the steps, if the broker starts first. It knows three suffixes:

* while a base offset has a ``.cleaned`` file, the loader deletes that base's ``.cleaned`` and ``.swap`` files: *old*;
* with ``.swap`` files alone, it deletes everything in their range of offsets and renames them: *new*;
* it deletes ``.deleted`` files.

So the last rename from ``.cleaned`` to ``.swap`` is the commit point. Between two flushes the disk may have any subset
of the renames; the order of the steps makes every subset either old or new.
"""

from __future__ import annotations

import contextlib
import stat
from typing import TYPE_CHECKING, Final, Protocol

from cleanerd.broker.claim import CLAIM
from cleanerd.cleaner.manifest import (
    MANIFEST,
    PLAN_ID,
    READY,
    RESTORE,
    STAGING,
    WORK,
    FileKind,
    staged_name,
    staging_path,
)
from cleanerd.errors import CleanerdError, RefusedError, StalePlanError
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
from cleanerd.swap.files import HERE, PartitionFiles
from cleanerd.swap.unfinished import refuse_unfinished, require_retirable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cleanerd.cleaner.manifest import ManifestGroup
    from cleanerd.swap.journal import Journal

_DEEPEST: Final = 8
"""Limit of slashes in removed paths. cleanerd creates at most ``.kstage/PLAN/FILE``; the owner may create more."""

_MOST_STAGED: Final = 500
"""Limit of entries in ``.kstage``: one or two plans, and remains of killed runs, which the next run removes."""

SOURCE_SUFFIXES: Final = frozenset({SEGMENT_SUFFIX, INDEX_SUFFIX, TIMEINDEX_SUFFIX, TXNINDEX_SUFFIX})

_DIGITS: Final = 20
"""The digits of a base offset in a file's name."""

# S-31: the log comes last, so that no state in between has a whole segment.
MOVE_ORDER: Final[tuple[FileKind, ...]] = ("timeindex", "index", "txnindex", "log")


class CommitGuard(Protocol):
    """Checks, just before the commit point, that the lock of the directory is still held (S-33)."""

    def check(self) -> None:
        """Raise LogDirBusyError if it is not."""


class SwapFiles(Protocol):
    """The files of one base offset for a swap."""

    @property
    def base(self) -> int:
        """The base offset in the names of these files."""

    def kinds(self) -> tuple[FileKind, ...]:
        """The kinds of files that exist, the log first."""


def swap_group(
    files: PartitionFiles,
    plan_id: str,
    group: ManifestGroup,
    journal: Journal,
    lock: CommitGuard,
    *,
    source_files: Mapping[int, Collection[str]],
) -> None:
    """Swap the staged ``group`` for its sources. Groups are swapped in ascending order only (S-30).

    ``source_files``: per source base, the file names when the plan was made.

    Raises:
        StalePlanError: the source files are others now. Nothing was changed.
        RefusedError: another swap is in doubt, or a source cannot be removed (U-34). Nothing was changed.
        LogDirBusyError: the lock was lost. Do not change anything any more, not even to clean up.
        CleanerdError: the system refused a step. The directory is in a state of the crash matrix: :func:`recover` makes
            it old or new, and so does the next start of the broker.
    """
    # Once per group: the directory has files of thousands of groups, and no other process changes it (S-10).
    names = files.names()
    _check_sources(files, group, source_files, names)
    refuse_unfinished(files, names)  # U-34
    retired = retired_names(group, names | {swap_name(group.base, kind) for kind in group.files})
    require_retirable(files, retired, names)
    for kind in MOVE_ORDER:  # S-31
        if kind in group.files:
            files.rename(staged_name(plan_id, group.base, kind), cleaned_name(group.base, kind))
    files.fsync_directory()
    journal.begin(group)  # S-32
    lock.check()  # S-33
    for kind in group.kinds():  # S-34: the log is renamed first
        files.rename(cleaned_name(group.base, kind), swap_name(group.base, kind))
    files.fsync_directory()
    _complete(files, group, group.kinds(), retired, _deleted_names(group, names))
    journal.done(group)


def complete_group(files: PartitionFiles, group: ManifestGroup) -> None:
    """S-35 .. S-38 from the current state of a committed group, whose names must be on the disk.

    Raises:
        CleanerdError: the system refused a step; call again.
    """
    names = files.names()
    kinds = tuple(kind for kind in group.kinds() if swap_name(group.base, kind) in names)
    retired = retired_names(group, names) if "log" in kinds else []
    _complete(files, group, kinds, retired, _deleted_names(group, names))


def _complete(
    files: PartitionFiles,
    group: ManifestGroup,
    kinds: Collection[FileKind],
    retired: Collection[str],
    deleted: Collection[str],
) -> None:
    """``kinds`` still have their ``.swap`` name, ``retired`` still the name of a source, ``deleted`` no longer."""
    if "log" in kinds:
        for name in retired:  # S-35
            files.rename(name, name + DELETED_SUFFIX)
        files.fsync_directory()
        files.rename(swap_name(group.base, "log"), final_name(group.base, "log"))  # S-36
        files.fsync_directory()
    for kind in kinds:  # S-37
        if kind != "log":
            files.rename(swap_name(group.base, kind), final_name(group.base, kind))
    files.fsync_directory()
    for name in sorted({*deleted, *(name + DELETED_SUFFIX for name in retired)}):  # S-38
        files.unlink(name)
    files.fsync_directory()


def retired_names(group: ManifestGroup, names: Collection[str]) -> list[str]:
    """Files of the sources that S-35 removes from the log, from the ``names`` in the directory.

    A file of the output that already has its final name does not belong to a source: an interrupted loader can have
    renamed an index before its log (X-19). Snapshots are removed with their segments, except the newest of the log
    (S-45).
    """
    arrived = {final_name(group.base, kind) for kind in group.files if swap_name(group.base, kind) not in names}
    snapshots = [parse_file_name(name) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
    newest_snapshot = max([place[0] for place in snapshots if place is not None], default=-1)
    return [
        name
        for name, base, suffix in files_of(group, names)
        if (suffix in SOURCE_SUFFIXES and name not in arrived)
        or (suffix == SNAPSHOT_SUFFIX and base not in {group.base, newest_snapshot})
    ]


def finish_plan(files: PartitionFiles, plan_id: str, *, lasting: bool = True) -> None:
    """S-39: remove the files staged under ``plan_id``, the manifest first; also ``.kstage`` if it is empty then.

    Call it when every group that was begun is old or new on the disk. A missing plan is not an error. ``lasting``: a
    crash of the machine must not restore it, nor the manifest without its files.

    Raises:
        CleanerdError: the system refused a step; call again.
    """
    directory = staging_path(plan_id)
    if files.is_directory(directory):
        for ready in sorted({MANIFEST, READY, RESTORE} & files.names(directory)):
            files.unlink(f"{directory}/{ready}")
            if lasting:
                files.fsync_directory(directory)
        remove_tree(files, directory)
        if lasting:
            files.fsync_directory(STAGING)
    remove_staging_if_empty(files)


def drop_plans(files: PartitionFiles, staged: Iterable[str], *, keep_ready: bool = False) -> bool:
    """Remove every staged plan of cleanerd; call it with the claim, when nothing is half swapped.

    ``staged``: :func:`names_staged`. ``keep_ready``: keep plans that wait for ``cleanerd apply``; returns whether there
    is one.

    Raises:
        CleanerdError: the system refused a step; call again.
    """
    kept = False
    for name in staged:
        if PLAN_ID.fullmatch(name) is None:
            continue
        if keep_ready and files.stat(f"{staging_path(name)}/{READY}") is not None:
            kept = True
            continue
        finish_plan(files, name)
    return kept


def drop_work(files: PartitionFiles, staged: Iterable[str]) -> None:
    """Remove files of Spark drivers that were killed, before any other change of the partition.

    A running driver would hold the claim, which we have now. An attempt of another process finds its directory missing
    and fails. Files that cannot be removed do no harm, and are swept later. ``staged``: `names_staged`.
    """
    left = [name for name in staged if WORK.fullmatch(name) is not None]
    if not left or not files.keeps_others_out():
        return
    for name in left:
        with contextlib.suppress(CleanerdError):
            remove_tree(files, f"{STAGING}/{name}")
            files.fsync_directory(STAGING)
    remove_staging_if_empty(files)


def names_staged(files: PartitionFiles) -> list[str]:
    """The names in ``.kstage`` without the claim, ascending.

    Raises:
        RefusedError: there are too many, so the directory's owner must have created them. Each needs several fsyncs,
            and other partitions wait meanwhile.
    """
    names = files.names(STAGING) - {CLAIM}
    if len(names) > _MOST_STAGED:
        raise RefusedError(
            f"has {len(names)} entries, more than cleanerd leaves there",
            where=files.where(STAGING),
            hint="check it, then remove it",
        )
    return sorted(names)


def force_rebuild_if_torn(files: PartitionFiles, segment: SwapFiles, names: frozenset[str]) -> None:
    """Drop the offset index too if a loader that was interrupted twice has lost an output's index (X-19).

    The broker rebuilds all three indexes of a segment without ``.index``. If only its ``.txnindex`` is missing, it
    would show aborted records.
    """
    base = segment.base
    lost = [kind for kind in segment.kinds() if not names & {swap_name(base, kind), final_name(base, kind)}]
    if not lost or swap_name(base, "log") not in names:
        return
    for name in (swap_name(base, "index"), final_name(base, "index")):
        if name in names:
            files.unlink(name)
    files.fsync_directory()


def remove_staging_if_empty(files: PartitionFiles) -> None:
    """Remove ``.kstage`` if it is empty; a claim does that when it is released.

    Raises:
        CleanerdError: the system refused.
    """
    if not files.is_directory(STAGING):
        return
    names = files.names(STAGING)
    if names == {CLAIM}:
        files.forget_old_claim()
    elif not names:
        files.rmdir(STAGING)
        files.fsync_directory(HERE)


def remove_tree(files: PartitionFiles, name: str) -> None:
    """Remove ``name`` and everything below it without following links; a missing name is not an error.

    Raises:
        RefusedError: its directories are deeper than cleanerd creates any.
        CleanerdError: the system refused a step, or a directory belongs to another user.
    """
    if name.count("/") > _DEEPEST:
        raise RefusedError(
            "has more nested directories than cleanerd makes",
            where=files.where("/".join(name.split("/")[:2])),
            hint="check it, then remove it",
        )
    status = files.stat(name)
    if status is None:
        return
    if not stat.S_ISDIR(status.st_mode):
        files.unlink(name)
        return
    for inner in sorted(files.names(name)):
        remove_tree(files, f"{name}/{inner}")
    files.rmdir(name)


def cleaned_name(base: int, kind: FileKind) -> str:
    """Name of an output before the commit point."""
    return file_name(base, f".{kind}{CLEANED_SUFFIX}")


def swap_name(base: int, kind: FileKind) -> str:
    """Name of an output after the commit point."""
    return file_name(base, f".{kind}{SWAP_SUFFIX}")


def final_name(base: int, kind: FileKind) -> str:
    """Name of an output in the log."""
    return file_name(base, f".{kind}")


def _check_sources(
    files: PartitionFiles,
    group: ManifestGroup,
    source_files: Mapping[int, Collection[str]],
    names: Collection[str],
) -> None:
    """Refuse a group whose source files are not those of the plan (S-29)."""
    planned = {name for source in group.sources for name in source_files[source] if name[_DIGITS:] in SOURCE_SUFFIXES}
    found = {name for name, _, suffix in files_of(group, names) if suffix in SOURCE_SUFFIXES}
    if planned != found:
        changed = ", ".join(sorted(planned ^ found))
        raise StalePlanError(
            f"files of the segments to be replaced appeared or vanished: {changed}",
            where=str(files.path),
            hint="plan again",
        )


def _deleted_names(group: ManifestGroup, names: Collection[str]) -> list[str]:
    """Files of the sources that S-35 renamed. The broker removes other ``.deleted`` files."""
    ours = {suffix + DELETED_SUFFIX for suffix in (*SOURCE_SUFFIXES, SNAPSHOT_SUFFIX)}
    return [name for name, _, suffix in files_of(group, names) if suffix in ours]


def files_of(group: ManifestGroup, names: Iterable[str]) -> list[tuple[str, int, str]]:
    """The names in ``names`` that begin with the base offset of a source, ascending, with base and suffix."""
    bases = {file_name(base, ""): base for base in group.sources}
    return [(name, bases[name[:_DIGITS]], name[_DIGITS:]) for name in sorted(names) if name[:_DIGITS] in bases]
