"""What is known of one compacted partition between two looks at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.log.clean_point import Retry

if TYPE_CHECKING:
    from cleanerd.daemon.jobs import Job, JobDone, Saving
    from cleanerd.daemon.look import FailedLook, Look
    from cleanerd.daemon.schedule import Trigger
    from cleanerd.daemon.view import CleanView, PartitionView
    from cleanerd.format.names import TopicPartition

Key = tuple[str, "TopicPartition"]
"""A log directory and a partition in it."""

RESTAGE_AFTER_MS: Final = 3_600_000
"""A plan that waits for a restart is made anew no sooner, however much was written since."""

IN_VAIN: Final = "cleaned twice with nothing new: how far it is clean cannot be remembered (see the warnings)"

FIRST_SHARE: Final = 0.5
"""Of the dirty bytes so much is expected to go, until a cleaning has told."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a partition is left alone, since when, after how many failures, until when. ``by_look``: a look found it."""

    reason: str
    since_ms: int
    failures: int
    retry_at_ms: int
    by_look: bool = False


@dataclass(slots=True)
class Tracked:
    """One compacted partition.

    ``purge_known``: a worker or the state directory has told when tombstones below ``purge_to`` go; ``purge_told`` is
    what the state directory said last. ``done_to``: up to there a worker has cleaned, or found nothing to stage.
    """

    name: TopicPartition
    path: str
    look: Look | None = None
    failed: FailedLook | None = None
    failed_in_a_row: int = 0
    excluded: str = ""
    paused: bool = False
    asked: bool = False
    trigger: Trigger | None = None
    queued: bool = False
    waiting_since_ms: int | None = None
    quarantine: Quarantine | None = None
    hold_until_ms: int = 0
    holds: int = 0
    hold_reason: str = ""
    next_purge_ms: int | None = None
    purge_known: bool = False
    purge_to: int = 0
    purge_told: tuple[int, int | None] | None = None
    done_to: int | None = None
    saving: Saving | None = None
    share: float = FIRST_SHARE
    last_clean: CleanView | None = None
    view: PartitionView | None = None

    @property
    def key(self) -> Key:
        """What it is known by."""
        return self.path, self.name

    def anew(self) -> Tracked:
        """Another topic of that name: of what is known only what people asked for stays."""
        return Tracked(self.name, self.path, paused=self.paused, asked=self.asked)

    def touch(self) -> None:
        """It is to be shown anew."""
        self.view = None


def reclaimable_bytes(tracked: Tracked) -> int:
    """What a cleaning is expected to save: exactly, if it was worked out for the log as it is, else by experience."""
    look, saving = tracked.look, tracked.saving
    if look is None:
        return 0
    if saving is not None and saving.bound_offset == look.bound_offset:
        return max(0, saving.bytes_before - saving.bytes_after)
    return int(tracked.share * look.dirty_bytes)


def quarantine_after(done: JobDone, first_wait_ms: int) -> Quarantine:
    """Of a job that failed, by what the worker wrote down; by itself, if it could not."""
    retry = done.retry or Retry(done.ended_ms, 1, done.ended_ms + first_wait_ms)
    return Quarantine(done.failed, retry.since_ms, retry.failures, retry.at_ms)


def retry_of(quarantine: Quarantine | None) -> Retry | None:
    """What of it the state directory remembers."""
    if quarantine is None:
        return None
    return Retry(quarantine.since_ms, quarantine.failures, quarantine.retry_at_ms)


def is_past(at_ms: int | None, now_ms: int) -> bool:
    """Whether it has come; None never comes."""
    return at_ms is not None and at_ms <= now_ms


def is_overdue(look: Look, now_ms: int) -> bool:
    """C-11: ``max.compaction.lag.ms`` has passed, and there is something to clean."""
    return is_past(look.overdue_at_ms, now_ms) and look.dirty_bytes > 0


def is_in_vain(tracked: Tracked, job: Job) -> bool:
    """Whether the broker's log was cleaned up to where it had been cleaned before, not for tombstones' sake."""
    return job.kind == "live" and job.trigger in {"ratio", "overdue"} and tracked.done_to == job.look.bound_offset


def is_news(tracked: Tracked, look: Look) -> bool:
    """Whether what it was held for - nothing new, or a look that was outdated - is no longer so."""
    before = tracked.look
    if before is None or tracked.hold_reason not in {"", IN_VAIN}:
        return False
    return (before.clean_offset, before.bound_offset) != (look.clean_offset, look.bound_offset)


def was_staged_lately(tracked: Tracked, now_ms: int) -> bool:
    """Whether a plan was made that is gone already, or that nobody can read."""
    last = tracked.last_clean
    return last is not None and last.result["outcome"] == "staged" and 0 <= now_ms - last.ended_ms < RESTAGE_AFTER_MS
