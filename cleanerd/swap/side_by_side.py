"""Runs several partitions at once, each in its own thread; all end with the command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from cleanerd.cleaner.cleaner import CleaningStopped, Progress
from cleanerd.errors import MachineError

T = TypeVar("T")
R = TypeVar("R")


class _Stop:
    """The progress of a cleaning in its own thread: shows nothing, but ends it when the command is stopped."""

    def __init__(self) -> None:
        self.wanted = False

    def phase(self, name: str, total_bytes: int) -> None:
        """Shows nothing: progress bars of several partitions would be unreadable."""

    def advance(self, done_bytes: int) -> None:  # noqa: ARG002
        """End here if the command was stopped: between two chunks."""
        if self.wanted:
            raise CleaningStopped

    def wrote(self, done_bytes: int) -> None:
        """Ignored: progress counts the bytes read."""


def side_by_side(
    items: Sequence[T],
    work: Callable[[T, Progress], R],
    *,
    at_once: int,
    done: Callable[[int], None],
    cancel: Callable[[], None] = lambda: None,
) -> list[R]:
    """Call ``work`` on each of ``items``, ``at_once`` at a time; results in the order of the items.

    ``done`` receives 1 per completed item. ``cancel``: called to end running items when this thread is interrupted.

    Raises:
        MachineError: the system starts no more threads.
    """
    stop = _Stop()
    with ThreadPoolExecutor(at_once, "cleanerd-cleaner") as executor:
        try:
            waiting = [_begun(executor, work, item, stop) for item in items]
            for future in as_completed(waiting):
                future.result()
                done(1)
        except BaseException:
            stop.wanted = True
            cancel()
            executor.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in waiting]


def _begun(executor: ThreadPoolExecutor, work: Callable[[T, Progress], R], item: T, stop: Progress) -> Future[R]:
    try:
        return executor.submit(work, item, stop)
    except RuntimeError as error:
        raise MachineError(
            "no thread can be started",
            hint="lower log.cleaner.threads or raise the limit of processes (ulimit -u, TasksMax, pids.max)",
        ) from error
