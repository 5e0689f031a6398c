"""What is remembered of a partition after a cleaning: clean point, quarantine, Kafka's checkpoint (U-10, S-50)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cleanerd.apply.checkpoint import write_cleaner_checkpoint
from cleanerd.cleaner.survey import Survey, quarantined
from cleanerd.errors import CleanerdError
from cleanerd.log.clean_point import CleanPoint, LastSegment, PartitionState
from cleanerd.log.partition import PartitionLog, read_partition
from cleanerd.log.strategy_config import KAFKAS_FINGERPRINT

if TYPE_CHECKING:
    from cleanerd.apply.session import LockedDir
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.clean_point import StateStore
    from cleanerd.log.log_dir import LogDir


def remember(locked: LockedDir, found: Survey, plan: CleaningPlan, after: PartitionLog, result: CleaningResult) -> None:
    """The clean point, then Kafka's checkpoint, in this order (U-10)."""
    if found.moves_clean_point:
        # What was clean beyond the end of this cleaning (--up-to) still is.
        offset = max(plan.end_offset, found.proven_offset)
        remember_clean(locked, after, offset, plan.fingerprint, result)


def remember_clean(
    locked: LockedDir, after: PartitionLog, offset: int, fingerprint: str, result: CleaningResult
) -> None:
    """The log is clean up to ``offset`` by the rules that ``fingerprint`` stands for.

    Kafka's checkpoint is about Kafka's rules: it stays what it is when others were used (U-10).
    """
    save_clean_point(locked.store, locked.log_dir, after, offset, fingerprint, result)
    if fingerprint == KAFKAS_FINGERPRINT:
        with locked.checkpoint_lock:
            write_cleaner_checkpoint(locked.log_dir.path, after.name, offset)


def save_clean_point(
    store: StateStore, log_dir: LogDir, after: PartitionLog, offset: int, fingerprint: str, result: CleaningResult
) -> None:
    """Our own record of it (U-10); Kafka's checkpoint is not touched."""
    last = next(segment for segment in reversed(after.segments) if segment.base < offset)
    point = CleanPoint(
        offset=offset,
        leader_epoch=after.leader_epoch_at(offset - 1),
        fingerprint=fingerprint,
        last_segment=LastSegment.of(last),
    )
    state = PartitionState(
        clean_point=point,
        quarantine=None,
        last_result={**result.to_json(), "finished_ms": time.time_ns() // 1_000_000},
        next_purge_ms=result.next_purge_ms,
        purge_as_of=offset,
    )
    store.save(log_dir, after, state)


def remember_quarantine(store: StateStore, log_dir: LogDir, name: TopicPartition, reason: str) -> None:
    """Why the partition could not be cleaned; its clean point stays what it was."""
    try:
        log = read_partition(log_dir, name)
    except CleanerdError:
        return
    store.save(log_dir, log, quarantined(reason, store.load(log_dir, log)))
