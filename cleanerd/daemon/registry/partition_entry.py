"""The state of one compacted partition between two scans.

The effect of a finished job on it: its new state, and waits after failures (OP-12).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cleanerd.cleaner.reclaimable import Reclaimable
from cleanerd.daemon.view import CleaningView, PartitionView, Trigger
from cleanerd.daemon.work.job import Backoff, CleaningJob, JobDone, JobReclaimable
from cleanerd.errors import RetryLaterError
from cleanerd.humanize import counted, human_bytes
from cleanerd.policy.state_digest import MOST_OFFSETS, StateDigest
from cleanerd.state.cleaner_checkpoint import Retry

if TYPE_CHECKING:
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.daemon.partition_scan import FailedScan, Key, PartitionScan
    from cleanerd.format.names import TopicPartition
    from cleanerd.state.in_progress import CrashSuspect


RESTAGE_AFTER_MS: Final = 3_600_000
"""A plan that waits for a restart is not replaced earlier, however much was written since."""

NO_PROGRESS: Final = (
    "not cleaned a third time without new records: its cleanerd checkpoint cannot be stored (see the warnings)"
)

FIRST_SHARE: Final = 0.5
"""The reclaimable part of the dirty bytes that is assumed before any cleaning."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a partition is not cleaned, since when, after how many failures, until when.

    ``by_scan``: a scan found it. ``by_death``: processes were killed more than once while they cleaned it.
    """

    reason: str
    since_ms: int
    failures: int
    retry_at_ms: int
    by_scan: bool = False
    by_death: bool = False


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """A wait after a temporary condition: how many in a row, until when, and why.

    ``requested``: an operator requested the failed cleaning (OP-12), so the reason is shown until the partition is
    cleaned.
    """

    times: int = 0
    until_ms: int = 0
    reason: str = ""
    requested: bool = False

    def extended(self, reason: str, now_ms: int, backoff: Backoff, *, requested: bool = False) -> RetryDelay:
        """The next wait, longer than before."""
        return RetryDelay(self.times + 1, now_ms + backoff.wait_ms(self.times + 1), reason, requested=requested)


@dataclass(frozen=True, slots=True)
class OperatorOutcome:
    """OP-12: the result of a requested cleaning; ``code``: the exit code of ``trigger --wait``."""

    outcome: str
    reason: str
    code: int

    @classmethod
    def of(cls, done: JobDone) -> OperatorOutcome:
        """The outcome from a worker's result."""
        result = done.result
        if done.saving is not None:
            return cls("observed", f"a cleaning would save {done.saving.reclaimable.describe()}", 0)
        if result is None:
            return cls("failed" if done.failed else "skipped", done.failed or done.passing, 4)
        if result.error is not None:
            return cls(result.outcome, done.failed or result.reason, result.error.exit_code)
        is_rewritten = result.outcome in {"cleaned", "staged"}
        return cls(result.outcome, result.reason or (_effect(result) if is_rewritten else ""), 0)


def _effect(result: CleaningResult) -> str:
    """The size of the whole log before and after, and what else changed: a cleaning can remove very little."""
    before, after = (human_bytes(each + result.active_bytes) for each in (result.bytes_before, result.bytes_after))
    removed, segments = counted(result.removed.total, "record"), counted(result.segments_after, "segment")
    return f"{before} -> {after}, {removed} removed, {result.segments_before} -> {segments} below the active one"


NO_HOLD: Final = RetryDelay()

HOLD_BACKOFF: Final = Backoff(15_000, 300_000)
"""Waits after temporary conditions: the broker was busy, or the log changed while it was read."""


@dataclass(frozen=True, slots=True)
class Digested:
    """The digests of a log, the newest last, by these ``rules``.

    ``at_ms``: when some were last computed or tried. ``digest_range``: the log's range then.
    """

    at_ms: int
    rules: str
    digest_range: tuple[int, int]
    digests: tuple[StateDigest, ...]

    def followed_by(self, later: Digested) -> Digested:
        """The digests with those of a later pass, up to the limit; without those of a log that was truncated."""
        ends, log_end = {each.end_offset for each in later.digests}, later.digest_range[1]
        old = self.digests if self.rules == later.rules else ()
        kept = [each for each in old if each.end_offset not in ends and each.end_offset <= log_end]
        return replace(later, digests=(*kept, *later.digests)[-MOST_OFFSETS:])


@dataclass(slots=True)
class PartitionEntry:
    """One compacted partition.

    ``removal_known``: a worker or the state directory reported when tombstones below ``removal_known_below`` can be
    removed; ``removal_remembered``: the state directory's last answer. ``suspect``: a process was killed while it
    cleaned this. ``saving``: what a cleaning would save, exact or estimated; ``estimated_ms``: when that was tried
    last. ``digested``: the last digests of its latest state (U-90). ``done_to``: a worker has cleaned up to this
    offset, or found nothing to stage; ``observed_to``: it was observed up to this offset. ``had_part``: its last
    cleaning ended early so that others can run (D-11). ``answered``: the result of the last trigger, None while
    unknown. ``erase_offset``: the last tombstone of an open erasure request.
    """

    name: TopicPartition
    path: str
    scan: PartitionScan | None = None
    failed: FailedScan | None = None
    failed_in_a_row: int = 0
    excluded: str = ""
    paused: bool = False
    requested: bool = False
    trigger: Trigger | None = None
    queued: bool = False
    waiting_since_ms: int | None = None
    quarantine: Quarantine | None = None
    suspect: CrashSuspect | None = None
    hold: RetryDelay = NO_HOLD
    next_purge_ms: int | None = None
    removal_known: bool = False
    removal_known_below: int = 0
    removal_remembered: tuple[int, int | None] | None = None
    done_to: int | None = None
    observed_to: int | None = None
    had_part: bool = False
    saving: JobReclaimable | None = None
    estimated_ms: int | None = None
    digested: Digested | None = None
    share: float = FIRST_SHARE
    last_cleaning: CleaningView | None = None
    answered: OperatorOutcome | None = None
    erase_offset: int | None = None
    view: PartitionView | None = None

    @property
    def key(self) -> Key:
        return self.path, self.name

    @property
    def is_waiting(self) -> bool:
        """Whether it waits after a failure, so an operator can have it tried again."""
        return self.is_quarantined or self.hold != NO_HOLD

    @property
    def is_quarantined(self) -> bool:
        """Whether it is quarantined, here or in the state directory, for example by a command."""
        return self.quarantine is not None or (self.scan is not None and self.scan.quarantine is not None)

    def for_new_topic(self) -> PartitionEntry:
        """The entry for another topic of the same name: only operators' requests are kept."""
        return PartitionEntry(self.name, self.path, paused=self.paused, requested=self.requested)

    def clear_failures(self) -> None:
        """Drop all failures, also those that will be removed from the state directory."""
        self.quarantine = None
        if self.scan is not None:
            self.scan = replace(self.scan, quarantine=None, retry=None, quarantine_outdated=False)
        self.release()
        self.done_to = None
        self.touch()

    def release(self) -> None:
        self.hold = NO_HOLD

    def touch(self) -> None:
        """Mark its view as outdated."""
        self.view = None


def digests_of(entry: PartitionEntry) -> tuple[StateDigest, ...]:
    """The digests by the current rules (U-90)."""
    scan, found = entry.scan, entry.digested
    return () if scan is None or found is None or found.rules != scan.fingerprint else found.digests


def reclaimable_of(entry: PartitionEntry) -> Reclaimable | None:
    """The reclaimable bytes, exact or estimated for the current log; else a default from experience."""
    scan, saving = entry.scan, entry.saving
    if scan is None:
        return None
    known = None if saving is None else saving.now(scan)
    if known is None:
        most = scan.clean_bytes + scan.dirty_bytes if scan.dirty_bytes else 0
        known = Reclaimable(int(entry.share * scan.dirty_bytes), 0, most, "guess")
    return known.at_most(scan.size_bytes)


def reclaimable_bytes(entry: PartitionEntry) -> int:
    """The expected reclaimable bytes."""
    reclaimable = reclaimable_of(entry)
    return 0 if reclaimable is None else reclaimable.bytes


def quarantine_after(done: JobDone, backoff: Backoff) -> Quarantine:
    """The quarantine after a failed job: as the worker stored it, or from the result."""
    retry = done.retry or Retry(done.ended_ms, 1, done.ended_ms + backoff.first_ms)
    return Quarantine(done.failed, retry.since_ms, retry.failures, retry.at_ms)


def note_suspect(entry: PartitionEntry, suspect: CrashSuspect | None, backoff: Backoff) -> None:
    """Apply the state of its crash markers; a running job's marker does not count yet."""
    if entry.trigger is not None:
        return
    if suspect != entry.suspect:
        entry.suspect = suspect
        entry.touch()
    if suspect is not None and suspect.is_too_much:
        failures = suspect.deaths - 1
        retry_at_ms = suspect.noticed_ms + backoff.wait_ms(failures)
        entry.quarantine = Quarantine(suspect.reason, suspect.noticed_ms, failures, retry_at_ms, by_death=True)
    elif entry.quarantine is not None and entry.quarantine.by_death:
        entry.quarantine = None


def note_next_removal(entry: PartitionEntry, scan: PartitionScan, now_ms: int) -> None:
    """When tombstones can be removed, according to the state directory."""
    if scan.removal_known:
        remembered = (scan.first_dirty_offset, scan.next_purge_ms)
        is_waited_for = entry.removal_known and is_past(entry.next_purge_ms, scan.expiry.expiry_ms(now_ms))
        # An unchanged report is not new: a worker may know a time that could not be stored.
        if remembered != entry.removal_remembered and not is_waited_for:
            entry.next_purge_ms = scan.next_purge_ms
        entry.removal_known, entry.removal_known_below, entry.removal_remembered = (
            True,
            scan.first_dirty_offset,
            remembered,
        )
    elif scan.first_dirty_offset > entry.removal_known_below:
        entry.removal_known = False  # another process cleaned it, and set horizons


def retry_of(quarantine: Quarantine | None) -> Retry | None:
    """The part of the quarantine that the state directory stores."""
    if quarantine is None:
        return None
    return Retry(quarantine.since_ms, quarantine.failures, quarantine.retry_at_ms)


def is_past(at_ms: int | None, now_ms: int) -> bool:
    """Whether that time has passed; False for None."""
    return at_ms is not None and at_ms <= now_ms


def is_overdue(scan: PartitionScan, now_ms: int) -> bool:
    """C-11: ``max.compaction.lag.ms`` has passed, and there is something to clean."""
    return is_past(scan.overdue_at_ms, now_ms) and scan.dirty_bytes > 0


def is_to_be_erased(entry: PartitionEntry, scan: PartitionScan) -> bool:
    """U-88: whether a cleaning would cover the tombstone of an open erasure request for the first time."""
    return (
        entry.erase_offset is not None and scan.first_dirty_offset <= entry.erase_offset < scan.first_uncleanable_offset
    )


def made_no_progress(entry: PartitionEntry, job: CleaningJob) -> bool:
    """Whether the cleaning reached no further than before, and was not for tombstones."""
    return (
        job.kind == "live"
        and job.trigger in {"ratio", "overdue", "erasure"}
        and entry.done_to == job.scan.first_uncleanable_offset
    )


def has_advanced(entry: PartitionEntry, scan: PartitionScan) -> bool:
    """Whether the reason for its wait - nothing new, or an outdated scan - no longer holds."""
    before = entry.scan
    if before is None or entry.hold.reason not in {"", NO_PROGRESS}:
        return False
    return (before.first_dirty_offset, before.first_uncleanable_offset) != (
        scan.first_dirty_offset,
        scan.first_uncleanable_offset,
    )


def note_swapped_in(entry: PartitionEntry, scan: PartitionScan) -> CleaningView | None:
    """The entry's staged cleaning once ``cleanerd apply`` has swapped it in; then it is its last cleaning."""
    last = entry.last_cleaning
    if last is None or last.result["outcome"] != "staged" or scan.staged is not None or scan.cleaned_ms is None:
        return None
    if scan.cleaned_ms <= last.ended_ms:
        return None
    entry.last_cleaning = replace(last, ended_ms=scan.cleaned_ms, result={**last.result, "outcome": "cleaned"})
    return entry.last_cleaning


def was_staged_lately(entry: PartitionEntry, now_ms: int) -> bool:
    """Whether a recently staged plan is missing or unreadable."""
    last = entry.last_cleaning
    return last is not None and last.result["outcome"] == "staged" and 0 <= now_ms - last.ended_ms < RESTAGE_AFTER_MS


def cleaning_view(done: JobDone, result: CleaningResult) -> CleaningView:
    """The history's entry of a finished cleaning."""
    name, job = done.job.name, done.job
    return CleaningView(name.topic, name.partition, done.began_ms, done.ended_ms, job.trigger, result.to_json())


def note_done(
    entry: PartitionEntry, done: JobDone, backoff: Backoff, hold: Backoff = HOLD_BACKOFF
) -> CleaningView | None:
    """Store the result. ``backoff``: waits after failures; ``hold``: waits after temporary conditions.

    Returns the entry for the history, if any.
    """
    job, result = done.job, done.result
    requested = job.trigger == "manual"
    entry.had_part = result is not None and result.is_partial
    if requested and entry.had_part:
        entry.requested = True  # the request is answered when the whole partition is cleaned
    elif requested:
        entry.answered = OperatorOutcome.of(done)
    entry.waiting_since_ms = None
    if done.horizons:
        entry.removal_known, entry.next_purge_ms = True, done.next_purge_ms
        entry.removal_known_below = max(entry.removal_known_below, job.scan.first_dirty_offset)
    if done.saving is not None:
        entry.saving = done.saving
        if job.kind == "observe":
            entry.observed_to = job.scan.first_uncleanable_offset
    if done.failed:
        entry.quarantine = quarantine_after(done, backoff)
    elif done.passing:
        entry.hold = entry.hold.extended(done.passing, done.ended_ms, hold, requested=requested)
    elif result is None or result.is_done:
        entry.quarantine = None
        if made_no_progress(entry, job):
            entry.hold = entry.hold.extended(NO_PROGRESS, done.ended_ms, hold)
        else:
            entry.release()
    return None if result is None else _note_result(entry, done, result, backoff, hold)


def _note_result(
    entry: PartitionEntry, done: JobDone, result: CleaningResult, backoff: Backoff, hold: Backoff
) -> CleaningView | None:
    if not (result.is_done or done.failed):
        # Without an error the scan was just outdated.
        reason = "" if result.error is None else result.reason
        waits = hold if result.error is None or result.error.consequence.passes else backoff
        if isinstance(result.error, RetryLaterError):
            wait_ms = min(int(result.error.seconds * 1000) + 1, hold.longest_ms)
            waits = Backoff(wait_ms, wait_ms)
        requested = done.job.trigger == "manual" and bool(reason)
        entry.hold = entry.hold.extended(reason, done.ended_ms, waits, requested=requested)
        if result.moved_on or (requested and result.outcome != "failed"):
            return cleaning_view(done, result)
        if result.outcome != "failed":
            return None
    elif not done.failed:
        _note_cleaned(entry, done, result)
    entry.last_cleaning = cleaning_view(done, result)
    return entry.last_cleaning


def _note_cleaned(entry: PartitionEntry, done: JobDone, result: CleaningResult) -> None:
    scan = done.job.scan
    saved = max(0, result.bytes_before - result.bytes_after)
    entry.share = min(1.0, saved / scan.dirty_bytes) if scan.dirty_bytes else entry.share
    # A staged cleaning takes effect at the broker's next start.
    if result.outcome != "staged":
        entry.removal_known, entry.next_purge_ms = True, result.next_purge_ms
        entry.done_to = result.end_offset if result.is_partial else scan.first_uncleanable_offset
        if done.job.kind == "live":
            entry.removal_known_below = max(entry.removal_known_below, entry.done_to)
