"""Gives jobs to the workers: which is next, how many at once, and the actions at their end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import structlog

from cleanerd.daemon.estimator import Estimator
from cleanerd.daemon.limits import DAEMON_LIMITS, DaemonLimits
from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.registry.cleaning_queue import CleaningQueue
from cleanerd.daemon.registry.partition_entry import PartitionEntry, retry_of
from cleanerd.daemon.registry.schedule import Candidate, ClosedWindows, ScheduleLimits, choose
from cleanerd.daemon.status.log_messages import log_done
from cleanerd.daemon.work.job import CleaningJob, JobDone, Kind
from cleanerd.daemon.work.progress import JobProgress
from cleanerd.daemon.work.run_job import run
from cleanerd.daemon.workers import WorkerDiedError, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from cleanerd.broker.agent_pool import AgentPool
    from cleanerd.daemon.canary import Canary
    from cleanerd.daemon.configuration import Configuration
    from cleanerd.daemon.directory_snapshot import DirectorySnapshot
    from cleanerd.daemon.partition_scan import Key
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.status.counters import Counters
    from cleanerd.daemon.view import Trigger
    from cleanerd.daemon.work.backup_limits import BackupLimits
    from cleanerd.daemon.work.spark_offload import SparkOffload
    from cleanerd.daemon.work.throttle import Throttle
    from cleanerd.format.names import TopicPartition
    from cleanerd.host.clock import Clock
    from cleanerd.state.cleaner_checkpoint import StateStore
    from cleanerd.state.in_progress import InFlightMarkers

STOP_SECONDS: Final = 45.0
"""How long a stop waits for workers; the log stays valid when one is interrupted."""

RunJob: TypeAlias = "Callable[..., JobDone]"
"""The signature of :func:`cleanerd.daemon.work.run_job.run`."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class JobTools:
    """The inputs of every job. ``run`` executes one, in a worker's thread."""

    store: StateStore
    in_flight: InFlightMarkers
    clock: Clock
    throttle: Throttle
    spark_offload: SparkOffload
    backup_limits: BackupLimits
    agents: AgentPool
    run: RunJob = run


class Dispatcher:
    """``running``: the jobs of the workers.

    ``rescan`` scans a partition whose job has ended; ``job_ended`` receives the job's own scan if it is used, else
    None. ``changed`` is called when the view changes; ``broke`` receives a bug of the daemon: it must not continue with
    inconsistent state.
    """

    def __init__(
        self,
        configuration: Configuration,
        registry: PartitionRegistry,
        counters: Counters,
        workers: WorkerPool,
        tools: JobTools,
        canary: Canary,
        *,
        rescan: Callable[[PartitionEntry], Awaitable[None]],
        job_ended: Callable[[Path, TopicPartition, DirectorySnapshot | None], None],
        changed: Callable[[], None],
        broke: Callable[[BaseException], None],
        limits: DaemonLimits = DAEMON_LIMITS,
    ) -> None:
        self._configuration = configuration
        self._registry = registry
        self._counters = counters
        self.workers = workers
        self._tools = tools
        self._canary = canary
        self._rescan_partition = rescan
        self._job_ended = job_ended
        self._changed = changed
        self._broke = broke
        self.running: dict[Key, CleaningJob] = {}
        self.begun = asyncio.Event()
        """Set when a job begins; the waiting task clears it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()
        self._queue = CleaningQueue(registry)
        self._closed = ClosedWindows()
        self.estimator = Estimator(
            registry,
            workers,
            lambda entry, kind: self._job(entry, "ratio", kind),
            run=tools.run,
            limits=limits,
            now_ms=tools.clock.now_ms,
            changed=changed,
            again=self._estimate,
        )

    def schedule(self) -> None:
        """Give work to free workers, after a pass over all partitions."""
        if not self._may_schedule():
            return
        now_ms, limits = self._tools.clock.now_ms(), self._limits()
        candidates = self._queue.pass_over_all(now_ms)
        self._closed.exclude_closed_time(candidates, self._registry.partitions, now_ms, window_open=limits.window_open)
        if any(job.alone for job in self.running.values()):
            return
        if not self._begin_chosen(candidates, limits):
            self._verify()
        for candidate in candidates:
            entry = self._registry.partitions[candidate.log_dir, candidate.name]
            if entry.trigger is None and not entry.queued:
                entry.queued = True
                entry.touch()
        if not candidates:
            self._begin_spare_work(now_ms, limits)
        self._estimate()

    def scanned(self) -> None:
        """The same after a scan; with no worker free nothing can begin, so the last pass is used while it is fresh."""
        if len(self.running) < self.workers.size or not self._queue.is_fresh:
            self.schedule()

    def _go_on(self) -> None:
        """The same for a worker that has just become free, using the last pass while it is fresh."""
        if not self._may_schedule():
            return
        if self._queue.is_fresh and not any(job.alone for job in self.running.values()):
            now_ms, limits = self._tools.clock.now_ms(), self._limits()
            candidates = self._queue.first(now_ms)
            if candidates and self._queue.is_fresh and self._begin_chosen(candidates, limits):
                return
            if not candidates and self._begin_spare_work(now_ms, limits):
                return
        self.schedule()

    def _may_schedule(self) -> bool:
        # Modes and excluded topics depend on settings that may be outdated.
        return not self._ending.is_set() and not self._configuration.is_behind

    def _limits(self) -> ScheduleLimits:
        per_log_dir = self._configuration.settings.daemon.cleanerd_threads_per_log_dir
        return ScheduleLimits(self.workers.size, per_log_dir, self._configuration.window_is_open())

    def _begin_chosen(self, candidates: list[Candidate], limits: ScheduleLimits) -> bool:
        """Begin the chosen partitions; returns whether there is any."""
        allowed = [each for each in candidates if not self._canary.refusal((each.log_dir, each.name))]
        chosen = choose(allowed, self.running.keys(), limits)
        for candidate in chosen:
            self._begin(self._registry.partitions[candidate.log_dir, candidate.name], candidate.trigger)
        return bool(chosen)

    def _verify(self) -> None:
        """D-19: the budget is spent, so verify what was cleaned."""
        self._canary.verify(
            self.workers, lambda entry: self._job(entry, "ratio", "verify"), self._tools.run, self.schedule
        )

    def _estimate(self) -> None:
        """Estimate if a worker is idle; not beside a suspect, which has to be alone if the process dies."""
        if not self._may_schedule() or not self._configuration.window_is_open():
            return
        alone = self._queue.has_suspects or any(job.alone for job in self.running.values())
        if not alone and len(self.running) < self.workers.size:
            self.estimator.begin(self._tools.clock.now_ms())

    def _begin_spare_work(self, now_ms: int, limits: ScheduleLimits) -> bool:
        if not limits.window_open or len(self.running) >= limits.threads:
            return False
        found = self._queue.spare_work(now_ms, self.running)
        if found is not None:
            self._begin(found[0], "tombstone_removal", found[1])
        return found is not None

    def _begin(self, entry: PartitionEntry, trigger: Trigger, kind: Kind | None = None) -> None:
        work = kind or self._registry.work_of(entry)
        job = None if work is None else self._job(entry, trigger, work)
        if job is None or not self._canary.charge(job):
            return
        # Cleaning has priority: an estimate's thread is free after its next range.
        self.estimator.stop(lambda _job: True)
        self._registry.begun(entry.key, trigger)
        self.running[entry.key] = job
        self.begun.set()
        task = asyncio.create_task(self._work(entry, job))
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _job(self, entry: PartitionEntry, trigger: Trigger, kind: Kind) -> CleaningJob | None:
        found, scan, tools = self._registry.dirs[entry.path], entry.scan, self._tools
        if scan is None or found.facts is None:
            return None
        return CleaningJob(
            name=entry.name,
            path=found.path,
            kind=kind,
            trigger=trigger,
            scan=scan,
            facts=found.facts,
            socket=None if found.choice is None else found.choice.socket,
            store=tools.store,
            progress=JobProgress(tools.throttle, scan.dirty_bytes),
            started_ms=tools.clock.now_ms(),
            threads=self._configuration.settings.daemon.log_cleaner_threads,
            before=retry_of(entry.quarantine),
            backoff=self._registry.settings.backoff,
            clock=tools.clock,
            resolved=found.resolved,
            spark_offload=tools.spark_offload,
            in_flight=tools.in_flight,
            alone=entry.suspect is not None,
        )

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self.running:
            self._tools.agents.close()
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._ending.is_set():
            self.begin_nothing()
            self._broke(error)

    async def _work(self, entry: PartitionEntry, job: CleaningJob) -> None:
        key = entry.key
        try:
            done = await self.workers.submit(
                lambda: self._canary.run(
                    job, lambda: self._tools.run(job, self._tools.backup_limits, self._tools.agents)
                )
            )
        except WorkerDiedError as error:
            _log.exception(LogEvent.WORKER_DIED, partition=str(job.name))
            del self.running[key]
            self._canary.ended(key, None)
            self._registry.died(key, f"unexpected error: {error}", self._tools.clock.now_ms())
            self._job_ended(job.path, job.name, None)
        else:
            del self.running[key]
            self._canary.ended(key, done)
            self._counters.add(done, self._registry.finished(done))
            log_done(done)
            self._job_ended(job.path, job.name, self._snapshot_of(done))
        self._changed()
        if self._ending.is_set():
            return
        if key in self._registry.stale and not await self._rescan(entry):
            return
        self._go_on()
        self._changed()

    def _snapshot_of(self, done: JobDone) -> DirectorySnapshot | None:
        """The directory as the job scanned it at its end; None: another scan has to follow."""
        key = str(done.job.path), done.job.name
        if done.after is None or key not in self._registry.partitions or key in self._registry.stale:
            return None
        return replace(done.after.seen, settings=done.job.facts.settings)

    async def _rescan(self, entry: PartitionEntry) -> bool:
        """Scan it again; False if the daemon ended first, so a disk that hangs does not delay the end."""
        looking = asyncio.ensure_future(self._rescan_partition(entry))
        ending: asyncio.Future[Any] = asyncio.ensure_future(self._ending.wait())
        await asyncio.wait([looking, ending], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not looking.done():
            looking.cancel()
            return False
        looking.result()
        return True

    def interrupt(self, wanted: Callable[[CleaningJob], bool]) -> int:
        """Stop the ``wanted`` running cleanings between two chunks; returns how many."""
        self.estimator.stop(wanted)
        jobs = [job for job in self.running.values() if wanted(job)]
        for job in jobs:
            job.progress.stop()
        return len(jobs)

    def clear_failures(self, entry: PartitionEntry) -> None:
        """End its quarantine. It is tried last and alone: if it kills the process, the others are done before."""
        if entry.scan is not None:
            entry.suspect = self._tools.in_flight.clear_failures(entry.scan.log_dir, entry.name)
        self._registry.clear_failures(entry)

    def begin_nothing(self) -> None:
        """Begin no more jobs: the daemon is ending."""
        self._ending.set()

    async def end(self, hurry: asyncio.Event) -> None:
        """Stop running jobs and wait for them, unless there is a ``hurry``; begin no more."""
        self.begin_nothing()
        self._tools.in_flight.begin_shutdown()
        self.interrupt(lambda _job: True)
        self._canary.stop()
        tasks = [*self._tasks, *self.estimator.tasks, *self._canary.tasks]
        if not tasks:
            return
        ended: asyncio.Future[Any] = asyncio.gather(*tasks, return_exceptions=True)
        hurried: asyncio.Future[Any] = asyncio.ensure_future(hurry.wait())
        await asyncio.wait([ended, hurried], timeout=STOP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not ended.done():
            _log.warning(LogEvent.CLEANINGS_CUT_OFF, left=len(tasks))
