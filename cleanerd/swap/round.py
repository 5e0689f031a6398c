"""The steps of one cleaning of a partition: offline, beside a running broker, or staged for its next start.

::

    claim -> survey -> plan -> index, decide -> per group: rewrite, verify, swap -> record

A cleaning whose keys need more passes than allowed ends where they fill these, with a checkpoint there; the next one
continues from it (D-11). A log that changes while it is read is planned again, and left for the next cleaning if it
keeps changing (D-06). The outcome of an error follows from its cause (``errors.CONSEQUENCES``). The three ways to swap
are ``offline_swap.py``, ``live_swap.py`` and ``deferred_swap.py``.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from cleanerd.cleaner.cleaner import Cleaning, Progress
from cleanerd.cleaner.result import CleaningResult, Outcome, untouched, worked_out
from cleanerd.errors import CleanerdError, SegmentGrowsError, TooManyPassesError, as_cleanerd_error
from cleanerd.segments.kernel_errors import translated_kernel_errors
from cleanerd.swap.deferred_swap import DeferredSwap
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.live_swap import LiveDir, LiveSwap
from cleanerd.swap.offline_swap import OfflineSwap
from cleanerd.swap.record_outcome import not_cleaned

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.survey import CleaningOptions, Survey
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.format.names import TopicPartition
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.pool import ReaderPool
    from cleanerd.state.cleaner_checkpoint import StateStore
    from cleanerd.swap.session import LockedDir
    from cleanerd.swap.strategy import SwapStrategy

CleaningOf: TypeAlias = "Callable[[CleaningPlan, ReaderPool, Progress], Cleaning]"
"""Carries out a plan up to staged files: this process, or Spark."""


def clean_partition(
    locked: LockedDir, name: TopicPartition, config: TopicConfig, options: CleaningOptions, progress: Progress
) -> CleaningResult:
    """Clean one partition of a stopped broker; only a signal or a bug raises."""
    return _round(OfflineSwap(locked, name, config, options), progress)


def clean_live(live: LiveDir, name: TopicPartition, options: CleaningOptions, progress: Progress) -> CleaningResult:
    """Clean one partition beside a running broker; only a signal or a bug raises."""
    return _round(LiveSwap(live, name, options), progress)


def stage_partition(
    log_dir: LogDir,
    store: StateStore,
    resources: Resources,
    name: TopicPartition,
    config: TopicConfig,
    options: CleaningOptions,
    progress: Progress,
    *,
    keep_replaced: Path | None = None,
    cleaning_of: CleaningOf = Cleaning,
) -> CleaningResult:
    """Stage one partition for ``cleanerd apply``; only a signal or a bug raises.

    ``keep_replaced``: where ``apply`` keeps the segments that it replaces.
    """
    return _round(DeferredSwap(log_dir, store, resources, name, config, options, keep_replaced), progress, cleaning_of)


def _round(put: SwapStrategy, progress: Progress, cleaning_of: CleaningOf = Cleaning) -> CleaningResult:
    try:
        with PartitionFiles(put.log_dir.path / str(put.name)) as files:
            return _tries(put, files, progress, cleaning_of)
    except (CleanerdError, OSError) as caught:
        return put.swapped.in_failed(not_cleaned(put.store, put.log_dir, put.name, caught))


def _tries(put: SwapStrategy, files: PartitionFiles, progress: Progress, cleaning_of: CleaningOf) -> CleaningResult:
    waits = put.waits()
    while True:
        try:
            with translated_kernel_errors(str(files.path)):
                return _try(put, files, progress, cleaning_of)
        except (CleanerdError, OSError) as caught:
            error = put.translate_error(as_cleanerd_error(caught, str(files.path)))
            wait = next(waits, None) if error.plan_again else None
            if wait is None and error is caught:
                raise  # raise without a chained context
            if wait is None:
                raise error from caught
        time.sleep(wait)
        put.before_retry(error)


def _try(put: SwapStrategy, files: PartitionFiles, progress: Progress, cleaning_of: CleaningOf) -> CleaningResult:
    put.enter(files)
    reading = put.read()
    found = first = reading.survey(put.store, put.options)
    notes: tuple[str, ...] = ()
    part: tuple[str, ...] = ()
    if not found.to_clean:
        return untouched(found, str(put.log_dir.path))
    with put.resources.readers(str(found.log.path)) as pool:
        while True:
            cleaning = cleaning_of(put.plan(reading, found, pool.reader), pool, progress)
            cleaning.passes_bytes = put.resources.passes_bytes
            try:
                result = _carried_out_or_split(put, files, found, cleaning)
            except TooManyPassesError as error:
                if put.resources.passes_bytes is None:
                    raise
                found = reading.survey(put.store, replace(put.options, up_to_offset=error.end_offset))
                part = (_ends_early(found),)
                continue
            if isinstance(result, CleaningResult):
                break
            # As in Kafka: split, then begin again with the current log (C-67).
            notes += result
            reading = put.read()
            found = reading.survey(put.store, put.options)
            part = ()
            if not found.to_clean:
                left = untouched(found, str(put.log_dir.path))
                return replace(left, notes=(*notes, *left.notes))
        if found is not first:
            before = len(first.log.segments) - 1
            result = replace(
                result, segments_before=before, notes=(*notes, *part, *result.notes), is_partial=bool(part)
            )
        return put.record_result(found, cleaning, result)


def _ends_early(found: Survey) -> str:
    return (
        f"this cleaning ends at offset {found.end_offset} of {found.bounds.bound.offset}, so that other partitions get "
        "a turn: more keys do not fit the passes that it may make (cleanerd.passes.bytes, "
        "log.cleaner.dedupe.buffer.size). The next cleaning of the partition continues there"
    )


def _carried_out_or_split(
    put: SwapStrategy, files: PartitionFiles, found: Survey, cleaning: Cleaning
) -> CleaningResult | tuple[str, ...]:
    """The result; or, if segments had to be split first, notes about that: then plan the log again."""
    cleaning.decide()
    if overflowed := cleaning.overflowed():
        return put.split(files, found, cleaning, overflowed)
    try:
        return _carried_out(put, files, found, cleaning)
    except SegmentGrowsError as error:
        if not put.can_split:
            raise
        # This is known only after rewriting it (U-55); earlier groups are in the log.
        too_large = [each for each in cleaning.decision.segments if each.source.base == error.base]
        return put.split(files, found, cleaning, too_large, grows=True)


def _carried_out(put: SwapStrategy, files: PartitionFiles, found: Survey, cleaning: Cleaning) -> CleaningResult:
    before = put.swapped  # swapped by earlier tries
    put.check(files, cleaning)
    cleaning.may_grow = found.may_grow(put.options)
    started = time.monotonic()
    if cleaning.groups():
        put.record_settings(files, found, cleaning)
        put.swap_groups(files, found, cleaning)
    # Executors rewrite several groups at once, or before the first swap, so their seconds are not included.
    swap_seconds = max(0.0, time.monotonic() - started - cleaning.totals.rewrite_seconds)
    outcome: Outcome = "cleaned" if cleaning.totals.groups else "unchanged"
    result = worked_out(found, str(put.log_dir.path), cleaning, outcome=outcome, swap_seconds=swap_seconds)
    return before.in_done(result) if before.groups else result
