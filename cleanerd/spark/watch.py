"""Shows the progress of Spark's jobs in a terminal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

POLL_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 2.0
"""Limit for threads that wait for Java, which may be missing after a signal."""


class _ReportedWork:
    """The reported part of ``work_bytes``: it never decreases, and ends with all of it."""

    def __init__(self, advance: Callable[[int], None], work_bytes: int) -> None:
        self._advance = advance
        self._work_bytes = work_bytes
        self._reported = 0

    def report(self, share: float) -> None:
        reached = int(min(share, 1.0) * self._work_bytes)
        if reached > self._reported:
            self._advance(reached - self._reported)
            self._reported = reached


class ProgressWatch:
    """Reports the progress of running jobs by ``share``: 0 to 1, queried by a separate thread."""

    def __init__(self, share: Callable[[], float], advance: Callable[[int], None], work_bytes: int) -> None:
        self._share = share
        self._reported = _ReportedWork(advance, work_bytes)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="cleanerd-progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_SECONDS)
        self._reported.report(1.0)

    def _poll(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            try:
                self._reported.report(self._share())
            except BaseException:  # noqa: BLE001 - only about the progress: the job's caller gets its own error
                return


def by_tasks(session: SparkSession, group: str) -> Callable[[], float]:
    """The share of one job, the only one of its ``group``: finished tasks by all tasks of its stages."""
    tracker = session.sparkContext.statusTracker()

    def share() -> float:
        done = all_tasks = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in () if info is None else info.stageIds:
                tasks = tracker.getStageInfo(stage)
                if tasks is not None:
                    done += tasks.numCompletedTasks
                    all_tasks += tasks.numTasks
        return done / all_tasks if all_tasks else 0.0

    return share


class ConnectSession:
    """The same for a session of Spark Connect, whose server reports an operation's progress.

    ``steps``: about how many operations there will be; each has the same weight.
    """

    def __init__(self, session: Any, advance: Callable[[int], None], work_bytes: int, steps: int) -> None:
        self._session = session
        self._reported = _ReportedWork(advance, work_bytes)
        self._steps = steps
        self._shares: dict[str | None, float] = {}
        """By operation: finished tasks by all tasks of the started stages."""

    def __enter__(self) -> None:
        self._session.registerProgressHandler(self._hear)

    def __exit__(self, *_error: object) -> None:
        self._session.removeProgressHandler(self._hear)
        self._reported.report(1.0)

    def _hear(self, *, stages: Iterable[Any] | None, operation_id: str | None, **_more: object) -> None:
        begun = list(stages or ())
        count = sum(stage.num_tasks for stage in begun)
        if count:
            self._shares[operation_id] = sum(stage.num_completed_tasks for stage in begun) / count
            self._reported.report(sum(self._shares.values()) / self._steps)
