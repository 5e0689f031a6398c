"""The effect of a finished job on its partition: its new state, and waits after failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.daemon.backoff import Backoff
from cleanerd.daemon.registry.partition_entry import (
    HOLD_BACKOFF,
    IN_VAIN,
    OperatorOutcome,
    clean_view,
    is_in_vain,
    quarantine_after,
)
from cleanerd.errors import RetryLaterError

if TYPE_CHECKING:
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.view import CleanView
    from cleanerd.daemon.work.job import JobDone


def note_done(
    tracked: PartitionEntry, done: JobDone, backoff: Backoff, hold: Backoff = HOLD_BACKOFF
) -> CleanView | None:
    """Store the result. ``backoff``: waits after failures; ``hold``: waits after temporary conditions.

    Returns the entry for the history, if any.
    """
    job, result = done.job, done.result
    requested = job.trigger == "manual"
    tracked.had_part = result is not None and result.is_partial
    if requested and tracked.had_part:
        tracked.requested = True  # the request is answered when the whole partition is cleaned
    elif requested:
        tracked.answered = OperatorOutcome.of(done)
    tracked.waiting_since_ms = None
    if done.horizons:
        tracked.removal_known, tracked.next_tombstone_removal_ms = True, done.next_tombstone_removal_ms
        tracked.removal_known_below = max(tracked.removal_known_below, job.scan.clean_offset)
    if done.saving is not None:
        tracked.saving = done.saving
        if job.kind == "observe":
            tracked.observed_to = job.scan.bound_offset
    if done.failed:
        tracked.quarantine = quarantine_after(done, backoff)
    elif done.passing:
        tracked.hold = tracked.hold.extended(done.passing, done.ended_ms, hold, requested=requested)
    elif result is None or result.is_done:
        tracked.quarantine = None
        if is_in_vain(tracked, job):
            tracked.hold = tracked.hold.extended(IN_VAIN, done.ended_ms, hold)
        else:
            tracked.release()
    return None if result is None else _note_result(tracked, done, result, backoff, hold)


def _note_result(
    tracked: PartitionEntry, done: JobDone, result: CleaningResult, backoff: Backoff, hold: Backoff
) -> CleanView | None:
    if not (result.is_done or done.failed):
        # Without an error the scan was just outdated.
        reason = "" if result.error is None else result.reason
        waits = hold if result.error is None or result.error.consequence.passes else backoff
        if isinstance(result.error, RetryLaterError):
            wait_ms = min(int(result.error.seconds * 1000) + 1, hold.longest_ms)
            waits = Backoff(wait_ms, wait_ms)
        requested = done.job.trigger == "manual" and bool(reason)
        tracked.hold = tracked.hold.extended(reason, done.ended_ms, waits, requested=requested)
        if result.moved_on or (requested and result.outcome != "failed"):
            return clean_view(done, result)
        if result.outcome != "failed":
            return None
    elif not done.failed:
        _note_cleaned(tracked, done, result)
    tracked.last_clean = clean_view(done, result)
    return tracked.last_clean


def _note_cleaned(tracked: PartitionEntry, done: JobDone, result: CleaningResult) -> None:
    scan = done.job.scan
    saved = max(0, result.bytes_before - result.bytes_after)
    tracked.share = min(1.0, saved / scan.dirty_bytes) if scan.dirty_bytes else tracked.share
    # A staged cleaning takes effect at the broker's next start.
    if result.outcome != "staged":
        tracked.removal_known, tracked.next_tombstone_removal_ms = True, result.next_tombstone_removal_ms
        tracked.done_to = result.end_offset if result.is_partial else scan.bound_offset
        if done.job.kind == "live":
            tracked.removal_known_below = max(tracked.removal_known_below, tracked.done_to)
