"""Computes what cleaning each partition would save, and digests of its latest state, while nothing is to be cleaned.

One partition at a time, in an idle worker, for a twentieth of the time at most; savings come first. A cleaning never
waits for it: it is stopped, and tried again later.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import structlog

from cleanerd.daemon.limits import DaemonLimits, pause_seconds
from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.workers import WorkerDiedError, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.daemon.partition_scan import Key
    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.work.job import CleaningJob, JobDone, JobReclaimable, Kind
    from cleanerd.policy.state_digest import StateDigest

DIGESTS_IN_A_ROW: Final = 4
"""After this many digests, partitions are estimated again."""

_log = structlog.get_logger()


class Estimator:
    """``job_of`` makes a job of some kind for a partition; ``again`` is called when there may be time for another one.

    ``run`` executes it in a worker's thread. ``limits``: its share of the time, and how long a stop waits for it.
    """

    def __init__(
        self,
        registry: PartitionRegistry,
        workers: WorkerPool,
        job_of: Callable[[PartitionEntry, Kind], CleaningJob | None],
        *,
        run: Callable[[CleaningJob], JobDone],
        limits: DaemonLimits,
        now_ms: Callable[[], int],
        changed: Callable[[], None],
        again: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._workers = workers
        self._job_of = job_of
        self._run = run
        self._limits = limits
        self._now_ms = now_ms
        self._changed = changed
        self._again = again
        self._waiting: deque[tuple[Key, Kind]] = deque()
        self._running: CleaningJob | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self._held_up = False
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, now_ms: int) -> None:
        """Begin the next estimate if it is due. The caller has found a free worker."""
        if self._running is not None or self._resting is not None:
            return
        registry = self._registry
        if not self._waiting:
            self._waiting.extend((entry.key, "estimate") for entry in registry.unknown_savings(now_ms))
        if not self._waiting:
            self._waiting.extend((entry.key, "digest") for entry in registry.due_digests(now_ms)[:DIGESTS_IN_A_ROW])
        while self._waiting:
            key, kind = self._waiting.popleft()
            entry = registry.partitions.get(key)
            may_be_read = registry.may_be_estimated if kind == "estimate" else registry.may_be_digested
            if entry is not None and may_be_read(entry, now_ms):
                self._running = self._job_of(entry, kind)
                if self._running is not None:
                    task = asyncio.create_task(self._work(entry.key, self._running))
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)
                    return

    def stop(self, wanted: Callable[[CleaningJob], bool]) -> None:
        """Stop the running one if it is ``wanted``."""
        if self._running is not None and wanted(self._running):
            self._running.progress.stop()
            if self._overdue is None:
                self._overdue = asyncio.get_running_loop().call_later(
                    self._limits.estimate_stop_seconds, self._do_without
                )

    def _do_without(self) -> None:
        """Add a worker meanwhile: a disk that hangs during an estimate must not block the only one."""
        self._held_up = True
        self._workers.lend(1)

    def _ended(self) -> None:
        self._running = None
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        if self._held_up:
            self._held_up = False
            self._workers.lend(-1)

    async def _work(self, key: Key, job: CleaningJob) -> None:
        began = time.monotonic()
        try:
            done = await self._workers.submit(lambda: self._run(job))
        except WorkerDiedError:
            _log.exception(LogEvent.WORKER_DIED, partition=str(job.name))
            self._take(key, job, None, (), self._now_ms())
        else:
            if not done.stopped:
                self._take(key, job, done.saving, done.digests, done.ended_ms)
        finally:
            self._ended()
        percent = self._registry.settings.digest_percent
        share = 100 // percent if job.kind == "digest" and percent else self._limits.estimate_share
        loop = asyncio.get_running_loop()
        self._resting = loop.call_later(pause_seconds(time.monotonic() - began, share), self._rested)
        self._changed()

    def _take(
        self,
        key: Key,
        job: CleaningJob,
        saving: JobReclaimable | None,
        digests: tuple[StateDigest, ...],
        now_ms: int,
    ) -> None:
        if job.kind == "digest":
            self._registry.digested(key, job.scan, digests, now_ms)
        else:
            self._registry.estimated(key, job.scan.topic_id, saving, now_ms)

    def _rested(self) -> None:
        self._resting = None
        self._again()
