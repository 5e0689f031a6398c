"""The daemon's scan of one partition: a survey, reduced to the facts that it stores."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd.cleaner.manifest import STAGING
from cleanerd.cleaner.staged_plan import StagedPlan, staged_plan
from cleanerd.cleaner.survey import CleaningOptions, Survey
from cleanerd.config.fingerprint import fingerprint
from cleanerd.policy.cleanable import LimitedBy
from cleanerd.policy.replicas import BY_CLOCK, ExpiryBound
from cleanerd.segments.log_dir import LogDir, OneOffset
from cleanerd.state.cleaner_checkpoint import LastSegment, PartitionState, Retry, StateStore, last_closed
from cleanerd.state.quarantine import is_outdated

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping

    from cleanerd.broker.partition_snapshot import PartitionSnapshot
    from cleanerd.cleaner.hanging_transaction import OpenTransaction
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.errors import Cause
    from cleanerd.format.names import TopicPartition


Key = tuple[str, "TopicPartition"]
"""A log directory and a partition in it."""


@dataclass(frozen=True, slots=True)
class PartitionScan:
    """One compacted partition at one moment.

    ``log_dir``: the directory as the scan read it; ``config``: the topic's configuration. ``eligible``: to be cleaned
    by Kafka's rules (C-08..C-11; by cleanerd's values where it is delegated, U-9). Otherwise ``reason`` says why not,
    ``changes`` when that may change, ``forceable`` that only its low dirty ratio prevents it, and ``refused`` that an
    operator has to act. ``settled``: until a segment is rolled nothing but time can change the answer. ``again_ms``:
    when time does. ``removal_known``: ``next_purge_ms`` comes from a cleaning, or a scan of every batch.
    ``has_clean_part``: tombstones may exist although nothing is dirty. ``leftover``: a staging directory, but without a
    plan that ``cleanerd apply`` would use. ``closed``: the last segment but the active one. ``expiry``: up to which
    delete horizon tombstones may go (U-70). ``quarantine_outdated``: the subject of ``quarantine`` has changed.
    ``open_transaction``: the one that limits the cleaning (OP-14). ``has_wrong_times``: no deadline can be known
    (OP-18). ``may_remove_tombstones``, ``log_end_offset``, ``tombstones_kept``: see `Survey`.
    ``digest_range``: where grid offsets of digests can be, both ends included (U-90).
    """

    name: TopicPartition
    log_dir: LogDir
    config: TopicConfig
    topic_id: uuid.UUID | None
    scanned_ms: int
    eligible: bool
    refused: bool
    forceable: bool
    rule: str
    reason: str
    changes: str
    strategy: str
    fingerprint: str
    fingerprint_changed: bool
    delegated: bool | None
    first_dirty_offset: int
    first_uncleanable_offset: int
    log_end_offset: int
    size_bytes: int
    clean_bytes: int
    dirty_bytes: int
    dirty_ratio: float
    overdue_ms: int
    overdue_at_ms: int | None
    settled: bool
    again_ms: int | None
    next_purge_ms: int | None
    removal_known: bool
    has_clean_part: bool
    quarantine: str | None
    retry: Retry | None
    staged: StagedPlan | None
    leftover: bool
    notes: tuple[str, ...] = ()
    closed: LastSegment | None = None
    quarantine_outdated: bool = False
    open_transaction: OpenTransaction | None = None
    has_wrong_times: bool = False
    may_remove_tombstones: bool = True
    expiry: ExpiryBound = BY_CLOCK
    digest_range: tuple[int, int] = (0, 0)
    tombstones_kept: int | None = None
    cleaned_ms: int | None = None

    def has_nothing_to_do(self, now_ms: int) -> bool:
        """Whether nothing is to be done: no cleaning, tombstone removal, swap or examination."""
        removal_is_due = self.next_purge_ms is not None and self.next_purge_ms <= self.expiry.expiry_ms(now_ms)
        return (
            self.dirty_bytes == 0
            and (self.removal_known or not self.has_clean_part)
            and not removal_is_due
            and self.staged is None
            and not self.leftover
            and self.quarantine is None
        )


@dataclass(frozen=True, slots=True)
class FailedScan:
    """A partition that could not be scanned; ``cause`` decides the outcome (`cleanerd.errors`)."""

    name: TopicPartition
    reason: str
    cause: Cause


def scan_partition(reading: PartitionSnapshot, store: StateStore, now_ms: int) -> PartitionScan:
    """Survey a partition, with its stored state and its staged cleaning.

    Raises:
        CorruptionError, CleanerdError: it cannot be read.
    """
    found = reading.survey(store, CleaningOptions(now_ms, unclean=True, indexes_only=True))
    leftover = os.path.isdir(f"{reading.log.path}/{STAGING}")
    staged = staged_plan(reading.log.path) if leftover else None
    return scan_result(found, reading.log_dir, found.state, staged, now_ms, leftover=leftover)


def scan_result(
    found: Survey,
    log_dir: LogDir,
    state: PartitionState | None,
    staged: StagedPlan | None,
    now_ms: int,
    *,
    leftover: bool,
) -> PartitionScan:
    """The survey of one partition, with its stored state."""
    bounds, verdict, config = found.bounds, found.verdict, found.config
    # Another process's cleaning sets horizons that are unknown here.
    removal_known = state is not None and state.removal_known_below == bounds.first_dirty_offset
    current = sys.intern(fingerprint(config))  # one text for the thousands of partitions with the same strategy
    return PartitionScan(
        name=found.log.name,
        log_dir=_of_one(log_dir, found.log.name),
        config=config,
        topic_id=found.log.topic_id,
        scanned_ms=now_ms,
        eligible=verdict is None,
        refused=verdict is not None and verdict.is_refusal,
        forceable=verdict is None or verdict.rule in {*bounds.bound.limits, "min.cleanable.dirty.ratio"},
        rule="" if verdict is None else verdict.rule,
        reason=found.refusal,
        changes="" if verdict is None else sys.intern(verdict.changes),
        strategy=config.compaction_strategy,
        fingerprint=current,
        fingerprint_changed=state is not None and state.cleaned_by not in (None, current),
        delegated=None if config.delegation.state == "not needed" else config.delegation.permits,
        first_dirty_offset=bounds.first_dirty_offset,
        first_uncleanable_offset=bounds.bound.offset,
        log_end_offset=found.log_end_offset,
        size_bytes=sum(segment.size_bytes for segment in found.log.segments),
        clean_bytes=bounds.dirtiness.clean_bytes,
        dirty_bytes=bounds.dirtiness.cleanable_bytes,
        dirty_ratio=bounds.dirtiness.ratio,
        overdue_ms=bounds.overdue_ms if bounds.dirtiness.cleanable_bytes else 0,
        overdue_at_ms=bounds.overdue_at_ms,
        settled=bounds.bound.limited_by is LimitedBy.ACTIVE_SEGMENT,
        again_ms=_next_change_ms(found, now_ms),
        next_purge_ms=state.next_purge_ms if state is not None and removal_known else None,
        removal_known=removal_known,
        has_clean_part=any(
            segment.size_bytes and segment.base < bounds.first_dirty_offset for segment in found.log.segments[:-1]
        ),
        quarantine=None if state is None else state.quarantine,
        retry=None if state is None else state.retry,
        staged=staged,
        leftover=leftover and staged is None,
        notes=(*found.notes, *config.warnings),
        closed=last_closed(found.log),
        quarantine_outdated=state is not None and is_outdated(state, found.log),
        has_wrong_times=bounds.wrong_time is not None,
        open_transaction=found.open_transaction,
        may_remove_tombstones=found.may_remove_tombstones,
        expiry=found.expiry,
        digest_range=(max(found.log.active.base, bounds.first_dirty_offset), found.log.high_watermark),
        tombstones_kept=found.tombstones_kept,
        cleaned_ms=_cleaned_ms(state),
    )


def _cleaned_ms(state: PartitionState | None) -> int | None:
    """When the last cleaning ended, in whatever process; a staged one when it was swapped in."""
    found = None if state is None or state.last_result is None else state.last_result.get("finished_ms")
    return found if isinstance(found, int) else None


def _of_one(log_dir: LogDir, name: TopicPartition) -> LogDir:
    """The facts of one partition in ``log_dir``: storing those of all partitions in each scan would fill the memory."""
    if log_dir.partitions == (name,) and not log_dir.linked:
        return log_dir

    def only(offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        found = offsets.get(name)
        return {} if found is None else OneOffset(name, found)

    return LogDir(
        path=log_dir.path,
        place=log_dir.place,
        meta=log_dir.meta,
        partitions=(name,),
        cleaner_offsets=only(log_dir.cleaner_offsets),
        recovery_points=only(log_dir.recovery_points),
        log_start_offsets=only(log_dir.log_start_offsets),
        high_watermarks=only(log_dir.high_watermarks),
        has_high_watermarks=log_dir.has_high_watermarks,
        clean_shutdown=log_dir.clean_shutdown,
    )


def _next_change_ms(found: Survey, now_ms: int) -> int | None:
    """When time alone changes the answer: a lag ends."""
    bounds = found.bounds
    young = bounds.young_since_ms
    times = (
        None if young is None else young + found.config.min_compaction_lag_ms + 1,
        bounds.overdue_at_ms if bounds.dirtiness.cleanable_bytes else None,
    )
    return min((at_ms for at_ms in times if at_ms is not None and at_ms > now_ms), default=None)
