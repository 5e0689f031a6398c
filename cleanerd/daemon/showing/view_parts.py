"""From what the fleet knows to what is shown: one :class:`PartitionView`, one :class:`LogDirView`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from cleanerd.daemon.fleet.due import has_nothing_to_stage
from cleanerd.daemon.fleet.tracked import reclaimable_of
from cleanerd.daemon.view import LogDirView, PartitionView, QuarantineView, RunningView
from cleanerd.words import human_bytes

if TYPE_CHECKING:
    from cleanerd.daemon.fleet.fleet import Fleet
    from cleanerd.daemon.fleet.tracked import Tracked
    from cleanerd.daemon.looking.log_dir_look import LogDirLook
    from cleanerd.daemon.view import PartitionMode, PartitionPhase
    from cleanerd.daemon.work.job import Job


def partition_view(fleet: Fleet, tracked: Tracked) -> PartitionView:
    """One partition; the one that was made before, if nothing has changed since."""
    if tracked.view is None:
        tracked.view = _partition_view(fleet, tracked)
    return tracked.view


def log_dir_view(fleet: Fleet, found: LogDirLook) -> LogDirView:
    """What is shown of one log directory."""
    info = None if found.choice is None else found.choice.info
    return LogDirView(
        path=str(found.path),
        online=found.online,
        mode=found.mode.mode,
        mode_reason=found.mode.reason,
        total_bytes=found.total_bytes,
        free_bytes=found.free_bytes,
        reserve_bytes=fleet.reserve_of(found),
        agent=None if info is None else asdict(info),
        error=found.error,
        node_id=None if found.facts is None else found.facts.node_id,
    )


def running_view(job: Job) -> RunningView:
    """A cleaning that goes on."""
    progress = job.progress
    return RunningView(
        topic=job.name.topic,
        partition=job.name.partition,
        log_dir=str(job.path),
        started_ms=job.started_ms,
        trigger=job.trigger,
        phase=progress.current,
        done_bytes=min(progress.done_bytes, progress.total_bytes),
        total_bytes=progress.total_bytes,
    )


def _partition_view(fleet: Fleet, tracked: Tracked) -> PartitionView:
    look, quarantine = tracked.look, tracked.quarantine
    found = fleet.dirs.get(tracked.path)
    reclaimable = reclaimable_of(tracked)
    mode: PartitionMode = "offline" if found is None else found.mode.mode
    return PartitionView(
        topic=tracked.name.topic,
        partition=tracked.name.partition,
        log_dir=tracked.path,
        phase=_phase(fleet, tracked),
        mode=mode,
        reason=_reason(fleet, tracked) + _by_whom(fleet, tracked),
        strategy="" if look is None else look.strategy,
        fingerprint="" if look is None else look.fingerprint,
        clean_offset=None if look is None else look.clean_offset,
        bound_offset=None if look is None else look.bound_offset,
        size_bytes=0 if look is None else look.size_bytes,
        dirty_bytes=0 if look is None else look.dirty_bytes,
        dirty_ratio=0.0 if look is None else look.dirty_ratio,
        reclaimable_bytes=None if reclaimable is None else reclaimable.bytes,
        reclaimable_exact=reclaimable is not None and reclaimable.method == "exact",
        reclaimable_low_bytes=None if reclaimable is None else reclaimable.low,
        reclaimable_high_bytes=None if reclaimable is None else reclaimable.high,
        reclaimable_method=None if reclaimable is None else reclaimable.method,
        overdue_at_ms=None if look is None or not look.dirty_bytes else look.overdue_at_ms,
        next_purge_ms=tracked.next_purge_ms,
        delegated=None if look is None else look.delegated,
        fingerprint_changed=look is not None and look.fingerprint_changed,
        quarantine=None
        if quarantine is None
        else QuarantineView(quarantine.reason, quarantine.since_ms, quarantine.failures, quarantine.retry_at_ms),
        last_clean=tracked.last_clean,
    )


def _phase(fleet: Fleet, tracked: Tracked) -> PartitionPhase:
    phases: tuple[tuple[PartitionPhase, bool], ...] = (
        ("excluded", bool(tracked.excluded)),
        ("cleaning", tracked.trigger is not None),
        ("paused", tracked.paused or fleet.pauses.everything),
        ("quarantined", tracked.quarantine is not None),
        ("refused", tracked.look is not None and tracked.look.refused and tracked.look.staged is None),
        ("queued", tracked.queued),
        ("staged", tracked.look is not None and tracked.look.staged is not None),
    )
    return next((phase for phase, holds in phases if holds), "idle")


_STAGED = "staged: cleanerd apply swaps it in before the next start of the broker"
_TRIGGERS = {
    "asked": "it was asked for",
    "overdue": "max.compaction.lag.ms has passed",
    "purge": "tombstones or markers are past their delete horizon",
    "ratio": "its dirty ratio is above the limit",
}


_NOT_BY_SPARK = (
    "; it may have as many keys as cleanerd.spark.threshold.keys says, but is not handed over: what Spark stages "
    "cannot be swapped in live"
)


def _by_whom(fleet: Fleet, tracked: Tracked) -> str:
    """That it is cleaned live, in spite of its size; by its offsets, of which every key has one of its own."""
    look, found = tracked.look, fleet.dirs.get(tracked.path)
    threshold = fleet.settings.spark_threshold_keys
    if look is None or found is None or found.mode.work != "live" or threshold is None:
        return ""
    large = look.bound_offset - look.clean_offset >= threshold
    return _NOT_BY_SPARK if large and (look.eligible or tracked.trigger is not None) else ""


def _full(fleet: Fleet, found: LogDirLook) -> str:
    """That the disk has no room for a cleaning, and how much is kept free."""
    if not fleet.is_full(found):
        return ""
    reserve = human_bytes(fleet.reserve_of(found))
    return (
        f"free space is at the reserve (cleanerd.disk.reserve, {reserve}): nothing is cleaned here until space is freed"
    )


def _reason(fleet: Fleet, tracked: Tracked) -> str:
    """Why it is not cleaned now, or why it is."""
    look, found = tracked.look, fleet.dirs.get(tracked.path)
    texts = (
        tracked.excluded,
        "" if tracked.trigger is None else _TRIGGERS[tracked.trigger],
        "cleaning is paused" if tracked.paused or fleet.pauses.everything else "",
        "" if tracked.quarantine is None else tracked.quarantine.reason,
        "" if found is None else found.error,
        "" if tracked.failed is None else tracked.failed.reason,
        tracked.hold.reason,
        "" if look is None or look.staged is None else _STAGED,
        "" if found is None or found.mode.work is not None else found.mode.reason,
        "not looked at yet" if look is None else look.reason,
        "waiting for its turn" if tracked.queued else "",
        _full(fleet, found) if found is not None and found.mode.work != "observe" else "",
        "cleaning would remove nothing" if has_nothing_to_stage(tracked, fleet.work_of(tracked)) else "",
    )
    would = "would be cleaned" if found is not None and found.mode.mode == "observe" else "about to be cleaned"
    return next((text for text in texts if text), would)
