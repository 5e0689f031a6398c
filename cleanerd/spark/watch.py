"""How far Spark's jobs are, for somebody at a terminal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 2.0
"""For what may be waiting for Java, which after a signal may be gone."""


class Watch:
    """Tells the progress of a job group while it runs, as finished tasks by all tasks."""

    def __init__(self, session: SparkSession, group: str, advance: Callable[[int], None], work_bytes: int) -> None:
        self._tracker = session.sparkContext.statusTracker()
        self._group = group
        self._advance = advance
        self._work_bytes = work_bytes
        self._told = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="cleanerd-progress", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_SECONDS)
        self._tell(1.0)

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self._tell(self._share())
            except BaseException:  # noqa: BLE001 - only about the progress: whoever runs the job is told, or stopped
                return

    def _share(self) -> float:
        done = all_tasks = 0
        for job in self._tracker.getJobIdsForGroup(self._group):
            info = self._tracker.getJobInfo(job)
            for stage in () if info is None else info.stageIds:
                tasks = self._tracker.getStageInfo(stage)
                if tasks is not None:
                    done += tasks.numCompletedTasks
                    all_tasks += tasks.numTasks
        return done / all_tasks if all_tasks else 0.0

    def _tell(self, share: float) -> None:
        reached = int(share * self._work_bytes)
        if reached > self._told:
            self._advance(reached - self._told)
            self._told = reached
