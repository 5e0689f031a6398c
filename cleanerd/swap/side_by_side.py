"""Several partitions at once, each in a thread of its own, and all of them ended when the command is."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, TypeVar

from cleanerd.cleaner.cleaner import CleaningStopped
from cleanerd.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cleanerd.cleaner.cleaner import Progress

T = TypeVar("T")
R = TypeVar("R")


class _Stop:
    """Progress of a cleaning in a thread of its own: shows nothing, but ends it when the command is stopped."""

    def __init__(self) -> None:
        self.wanted = False

    def phase(self, name: str, total_bytes: int) -> None:
        """Nothing is shown: bars of several partitions would dance."""

    def advance(self, done_bytes: int) -> None:  # noqa: ARG002
        """Between two chunks is a good place to end."""
        if self.wanted:
            raise CleaningStopped

    def wrote(self, done_bytes: int) -> None:
        """Bytes written are not shown: the bar counts bytes read."""


def side_by_side(
    items: Sequence[T],
    work: Callable[[T, Progress], R],
    *,
    at_once: int,
    done: Callable[[int], None],
    cancel: Callable[[], None] = lambda: None,
) -> list[R]:
    """``work`` on each of ``items``, ``at_once`` of them at a time; its results in the order of the items.

    ``done`` gets a 1 for each that is over. ``cancel``: what else ends those at work when this thread is to end.

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
