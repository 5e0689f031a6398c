"""Cleaning the log directories of a stopped broker: everything under one lock, a partition after the other.

::

    recover -> survey -> producers -> plan -> decide -> per group: stage, verify, validate, swap -> clean point ->
    checkpoint

Kafka's ``cleaner-offset-checkpoint`` comes last: an entry that is too low costs work, one that is too high hides
duplicates (S-50).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.apply.files import PartitionFiles
from cleanerd.apply.journal import Journal
from cleanerd.apply.keep import Keeper
from cleanerd.apply.lease import LeaseResult, probe_lease
from cleanerd.apply.recover import RecoveryReport, abandon, recover
from cleanerd.apply.remember import remember, remember_quarantine
from cleanerd.apply.session import disk_reserve_bytes
from cleanerd.apply.signals import signals_wait
from cleanerd.apply.split import split_segments
from cleanerd.apply.swap import finish_plan, swap_group
from cleanerd.apply.trash import FileMark
from cleanerd.apply.validate import CurrentFacts, refuse_unfinished, validate_plan
from cleanerd.cleaner.cleaner import Cleaning, Progress
from cleanerd.cleaner.manifest import Manifest, StagedGroup, write_manifest
from cleanerd.cleaner.plan import (
    CleaningPlan,
    Source,
    legacy_horizon_ms,
    new_hash_key,
    new_plan_id,
    rules_of,
    tail_of,
)
from cleanerd.cleaner.result import CleaningResult, Dropped
from cleanerd.cleaner.survey import Survey, Wishes, survey
from cleanerd.errors import CleanerdError, LogDirBusyError, OutOfRangeError, RefusedError
from cleanerd.format.names import SEGMENT_SUFFIX, file_name, parse_file_name
from cleanerd.log.aborted import read_aborted
from cleanerd.log.partition import read_partition
from cleanerd.log.pool import ReaderPool
from cleanerd.log.producers import read_last_records
from cleanerd.log.strategy_config import fingerprint
from cleanerd.policy.grouping import Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.apply.session import LockedDir, Means
    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.stage import Staging
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.read import SegmentReader
    from cleanerd.log.segment import Witness
    from cleanerd.log.topic_config import TopicConfig

SPAN_SHARE_OF_RETENTION = 10


def clean_partition(
    locked: LockedDir, name: TopicPartition, config: TopicConfig, wishes: Wishes, progress: Progress
) -> CleaningResult:
    """Clean one partition and say what came of it; only a signal or a bug gets out as an exception.

    Whatever goes wrong before a group's commit leaves that group as it was (OP-10).
    """
    where = str(locked.log_dir.path)
    try:
        return _clean(locked, name, config, wishes, progress)
    except OutOfRangeError as error:
        return CleaningResult(name, where, "skipped", str(error), error=error)
    except LogDirBusyError as error:
        return CleaningResult(name, where, "quarantined", str(error), error=error)
    except (CleanerdError, OSError) as caught:
        told = caught if isinstance(caught, CleanerdError) else _refused_by_system(caught, where)
        remember_quarantine(locked.store, locked.log_dir, name, str(told))
        return CleaningResult(name, where, "quarantined", str(told), error=told)


def _refused_by_system(error: OSError, where: str) -> CleanerdError:
    """What the system refused outside of the places that know better how to tell it."""
    return CleanerdError(error.strerror or str(error), where=str(error.filename or where))


def _clean(
    locked: LockedDir, name: TopicPartition, config: TopicConfig, wishes: Wishes, progress: Progress
) -> CleaningResult:
    path = locked.log_dir.path / str(name)
    with PartitionFiles(path) as files:
        settle(locked, files)
        found = survey(locked.log_dir, name, config, locked.store, wishes)
        blank = blank_result(locked.log_dir, found)
        if not found.to_clean:
            return blank
        means = locked.means
        with ReaderPool(str(path), workers=means.workers, chunk_bytes=means.chunk_bytes) as pool:
            segments_before = len(found.log.segments) - 1
            cleaning = Cleaning(make_plan(locked.log_dir, found, means, wishes, pool.reader), pool, progress)
            # As Kafka does: split, then begin again with the log as it is now (C-67).
            while overflowed := cleaning.overflowed():
                notes = split_segments(locked, files, cleaning, overflowed, found.config)
                found = survey(locked.log_dir, name, config, locked.store, wishes)
                blank = replace(blank_result(locked.log_dir, found), notes=(*notes, *found.notes))
                if not found.to_clean:
                    return blank
                cleaning = Cleaning(make_plan(locked.log_dir, found, means, wishes, pool.reader), pool, progress)
            return replace(_carry_out(locked, files, found, cleaning, blank), segments_before=segments_before)


def blank_result(log_dir: LogDir, found: Survey) -> CleaningResult:
    """What is known before anything was done."""
    refused = found.verdict is not None and found.verdict.is_refusal
    return CleaningResult(
        found.log.name,
        str(log_dir.path),
        "skipped",
        found.refusal,
        strategy=found.config.compaction_strategy,
        first_dirty_offset=found.bounds.first_dirty_offset,
        end_offset=found.end_offset,
        notes=found.notes,
        error=RefusedError(found.refusal, where=str(found.log.name)) if refused else None,
    )


def settle(locked: LockedDir, files: PartitionFiles, *, keep_ready: bool = False) -> RecoveryReport:
    """What comes before anything else: nobody has the log open, and nothing in it is half done (S-14, S-28, S-21).

    ``keep_ready``: a plan that ``cleanerd stage`` made stays; else it goes with all others.

    Raises:
        LogDirBusyError: somebody has it open, or another cleanerd stages in it.
        RefusedError: something is half done that is not ours to resolve.
    """
    files.claim()
    _probe(locked, files)
    left = recover(files, keep_ready=keep_ready)
    if left.foreign:
        raise RefusedError(
            f"not ours to resolve: {', '.join(left.foreign[:4])}",
            where=str(files.path),
            hint="start the broker once, it resolves unfinished replacements while it loads the log",
        )
    refuse_unfinished(files, files.names())
    return left


def make_plan(log_dir: LogDir, found: Survey, means: Means, wishes: Wishes, reader: SegmentReader) -> CleaningPlan:
    """Pin everything that the decision depends on.

    Raises:
        CorruptionError: the producer state cannot be rebuilt from the log.
    """
    log, config = found.log, found.config
    last_records, damaged_snapshots = read_last_records(
        log,
        reader,
        now_ms=wishes.now_ms,
        expiration_ms=means.producer_id_expiration_ms,
        torn_from=None if log_dir.clean_shutdown else log.recovery_point,
    )
    sources = tuple(
        Source(segment, log.end_of(row))
        for row, segment in enumerate(log.segments[:-1])
        if segment.base < found.end_offset
    )
    rules = rules_of(config)
    deletes = "delete" in config.cleanup_policy and config.retention_ms >= 0
    return CleaningPlan(
        plan_id=new_plan_id(),
        name=log.name,
        path=str(log.path),
        topic_id=log.topic_id,
        directory_id=log_dir.meta.directory_id,
        sources=sources,
        tail=tail_of(log, len(sources)) if rules.versioned else (),
        log_start_offset=log.log_start_offset,
        proven_offset=found.proven_offset,
        first_dirty_offset=found.bounds.first_dirty_offset,
        end_offset=found.end_offset,
        bound_offset=found.bounds.bound.offset,
        rules=rules,
        fingerprint=fingerprint(config),
        now_ms=wishes.now_ms,
        delete_retention_ms=config.delete_retention_ms + wishes.clock_doubt_ms,
        last_records=last_records,
        aborted=read_aborted(log, found.bounds.bound.offset),
        legacy_horizon_ms=legacy_horizon_ms(sources, found.bounds.first_dirty_offset, config.delete_retention_ms),
        # A v0 or v1 tombstone has no flag: turned into v2 it would be none any more (R87-2).
        convert_legacy=means.convert_legacy and rules.tombstone_mode != "flag",
        max_message_bytes=config.max_message_bytes,
        limits=Limits(
            segment_bytes=config.segment_bytes,
            index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            max_span_ms=config.retention_ms // SPAN_SHARE_OF_RETENTION if deletes else None,
        ),
        hash_key=new_hash_key(),
        map_bytes=means.map_bytes,
        map_load=means.map_load,
        chunk_bytes=means.chunk_bytes,
        max_unpacked_bytes=means.max_unpacked_bytes,
        origins=tuple(sorted({**config.origins, "cleanerd.broker.version": means.profile_origin}.items())),
        notes=tuple(f"producer snapshot passed over: {damage}" for damage in damaged_snapshots),
    )


def _carry_out(
    locked: LockedDir, files: PartitionFiles, found: Survey, cleaning: Cleaning, blank: CleaningResult
) -> CleaningResult:
    plan = cleaning.plan
    reserve_bytes = disk_reserve_bytes(locked.means, found.config, plan.path)
    started = time.monotonic()
    if cleaning.groups():
        with cleaning.staging(reserve_bytes) as staging:
            try:
                _swap_all(locked, files, cleaning, staging, _keeper(locked, files, found, plan))
            except LogDirBusyError:
                raise  # the directory is no longer ours, not even to tidy up
            except BaseException:
                # Before the commit point of the first group nothing of the log has changed; after it, recover()
                # tidies up.
                abandon(files)
                raise
        finish_plan(files, plan.plan_id)
    apply_seconds = time.monotonic() - started - cleaning.totals.rewrite_seconds
    after = read_partition(locked.log_dir, plan.name)
    result = counted(blank, found, cleaning)
    result = replace(
        result,
        outcome="cleaned" if cleaning.totals.groups else "unchanged",
        bytes_after=sum(segment.size_bytes for segment in after.segments[:-1]),
        segments_after=len(after.segments) - 1,
        seconds={**result.seconds, "apply": apply_seconds},
    )
    remember(locked, found, plan, after, result)
    return result


def counted(blank: CleaningResult, found: Survey, cleaning: Cleaning) -> CleaningResult:
    """``blank`` with what the decision dropped and the rewrite wrote; what is there afterwards is not known here."""
    decision, totals = cleaning.decision, cleaning.totals
    before = sum(segment.size_bytes for segment in found.log.segments[:-1])
    return replace(
        blank,
        records_read=sum(segment.records for segment in decision.segments),
        records_kept=sum(segment.kept for segment in decision.segments),
        bytes_before=before,
        bytes_after=before - totals.bytes_read + totals.bytes_written,
        segments_before=len(found.log.segments) - 1,
        segments_after=len(found.log.segments) - 1 - totals.sources + totals.groups,
        segments_rewritten=totals.sources,
        groups=totals.groups,
        tombstones_waiting=sum(segment.waiting for segment in decision.segments),
        malformed_versions=decision.oddities.malformed_versions,
        without_version=decision.oddities.without_version,
        nulls_without_flag=decision.oddities.nulls_without_flag,
        far_future_timestamps=decision.oddities.far_future,
        dropped=Dropped(
            superseded=sum(segment.superseded for segment in decision.segments),
            tombstone=sum(segment.expired_tombstones for segment in decision.segments),
            aborted=sum(segment.aborted for segment in decision.segments),
            keyless=sum(segment.keyless for segment in decision.segments),
            marker=sum(segment.markers for segment in decision.segments),
        ),
        shards=decision.shards,
        map_utilization=decision.map_utilization,
        next_purge_ms=decision.next_purge_ms,
        bytes_read=totals.bytes_read,
        bytes_written=totals.bytes_written,
        seconds={
            "index": decision.index_seconds,
            "decide": decision.decide_seconds,
            "rewrite": totals.rewrite_seconds,
            "apply": 0.0,
        },
        notes=(*blank.notes, *cleaning.plan.notes, *_oversize_note(cleaning), *cleaning.notes()),
    )


def _swap_all(
    locked: LockedDir, files: PartitionFiles, cleaning: Cleaning, staging: Staging, keep: Keeper | None
) -> None:
    """Group by group: staged and verified by the cleaning, validated and swapped here, then the next one (U-16)."""
    plan = cleaning.plan
    journal = Journal(files, plan.plan_id)
    first = True
    for staged, members in cleaning.staged_groups(staging):
        # The lock keeps everybody else out, so what the whole plan rests on is checked before the first swap only; and
        # a group that the journal calls done needs no manifest any more. All groups in each would be quadratic.
        witnesses = tuple(segment.witness for segment in (cleaning.decision.segments if first else members))
        first = False
        manifest = manifest_of(plan, (staged,), witnesses, locked.means)
        write_manifest(staging.directory, manifest, where=staging.path)
        validate_plan(files, manifest, unchanged_facts(plan), checksums=False)
        if keep is not None:
            keep.keep(staged)
        with signals_wait():
            swap_group(files, plan.plan_id, staged, journal, locked.lock, source_files=_source_files(members))


def _keeper(locked: LockedDir, files: PartitionFiles, found: Survey, plan: CleaningPlan) -> Keeper | None:
    if locked.keep_replaced is None:
        return None
    return Keeper(
        locked,
        locked.keep_replaced,
        files,
        found.log,
        plan.plan_id,
        end_offset=max(plan.end_offset, found.proven_offset),
        sources={
            source.base: FileMark(source.segment.size_bytes, source.segment.inode, source.segment.mtime_ns)
            for source in plan.sources
        },
    )


def manifest_of(
    plan: CleaningPlan, groups: tuple[StagedGroup, ...], witnesses: tuple[Witness, ...], means: Means
) -> Manifest:
    """What is staged, and the evidence that it rests on."""
    return Manifest(
        plan=plan.plan_id,
        topic=plan.name.topic,
        topic_id=plan.topic_id,
        partition=plan.name.partition,
        directory_id=plan.directory_id,
        log_start_offset=plan.log_start_offset,
        bound=plan.bound_offset,
        strategy_fingerprint=plan.fingerprint,
        created_ms=time.time_ns() // 1_000_000,
        max_age_ms=means.plan_max_age_ms,
        witnesses=witnesses,
        groups=groups,
    )


def unchanged_facts(plan: CleaningPlan) -> CurrentFacts:
    """Under the log directory's lock nothing but the files themselves can have changed since the plan was made."""
    return CurrentFacts(
        topic_id=plan.topic_id,
        directory_id=plan.directory_id,
        log_start_offset=plan.log_start_offset,
        bound=plan.bound_offset,
        strategy_fingerprint=plan.fingerprint,
        now_ms=time.time_ns() // 1_000_000,
    )


def _source_files(members: Sequence[SegmentDecision]) -> dict[int, list[str]]:
    return {
        member.source.base: [
            file_name(member.source.base, suffix)
            for suffix in (SEGMENT_SUFFIX, *sorted(member.source.segment.suffixes))
        ]
        for member in members
    }


def _probe(locked: LockedDir, files: PartitionFiles) -> None:
    """S-14, before the first change: nobody has the active segment open.

    Raises:
        LogDirBusyError: somebody has, or it cannot be known and the settings ask for knowing it.
    """
    places = (parse_file_name(name) for name in files.names())
    bases = [place[0] for place in places if place is not None and place[1] == SEGMENT_SUFFIX]
    if not bases:
        return  # whoever reads the partition says that it holds no segment
    name = file_name(max(bases), SEGMENT_SUFFIX)
    answer = probe_lease(files.where(name))
    if answer is LeaseResult.OPENED:
        raise LogDirBusyError(
            "another process has this segment open for writing",
            where=files.where(name),
            hint="a broker runs on this directory although its lock is free: stop it first",
        )
    if answer is LeaseResult.UNAVAILABLE and locked.means.lease_required:
        raise LogDirBusyError(
            "whether another process has this segment open cannot be asked here",
            where=files.where(name),
            hint="run as the files' owner, or set cleanerd.lease.probe=auto",
        )


def _oversize_note(cleaning: Cleaning) -> tuple[str, ...]:
    count = cleaning.totals.oversized
    if not count:
        return ()
    return (f"{count} rewritten batches are larger than max.message.bytes {cleaning.plan.max_message_bytes} (R534-5)",)
