"""cleanerd.daemon.looking.watch against the file system's own events."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from inotify_simple import Event, flags

from cleanerd.daemon.looking import watch
from cleanerd.daemon.looking.watch import Watcher
from cleanerd.format.names import TopicPartition
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

ORDERS = TopicPartition("orders", 0)
Noticed = list[tuple["Path", TopicPartition | None]]


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_REST_SECONDS", 0.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "orders-0").mkdir()
    return tmp_path


def watching(story: Callable[[Watcher, Noticed], Awaitable[None]]) -> None:
    """Plays ``story`` beside a watcher that runs; what it is told of is in the list."""

    async def play() -> None:
        noticed: Noticed = []
        watcher = Watcher(lambda path, name: noticed.append((path, name)))
        running = asyncio.create_task(watcher.run())
        await asyncio.sleep(0)
        try:
            await story(watcher, noticed)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not reached():
            await asyncio.sleep(0.01)


def test_a_segment_is_noticed_and_what_comes_with_it_is_not(root: Path) -> None:
    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([root], [(root, ORDERS)])
        for name in (
            "00000000000000000000.index",
            "00000000000000000009.snapshot",
            ".kstage",
            "leader-epoch-checkpoint",
        ):
            (root / "orders-0" / name).touch()
        (root / "orders-0" / "00000000000000000009.log").touch()
        await until(lambda: bool(noticed))
        assert noticed == [(root, ORDERS)]

    watching(story)


@pytest.mark.parametrize("name", [".lock", ".cleanerd-agent.sock", "payments-3"])
def test_what_happens_to_the_log_directory_is_noticed(root: Path, name: str) -> None:
    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([root], [(root, ORDERS)])
        for other in (b"meta.properties", b"\xff\xfe", b"recovery-point-offset-checkpoint.tmp"):
            (root / os.fsdecode(other)).touch()
        (root / name).touch()
        await until(lambda: bool(noticed))
        assert noticed == [(root, None)]

    watching(story)


def test_many_events_are_all_read(root: Path) -> None:
    """More than one buffer of them, before the first one is read."""

    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([root], [(root, ORDERS)])
        for offset in range(2000):
            (root / "orders-0" / f"{offset:020}.log").touch()
        await until(lambda: len(noticed) == 2000)

    watching(story)


def test_when_events_were_dropped_everything_may_have_changed(root: Path) -> None:
    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([root], [(root, ORDERS)])
        watcher._take(Event(-1, int(flags.Q_OVERFLOW), 0, ""))
        assert noticed == [(root, None)]

    watching(story)


def test_a_directory_that_goes_is_lost_until_it_is_followed_again(root: Path) -> None:
    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([root], [(root, ORDERS)])
        (root / "orders-0").rmdir()
        await until(lambda: watcher.lost)
        (root / "orders-0").mkdir()
        watcher.follow([root], [(root, ORDERS)])
        assert not watcher.lost
        await until(lambda: len(noticed) == 2)  # of the log directory: one went, one came
        (root / "orders-0" / "00000000000000000000.log").touch()
        await until(lambda: len(noticed) == 3)
        assert noticed[-1] == (root, ORDERS)

    watching(story)


def test_who_is_followed_no_longer_is_not_noticed(root: Path) -> None:
    """An event that was on its way when the watch ended says nothing, and the end itself loses nothing."""

    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([root], [(root, ORDERS)])
        (root / "orders-0" / "00000000000000000000.log").touch()
        watcher.follow([root], [])
        (root / "payments-0").touch()
        await until(lambda: bool(noticed))
        assert noticed == [(root, None)]
        assert not watcher.lost

    watching(story)
