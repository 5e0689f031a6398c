"""Makes the views of one partition and one log directory from the registry."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from cleanerd.daemon.registry.partition_entry import PartitionEntry, digests_of, reclaimable_of
from cleanerd.daemon.status.partition_status import about_to_be_cleaned, status_of
from cleanerd.daemon.view import LogDirView, PartitionMode, PartitionView, QuarantineView, RunningView
from cleanerd.resolution.kafka_cleaner import kafka_cleaner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.daemon.discovery.log_dir_scan import LogDirScan
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.work.job import CleaningJob


def partition_view(registry: PartitionRegistry, entry: PartitionEntry) -> PartitionView:
    """The view of one partition; the previous one if nothing has changed since."""
    if entry.view is None:
        entry.view = _partition_view(registry, entry)
    return entry.view


def log_dir_view(registry: PartitionRegistry, found: LogDirScan) -> LogDirView:
    """The view of one log directory."""
    info = None if found.choice is None else found.choice.info
    kafkas = kafka_cleaner(found.facts, info)
    return LogDirView(
        path=str(found.path),
        online=found.online,
        mode=found.mode.mode,
        mode_reason=found.mode.reason,
        total_bytes=found.total_bytes,
        free_bytes=found.free_bytes,
        reserve_bytes=registry.reserve_of(found),
        agent=None if info is None else asdict(info),
        error=found.error,
        kafka_cleaner=kafkas.predicate,
        kafka_cleaner_runs=kafkas.runs,
        node_id=None if found.facts is None else found.facts.node_id,
        cluster_id=None if found.facts is None else found.facts.cluster_id,
    )


def explain_answer(registry: PartitionRegistry, entry: PartitionEntry, answer: Mapping[str, Any]) -> dict[str, Any]:
    """OP-11: the answer of ``explain``, which has just read the log, combined with the daemon's own state."""
    view, standing = partition_view(registry, entry), status_of(registry, entry)
    if not standing.by_log:
        answer = {**answer, "rule": standing.rule, "reason": view.reason, "changes": None}
    elif answer["cleaned_now"]:
        standing = about_to_be_cleaned(registry, entry)
        answer = {**answer, "reason": standing.reason}
    else:
        standing = replace(standing, outlook="no", reason=answer["reason"])
    found = registry.dirs.get(entry.path)
    note = "" if found is None else kafka_cleaner(found.facts, None if found.choice is None else found.choice.info).note
    if note:
        answer = {**answer, "notes": [*answer.get("notes", ()), note]}
    daemon = {
        "log_dir": entry.path,
        "phase": view.phase,
        "outlook": standing.outlook,
        "mode": view.mode,
        "reason": standing.reason,
        "next_purge_ms": view.next_purge_ms,
    }
    return {
        **answer,
        "cleaned_now": standing.outlook in {"now", "next"},
        "daemon": daemon,
    }


def running_view(job: CleaningJob) -> RunningView:
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


def _partition_view(registry: PartitionRegistry, entry: PartitionEntry) -> PartitionView:
    standing = status_of(registry, entry)
    # Settings leave an excluded partition to Kafka: its scans and earlier failures are ignored.
    excluded = standing.phase == "excluded"
    scan = None if excluded else entry.scan
    quarantine = None if excluded else entry.quarantine
    found = registry.dirs.get(entry.path)
    reclaimable = None if scan is None else reclaimable_of(entry)
    mode: PartitionMode = "offline" if found is None else found.mode.mode
    return PartitionView(
        topic=entry.name.topic,
        partition=entry.name.partition,
        log_dir=entry.path,
        phase=standing.phase,
        outlook=standing.outlook,
        mode=mode,
        reason=standing.reason + _by_whom(registry, entry),
        strategy="" if scan is None else scan.strategy,
        fingerprint="" if scan is None else scan.fingerprint,
        first_dirty_offset=None if scan is None else scan.first_dirty_offset,
        first_uncleanable_offset=None if scan is None else scan.first_uncleanable_offset,
        size_bytes=None if scan is None else scan.size_bytes,
        dirty_bytes=None if scan is None else scan.dirty_bytes,
        dirty_ratio=None if scan is None else scan.dirty_ratio,
        reclaimable_bytes=None if reclaimable is None else reclaimable.bytes,
        reclaimable_exact=reclaimable is not None and reclaimable.method == "exact",
        reclaimable_low_bytes=None if reclaimable is None else reclaimable.low,
        reclaimable_high_bytes=None if reclaimable is None else reclaimable.high,
        reclaimable_method=None if reclaimable is None else reclaimable.method,
        overdue_at_ms=None if scan is None or not scan.dirty_bytes else scan.overdue_at_ms,
        next_purge_ms=None if scan is None else entry.next_purge_ms,
        delegated=None if scan is None else scan.delegated,
        fingerprint_changed=scan is not None and scan.fingerprint_changed,
        quarantine=None
        if quarantine is None
        else QuarantineView(quarantine.reason, quarantine.since_ms, quarantine.failures, quarantine.retry_at_ms),
        last_cleaning=entry.last_cleaning,
        has_wrong_times=scan is not None and scan.has_wrong_times,
        open_transaction=None if scan is None else scan.open_transaction,
        waits_for=() if scan is None else scan.expiry.missing or scan.expiry.peers,
        waits_since_ms=None if scan is None or scan.expiry.since_ms < 0 else scan.expiry.since_ms,
        waits_at=() if scan is None else scan.expiry.missing_ends,
        log_end_offset=None if scan is None else scan.log_end_offset,
        tombstones_kept=None if scan is None else scan.tombstones_kept,
        digests=() if excluded else digests_of(entry),
    )


_NOT_BY_SPARK = (
    "; it may have more keys than cleanerd.spark.threshold.keys, but is not offloaded: a cleaning staged by Spark "
    "cannot be swapped in live"
)


def _by_whom(registry: PartitionRegistry, entry: PartitionEntry) -> str:
    """That it is cleaned live in spite of its size, judged by its offsets: each key has at least one."""
    scan, found = entry.scan, registry.dirs.get(entry.path)
    threshold = registry.settings.spark_threshold_keys
    if scan is None or found is None or found.mode.work != "live" or threshold is None:
        return ""
    large = scan.first_uncleanable_offset - scan.first_dirty_offset >= threshold
    return _NOT_BY_SPARK if large and (scan.eligible or entry.trigger is not None) else ""
