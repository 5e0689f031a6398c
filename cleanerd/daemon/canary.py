"""Cleans up to a budget, then verifies the cleaned logs, and continues or holds (``cleanerd.canary``, D-18..D-20).

One partition is verified at a time, while nothing is cleaned. The event loop owns the state; the worker that is about
to clean stores it first.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.registry.canary import DOCUMENT, CanaryHold, CanaryState, CleanedLog, load_canary
from cleanerd.daemon.view import CanaryView
from cleanerd.daemon.work.job import CleaningJob, JobDone, Kind
from cleanerd.daemon.workers import WorkerDiedError, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.daemon.configuration import Configuration
    from cleanerd.daemon.partition_scan import Key, PartitionScan
    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.policy.canary import CanaryBudget

MOST_TRIES: Final = 3
"""After this many scans without a possible verification, the canary holds."""

CLEANS: Final[frozenset[Kind]] = frozenset({"live", "stage"})
_UNCHANGED: Final = frozenset({"unchanged", "skipped", "refused", "busy"})

_log = structlog.get_logger()


class Canary:
    """The budget of one daemon.

    ``now_ms``: the time that its deletions use. ``changed``: called when the view changed.
    """

    def __init__(
        self,
        configuration: Configuration,
        registry: PartitionRegistry,
        *,
        now_ms: Callable[[], int],
        changed: Callable[[], None],
        write: Callable[[Callable[[], str], Callable[[str], None]], None],
    ) -> None:
        self._configuration = configuration
        self._registry = registry
        self._now_ms = now_ms
        self._changed = changed
        self._write = write
        self._state_dir: Path = configuration.settings.daemon.cleanerd_state_dir
        self._writing = threading.Lock()
        self._running: set[Key] = set()
        self._tries: dict[Key, int] = {}
        self._verifying: CleaningJob | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self._state = load_canary(self._state_dir, now_ms())
        self.refresh()

    @property
    def _budget(self) -> CanaryBudget | None:
        return self._configuration.settings.daemon.cleanerd_canary

    # -- cleanings ----------------------------------------------------------------------------------------------------

    def refusal(self, key: Key) -> str:
        """Why the partition may not be cleaned now; empty if it may."""
        entry, budget = self._registry.partitions.get(key), self._budget
        if entry is None or entry.scan is None or budget is None or self._registry.work_of(entry) not in CLEANS:
            return ""
        self._state = state = self._state.at(self._now_ms())
        if self._verifying is not None:
            return f"{self._verifying.name} is verified first (cleanerd.canary)"
        if entry.scan.staged is not None:
            # It has changed nothing yet: it may be staged again until `cleanerd apply` swaps it in.
            state = state.without(key)
        return state.refusal(budget, key, entry.scan.size_bytes)

    def charge(self, job: CleaningJob) -> bool:
        """Count a cleaning that is about to begin; returns whether it may."""
        if job.kind not in CLEANS or self._budget is None:
            return True
        key = str(job.path), job.name
        if self.refusal(key):
            return False
        name, began_ms = job.name, self._now_ms()
        log = CleanedLog(key[0], name.topic, name.partition, _topic_id(job.scan), job.scan.size_bytes, began_ms)
        self._set(self._state.without(key).charged(log))
        self._running.add(key)
        return True

    def run(self, job: CleaningJob, work: Callable[[], JobDone]) -> JobDone:
        """Run the job in a worker's thread, after the charge is stored on the disk (D-18)."""
        if job.kind in CLEANS and (str(job.path), job.name) in self._running and (unwritten := self.save()):
            return JobDone(job, job.clock.now_ms(), passing=f"{unwritten}: nothing is cleaned (cleanerd.canary)")
        return work()

    def ended(self, key: Key, done: JobDone | None) -> None:
        """Note the end of a job; ``done`` None: its worker died."""
        if key not in self._running:
            return
        self._running.discard(key)
        result = None if done is None else done.result
        if done is not None and (done.passing or (result is not None and _changed_nothing(result))):
            self._set(self._state.without(key))
        elif result is not None:
            logs = (
                replace(each, size_bytes=max(each.size_bytes, result.bytes_before)) if each.key == key else each
                for each in self._state.unverified
            )
            self._set(replace(self._state, unverified=tuple(logs)))

    # -- verifications ------------------------------------------------------------------------------------------------

    def verify(
        self,
        workers: WorkerPool,
        job_of: Callable[[PartitionEntry], CleaningJob | None],
        run: Callable[[CleaningJob], JobDone],
        again: Callable[[], None],
    ) -> None:
        """Verify the next partition, because the budget is spent; ``again`` is called at the end."""
        if self._budget is None or self._state.hold is not None or self._running or self._verifying is not None:
            return
        for log in self._state.unverified:
            entry = self._entry(log)
            job = None if entry is None else job_of(entry)
            if job is not None:
                self._verifying = replace(job, started_ms=log.began_ms)
                task = asyncio.create_task(self._verify(log, self._verifying, workers, run, again))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
                return

    def _entry(self, log: CleanedLog) -> PartitionEntry | None:
        """The partition, if it can be verified now. One that was deleted or created again is dropped."""
        entry, found = self._registry.partitions.get(log.key), self._registry.dirs.get(log.log_dir)
        if Path(log.log_dir) not in self._configuration.log_dirs or (entry is not None and entry.excluded):
            self._not_verified(log, "the daemon no longer manages it")
            return None
        if entry is None and found is not None and found.present is not None:
            self._strike_off(log, "its topic was deleted or is not compacted any more")
            return None
        if entry is not None and entry.failed is not None:
            self._not_verified(log, entry.failed.reason)
            return None
        if entry is None or entry.scan is None or entry.key in self._registry.stale:
            return None
        if _topic_id(entry.scan) != log.topic_id:
            self._strike_off(log, "its topic was created again")
            return None
        # A staged cleaning is verified after `cleanerd apply` has swapped it in.
        return None if entry.scan.staged is not None else entry

    def _strike_off(self, log: CleanedLog, reason: str) -> None:
        _log.info(LogEvent.CLEANING_NOT_VERIFIED, partition=str(log.key[1]), log_dir=log.log_dir, reason=reason)
        self._set(self._state.without(log.key))

    async def _verify(
        self,
        log: CleanedLog,
        job: CleaningJob,
        workers: WorkerPool,
        run: Callable[[CleaningJob], JobDone],
        again: Callable[[], None],
    ) -> None:
        try:
            done = await workers.submit(lambda: run(job))
        except WorkerDiedError as error:
            done = JobDone(job, self._now_ms(), passing=f"unexpected error: {error}")
        finally:
            self._verifying = None
        if done.stopped:
            return
        if done.verified is None:
            self._not_verified(log, done.passing)
        elif done.verified.finding:
            self._hold(log, done.verified.finding)
        else:
            compared = done.verified.is_compared
            _log.info(LogEvent.CLEANING_VERIFIED, partition=str(job.name), log_dir=log.log_dir, compared=compared)
            self._tries.pop(log.key, None)
            self._set(self._state.verified_log(log))
        self._changed()
        if done.verified is not None:
            again()

    def _not_verified(self, log: CleanedLog, why: str) -> None:
        tries = self._tries[log.key] = self._tries.get(log.key, 0) + 1
        if tries >= MOST_TRIES:
            self._hold(log, f"cannot be verified: {why}")

    def _hold(self, log: CleanedLog, finding: str) -> None:
        hold = CanaryHold(log.log_dir, str(log.key[1]), finding, self._now_ms())
        _log.error(LogEvent.CANARY_HELD, partition=hold.partition, log_dir=hold.log_dir, finding=finding)
        self._set(replace(self._state, hold=hold))

    # -- operators ----------------------------------------------------------------------------------------------------

    def release(self, *, accept: bool, only: Collection[str] | None = None) -> CanaryHold | None:
        """End the hold, and return it; ``accept``: without verifying that partition again (D-20).

        ``only``: only if the hold is about one of these partitions.
        """
        hold, state = self._state.hold, self._state
        if hold is None or (only is not None and hold.partition not in only):
            return None
        if not accept and not hold.partition:
            return None  # there is nothing to verify
        if accept:
            left = (
                each for each in state.unverified if (each.log_dir, str(each.key[1])) != (hold.log_dir, hold.partition)
            )
            state = replace(state, unverified=tuple(left))
        self._tries.clear()
        self._set(replace(state, hold=None))
        return hold

    def save(self) -> str:
        """Store the state; any thread may. Returns why that failed, or an empty text."""
        with self._writing:
            return DOCUMENT.try_write(self._state_dir, self._state)

    def stop(self) -> None:
        """End a verification between two chunks; it is repeated later."""
        if self._verifying is not None:
            self._verifying.progress.stop()

    def view(self) -> CanaryView | None:
        """The view of the canary; None without ``cleanerd.canary``."""
        budget, state = self._budget, self._state
        if budget is None:
            return None
        return CanaryView(
            budget=str(budget),
            unverified=len(state.unverified),
            unverified_bytes=sum(each.size_bytes for each in state.unverified),
            verified=state.verified,
            verifying="" if self._verifying is None else str(self._verifying.name),
            held_partition=None if state.hold is None else state.hold.partition,
            held_log_dir=None if state.hold is None else state.hold.log_dir,
            finding="" if state.hold is None else state.hold.finding,
            held_since_ms=None if state.hold is None else state.hold.since_ms,
        )

    def _set(self, state: CanaryState) -> None:
        self._state = state
        self._write(self.save, lambda _unwritten: None)  # the next cleaning reports an error
        self.refresh()

    def refresh(self) -> None:
        """Update the hold that partitions show; also after a reload."""
        held = "" if self._state.hold is None or self._budget is None else str(self._state.hold)
        if held != self._registry.held:
            self._registry.held = held
            for entry in self._registry.partitions.values():
                entry.touch()


def _changed_nothing(result: CleaningResult) -> bool:
    """Whether a failed cleaning certainly changed nothing: a damaged log is refused before its first swap."""
    if result.groups:
        return False
    return result.outcome == "quarantined" or (result.outcome in _UNCHANGED and not result.notes)


def _topic_id(scan: PartitionScan) -> str:
    return "" if scan.topic_id is None else str(scan.topic_id)
