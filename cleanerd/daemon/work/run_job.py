"""A worker's operations on one partition: a cleaning beside the broker, a staged cleaning, an estimate, digests.

Every expected error becomes a :class:`JobDone`; only bugs are raised.

A cleaned partition is verified with the code of ``cleanerd verify`` (D-19).
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from cleanerd.broker.live_broker import RetryPolicy
from cleanerd.broker.lock_file import broker_runs
from cleanerd.cleaner.change_cost import count_change
from cleanerd.cleaner.cleaner import Cleaning, CleaningStopped
from cleanerd.cleaner.horizons import next_purge_ms
from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.reclaimable import Reclaimable, estimate_reclaimable
from cleanerd.cleaner.state_digest import state_digests
from cleanerd.cleaner.survey import CleaningOptions, Survey, survey_log
from cleanerd.daemon.directory_snapshot import DirectorySnapshot, listed, matches_listing, mtime_ns
from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.partition_scan import scan_partition
from cleanerd.daemon.work.job import CleaningJob, JobDone, JobReclaimable, Kind, ScanAfterJob, Verification
from cleanerd.errors import CleanerdError, CorruptionError, TooManyPassesError, as_cleanerd_error
from cleanerd.resolution.partitions import LivePartitions
from cleanerd.segments.kernel_errors import translated_kernel_errors
from cleanerd.segments.log_dir import CLEANER_CHECKPOINT, LogDir, read_log_dir
from cleanerd.segments.page_cache import SMALL_BYTES, cold_segments, drop
from cleanerd.segments.partition import DirectoryListing, PartitionLog, number_of, read_partition
from cleanerd.segments.reading import SegmentReader
from cleanerd.state.cleaner_checkpoint import PartitionState, Retry, last_closed
from cleanerd.state.first_dirty_offset import clean_below, may_be_about
from cleanerd.state.quarantine import quarantined
from cleanerd.swap.deferred_swap import has_changed
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.group_swap import drop_plans, names_staged
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.swap.live_swap import LiveDir
from cleanerd.swap.record_outcome import not_cleaned
from cleanerd.swap.round import clean_live, stage_partition
from cleanerd.swap.swapping_broker import SwappingBroker
from cleanerd.swap.unfinished import refuse_unfinished
from cleanerd.verify.finding import Findings, Severity
from cleanerd.verify.log_dir import Surroundings, read_surroundings, verify_in_surroundings
from cleanerd.verify.partition import VerifyRequest
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cleanerd.broker.agent_pool import AgentPool
    from cleanerd.broker.partition_snapshot import PartitionSnapshot
    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.daemon.work.backup_limits import BackupLimits
    from cleanerd.swap.backup import BackupPlace


def verify_cleaning(job: CleaningJob) -> JobDone:
    """Verify the log, and compare it with the segments that its cleaning replaced, if these were kept.

    ``job.started_ms``: when that cleaning began.

    Raises:
        CleanerdError, OSError: the log cannot be verified.
        CleaningStopped: the daemon ends.
    """
    log_dir, daemon = read_log_dir(job.path), job.facts.settings.daemon
    around = read_surroundings(job.path, Findings(), broker_runs=broker_runs(job.path))
    kept = _replaced_segments(job, log_dir)
    request = _with_clean_end(
        VerifyRequest(
            now_ms=job.clock.now_ms(),
            producer_expiration_ms=job.facts.producer_id_expiration_ms(),
            checkpoint_counts=False,
            against=kept[-1] if kept else None,
            many_cleanings=len(kept) > 1,
            memory_bytes=daemon.log_cleaner_dedupe_buffer_size // job.threads,
            rules=KeyRules.of(job.scan.config),
            limit=1,
            advance=job.progress.advance,
        ),
        job,
        log_dir,
        around,
    )
    found = verify_in_surroundings(job.path / str(job.name), around, request).findings
    first = next((each for each in found.in_order() if each.severity is Severity.ERROR), None)
    finding = "" if first is None else f"{first.kind.text}: {first.file}: {first.what}"
    return JobDone(job, job.clock.now_ms(), verified=Verification(finding, is_compared=bool(kept)))


def _with_clean_end(request: VerifyRequest, job: CleaningJob, log_dir: LogDir, around: Surroundings) -> VerifyRequest:
    """Up to where the log is clean, by cleanerd's checkpoint, and by Kafka's if Kafka's rules apply (U-10)."""
    log = read_partition(log_dir, job.name)
    state = job.store.load(log_dir, log)
    point = None if state is None else state.cleanerd_checkpoint
    kafka_offset = around.of(CLEANER_CHECKPOINT, job.name) if request.rules == KAFKAS_RULES else None
    if point is None:
        return replace(request, clean_below=kafka_offset)
    is_valid = may_be_about(point, log)
    end_offset = clean_below(point, kafka_offset, is_valid=is_valid)
    return replace(request, clean_below=end_offset, unproven_below=(point.unproven_below or 0) if is_valid else 0)


def _replaced_segments(job: CleaningJob, log_dir: LogDir) -> list[Path]:
    """The directories with segments that the partition's cleanings replaced since ``job.started_ms``, oldest first."""
    kept_segments = KeptSegments(job.store.root)
    found = [
        Path(entry.kept)
        for entry in kept_segments.entries()
        if entry.groups
        and entry.name == job.name
        and entry.cleaned_ms >= job.started_ms
        and kept_segments.is_of(entry, log_dir)
    ]
    return [path for path in found if path.is_dir()]


YIELDING: Final = RetryPolicy(plans=2, deletion_seconds=0.0)
"""A worker does not sleep while other partitions wait: a partition that has to wait is cleaned later (D-10)."""

_log = structlog.get_logger()


def run(job: CleaningJob, backup_limits: BackupLimits | None = None, agents: AgentPool | None = None) -> JobDone:
    """Run a job in a worker's thread.

    ``backup_limits``: where replaced segments are kept. ``agents``: connections shared with other jobs and scans.
    """
    log_before = _list_for_page_cache(job)
    cold = [] if log_before is None else cold_segments(log_before.path, log_before.segments[:-1])
    marker = nullcontext() if job.in_flight is None else job.in_flight.working(job.scan.log_dir, job.name)
    try:
        with marker:
            return _run(job, log_before, backup_limits, agents)
    except CleaningStopped:
        return JobDone(job, job.clock.now_ms(), stopped=True)
    finally:
        if log_before is not None:
            drop(log_before.path, cold)


def _list_for_page_cache(job: CleaningJob) -> PartitionLog | None:
    """The segments before the job; None for a small cleaning, which the page cache does not notice.

    None also after an error: the job meets it too, and reports it.
    """
    if job.kind in {"live", "stage"} and job.scan.size_bytes < SMALL_BYTES:
        return None
    with suppress(CleanerdError):
        return read_partition(job.scan.log_dir, job.name)
    return None


def _run(
    job: CleaningJob, log_before: PartitionLog | None, backup_limits: BackupLimits | None, agents: AgentPool | None
) -> JobDone:
    if job.kind in {"live", "stage"}:
        _report_change(job)
        readings: list[PartitionSnapshot] = []
        result = _cleaned(job, backup_limits, agents, readings.append)
        if result.outcome == "quarantined":
            return replace(_failed(job, result.reason, result.error), result=result)
        return JobDone(job, job.clock.now_ms(), result=result, after=_job_result(job, readings))
    try:
        with translated_kernel_errors(str(job.path / str(job.name))):
            return _WORKS[job.kind](job)
    except (CleanerdError, OSError) as caught:
        error = as_cleanerd_error(caught, str(job.path))
        if (
            job.kind in {"estimate", "digest", "verify"}
            or not error.consequence.remembered
            or has_changed(job.scan.log_dir, job.name, log_before)
        ):
            return JobDone(job, job.clock.now_ms(), passing=str(error))
        return _failed(job, str(error), error)


def _report_change(job: CleaningJob) -> None:
    """U-6: report the effect of changed rules before the cleaning; the settings have named the change."""
    if not job.scan.fingerprint_changed:
        return
    resources = _resources(job)
    with suppress(CleanerdError):  # the work itself reports faults
        found = _survey(job, resources)
        if not found.to_clean:
            return
        with resources.readers(str(found.log.path)) as pool:
            options = _options(job, resources)
            change = count_change(job.scan.log_dir, found, resources, options, pool, job.progress.advance)
        if change:
            _log.warning(LogEvent.STRATEGY_CHANGED, partition=str(job.name), cost=change)


def _with_remedy(job: CleaningJob, reason: str, error: CleanerdError | None) -> str:
    """The error; for damage, with commands that show all of it and try again."""
    if not isinstance(error, CorruptionError):
        return reason
    return f"{reason} (all that is damaged: cleanerd verify {job.path}; once repaired: cleanerd retry {job.name})"


def _job_result(job: CleaningJob, readings: Sequence[PartitionSnapshot]) -> ScanAfterJob | None:
    """The scan from the job's last reading, after its claim was released; None: read the partition again.

    The directory is listed after the reading. The listing is valid if it shows the segments that were read; the next
    listing shows later changes.
    """
    if not readings:
        return None
    reading = readings[-1]
    path = str(reading.log.path)
    changed_ns = mtime_ns(path)
    found = listed(path)
    if found is None or not matches_listing(found, reading.log):
        return None
    try:
        scan = scan_partition(reading, job.store, job.clock.now_ms())
    except (CleanerdError, OSError):
        return None  # the next scan reports faults
    mode = f"{job.kind}/{LivePartitions.kind}"
    return ScanAfterJob(
        scan, DirectorySnapshot.of(scan, reading, None, mode, DirectoryListing(changed_ns, number_of(found)))
    )


def _cleaned(
    job: CleaningJob,
    backup_limits: BackupLimits | None,
    agents: AgentPool | None,
    read_after: Callable[[PartitionSnapshot], None],
) -> CleaningResult:
    log_dir = job.scan.log_dir
    try:
        keep = None if backup_limits is None else backup_limits.place(log_dir, job.facts.settings)
    except (CleanerdError, OSError) as caught:
        return not_cleaned(job.store, log_dir, job.name, caught)
    return _clean_live(job, keep, agents, read_after) if job.kind == "live" else _stage(job, keep)


def _clean_live(
    job: CleaningJob,
    keep: BackupPlace | None,
    agents: AgentPool | None,
    read_after: Callable[[PartitionSnapshot], None],
) -> CleaningResult:
    if job.socket is None:
        raise AssertionError("a live job without an agent")
    log_dir = job.scan.log_dir
    with SwappingBroker(job.socket, YIELDING, pool=agents) as broker:
        read = LivePartitions(log_dir, job.facts, broker, resolved=job.resolved).read
        resources = _resources(job)
        live = LiveDir(log_dir, job.store, resources, broker, read, keep, read_after)
        return clean_live(live, job.name, _options(job, resources), job.progress)


def _stage(job: CleaningJob, keep: BackupPlace | None) -> CleaningResult:
    resources = _resources(job)
    options = _options(job, resources)
    if job.spark_offload is not None and keep is None:  # Spark cannot keep replaced segments
        handed = job.spark_offload.stage(job, resources, options)
        if handed is not None:
            return handed
    return stage_partition(
        job.scan.log_dir,
        job.store,
        resources,
        job.name,
        job.scan.config,
        options,
        job.progress,
        keep_replaced=None if keep is None else keep.path,
    )


def _observe(job: CleaningJob) -> JobDone:
    """Index and decide without writing. A log that needs too many passes is estimated (D-11)."""
    resources = _resources(job)
    found = _survey(job, resources)
    if not found.to_clean:
        return JobDone(job, job.clock.now_ms(), passing=found.refusal)
    with resources.readers(str(found.log.path)) as pool:
        plan = make_plan(job.scan.log_dir, found, resources, _options(job, resources), pool.reader)
        cleaning = Cleaning(plan, pool, job.progress)
        try:
            cleaning.decide()
            saved = cleaning.saved_bytes()
        except TooManyPassesError:
            return _estimate(job)
    return JobDone(job, job.clock.now_ms(), saving=_saving(found, saved))


def _estimate(job: CleaningJob) -> JobDone:
    """The reclaimable bytes, from a sample if the log is large, even if it is not to be cleaned now."""
    resources = _resources(job)
    options, found = _options(job, resources), _survey(job, resources)
    budget = job.facts.settings.daemon.cleanerd_estimate_bytes
    estimate = estimate_reclaimable(
        job.scan.log_dir, found, resources, options, budget_bytes=budget, advance=job.progress.advance
    )
    return JobDone(job, job.clock.now_ms(), saving=_saving(found, estimate.bytes, estimate))


def _digest(job: CleaningJob) -> JobDone:
    """The digests of its latest state at grid offsets (U-90)."""
    resources = _resources(job)
    options, found = _options(job, resources), _survey(job, resources)
    digests = state_digests(job.scan.log_dir, found, resources, options, advance=job.progress.advance)
    return JobDone(job, job.clock.now_ms(), digests=digests)


def _saving(found: Survey, saved_bytes: int, estimate: Reclaimable | None = None) -> JobReclaimable:
    """The saving, with the identity of the log."""
    before = sum(segment.size_bytes for segment in found.log.segments[:-1])
    bounds = found.bounds
    return JobReclaimable(
        bytes_before=before,
        bytes_after=before - saved_bytes,
        first_dirty_offset=bounds.first_dirty_offset,
        first_uncleanable_offset=bounds.bound.offset,
        clean_bytes=bounds.dirtiness.clean_bytes,
        dirty_bytes=bounds.dirtiness.cleanable_bytes,
        estimate=estimate,
        closed=last_closed(found.log),
    )


def _horizons(job: CleaningJob) -> JobDone:
    """Find out when tombstones can be removed from a log that another cleaner cleaned."""
    resources = _resources(job)
    found = _survey(job, resources)
    log, end = found.log, found.bounds.first_dirty_offset
    clean = [segment for segment in log.segments[:-1] if segment.base < end]
    job.progress.phase("index", sum(segment.size_bytes for segment in clean))
    with SegmentReader.open(str(log.path), chunk_bytes=resources.chunk_bytes) as reader:
        # A passed horizon is reported unchanged: converted to a clock that is ahead, it would be delayed.
        found_ms = next_purge_ms(reader, clean, 0, job.progress.advance, waits=found.expiry.waits)
    state = job.store.load(job.scan.log_dir, log) or PartitionState(None, None, None)
    job.store.save(job.scan.log_dir, log, replace(state, next_purge_ms=found_ms, removal_known_below=end))
    return JobDone(job, job.clock.now_ms(), horizons=True, next_purge_ms=found_ms)


def _drop(job: CleaningJob) -> JobDone:
    """Delete staged plans that are too old to be applied (U-15), to free their space."""
    with PartitionFiles(job.path / str(job.name)) as files:
        files.claim()
        refuse_unfinished(files, files.names())
        drop_plans(files, names_staged(files))
    return JobDone(job, job.clock.now_ms())


def _survey(job: CleaningJob, resources: Resources) -> Survey:
    """Survey it as in the scan, with the current files."""
    log = read_partition(job.scan.log_dir, job.name)
    return survey_log(job.scan.log_dir, log, job.scan.config, job.store, _options(job, resources))


def _failed(job: CleaningJob, what: str, error: CleanerdError | None) -> JobDone:
    """Store the failure with a time to try again, also for a restarted daemon."""
    reason = _with_remedy(job, what, error)
    now_ms = job.clock.now_ms()
    failures = 1 + (0 if job.before is None else job.before.failures)
    since_ms = now_ms if job.before is None else job.before.since_ms
    retry = Retry(since_ms, failures, now_ms + job.backoff.wait_ms(failures))
    with suppress(CleanerdError):
        log = read_partition(job.scan.log_dir, job.name)
        state = quarantined(reason, error, log, job.store.load(job.scan.log_dir, log))
        job.store.save(job.scan.log_dir, log, replace(state, retry=retry))
    return JobDone(job, now_ms, failed=reason, retry=retry)


def _options(job: CleaningJob, resources: Resources) -> CleaningOptions:
    now_ms, doubt_ms = job.clock.read_ms()
    return CleaningOptions(
        now_ms=now_ms,
        clock_doubt_ms=doubt_ms,
        force=job.trigger in {"manual", "erasure"},
        unclean=True,
        tombstone_removal=job.trigger in {"tombstone_removal", "manual"},
        facts_bytes=resources.facts_bytes,
    )


def _resources(job: CleaningJob) -> Resources:
    """One reader per partition, and its share of the map's memory.

    D-11: a staged cleaning cannot be continued before the broker has restarted, so its passes are not limited.
    """
    resources = job.facts.resources(inside=False)
    return replace(
        resources,
        workers=1,
        map_bytes=max(resources.map_bytes // job.threads, 1 << 20),
        passes_bytes=None if job.kind == "stage" else job.facts.settings.daemon.cleanerd_passes_bytes,
    )


_WORKS: Final[Mapping[Kind, Callable[[CleaningJob], JobDone]]] = {
    "digest": _digest,
    "drop": _drop,
    "estimate": _estimate,
    "horizons": _horizons,
    "observe": _observe,
    "verify": verify_cleaning,
}
