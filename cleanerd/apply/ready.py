"""Swapping in what was staged: the hook between a broker's stop and its start (8.5, S-26 .. S-39).

::

    recover, keeping the plan -> validate the whole of it -> per group, ascending: swap -> clean point -> checkpoint

A plan that no longer fits is dropped and the broker starts with the old log: a :class:`StalePlanError` in the result.
A swap that was cut short goes on where it was, if the rest still fits.
"""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from cleanerd.apply.ahead import Ready
from cleanerd.apply.files import PartitionFiles
from cleanerd.apply.journal import Journal
from cleanerd.apply.keep import Keeper, require_keepable
from cleanerd.apply.late import refuse_late_records
from cleanerd.apply.offline import settle
from cleanerd.apply.recover import abandon
from cleanerd.apply.remember import remember_clean
from cleanerd.apply.signals import signals_wait
from cleanerd.apply.swap import SOURCE_SUFFIXES, finish_plan, swap_group
from cleanerd.apply.trash import FileMark, Trash
from cleanerd.apply.validate import CurrentFacts, validate_plan
from cleanerd.cleaner.manifest import READY, STAGING, staging_path
from cleanerd.cleaner.result import CleaningResult, Dropped
from cleanerd.cleaner.survey import Survey, Wishes, survey
from cleanerd.cleaner.verdict import of_delegation
from cleanerd.errors import CleanerdError, CorruptionError, LogDirBusyError, StalePlanError
from cleanerd.format.names import SNAPSHOT_SUFFIX, parse_file_name
from cleanerd.log.partition import read_partition
from cleanerd.log.strategy_config import fingerprint

if TYPE_CHECKING:
    from cleanerd.apply.session import LockedDir
    from cleanerd.cleaner.manifest import Manifest, ManifestGroup
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.topic_config import TopicConfig

_NAMES = frozenset({*SOURCE_SUFFIXES, SNAPSHOT_SUFFIX})


class KeptPlanError(StalePlanError):
    """Something is in the way that may go away: the plan stays, and another ``apply`` tries again."""


def has_staged_work(log_dir: LogDir, name: TopicPartition) -> bool:
    """Whether anything of ours lies in the partition: a plan, or what an interrupted swap left."""
    return (log_dir.path / str(name) / STAGING).is_dir()


def apply_partition(
    locked: LockedDir, name: TopicPartition, config: TopicConfig | None, wishes: Wishes
) -> CleaningResult:
    """Apply the partition's plan and say what came of it; only a signal or a bug gets out as an exception.

    ``config`` is None when the topic's configuration is not known or is wrong.
    """
    where = str(locked.log_dir.path)
    try:
        with PartitionFiles(locked.log_dir.path / str(name)) as files:
            left = settle(locked, files, keep_ready=True)
            if not left.ready:
                finished = (
                    f"; an interrupted swap of {len(left.completed)} groups was finished" if left.completed else ""
                )
                return CleaningResult(name, where, "unchanged", f"no staged plan{finished}")
            *older, manifest = sorted(left.ready, key=lambda ready: ready.created_ms)
            for old in older:
                finish_plan(files, old.plan)
            return _apply(locked, files, manifest, frozenset(left.completed), name, config, wishes)
    except (CleanerdError, OSError) as caught:
        error = caught if isinstance(caught, CleanerdError) else CleanerdError(str(caught), where=where)
        return CleaningResult(name, where, "skipped", str(error), error=error)


def _apply(
    locked: LockedDir,
    files: PartitionFiles,
    manifest: Manifest,
    completed: frozenset[int],
    name: TopicPartition,
    config: TopicConfig | None,
    wishes: Wishes,
) -> CleaningResult:
    if not (locked.log_dir.clean_shutdown or wishes.unclean):
        # S-27. The plan stays: the broker may find that nothing has to be cut off.
        raise KeptPlanError(
            "not applied: the broker was not stopped cleanly", where=str(files.path), hint="the plan is kept; --unclean"
        )
    journal = Journal(files, manifest.plan)
    done = journal.entries().done | completed
    try:
        ready, keep = _validated(locked, files, manifest, done, name, config, wishes)
    except KeptPlanError:
        raise
    except StalePlanError:
        finish_plan(files, manifest.plan)
        raise
    try:
        for group in manifest.groups:  # S-30: ascending
            if group.base not in done:
                if keep is not None:
                    keep.keep(group)
                with signals_wait():
                    swap_group(
                        files, manifest.plan, group, journal, locked.lock, source_files=_source_files(files, group)
                    )
    except LogDirBusyError:
        raise  # the directory is no longer ours, not even to tidy up
    except BaseException:
        abandon(files)
        raise
    finish_plan(files, manifest.plan)
    result = _result(locked, name, ready)
    if ready.clean_to is not None:
        after = read_partition(locked.log_dir, name)
        remember_clean(locked, after, ready.clean_to, manifest.strategy_fingerprint, result)
    return result


def _validated(
    locked: LockedDir,
    files: PartitionFiles,
    manifest: Manifest,
    done: set[int],
    name: TopicPartition,
    config: TopicConfig | None,
    wishes: Wishes,
) -> tuple[Ready, Keeper | None]:
    """S-29, the whole plan before the first rename; and who keeps what it replaces, if that is to be kept.

    Raises:
        StalePlanError: something changed since it was staged.
    """
    where = str(files.path)
    data = files.read(f"{staging_path(manifest.plan)}/{READY}")
    try:
        ready = Ready.from_json(data or b"", where)
    except CorruptionError as error:
        raise StalePlanError(error.message, where=where, hint="stage again") from error
    if (manifest.topic, manifest.partition) != (name.topic, name.partition):
        raise StalePlanError(f"the plan is one of {manifest.topic}-{manifest.partition}", where=where)
    if config is None or not config.is_compacted:
        raise StalePlanError("the topic is no longer known to be compacted", where=where)
    undelegated = of_delegation(config)
    if undelegated is not None:
        raise StalePlanError(undelegated.reason, where=where)
    found = survey(locked.log_dir, name, config, locked.store, wishes)
    facts = CurrentFacts(
        topic_id=found.log.topic_id,
        directory_id=locked.log_dir.meta.directory_id,
        log_start_offset=found.log.log_start_offset,
        bound=found.bounds.bound.offset,
        strategy_fingerprint=fingerprint(config),
        now_ms=time.time_ns() // 1_000_000,
    )
    keep = _keeper(locked, files, manifest, ready, found)
    validate_plan(files, manifest, facts, done=done, linked=() if keep is None else keep.linked())
    refuse_late_records(files, manifest, ready.purged, found.log, locked.means)
    return ready, keep


def _keeper(locked: LockedDir, files: PartitionFiles, manifest: Manifest, ready: Ready, found: Survey) -> Keeper | None:
    """Raises KeptPlanError when the directory can no longer be used."""
    if ready.keep_replaced is None:
        return None
    kept = Path(ready.keep_replaced)
    try:
        require_keepable(kept, [locked.log_dir.path])
        Trash(locked.store.root).require_writable(kept.stat())
        return Keeper(
            locked,
            kept,
            files,
            found.log,
            manifest.plan,
            end_offset=max(found.proven_offset, ready.clean_to or 0, int(ready.result.get("end_offset", 0))),
            sources={
                witness.base: FileMark(witness.size, witness.inode, witness.mtime_ns) for witness in manifest.witnesses
            },
        )
    except (CleanerdError, OSError) as error:
        raise KeptPlanError(
            f"not applied: what it replaces cannot be kept: {error}", where=str(files.path), hint="the plan is kept"
        ) from error


def _source_files(files: PartitionFiles, group: ManifestGroup) -> dict[int, list[str]]:
    """The plan was validated under the lock, so what is there now is what was planned with."""
    found: dict[int, list[str]] = {source: [] for source in group.sources}
    for name in sorted(files.names()):
        place = parse_file_name(name)
        if place is not None and place[0] in found and place[1] in _NAMES:
            found[place[0]].append(name)
    return found


def _result(locked: LockedDir, name: TopicPartition, ready: Ready) -> CleaningResult:
    """What staging counted, now true."""
    known = {field.name for field in fields(CleaningResult)} - {
        "name",
        "log_dir",
        "outcome",
        "error",
        "dropped",
        "notes",
    }
    said = {key: value for key, value in ready.result.items() if key in known}
    dropped = {key: int(value) for key, value in dict(ready.result.get("dropped", {})).items()}
    reasons = {field.name for field in fields(Dropped)}
    return CleaningResult(
        name,
        str(locked.log_dir.path),
        "cleaned",
        dropped=Dropped(**{key: value for key, value in dropped.items() if key in reasons}),
        **{**said, "reason": ""},
    )
