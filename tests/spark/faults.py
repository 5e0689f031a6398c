"""Tasks that fail on purpose: pickled by name, so that they run in Spark's workers."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.spark.rows import Row, RowFunction


@dataclass(frozen=True)
class FirstAttempts:
    """The first attempt at a task of each stage ends badly, when all its work is done.

    ``place``: an empty directory in which attempts at a task find each other. ``how``: ``raise``, or ``kill`` the
    worker. ``twice``: nothing fails, and each task is done twice by each attempt.
    """

    place: Path
    how: str = "raise"

    def __call__(self, name: str, function: RowFunction) -> RowFunction:
        """An ``around`` of ``Jobs``."""
        return _Failing(self, name, function)


@dataclass(frozen=True)
class _Failing:
    faults: FirstAttempts
    name: str
    function: RowFunction

    def __call__(self, rows: Iterator[Row]) -> Iterator[Row]:
        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        assert context is not None
        task = f"{self.name}-{context.stageId()}-{context.partitionId()}"
        given = list(rows)
        if self.faults.how == "twice":
            list(self.function(iter(given)))
            (self.faults.place / task).touch()
        yield from self.function(iter(given))
        if self.faults.how != "twice" and context.attemptNumber() == 0 and context.partitionId() == 0:
            (self.faults.place / task).touch()
            if self.faults.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(f"injected into {task}")
