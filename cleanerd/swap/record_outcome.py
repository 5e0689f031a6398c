"""The state after a cleaning: cleanerd's checkpoint, quarantine, Kafka's checkpoint (U-10, S-50)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.cleaner.result import CleaningResult
from cleanerd.config.fingerprint import KAFKAS_FINGERPRINT, parts_of
from cleanerd.errors import CleanerdError, RefusedError, StalePlanError, as_cleanerd_error
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.state.cleaner_checkpoint import (
    CleanerdCheckpoint,
    LastSegment,
    PartitionState,
    last_below,
    segment_at,
)
from cleanerd.state.first_dirty_offset import unproven_after
from cleanerd.state.quarantine import quarantined
from cleanerd.swap.checkpoint import write_cleaner_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.survey import Survey
    from cleanerd.format.names import TopicPartition
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.segment import Segment
    from cleanerd.state.cleaner_checkpoint import StateStore
    from cleanerd.swap.session import LockedDir


def record_checkpoints(
    locked: LockedDir,
    survey: Survey,
    plan: CleaningPlan,
    after: PartitionLog,
    result: CleaningResult,
    *,
    last_base: int | None,
) -> None:
    """Store cleanerd's checkpoint, then Kafka's (U-10). ``last_base``: see :func:`save_checkpoint`."""
    if survey.moves_checkpoint:
        # The part that was clean above the end of this cleaning (--cleanable-to) still is.
        offset = max(plan.end_offset, survey.proven_offset)
        record_clean(
            locked, after, offset, plan.fingerprint, result, last_base=last_base, unproven_below=survey.unproven_below
        )
    else:
        record_settings_only(
            locked.store, locked.log_dir, after, plan.fingerprint, survey.valid_checkpoint, last_base=last_base
        )


def record_clean(
    locked: LockedDir,
    after: PartitionLog,
    offset: int,
    fingerprint: str,
    result: CleaningResult,
    *,
    last_base: int | None,
    unproven_below: int,
) -> None:
    """Store that the log is clean up to ``offset`` by the compaction settings of ``fingerprint``.

    ``last_base``, ``unproven_below``: see :func:`save_checkpoint`. Kafka's checkpoint is about Kafka's rules, so it
    does not change if others were used (U-10).
    """
    save_checkpoint(
        locked.store,
        locked.log_dir,
        after,
        offset,
        fingerprint,
        result,
        last_base=last_base,
        unproven_below=unproven_below,
    )
    if fingerprint == KAFKAS_FINGERPRINT:
        with locked.checkpoint_lock:
            write_cleaner_checkpoint(locked.log_dir.path, after.name, offset)


def require_below(log: PartitionLog, offset: int) -> Segment:
    """The last segment that begins below ``offset``.

    Raises:
        StalePlanError: there is none: the broker deleted all of them meanwhile, by retention or on request.
    """
    found = last_below(log, offset)
    if found is None:
        raise StalePlanError(f"nothing is left below offset {offset}", where=str(log.path))
    return found


def save_checkpoint(
    store: StateStore,
    log_dir: LogDir,
    after: PartitionLog,
    offset: int,
    fingerprint: str,
    result: CleaningResult,
    *,
    last_base: int | None,
    unproven_below: int,
) -> None:
    """Store cleanerd's checkpoint (U-10); Kafka's does not change.

    ``last_base``: the last segment that was swapped in. ``unproven_below``: from the survey before the cleaning (U-50).

    Raises:
        StalePlanError: the cleaned segments do not exist any more.
    """
    last = require_below(after, offset)
    checkpoint = CleanerdCheckpoint(
        offset=offset,
        leader_epoch=after.leader_epoch_at(offset - 1),
        fingerprint=fingerprint,
        last_segment=LastSegment.of(last),
        last_output=_earlier_output(store, log_dir, after) if last_base is None else segment_at(after, last_base),
        checkpoint=after.cleaner_offset,
        log_start=None if parts_of(fingerprint).get("strategy") == "offset" else after.log_start_offset,
        unproven_below=unproven_after(unproven_below, result.first_dirty_offset, result.end_offset),
    )
    state = PartitionState(
        cleanerd_checkpoint=checkpoint,
        quarantine=None,
        last_result={**result.to_json(), "finished_ms": time.time_ns() // 1_000_000},
        next_purge_ms=result.next_purge_ms,
        # The horizons of the clean part above the end of this cleaning are unknown.
        removal_known_below=offset if result.end_offset >= offset else None,
    )
    store.save(log_dir, after, state)


def _earlier_output(store: StateStore, log_dir: LogDir, after: PartitionLog) -> LastSegment | None:
    """If nothing was swapped in: the last output of an earlier cleaning, if it still exists."""
    state = store.load(log_dir, after)
    known = None if state is None or state.cleanerd_checkpoint is None else state.cleanerd_checkpoint.last_output
    return known if known is not None and segment_at(after, known.base) == known else None


def record_settings_only(
    store: StateStore,
    log_dir: LogDir,
    after: PartitionLog,
    fingerprint: str,
    checkpoint: CleanerdCheckpoint | None,
    *,
    last_base: int | None,
) -> None:
    """Store the rules of a cleaning that moves no checkpoint, because it chose retained records too (U-6).

    ``checkpoint``: the one that described the log before. Its files identify it, and they may have been replaced;
    without them the next cleaning would begin at the log's start. ``last_base``: see :func:`save_checkpoint`.
    """
    state = store.load(log_dir, after) or PartitionState(None, None, None)
    if checkpoint is not None and state.cleanerd_checkpoint == checkpoint:
        state = replace(state, cleanerd_checkpoint=_with_files_of(after, checkpoint, last_base))
    # The cleaning set horizons that are unknown here.
    store.save(log_dir, after, replace(state, rules=fingerprint, next_purge_ms=None, removal_known_below=None))


def _with_files_of(log: PartitionLog, checkpoint: CleanerdCheckpoint, last_base: int | None) -> CleanerdCheckpoint:
    """The checkpoint with the current files: the clean part stays clean, although a segment above it may be new."""
    last, output = last_below(log, checkpoint.offset), checkpoint.last_output
    if last is None:
        return checkpoint
    if last_base is None and output is not None:
        last_base = output.base
    output = None if last_base is None else segment_at(log, last_base)
    return replace(checkpoint, last_segment=LastSegment.of(last), last_output=output)


def not_cleaned(
    store: StateStore, log_dir: LogDir, name: TopicPartition, caught: CleanerdError | OSError
) -> CleaningResult:
    """The result for a partition that could not be cleaned; its cause determines the outcome of any operation.

    A failure before a group's commit leaves that group unchanged (OP-10).
    """
    error = as_cleanerd_error(caught, str(log_dir.path))
    if _is_gone(log_dir.path / str(name)):
        why = f"it left this log directory: it was moved, or its topic was deleted ({error})"
        error = RefusedError(why, where=str(log_dir.path))
    if error.consequence.remembered:
        _record_quarantine(store, log_dir, name, error)
    return CleaningResult.of_error(name, str(log_dir.path), error)


def _is_gone(path: Path) -> bool:
    """Whether the directory does not exist; False if the disk does not answer."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _record_quarantine(store: StateStore, log_dir: LogDir, name: TopicPartition, met: CleanerdError) -> None:
    """Store why the partition could not be cleaned; its checkpoint does not change."""
    try:
        log = read_partition(log_dir, name)
    except CleanerdError:
        return
    store.save(log_dir, log, quarantined(str(met), met, log, store.load(log_dir, log)))
