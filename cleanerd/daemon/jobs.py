"""What a worker does with one partition: a clean beside the broker, a staged plan, a look at what one would save.

Everything that is to be expected ends in a :class:`JobDone`; only bugs get out.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from cleanerd.apply.ahead import stage_partition
from cleanerd.apply.files import PartitionFiles
from cleanerd.apply.live import LiveDir, clean_live
from cleanerd.apply.live_broker import LiveBroker
from cleanerd.apply.offline import make_plan
from cleanerd.apply.swap import drop_plans
from cleanerd.apply.validate import refuse_unfinished
from cleanerd.cleaner.cleaner import Cleaning, Stopped
from cleanerd.cleaner.horizons import next_purge_ms
from cleanerd.cleaner.survey import Wishes, quarantined, survey_log
from cleanerd.daemon.schedule import retry_wait_ms
from cleanerd.errors import (
    AgentRefusalError,
    AgentUnavailableError,
    CleanerdError,
    ConfigError,
    CorruptionError,
    LogDirBusyError,
    NoSpaceError,
    RefusedError,
    StalePlanError,
    UnsupportedLogError,
)
from cleanerd.log.clean_point import PartitionState, Retry
from cleanerd.log.page_cache import cold_segments, drop
from cleanerd.log.partition import read_partition
from cleanerd.log.pool import ReaderPool
from cleanerd.log.read import SegmentReader

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.apply.agent_facts import LogFacts
    from cleanerd.apply.session import Means
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import Survey
    from cleanerd.daemon.clock import Clock
    from cleanerd.daemon.hand_over import HandOver
    from cleanerd.daemon.look import Look
    from cleanerd.daemon.progress import JobProgress
    from cleanerd.daemon.schedule import Trigger
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.clean_point import StateStore
    from cleanerd.log.partition import PartitionLog
    from cleanerd.log.topic_config import TopicConfig
    from cleanerd.scope.broker_facts import BrokerFacts

Kind = Literal["live", "stage", "observe", "horizons", "drop"]


@dataclass(frozen=True, slots=True)
class Job:
    """One partition's turn. ``before`` is its quarantine so far, None without one; ``socket`` the agent's, if live.

    ``clock`` tells the time that its deletes go by.
    """

    name: TopicPartition
    path: Path
    kind: Kind
    trigger: Trigger
    look: Look
    facts: BrokerFacts
    socket: Path | None
    store: StateStore
    progress: JobProgress
    started_ms: int
    threads: int
    before: Retry | None
    backoff_ms: tuple[int, int]
    clock: Clock
    hand_over: HandOver | None = None


@dataclass(frozen=True, slots=True)
class Saving:
    """What a cleaning would leave, exactly: bytes below the active segment, and up to where it would clean."""

    bytes_before: int
    bytes_after: int
    bound_offset: int
    dirty_bytes: int


@dataclass(frozen=True, slots=True)
class JobDone:
    """What came of it. ``result`` is None when nothing was to be cleaned (a look), or it was stopped.

    ``failed``: why the partition is left alone now, and ``retry`` until when. ``horizons``: it is known now when the
    next tombstones go.
    """

    job: Job
    ended_ms: int
    result: CleaningResult | None = None
    saving: Saving | None = None
    stopped: bool = False
    failed: str = ""
    retry: Retry | None = None
    passing: str = ""
    horizons: bool = False
    next_purge_ms: int | None = None


def is_ordinary(error: Exception | None) -> bool:
    """Whether nothing is wrong with the log: a refusal, a setting, a full disk."""
    if isinstance(error, UnsupportedLogError):
        return False
    return isinstance(error, RefusedError | ConfigError | NoSpaceError)


def passes_soon(error: Exception | None) -> bool:
    """Whether it is worth trying again in a moment, and not only when somebody did something about it."""
    return not isinstance(error, RefusedError | ConfigError) or isinstance(
        error, AgentRefusalError | AgentUnavailableError | StalePlanError | LogDirBusyError
    )


def run(job: Job) -> JobDone:
    """Do it, in a worker's thread."""
    path = job.path / str(job.name)
    listed = None
    with suppress(CleanerdError):  # the work itself says what is wrong
        listed = read_partition(job.look.log_dir, job.name)
    cold = [] if listed is None else cold_segments(path, listed.segments[:-1])
    try:
        return _run(job, listed)
    except Stopped:
        return JobDone(job, job.clock.now_ms(), stopped=True)
    finally:
        drop(path, cold)


def _run(job: Job, listed: PartitionLog | None) -> JobDone:
    if job.kind in {"live", "stage"}:
        result = _clean_live(job) if job.kind == "live" else _stage(job)
        if result.outcome == "quarantined":
            # Staging calls every failure a quarantine; a live round knows better.
            ordinary = job.kind == "stage" and is_ordinary(result.error)
            if not ordinary and not _is_ordinary(job, result.error, listed):
                return replace(_failed(job, _with_way_out(job, result.reason, result.error)), result=result)
            result = replace(result, outcome="skipped")
        if isinstance(result.error, NoSpaceError):
            # Nothing is wrong with the log, but somebody has to do something.
            result = replace(result, outcome="failed")
        return JobDone(job, job.clock.now_ms(), result=result)
    try:
        if job.kind == "drop":
            return _drop(job)
        return _observe(job) if job.kind == "observe" else _horizons(job)
    except (CleanerdError, OSError) as error:
        if _passes(job, error, listed):
            return JobDone(job, job.clock.now_ms(), passing=str(error))
        return _failed(job, _with_way_out(job, str(error), error))


def _with_way_out(job: Job, reason: str, error: Exception | None) -> str:
    """What to do about it, where the error itself does not say."""
    if not isinstance(error, CorruptionError) or error.hint is not None:
        return reason
    return f"{reason} (all that is damaged: cleanerd verify {job.path}; once repaired: cleanerd retry {job.name})"


def _is_ordinary(job: Job, error: CleanerdError | None, before: PartitionLog | None) -> bool:
    """Whether nothing is wrong with the log: no room, another cleanerd, or a broker that changed it while it was read.

    ``clean_live`` has told the last of these from others itself.
    """
    if isinstance(error, NoSpaceError | LogDirBusyError | StalePlanError):
        return True
    return job.kind == "stage" and _changed(job, before)


def _clean_live(job: Job) -> CleaningResult:
    facts = job.facts
    if job.socket is None:
        raise AssertionError("a live job without an agent")

    def config_of(topic: str, found: LogFacts) -> TopicConfig:
        return facts.topic_config(topic, effective=found.settings, segment_bytes=found.segment_size)

    with LiveBroker(job.socket) as broker:
        live = LiveDir(job.look.log_dir, job.store, _means(job), broker, config_of)
        return clean_live(live, job.name, _wishes(job), job.progress)


def _stage(job: Job) -> CleaningResult:
    means, wishes = _means(job), _wishes(job)
    if job.hand_over is not None:
        handed = job.hand_over.stage(job, means, wishes)
        if handed is not None:
            return handed
    return stage_partition(job.look.log_dir, job.store, means, job.name, job.look.config, wishes, job.progress)


def _observe(job: Job) -> JobDone:
    """Index and decide, write nothing."""
    found = _survey(job)
    if not found.to_clean:
        return JobDone(job, job.clock.now_ms(), passing=found.refusal)
    means = _means(job)
    with ReaderPool(str(found.log.path), workers=1, chunk_bytes=means.chunk_bytes) as pool:
        cleaning = Cleaning(make_plan(job.look.log_dir, found, means, _wishes(job), pool.reader), pool, job.progress)
        groups = cleaning.groups()
        segments = cleaning.decision.segments
    before = sum(segment.size_bytes for segment in found.log.segments[:-1])
    replaced = sum(segments[row].source.segment.size_bytes for rows in groups for row in rows)
    staged = sum(segments[row].outcome.output_bytes for rows in groups for row in rows)
    saving = Saving(
        before, before - replaced + staged, found.bounds.bound.offset, found.bounds.dirtiness.cleanable_bytes
    )
    return JobDone(job, job.clock.now_ms(), saving=saving)


def _horizons(job: Job) -> JobDone:
    """Find out when tombstones of a log may go that somebody else cleaned."""
    found = _survey(job)
    log, end = found.log, found.bounds.first_dirty_offset
    clean = [segment for segment in log.segments[:-1] if segment.base < end]
    job.progress.phase("index", sum(segment.size_bytes for segment in clean))
    with SegmentReader.open(str(log.path), chunk_bytes=_means(job).chunk_bytes) as reader:
        # A horizon that has passed is told as it stands: said in a clock's time that is ahead, it would be put off.
        found_ms = next_purge_ms(reader, clean, 0, job.progress.advance)
    state = job.store.load(job.look.log_dir, log) or PartitionState(None, None, None)
    job.store.save(job.look.log_dir, log, replace(state, next_purge_ms=found_ms, purge_as_of=end))
    return JobDone(job, job.clock.now_ms(), horizons=True, next_purge_ms=found_ms)


def _drop(job: Job) -> JobDone:
    """Give the room back that staged plans take which are too old to be applied (U-15)."""
    with PartitionFiles(job.path / str(job.name)) as files:
        files.claim()
        refuse_unfinished(files, files.names())
        drop_plans(files)
    return JobDone(job, job.clock.now_ms())


def _survey(job: Job) -> Survey:
    """As it was looked at, with the files as they are now."""
    log = read_partition(job.look.log_dir, job.name)
    return survey_log(job.look.log_dir, log, job.look.config, job.store, _wishes(job))


def _passes(job: Job, error: Exception, before: PartitionLog | None) -> bool:
    """Whether the broker changed the log while it was read, or it was refused: then nothing is wrong with it."""
    return isinstance(error, RefusedError) or _changed(job, before)


def _changed(job: Job, before: PartitionLog | None) -> bool:
    try:
        after = read_partition(job.look.log_dir, job.name)
    except CleanerdError:
        return False
    return before is None or bool(before.unfinished or after.unfinished) or _identity(before) != _identity(after)


def _identity(log: PartitionLog) -> list[tuple[int, int, int]]:
    return [(segment.base, segment.inode, segment.size_bytes) for segment in log.segments[:-1]]


def _failed(job: Job, reason: str) -> JobDone:
    """Remember it, with a time to try again, also across a restart of the daemon."""
    now_ms = job.clock.now_ms()
    failures = 1 + (0 if job.before is None else job.before.failures)
    since_ms = now_ms if job.before is None else job.before.since_ms
    retry = Retry(since_ms, failures, now_ms + retry_wait_ms(failures, *job.backoff_ms))
    with suppress(CleanerdError):
        log = read_partition(job.look.log_dir, job.name)
        state = quarantined(reason, job.store.load(job.look.log_dir, log))
        job.store.save(job.look.log_dir, log, replace(state, retry=retry))
    return JobDone(job, now_ms, failed=reason, retry=retry)


def _wishes(job: Job) -> Wishes:
    now_ms, doubt_ms = job.clock.read_ms()
    return Wishes(
        now_ms=now_ms,
        clock_doubt_ms=doubt_ms,
        force=job.trigger == "asked",
        unclean=True,
        purge=job.trigger in {"purge", "asked"},
    )


def _means(job: Job) -> Means:
    """One reader a partition, and its share of the map's memory."""
    means = job.facts.means()
    return replace(means, workers=1, map_bytes=max(means.map_bytes // job.threads, 1 << 20))
