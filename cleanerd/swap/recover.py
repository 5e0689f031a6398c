"""Complete or undo an interrupted swap, before anything else is done (S-28, S-21).

For every group of cleanerd that the journal does not list as done, the names in the directory show its state, as
Kafka's loader would interpret them (see :mod:`cleanerd.swap.group_swap`):

* a ``.cleaned`` file exists: before the commit point, *undo*;
* ``.swap`` files alone: after it, *complete*;
* neither, but the segment in place is our output: swapped, remove the remaining ``.deleted`` files.

Files are cleanerd's if one of its manifests describes them, with size and checksum. Any other ``.swap`` or ``.cleaned``
file is reported, and nothing is changed: only a broker's start may resolve it.

A plan of a newer release is discarded if there are no such files: then each of its groups is old or new.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from cleanerd.cleaner.manifest import MANIFEST, PLAN_ID, READY, RESTORE, STAGING, Manifest, ManifestGroup, staging_path
from cleanerd.errors import CleanerdError, CorruptionError, LogDirBusyError, UnsupportedLogError
from cleanerd.format.names import CLEANED_SUFFIX, SWAP_SUFFIX
from cleanerd.swap.group_swap import (
    cleaned_name,
    complete_group,
    drop_work,
    final_name,
    finish_plan,
    force_rebuild_if_torn,
    names_staged,
    remove_staging_if_empty,
    remove_tree,
    swap_name,
)
from cleanerd.swap.journal import Journal
from cleanerd.swap.restore import RestorePlan, resolve_restore, restore_names
from cleanerd.swap.signals import signals_wait
from cleanerd.swap.validate import has_fact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cleanerd.swap.files import PartitionFiles

T = TypeVar("T")

SWEEP_AGE_MS: Final = 24 * 60 * 60 * 1000
"""Unknown files under ``.kstage`` are removed after a day."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The findings and actions. Bases are those of groups.

    ``ready``: plans that were kept to be applied. ``foreign``: files that cleanerd must not resolve; if there are any,
    nothing was changed and the partition must be refused (S-21). ``newer``: plans of a newer release; they were
    dropped, or are also foreign if something is half done.
    """

    completed: tuple[int, ...] = ()
    rolled_back: tuple[int, ...] = ()
    dropped_plans: tuple[str, ...] = ()
    swept: tuple[str, ...] = ()
    ready: tuple[Manifest, ...] = ()
    foreign: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()


@dataclass(slots=True)
class _Leftovers:
    """cleanerd's plans under ``.kstage``, and files of unknown origin."""

    plans: list[str] = field(default_factory=list)
    newer: list[str] = field(default_factory=list)
    manifests: list[Manifest] = field(default_factory=list)
    restores: list[RestorePlan] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def recover(files: PartitionFiles, *, now_ms: int | None = None, keep_ready: bool = False) -> RecoveryReport:
    """Make every group of the partition exactly old or exactly new, and remove all plans of cleanerd.

    ``keep_ready``: keep plans of ``cleanerd stage``, which can continue after an interruption. Call it with the log
    directory locked, before anything else and after every swap that raised (unless the lock was lost). It can be
    interrupted and called again at any time. ``now_ms``: the wall clock, for the sweep.

    Raises:
        CleanerdError: the system refused a step; the directory is still in a state of the crash matrix.
    """
    names = files.names()
    unfinished = {name for name in names if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX))}
    if not unfinished and STAGING not in names:
        return RecoveryReport()
    found = _scan_leftovers(files)
    groups = [(manifest, group) for manifest in found.manifests for group in manifest.groups]
    ours = {name for _, group in groups for name in _names_of_ours(files, group, unfinished)}
    for restore in found.restores:
        ours |= restore_names(files, restore, unfinished)
    foreign = sorted((unfinished - ours) | set(found.foreign))
    if foreign or (found.newer and unfinished):
        in_doubt = [f"{STAGING}/{plan_id}" for plan_id in found.newer]
        return RecoveryReport(foreign=tuple(sorted({*foreign, *in_doubt})), newer=tuple(found.newer))

    # A killed process may leave names in memory only. Later changes must not reach the disk before them.
    files.fsync_directory()
    completed: list[int] = []
    rolled_back: list[int] = []
    journals = [(Journal(files, manifest.plan).entries(), manifest) for manifest in found.manifests]
    # Two plans can have the same bytes for a base; the one that was begun knows which sources they replace.
    journals.sort(key=lambda each: not each[0].begun - each[0].done)
    for journal, manifest in journals:
        for group in manifest.groups:
            if group.base in journal.done:
                continue
            _resolve_group(
                files, group, begun=group.base in journal.begun, completed=completed, rolled_back=rolled_back
            )
    for restore in found.restores:
        done, undone = resolve_restore(files, restore)
        completed += done
        rolled_back += undone
    kept = [m for m in found.manifests if keep_ready and files.stat(f"{staging_path(m.plan)}/{READY}") is not None]
    staying = {manifest.plan for manifest in kept}
    dropped = [plan_id for plan_id in (*found.plans, *found.newer) if plan_id not in staying]
    for plan_id in dropped:
        finish_plan(files, plan_id)
    if found.unknown:
        drop_work(files, names_staged(files))
    swept = _sweep(files, found.unknown, int(time.time() * 1000) if now_ms is None else now_ms)
    return RecoveryReport(
        completed=tuple(completed),
        rolled_back=tuple(rolled_back),
        dropped_plans=tuple(dropped),
        swept=tuple(swept),
        ready=tuple(kept),
        newer=tuple(found.newer),
    )


def abandon(files: PartitionFiles, *, keep_ready: bool = False) -> None:
    """Clean up after a failure; if that fails too, the next run or the broker's next start does it.

    ``keep_ready``: as in :func:`recover`, except for a plan with a reverted group, whose staged files were deleted.
    """
    with contextlib.suppress(CleanerdError), signals_wait():
        left = recover(files, keep_ready=keep_ready)
        for manifest in left.ready if left.rolled_back else ():
            finish_plan(files, manifest.plan)


@contextlib.contextmanager
def rollback_on_error(take_back: Callable[[], object]) -> Iterator[None]:
    """Call ``take_back`` if the block fails, even by a signal."""
    try:
        yield
    except LogDirBusyError:
        raise  # we do not have the lock any more, so nothing may be changed
    except BaseException:
        take_back()
        raise


def _scan_leftovers(files: PartitionFiles) -> _Leftovers:
    """Classify the files under ``.kstage``. A plan without a readable manifest has not changed the log."""
    found = _Leftovers()
    if files.stat(STAGING) is not None and not files.is_directory(STAGING):
        found.foreign.append(STAGING)
        return found
    for name in names_staged(files):
        path = f"{STAGING}/{name}"
        if PLAN_ID.fullmatch(name) is None or not files.is_directory(path):
            found.unknown.append(path)
            continue
        try:
            manifest = _read(files, name, MANIFEST, Manifest.from_json)
            restore = _read(files, name, RESTORE, RestorePlan.from_json)
        except UnsupportedLogError:  # a newer cleanerd wrote it
            found.newer.append(name)
            continue
        found.plans.append(name)
        if manifest is not None and manifest.plan == name:
            found.manifests.append(manifest)
        if restore is not None and restore.plan == name:
            found.restores.append(restore)
    return found


def _read(files: PartitionFiles, plan_id: str, name: str, parse: Callable[[bytes, str], T]) -> T | None:
    """The content of ``name`` in the plan's directory; None if it is missing or damaged."""
    place = f"{staging_path(plan_id)}/{name}"
    data = files.read(place)
    try:
        return None if data is None else parse(data, files.where(place))
    except CorruptionError:
        return None


def _names_of_ours(files: PartitionFiles, group: ManifestGroup, unfinished: set[str]) -> set[str]:
    """The names in ``unfinished`` that are staged files of ``group``."""
    candidates = [
        (name(group.base, kind), fact) for kind, fact in group.files.items() for name in (cleaned_name, swap_name)
    ]
    return {name for name, fact in candidates if name in unfinished and has_fact(files, name, fact)}


def _resolve_group(
    files: PartitionFiles, group: ManifestGroup, *, begun: bool, completed: list[int], rolled_back: list[int]
) -> None:
    """Make one group old or new."""
    names = files.names()
    kinds = group.kinds()
    has_cleaned = any(cleaned_name(group.base, kind) in names for kind in kinds)
    has_swap = any(swap_name(group.base, kind) in names for kind in kinds)
    if has_cleaned or (has_swap and not _is_committed(files, group, names)):
        _roll_back(files, group)
        rolled_back.append(group.base)
    elif has_swap or (begun and has_fact(files, final_name(group.base, "log"), group.files["log"])):
        force_rebuild_if_torn(files, group, names)
        complete_group(files, group)
        completed.append(group.base)


def _is_committed(files: PartitionFiles, group: ManifestGroup, names: frozenset[str]) -> bool:
    """Whether ``.swap`` files without a ``.cleaned`` one mean that the group is past its commit point.

    Usually yes. But a loader that was undoing at a power failure can have removed ``.cleaned`` files and not yet
    ``.swap`` files. While every source is in place, nothing was committed that cannot be staged again.
    """
    if swap_name(group.base, "log") not in names:
        return has_fact(files, final_name(group.base, "log"), group.files["log"])
    is_whole = all(swap_name(group.base, kind) in names for kind in group.kinds())
    return is_whole or not all(final_name(source, "log") in names for source in group.sources)


def _roll_back(files: PartitionFiles, group: ManifestGroup) -> None:
    """Undo.

    An index ``.swap`` alone must never meet the old log (X-16), so the order is: indexes, log, ``.cleaned``.
    """
    names = files.names()
    kinds = group.kinds()
    for step in (
        [swap_name(group.base, kind) for kind in kinds if kind != "log"],
        [swap_name(group.base, "log")],
        [cleaned_name(group.base, kind) for kind in kinds],
    ):
        present = [name for name in step if name in names]
        for name in present:
            files.unlink(name)
        if present:
            files.fsync_directory()


def _sweep(files: PartitionFiles, unknown: list[str], now_ms: int) -> list[str]:
    """Remove unknown files that have not changed for a day; also ``.kstage`` if it is empty."""
    swept = []
    for path in unknown:
        status = files.stat(path)
        if status is not None and now_ms - status.st_mtime_ns // 10**6 > SWEEP_AGE_MS:
            with contextlib.suppress(CleanerdError):  # it does no harm
                remove_tree(files, path)
                swept.append(path)
    remove_staging_if_empty(files)
    return swept
