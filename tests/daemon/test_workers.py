"""Worker threads: as many as configured, replaced when they die, never waited for at the end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.workers import WorkerDiedError, WorkerPool
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


def test_results_come_back() -> None:
    async def story() -> None:
        pool = WorkerPool(2, "test")
        names = await asyncio.gather(*(pool.submit(lambda: threading.current_thread().name) for _ in range(20)))
        assert {name[:5] for name in names} == {"test-"}
        pool.close()

    run(story)


def test_the_number_of_workers_is_limited() -> None:
    async def story() -> None:
        pool = WorkerPool(3, "test")
        now, most, lock = 0, 0, threading.Lock()
        together = threading.Barrier(3)

        def work() -> None:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            together.wait(PATIENCE_SECONDS)
            with lock:
                now -= 1
            together.wait(PATIENCE_SECONDS)

        await asyncio.gather(*(pool.submit(work) for _ in range(12)))
        assert most == 3
        pool.close()

    run(story)


@pytest.mark.parametrize("error", [ValueError("bug"), MemoryError(), SystemExit(3), KeyboardInterrupt()])
def test_one_that_dies_is_replaced_and_counted(error: BaseException) -> None:
    """Whatever killed it: reported with its cause, and the next job is done."""

    async def story() -> None:
        pool = WorkerPool(1, "test")

        def die() -> None:
            raise error

        with pytest.raises(WorkerDiedError) as reported:
            await pool.submit(die)
        assert reported.value.__cause__ is error
        assert await pool.submit(lambda: 5) == 5
        assert (pool.died, pool.restarted, pool.alive) == (1, 1, 1)
        pool.close()

    run(story)


def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """TasksMax, or no memory, just when workers die. It is reported, and the next job tries again."""

    async def story() -> None:
        pool = WorkerPool(1, "test")
        real = threading.Thread.start

        def refused(thread: threading.Thread) -> None:
            if thread.name.startswith("test-"):
                raise RuntimeError("can't start new thread")
            real(thread)

        def die() -> None:
            raise MemoryError

        # A real limit of threads would apply to the whole test run.
        monkeypatch.setattr(threading.Thread, "start", refused)
        with pytest.raises(WorkerDiedError, match="MemoryError"):
            await asyncio.wait_for(pool.submit(die), 30)
        assert (pool.died, pool.alive) == (1, 0)
        with pytest.raises(WorkerDiedError, match="no thread can be started"):
            await pool.submit(lambda: 5)
        monkeypatch.undo()
        assert await pool.submit(lambda: 5) == 5
        assert (pool.alive, pool.restarted) == (1, 1)
        pool.close()

    run(story)


def test_more_and_fewer() -> None:
    """log.cleaner.threads at a reload: more at once, fewer when they are done."""

    async def story() -> None:
        pool = WorkerPool(1, "test")
        pool.resize(4)
        assert pool.alive == 4
        pool.resize(2)
        for _ in range(200):
            if pool.alive == 2:
                break
            await asyncio.sleep(0.01)
        assert pool.alive == pool.size == 2
        assert await pool.submit(lambda: 5) == 5
        pool.close()

    run(story)


def test_one_that_dies_while_fewer_are_wanted_is_not_replaced() -> None:
    async def story() -> None:
        pool = WorkerPool(1, "test")
        begun, go = threading.Event(), threading.Event()

        def die() -> None:
            begun.set()
            go.wait(PATIENCE_SECONDS)
            raise ValueError

        answer = pool.submit(die)
        await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
        pool.close()
        go.set()
        with pytest.raises(WorkerDiedError):
            await answer
        assert (pool.died, pool.restarted, pool.alive) == (1, 0, 0)

    run(story)


def test_after_the_end_no_caller_waits_indefinitely() -> None:
    async def story() -> None:
        pool = WorkerPool(1, "test")
        last = pool.submit(lambda: 5)
        pool.close()
        assert await last == 5
        with pytest.raises(WorkerDiedError, match="no workers any more"):
            await pool.submit(lambda: 5)

    run(story)


def test_one_that_dies_while_fewer_are_wanted_leaves_as_many_as_wanted() -> None:
    """log.cleaner.threads went down; both the threads that were to end for it and one more did."""

    async def story() -> None:
        pool = WorkerPool(3, "test")
        begun, go = threading.Barrier(4), threading.Event()

        def wait(error: bool) -> None:
            begun.wait(PATIENCE_SECONDS)
            go.wait(PATIENCE_SECONDS)
            if error:
                raise ValueError

        answers = [pool.submit(lambda error=error: wait(error)) for error in (True, False, False)]  # type: ignore[misc]
        await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
        pool.resize(1)
        go.set()
        await asyncio.gather(*answers, return_exceptions=True)
        for _ in range(100):
            await asyncio.sleep(0.01)
            if pool.alive <= 1:
                break
        assert pool.alive == 1
        assert await asyncio.wait_for(pool.submit(lambda: 5), 5) == 5
        pool.close()

    run(story)
