"""Verifies a partition that the daemon has cleaned, with the code of ``cleanerd verify`` (D-19)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cleanerd.broker.lock_file import broker_runs
from cleanerd.daemon.work.job import CleaningJob, JobDone, Verification
from cleanerd.segments.log_dir import CLEANER_CHECKPOINT, LogDir, read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state.first_dirty_offset import clean_below, may_be_about
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.verify.finding import Findings, Severity
from cleanerd.verify.log_dir import Surroundings, read_surroundings, verify_in_surroundings
from cleanerd.verify.partition import VerifyRequest
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules


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
            many_rounds=len(kept) > 1,
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
    point = None if state is None else state.clean_point
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
