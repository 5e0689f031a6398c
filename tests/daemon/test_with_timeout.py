"""cleanerd.daemon.with_timeout: a wait with a limit, and a task that can be cancelled at any moment."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from cleanerd.daemon.with_timeout import with_timeout


def test_a_result_in_time_is_returned() -> None:
    async def story() -> None:
        assert await with_timeout(60, asyncio.sleep(0, "it")) == "it"

    asyncio.run(story())


def test_a_wait_that_takes_too_long_is_cancelled() -> None:
    async def story() -> None:
        late = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await with_timeout(0.01, late)
        assert late.cancelled()

    asyncio.run(story())


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_task_ends_although_its_result_arrives_at_that_moment(turns: int) -> None:
    """As of a daemon that is stopped when an inotify event has just arrived: on Python 3.11 it ran on indefinitely."""

    async def scans(woken: asyncio.Event) -> None:
        while True:
            woken.clear()
            with contextlib.suppress(TimeoutError):
                await with_timeout(3600, woken.wait())

    async def story() -> None:
        woken = asyncio.Event()
        task = asyncio.create_task(scans(woken))
        await asyncio.sleep(0.01)
        woken.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()

    asyncio.run(story())
