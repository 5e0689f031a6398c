"""Tasks that fail on purpose: pickled by name, so that they run in Spark's workers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.spark.rows import Row, RowFunction


@dataclass(frozen=True)
class FirstAttempts:
    """The first attempt at a task of every stage fails at its end, when all its work is done.

    ``place``: an empty directory in which attempts at a task find each other. ``how``: ``raise``, or ``kill`` the
    worker. ``twice``: nothing fails, and each attempt does the task twice.
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


@dataclass(frozen=True)
class Killed:
    """A process that works on a task of ``stage`` is killed each time, as by a kernel without memory."""

    stage: str

    def __call__(self, name: str, function: RowFunction) -> RowFunction:
        """An ``around`` of ``Jobs``."""
        return killed if name == self.stage else function


def killed(_rows: Iterator[Any]) -> Iterator[Any]:
    """The process of such a task is killed on every attempt."""
    os.kill(os.getpid(), signal.SIGKILL)
    yield from ()


@dataclass(frozen=True)
class SlowAttempts:
    """The first attempt at the first task of every stage is slow, in the middle of its work: speculation starts.

    It waits until another attempt at the task has ended, however long that takes on a busy machine, and no longer than
    ``seconds``. ``place``: a directory in which each attempt leaves its name, ``STAGE-TASK-ATTEMPT``, when it begins,
    and with ``.done`` when it has passed on all its results.
    """

    place: Path
    seconds: float

    def __call__(self, name: str, function: RowFunction) -> RowFunction:
        """An ``around`` of ``Jobs``."""
        return _Slow(self, name, function)


@dataclass(frozen=True)
class _Slow:
    faults: SlowAttempts
    name: str
    function: RowFunction

    def __call__(self, rows: Iterator[Row]) -> Iterator[Row]:
        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        assert context is not None
        task = f"{self.name}-{context.stageId()}.{context.partitionId()}"
        attempt = f"{task}-{context.attemptNumber()}"
        (self.faults.place / attempt).touch()
        found = list(self.function(rows))
        if context.attemptNumber() == 0 and context.partitionId() == 0:
            deadline = time.monotonic() + self.faults.seconds
            while time.monotonic() < deadline and not any(self.faults.place.glob(f"{task}-*.done")):
                time.sleep(0.05)
        yield from found
        (self.faults.place / f"{attempt}.done").touch()


@dataclass(frozen=True)
class Vanishing:
    """The partition's directory is deleted when tasks of ``stage`` begin; ``other``: a directory that replaces it."""

    stage: str
    directory: Path
    other: Path | None = None

    def __call__(self, name: str, function: RowFunction) -> RowFunction:
        """An ``around`` of ``Jobs``."""
        return _Without(self, function) if name == self.stage else function


@dataclass(frozen=True)
class _Without:
    faults: Vanishing
    function: RowFunction

    def __call__(self, rows: Iterator[Row]) -> Iterator[Row]:
        directory, other = self.faults.directory, self.faults.other
        if other is None:
            shutil.rmtree(directory, ignore_errors=True)
        elif other.exists():  # tasks of the same stage may be at it at once
            directory.rename(f"{directory}.{os.getpid()}-delete")
            other.rename(directory)
        return self.function(rows)


def let_go(place: str) -> str:
    """A task that runs until the file ``place``, which it creates, is removed."""
    Path(place).touch()
    while Path(place).exists():
        time.sleep(0.05)
    return "let go"


@dataclass(frozen=True)
class MeasuredMemory:
    """Every task leaves the peak memory of its worker, in MiB, in ``place``: ``STAGE-...``."""

    place: Path

    def __call__(self, name: str, function: RowFunction) -> RowFunction:
        """An ``around`` of ``Jobs``."""
        return _Measured(self, name, function)

    def largest(self, stage: str = "") -> float:
        """The largest value of all tasks of ``stage``, or of all."""
        return max(float(file.read_text()) for file in self.place.glob(f"{stage}*"))


@dataclass(frozen=True)
class _Measured:
    faults: MeasuredMemory
    name: str
    function: RowFunction

    def __call__(self, rows: Iterator[Row]) -> Iterator[Row]:
        try:
            yield from self.function(rows)
        finally:
            reported = re.search(r"VmHWM:\s+([0-9]+) kB", Path("/proc/self/status").read_text())
            assert reported is not None
            name = f"{self.name}-{os.getpid()}-{time.monotonic_ns()}"
            (self.faults.place / name).write_text(str(int(reported[1]) / 1024))
