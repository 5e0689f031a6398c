"""Threads that clean. A thread that dies is replaced and counted, and its job has failed; the daemon continues."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _WorkerTask(Generic[T]):
    """A function, and the receiver of its result."""

    work: Callable[[], T]
    answer: asyncio.Future[T]


class WorkerDiedError(Exception):
    """A job ended its thread: by a bug, or out of memory. ``__cause__`` is the exception."""


class WorkerPool:
    """``size`` daemon threads; jobs run in their order.

    Not concurrent.futures: the interpreter waits for its threads at the end, and one that hangs on a dead disk must not
    delay the service's end.
    """

    def __init__(self, size: int, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_WorkerTask[object] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: dict[int, threading.Thread] = {}
        self._next = 0
        self._size = self._lent = 0
        self.died = 0
        self.restarted = 0
        self.resize(size)

    @property
    def size(self) -> int:
        """The requested number of threads."""
        return self._size

    @property
    def alive(self) -> int:
        with self._lock:
            return len(self._threads)

    def resize(self, size: int) -> None:
        """Start more threads, or end some after their current jobs."""
        with self._lock:
            grow, self._size = size - self._size, size
            self._fill()
        for _ in range(-grow):
            self._jobs.put(None)

    def lend(self, threads: int) -> None:
        """Add threads beside ``size`` while a disk blocks some; a negative number removes them."""
        with self._lock:
            self._lent += threads
            self._fill()
        for _ in range(-threads):
            self._jobs.put(None)

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run ``work`` in a thread; the future belongs to the running loop.

        It gets the result, or :class:`WorkerDiedError` for any exception: expected errors are part of a result.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._size == 0:
            answer.set_exception(WorkerDiedError("there are no workers any more"))
            return answer
        with self._lock:
            self.restarted += self._fill()
            no_threads = not self._threads
        if no_threads:
            answer.set_exception(WorkerDiedError("no thread can be started: see TasksMax and the memory's limits"))
            return answer
        self._jobs.put(_WorkerTask(work, answer))  # type: ignore[arg-type]
        return answer

    def close(self) -> None:
        """Accept no more jobs; threads end after their current ones."""
        self.lend(-self._lent)
        self.resize(0)

    def _fill(self) -> int:
        """Start as many threads as needed, or as the system allows; returns the number of started ones."""
        started = 0
        while len(self._threads) < self._size + self._lent:
            number, self._next = self._next, self._next + 1
            thread = threading.Thread(target=self._run, args=(number,), name=f"{self._name}-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                break  # a limit is reached; the next job tries again
            self._threads[number] = thread
            started += 1
        return started

    def _run(self, number: int) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                # One less is needed, unless one died meanwhile and was not replaced.
                with self._lock:
                    if len(self._threads) > self._size + self._lent:
                        del self._threads[number]
                        return
                continue
            try:
                result = job.work()
            except BaseException as error:  # noqa: BLE001 - any error must be reported, and this thread ends
                died = WorkerDiedError(f"{type(error).__name__}: {error}")
                died.__cause__ = error
                self._replace(number)
                _set_result(job.answer, error=died)
                return
            _set_result(job.answer, result=result)
            del job, result

    def _replace(self, number: int) -> None:
        with self._lock:
            self._threads.pop(number, None)
            self.died += 1
            self.restarted += self._fill()


def _set_result(answer: asyncio.Future[T], *, result: T | None = None, error: Exception | None = None) -> None:
    def deliver() -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    try:
        answer.get_loop().call_soon_threadsafe(deliver)
    except RuntimeError:
        return  # the loop is closed: no caller waits any more
