"""Swaps staged cleanings in, between a broker's stop and its start (S-26 .. S-39).

::

    recover, keeping the plan -> validate all of it -> per group, ascending: swap -> both checkpoints

A plan that no longer fits is discarded and the broker starts with the old log: a :class:`StalePlanError` in the result.
An interrupted swap continues where it was, if the rest still fits.
"""

from __future__ import annotations

import os
import stat
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cleanerd.cleaner.manifest import READY, STAGING, Manifest, ManifestGroup, staging_path
from cleanerd.cleaner.result import CleaningResult
from cleanerd.cleaner.rules_change import RulesChange, rules_change
from cleanerd.cleaner.survey import CleaningOptions, Survey, survey
from cleanerd.cleaner.verdict import of_delegation
from cleanerd.config.fingerprint import describe_fingerprint, fingerprint, parts_of
from cleanerd.errors import CleanerdError, CorruptionError, MachineError, RefusedError, StalePlanError
from cleanerd.format.names import SNAPSHOT_SUFFIX, TopicPartition
from cleanerd.segments.kernel_errors import translated_kernel_errors
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.segments.reading import SegmentReader
from cleanerd.segments.torn_tail import decided_aborted
from cleanerd.swap.backup import Backup, BackupPlace, require_keepable
from cleanerd.swap.enter import enter_partition
from cleanerd.swap.files import HERE, PartitionFiles
from cleanerd.swap.group_swap import SOURCE_SUFFIXES, files_of, finish_plan, swap_group
from cleanerd.swap.journal import Journal
from cleanerd.swap.kept_segments import FileIdentity, KeptSegments
from cleanerd.swap.ready_file import ReadyFile
from cleanerd.swap.record_outcome import not_cleaned, record_clean, record_settings_only
from cleanerd.swap.recover import abandon, rollback_on_error
from cleanerd.swap.removed_tombstones import refuse_late_records
from cleanerd.swap.signals import signals_wait
from cleanerd.swap.validate import CurrentFacts, validate_plan

if TYPE_CHECKING:
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.policy.transaction import AbortedTransactions
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.swap.session import LockedDir

_NAMES = frozenset({*SOURCE_SUFFIXES, SNAPSHOT_SUFFIX})


class KeptPlanError(StalePlanError):
    """A temporary obstacle: the plan stays, and another ``apply`` tries again."""


def has_staged_work(log_dir: LogDir, name: TopicPartition) -> bool:
    """Whether the partition has a staged cleaning, or files of an interrupted swap.

    True if that is unknown: opening the partition reports the reason.
    """
    try:
        return stat.S_ISDIR(os.stat(log_dir.path / str(name) / STAGING).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def apply_partition(
    locked: LockedDir, name: TopicPartition, config: TopicConfig | None, options: CleaningOptions
) -> CleaningResult:
    """Apply the partition's staged cleaning and return the result; only a signal or a bug raises.

    ``config`` is None if the topic's configuration is unknown or invalid.
    """
    where = str(locked.log_dir.path)
    path = locked.log_dir.path / str(name)
    try:
        with translated_kernel_errors(str(path)), PartitionFiles(path) as files:
            left = enter_partition(locked, files, keep_ready=True)
            if not left.ready:
                finished = (
                    f"; an interrupted swap of {len(left.completed)} groups was finished" if left.completed else ""
                )
                newer = "; one of a newer cleanerd was dropped: stage again" if left.newer else ""
                return CleaningResult(name, where, "unchanged", f"no staged plan{newer}{finished}")
            *older, manifest = sorted(left.ready, key=lambda ready: ready.created_ms)
            for old in older:
                finish_plan(files, old.plan)
            return _apply(locked, files, manifest, frozenset(left.completed), name, config, options)
    except (CleanerdError, OSError) as caught:
        return not_cleaned(locked.store, locked.log_dir, name, caught)


def _apply(
    locked: LockedDir,
    files: PartitionFiles,
    manifest: Manifest,
    completed: frozenset[int],
    name: TopicPartition,
    config: TopicConfig | None,
    options: CleaningOptions,
) -> CleaningResult:
    if not (locked.log_dir.clean_shutdown or options.unclean):
        # S-27. The plan stays, because the broker may find that nothing has to be cut off.
        raise KeptPlanError(
            "not applied: the broker was not stopped cleanly",
            where=str(files.path),
            hint="the staged cleaning is kept; --unclean applies it",
        )
    journal = Journal(files, manifest.plan)
    done = journal.entries().done | completed
    try:
        ready = _ready(files, manifest)
        result = _result(locked, name, ready)
        found, clean_to, keep = _validated(
            locked, files, manifest, ready, result, done=done, config=config, options=options
        )
    except KeptPlanError:
        raise
    except StalePlanError:
        finish_plan(files, manifest.plan)
        raise
    fingerprint_of_plan = manifest.strategy_fingerprint
    locked.store.require_rules(locked.log_dir, read_partition(locked.log_dir, name), fingerprint_of_plan)
    # after a stop between two groups, the next run continues with the next group.
    with rollback_on_error(partial(abandon, files, keep_ready=True)):
        for group in manifest.groups:  # S-30: ascending
            if group.base not in done:
                if keep is not None:
                    keep.keep(group)
                with signals_wait():
                    swap_group(
                        files, manifest.plan, group, journal, locked.lock, source_files=_source_files(files, group)
                    )
    finish_plan(files, manifest.plan)
    after = read_partition(locked.log_dir, name)
    last_base = manifest.groups[-1].base if manifest.groups else None
    if clean_to is not None:
        record_clean(
            locked,
            after,
            clean_to,
            fingerprint_of_plan,
            result,
            last_base=last_base,
            unproven_below=found.unproven_below,
        )
    else:
        record_settings_only(
            locked.store, locked.log_dir, after, fingerprint_of_plan, found.valid_checkpoint, last_base=last_base
        )
    return result


def _deferral_error(change: RulesChange, where: str) -> CleanerdError:
    """Why the plan has to wait. Unreadable rules are a fault of the machine, not of the operator."""
    failed = change.unread is not None and change.unread.failed
    return (MachineError if failed else KeptPlanError)(change.reason, where=where, hint="the staged cleaning is kept")


def _ready(files: PartitionFiles, manifest: Manifest) -> ReadyFile:
    """Raises StalePlanError if the plan has no ready file."""
    where = str(files.path)
    data = files.read(f"{staging_path(manifest.plan)}/{READY}")
    try:
        return ReadyFile.from_json(data or b"", where)
    except CorruptionError as error:
        raise StalePlanError(error.message, where=where, hint="stage again") from error


def _validated(
    locked: LockedDir,
    files: PartitionFiles,
    manifest: Manifest,
    ready: ReadyFile,
    result: CleaningResult,
    *,
    done: set[int],
    config: TopicConfig | None,
    options: CleaningOptions,
) -> tuple[Survey, int | None, Backup | None]:
    """S-29: validate the whole plan before the first rename.

    Returns the log; the offset up to which it will be clean, None if unchanged; and the backup of the replaced
    segments, if they are to be kept.

    Raises:
        StalePlanError: a precondition changed since staging.
    """
    name, where = result.name, str(files.path)
    if (manifest.topic, manifest.partition) != (name.topic, name.partition):
        raise StalePlanError(f"the plan is one of {manifest.topic}-{manifest.partition}", where=where)
    config = _require_config(config, where)
    if not config.is_compacted:
        raise StalePlanError("the topic is no longer compacted", where=where)
    undelegated = of_delegation(config)
    if undelegated is not None:
        raise StalePlanError(undelegated.reason, where=where)
    _refuse_forgotten_settings(config, manifest, where)
    found = survey(locked.log_dir, name, config, locked.store, options)
    if found.change is not None and not (found.change.is_stated or ready.change_strategy):
        raise _deferral_error(found.change, where)
    aborted = _aborted(locked, found.log, manifest)
    facts = CurrentFacts(
        topic_id=found.log.topic_id,
        directory_id=locked.log_dir.meta.directory_id,
        log_start_offset=found.log.log_start_offset,
        bound=found.bounds.bound.offset,
        strategy_fingerprint=fingerprint(config),
        now_ms=time.time_ns() // 1_000_000,
        aborted=aborted,
    )
    clean_to = _clean_to(files, manifest, ready, found)
    end_offset = max(clean_to or 0, result.end_offset)
    keep = _keeper(locked, files, manifest, ready, found, end_offset=end_offset, aborted=aborted)
    validate_plan(files, manifest, facts, done=done, linked=() if keep is None else keep.linked())
    torn_from = None if locked.log_dir.clean_shutdown else found.log.recovery_point
    refuse_late_records(files, manifest, ready.removed_tombstones, found.log, locked.resources, torn_from=torn_from)
    return found, clean_to, keep


def _clean_to(files: PartitionFiles, manifest: Manifest, ready: ReadyFile, found: Survey) -> int | None:
    """The plan's first dirty offset, if it is still valid.

    Above its bound the plan changes nothing. Data there may have been cut and rewritten since, and too high a
    checkpoint hides duplicates, and finally a deleted key (S-50).

    Raises:
        StalePlanError: it states an offset that no cleaning can reach.
    """
    if ready.clean_to is None:
        return None
    if ready.clean_to <= found.log.segments[0].base:
        raise StalePlanError(
            f"its ready file ends at offset {ready.clean_to}, which is below the log", where=str(files.path),
            hint="stage again",
        )  # fmt: skip
    return min(ready.clean_to, max(manifest.bound, found.proven_offset))


def _require_config(config: TopicConfig | None, where: str) -> TopicConfig:
    """An unknown topic is not a changed one: a log directory was left out, or a setting is wrong.

    Raises:
        KeptPlanError: it is unknown.
    """
    if config is None:
        raise KeptPlanError(
            "not applied: a setting of this topic is wrong",
            where=where,
            hint="the staged cleaning is kept; cleanerd plan shows the setting",
        )
    if not config.policy_known:
        raise KeptPlanError(
            "not applied: cleanup.policy of this topic is unknown",
            where=where,
            hint="the staged cleaning is kept: name all directories of log.dirs, or set cleanerd.metadata.log.dir",
        )
    return config


def _refuse_forgotten_settings(config: TopicConfig, manifest: Manifest, where: str) -> None:
    """Refuse a plan whose rules today's settings do not have, unless they name other rules.

    Raises:
        KeptPlanError: so it is.
    """
    planned = manifest.strategy_fingerprint
    change = rules_change(config, planned)
    if change is None or change.is_stated or not change.differs or "strategy" not in parts_of(planned):
        return
    raise KeptPlanError(
        f"refused: it was staged by {describe_fingerprint(planned)}; these settings say "
        f"{describe_fingerprint(change.now)} (was --config forgotten?)",
        where=where,
        hint="the staged cleaning is kept: apply it with the settings of cleanerd stage, or stage again",
    )


def _aborted(locked: LockedDir, log: PartitionLog, manifest: Manifest) -> AbortedTransactions:
    """The current aborted transactions that the plan depends on."""
    with SegmentReader.open(str(log.path), chunk_bytes=locked.resources.chunk_bytes) as reader:
        return decided_aborted(log, reader, manifest.bound, may_be_torn=not locked.log_dir.clean_shutdown)


def _keeper(
    locked: LockedDir,
    files: PartitionFiles,
    manifest: Manifest,
    ready: ReadyFile,
    found: Survey,
    *,
    end_offset: int,
    aborted: AbortedTransactions,
) -> Backup | None:
    """Raises KeptPlanError if the directory cannot be used any more."""
    named = locked.keep_replaced
    if ready.keep_replaced is None and named is None:
        return None
    kept = named or Path(ready.keep_replaced or "")
    try:
        require = partial(_require_theirs, files) if named is None else None
        if require is not None:
            with PartitionFiles(kept) as place:
                require(place)
        require_keepable(kept, [locked.log_dir.path])
        KeptSegments(locked.store.root).require_writable(kept.stat())
        return Backup(
            locked.log_dir,
            locked.store,
            BackupPlace(kept, require=require),
            files,
            found.log,
            manifest.plan,
            end_offset=max(found.proven_offset, end_offset),
            sources={
                witness.base: FileIdentity(witness.size, witness.inode, witness.mtime_ns)
                for witness in manifest.witnesses
            },
            aborted=aborted,
        )
    except (CleanerdError, OSError) as error:
        raise KeptPlanError(
            f"not applied: the segments that it replaces cannot be kept: {error}",
            where=str(files.path),
            hint="the staged cleaning is kept",
        ) from error


def _require_theirs(files: PartitionFiles, place: PartitionFiles) -> None:
    """U-33: check the directory that the plan names, because the partition's owner may have written the name.

    Raises:
        RefusedError: the owner could not create a file there.
    """
    theirs, found = files.stat(HERE), place.stat(HERE)
    if theirs is None or found is None or (theirs.st_uid != os.geteuid() and theirs.st_uid != found.st_uid):
        raise RefusedError(
            "the plan names this directory, and it does not belong to the partition's owner",
            where=str(place.path),
            hint="name it yourself (apply --keep-replaced DIR), or give it to the broker's user",
        )


def _source_files(files: PartitionFiles, group: ManifestGroup) -> dict[int, list[str]]:
    """The plan was validated under the lock, so the current files are those of the plan."""
    found: dict[int, list[str]] = {source: [] for source in group.sources}
    for name, base, suffix in files_of(group, files.names()):
        if suffix in _NAMES:
            found[base].append(name)
    return found


def _result(locked: LockedDir, name: TopicPartition, ready: ReadyFile) -> CleaningResult:
    """The counts from staging, which are valid after the swap.

    Raises:
        StalePlanError: the plan does not have them.
    """
    where = str(locked.log_dir.path)
    fields = {**ready.result, "log_dir": where, "outcome": "cleaned", "reason": "", "cause": None, "notes": ()}
    try:
        return CleaningResult.from_json(name, fields)
    except (KeyError, TypeError, ValueError) as error:
        raise StalePlanError("the plan lacks its own figures", where=where, hint="stage again") from error
