"""The daemon's counters since its start, and the last cleanings."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from cleanerd.daemon.view import DURATION_BOUNDS, CleaningView, DaemonTotals, Histogram

if TYPE_CHECKING:
    from cleanerd.broker.agent_pool import AgentPool
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.daemon.work.job import JobDone
    from cleanerd.daemon.work.throttle import Throttle
    from cleanerd.daemon.workers import WorkerPool
    from cleanerd.host.clock import Clock
    from cleanerd.state.cleaner_checkpoint import StateStore

HISTORY: Final = 200
"""Number of stored cleanings."""


class Counters:
    """Counts events; a reload does not reset it. The parts that it is given have their own counters."""

    def __init__(
        self, store: StateStore, clock: Clock, throttle: Throttle, workers: WorkerPool, agents: AgentPool
    ) -> None:
        self._store = store
        self._clock = clock
        self._throttle = throttle
        self._workers = workers
        self._agents = agents
        self._cleanings: Counter[str] = Counter()
        self._removed: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()
        self._durations = Histogram.of(DURATION_BOUNDS)
        self._longest_held = 0.0
        self._history: deque[CleaningView] = deque(maxlen=HISTORY)

    @property
    def history(self) -> tuple[CleaningView, ...]:
        """The last cleanings, the newest first."""
        return tuple(reversed(self._history))

    def add(self, done: JobDone, clean: CleaningView | None) -> None:
        """Count a finished job."""
        result = done.result
        if clean is not None:
            self._history.append(clean)
        self._sums["observed"] += done.saving is not None
        if result is None:
            return
        self._cleanings[result.outcome] += 1
        if clean is None or done.failed or not result.is_done:
            self._add_swapped(done, result)  # groups that were swapped before the failure stay
            return
        self._durations = self._durations.plus((done.ended_ms - done.began_ms) / 1000)
        self._longest_held = max(self._longest_held, result.seconds.get("held", 0.0))
        self._seconds.update(result.seconds)
        self._sums.update(read_records=result.records_read, kept_records=result.records_kept, key_passes=result.passes)
        if result.outcome == "staged":  # nothing is saved until cleanerd apply swaps it in
            return
        removed = result.to_json()["removed"]
        self._removed.update({word: int(count) for word, count in removed.items()})
        self._add_swapped(done, result)

    def add_swapped_in(self, clean: CleaningView) -> None:
        """Count a staged cleaning that ``cleanerd apply`` has swapped in."""
        self._cleanings["cleaned"] += 1
        self._removed.update({word: int(count) for word, count in clean.result["removed"].items()})
        self._sums.update(bytes_before=clean.result["bytes_before"], bytes_after=clean.result["bytes_after"])

    def _add_swapped(self, done: JobDone, result: CleaningResult) -> None:
        """Count the swapped groups, even of a cleaning that failed later (OP-12)."""
        self._sums.update(
            bytes_before=result.bytes_before,
            bytes_after=result.bytes_after,
            swaps=result.groups if done.job.kind == "live" else 0,
        )

    def pop_longest_hold(self) -> float:
        """The longest time that a swap held a partition's lock, in seconds, since the last call."""
        longest, self._longest_held = self._longest_held, 0.0
        return longest

    def totals(self) -> DaemonTotals:
        """All counters at this moment."""
        sums = self._sums
        return DaemonTotals(
            cleanings=dict(self._cleanings),
            removed_records=dict(self._removed),
            read_records=sums["read_records"],
            kept_records=sums["kept_records"],
            key_passes=sums["key_passes"],
            bytes_before=sums["bytes_before"],
            bytes_after=sums["bytes_after"],
            bytes_read=self._throttle.read_bytes,
            bytes_written=self._throttle.written_bytes,
            swaps=sums["swaps"],
            refused_swaps=self._agents.refused_swaps,
            malformed_versions=sums["malformed_versions"],
            dead_workers=self._workers.died,
            worker_restarts=self._workers.restarted,
            throttled_seconds=self._throttle.waited_seconds,
            observed=sums["observed"],
            state_errors=self._store.failures,
            clock_jumps=self._clock.jumps,
            seconds=dict(self._seconds),
            durations=self._durations,
        )
