"""The steps of one cleaning of a partition: offline, beside a running broker, or staged for its next start.

::

    claim -> survey -> plan -> index, decide -> per group: rewrite, verify, swap -> record

Index and decide are one call, because many keys need several passes of both. Executors of Spark rewrite and verify all
groups when the first one is rewritten.

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
from cleanerd.cleaner.result import CleaningResult, Outcome, cleaning_result, untouched
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
    return _clean(OfflineSwap(locked, name, config, options), progress)


def clean_live(live: LiveDir, name: TopicPartition, options: CleaningOptions, progress: Progress) -> CleaningResult:
    """Clean one partition beside a running broker; only a signal or a bug raises."""
    return _clean(LiveSwap(live, name, options), progress)


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
    return _clean(DeferredSwap(log_dir, store, resources, name, config, options, keep_replaced), progress, cleaning_of)


class _SegmentsSplitError(Exception):
    """Segments were split first; the log has to be planned again. ``notes`` say which ones."""

    def __init__(self, notes: tuple[str, ...]) -> None:
        super().__init__(notes)
        self.notes = notes


def _clean(strategy: SwapStrategy, progress: Progress, cleaning_of: CleaningOf = Cleaning) -> CleaningResult:
    try:
        with PartitionFiles(strategy.log_dir.path / str(strategy.name)) as files:
            return _retry_loop(strategy, files, progress, cleaning_of)
    except (CleanerdError, OSError) as caught:
        return strategy.swapped.in_failed(not_cleaned(strategy.store, strategy.log_dir, strategy.name, caught))


def _retry_loop(
    strategy: SwapStrategy, files: PartitionFiles, progress: Progress, cleaning_of: CleaningOf
) -> CleaningResult:
    waits = strategy.waits()
    while True:
        try:
            with translated_kernel_errors(str(files.path)):
                return _attempt(strategy, files, progress, cleaning_of)
        except (CleanerdError, OSError) as caught:
            error = strategy.translate_error(as_cleanerd_error(caught, str(files.path)))
            wait = next(waits, None) if error.plan_again else None
            if wait is None and error is caught:
                raise  # raise without a chained context
            if wait is None:
                raise error from caught
        time.sleep(wait)
        strategy.before_retry(error)


def _attempt(
    strategy: SwapStrategy, files: PartitionFiles, progress: Progress, cleaning_of: CleaningOf
) -> CleaningResult:
    """Clean the log as it is now; planned again with an earlier end, or after a split."""
    strategy.enter(files)
    snapshot = strategy.read()
    survey = first_survey = snapshot.survey(strategy.store, strategy.options)
    split_notes: tuple[str, ...] = ()
    end_note: tuple[str, ...] = ()
    if not survey.to_clean:
        return untouched(survey, str(strategy.log_dir.path))
    with strategy.resources.readers(str(survey.log.path)) as pool:
        while True:
            plan = strategy.plan(snapshot, survey, pool.reader)
            cleaning = cleaning_of(plan, pool, progress)
            try:
                result = _decide_and_execute(strategy, files, survey, cleaning)
            except TooManyPassesError as error:
                if strategy.resources.passes_bytes is None:
                    raise
                survey = snapshot.survey(strategy.store, replace(strategy.options, up_to_offset=error.end_offset))
                end_note = (_ends_early(survey),)
            except _SegmentsSplitError as split:
                # As in Kafka: split, then begin again with the current log (C-67).
                split_notes += split.notes
                snapshot = strategy.read()
                survey = snapshot.survey(strategy.store, strategy.options)
                end_note = ()
                if not survey.to_clean:
                    result = untouched(survey, str(strategy.log_dir.path))
                    return replace(result, notes=(*split_notes, *result.notes))
            else:
                break
        if survey is not first_survey:
            result = replace(
                result,
                segments_before=len(first_survey.log.segments) - 1,
                notes=(*split_notes, *end_note, *result.notes),
                is_partial=bool(end_note),
            )
        return strategy.record_result(survey, cleaning, result)


def _ends_early(survey: Survey) -> str:
    return (
        f"this cleaning ends at offset {survey.end_offset} of {survey.bounds.bound.offset}, so that other partitions "
        "get a turn: more keys do not fit the passes that it may make (cleanerd.passes.bytes, "
        "log.cleaner.dedupe.buffer.size). The next cleaning of the partition continues there"
    )


def _decide_and_execute(
    strategy: SwapStrategy, files: PartitionFiles, survey: Survey, cleaning: Cleaning
) -> CleaningResult:
    """The result of carrying out the plan.

    Raises:
        _SegmentsSplitError: segments had to be split before that.
        TooManyPassesError: see ``decide``.
    """
    cleaning.decide()
    if overflowed := cleaning.overflowed():
        raise _SegmentsSplitError(strategy.split(files, survey, cleaning, overflowed))
    try:
        return _execute(strategy, files, survey, cleaning)
    except SegmentGrowsError as error:
        if not strategy.can_split:
            raise
        # This is known only after rewriting it (U-55); earlier groups are in the log.
        too_large = [each for each in cleaning.decision.segments if each.source.base == error.base]
        notes = strategy.split(files, survey, cleaning, too_large, grows=True)
    raise _SegmentsSplitError(notes)


def _execute(strategy: SwapStrategy, files: PartitionFiles, survey: Survey, cleaning: Cleaning) -> CleaningResult:
    swapped_before = strategy.swapped  # by earlier attempts
    strategy.check(files, cleaning)
    cleaning.may_grow = survey.may_grow(strategy.options)
    started = time.monotonic()
    if cleaning.groups():
        strategy.record_settings(files, survey, cleaning)
        with strategy.open_staging(files, survey, cleaning) as staging:
            for group in cleaning.pending_groups():
                if not cleaning.rewrite(group, staging):
                    continue  # too large: its parts are next (U-17)
                staged = cleaning.verify(group, staging)
                strategy.swap_group(files, cleaning, staging, staged, cleaning.members(group))
            strategy.finish(files, survey, cleaning, staging)
    # Executors rewrite several groups at once, or before the first swap, so their seconds are not included.
    swap_seconds = max(0.0, time.monotonic() - started - cleaning.totals.rewrite_seconds)
    outcome: Outcome = "cleaned" if cleaning.totals.groups else "unchanged"
    result = cleaning_result(survey, str(strategy.log_dir.path), cleaning, outcome=outcome, swap_seconds=swap_seconds)
    return swapped_before.in_done(result) if swapped_before.groups else result
