"""cleanerd.daemon.discovery.watch with the file system's own events."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from inotify_simple import Event, INotify, flags

from cleanerd.daemon.discovery.watch import RETRY_SECONDS, Watcher
from cleanerd.format.names import TopicPartition
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ORDERS = TopicPartition("orders", 0)
Noticed = list[tuple["Path", TopicPartition | None]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "orders-0").mkdir()
    return tmp_path


def watching(story: Callable[[Watcher, Noticed], Awaitable[None]], **given: Any) -> None:
    """Runs ``story`` with a running watcher; the list has its events. ``given``: arguments of the watcher."""

    async def play() -> None:
        noticed: Noticed = []
        watcher = Watcher(lambda path, name: noticed.append((path, name)), rest_seconds=0.0, **given)
        running = asyncio.create_task(watcher.run())
        await asyncio.sleep(0)
        try:
            await story(watcher, noticed)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


class Limited(INotify):  # type: ignore[misc]
    """While ``is_limited``, the system allows no new watch."""

    is_limited = False

    def add_watch(self, *arguments: Any) -> Any:
        if self.is_limited:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().add_watch(*arguments)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not reached():
            await asyncio.sleep(0.01)


def test_a_segment_is_noticed_and_its_index_files_are_not(root: Path) -> None:
    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([root], [(str(root), ORDERS)])
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
def test_changes_of_the_log_directory_are_noticed(root: Path, name: str) -> None:
    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([root], [(str(root), ORDERS)])
        for other in (b"meta.properties", b"\xff\xfe", b"recovery-point-offset-checkpoint.tmp"):
            (root / os.fsdecode(other)).touch()
        (root / name).touch()
        await until(lambda: bool(noticed))
        assert noticed == [(root, None)]

    watching(story)


def test_a_log_directory_may_be_a_link_and_a_partition_not(root: Path) -> None:
    """The operator's own link leads to his disk. It was not watched, so all partitions were scanned each time."""
    link = root / "link"
    (root / "disk" / "orders-0").mkdir(parents=True)
    (root / "disk" / "orders-1").symlink_to(root / "orders-0")
    link.symlink_to(root / "disk")

    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([link], [(str(link), ORDERS)])
        assert not watcher.has_lost_watches
        (root / "disk" / ".lock").touch()
        await until(lambda: noticed == [(link, None)])
        (root / "disk" / "orders-0" / "00000000000000000000.log").touch()
        await until(lambda: noticed[1:] == [(link, ORDERS)])
        watcher.follow([link], [(str(link), TopicPartition("orders", 1))])
        assert watcher.has_lost_watches

    watching(story)


@pytest.mark.long
def test_many_events_are_all_read(root: Path) -> None:
    """More than one buffer of them, before the first one is read."""

    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([root], [(str(root), ORDERS)])
        for offset in range(2000):
            (root / "orders-0" / f"{offset:020}.log").touch()
        await until(lambda: len(noticed) == 2000)

    watching(story)


def test_when_events_were_dropped_everything_may_have_changed(root: Path) -> None:
    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([root], [(str(root), ORDERS)])
        watcher._handle_event(Event(-1, int(flags.Q_OVERFLOW), 0, ""))
        assert noticed == [(root, None)]

    watching(story)


def test_a_deleted_directory_is_lost_until_it_is_followed_again(root: Path) -> None:
    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([root], [(str(root), ORDERS)])
        (root / "orders-0").rmdir()
        await until(lambda: watcher.has_lost_watches)
        (root / "orders-0").mkdir()
        watcher.follow([root], [(str(root), ORDERS)])
        assert not watcher.has_lost_watches
        await until(lambda: len(noticed) == 2)  # of the log directory: one deletion, one creation
        (root / "orders-0" / "00000000000000000000.log").touch()
        await until(lambda: len(noticed) == 3)
        assert noticed[-1] == (root, ORDERS)

    watching(story)


def test_an_event_of_an_ended_watch_is_dropped(root: Path) -> None:
    """An event that was under way when the watch ended is dropped, and the end itself loses nothing."""

    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([root], [(str(root), ORDERS)])
        (root / "orders-0" / "00000000000000000000.log").touch()
        watcher.follow([root], [])
        (root / "payments-0").touch()
        await until(lambda: bool(noticed))
        assert noticed == [(root, None)]
        assert not watcher.has_lost_watches

    watching(story)


@pytest.mark.long
@pytest.mark.parametrize("is_limited", [False, True])
def test_dropped_events_make_every_watch_new(root: Path, is_limited: bool) -> None:
    """The watch went with its directory, without an event: a topic that was created again was never watched.

    ``is_limited``: a system limit prevents the first try.
    """
    queued = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    inotify, now = Limited(), 1000.0

    async def story(watcher: Watcher, noticed: Noticed) -> None:
        nonlocal now
        watcher.follow([root], [(str(root), ORDERS)])
        for number in range(queued + 1):
            (root / f"{number}").touch()
        (root / "orders-0").rmdir()
        (root / "orders-0").mkdir()
        await until(lambda: watcher.has_lost_watches)
        assert noticed == [(root, None)]
        if is_limited:
            inotify.is_limited = True
            watcher.follow([root], [(str(root), ORDERS)])
            inotify.is_limited = False
            now += RETRY_SECONDS
        watcher.follow([root], [(str(root), ORDERS)])
        assert not watcher.has_lost_watches
        (root / "orders-0" / "00000000000000000000.log").touch()
        await until(lambda: len(noticed) == 2)
        assert noticed[-1] == (root, ORDERS)

    watching(story, make=lambda: inotify, clock=lambda: now)


@pytest.mark.parametrize("moved", ["orders-0", "."])
def test_another_directory_has_that_name_now(root: Path, moved: str) -> None:
    """A topic that is deleted is renamed first; a log directory may be replaced. The old ones were watched."""
    path = root / "logs"
    (path / "orders-0").mkdir(parents=True)

    async def story(watcher: Watcher, noticed: Noticed) -> None:
        watcher.follow([path], [(str(path), ORDERS)])
        (path / moved).resolve().rename(root / "orders-0.0f-delete")
        (path / "orders-0").mkdir(parents=True)
        await until(lambda: watcher.has_lost_watches)
        watcher.follow([path], [(str(path), ORDERS)])
        await until(lambda: (path, None) in noticed)
        for name in ("00000000000000000000.log", "00000000000000000009.log"):
            (path / "orders-0" / name).touch()
            await until(lambda: (path, ORDERS) in noticed)
            noticed.clear()
        (path / "payments-0").touch()
        await until(lambda: noticed == [(path, None)])

    watching(story)


def test_a_limit_that_was_raised(root: Path) -> None:
    """If the operator raises the limit, as the warning says, the daemon needs no restart."""
    inotify, now = Limited(), 1000.0
    inotify.is_limited = True

    async def story(watcher: Watcher, noticed: Noticed) -> None:
        nonlocal now

        def reported() -> tuple[bool, bool]:
            return "max_user_watches" in watcher.warning, watcher.has_lost_watches

        watcher.follow([root], [(str(root), ORDERS)])
        assert reported() == (True, False)
        inotify.is_limited = False
        watcher.follow([root], [(str(root), ORDERS)])
        assert reported() == (True, False), "not at every scan"
        now += RETRY_SECONDS
        assert reported() == (True, True)
        watcher.follow([root], [(str(root), ORDERS)])
        assert reported() == (False, False)
        (root / "orders-0" / "00000000000000000000.log").touch()
        await until(lambda: noticed == [(root, ORDERS)])

    watching(story, make=lambda: inotify, clock=lambda: now)


def test_too_many_instances(root: Path) -> None:
    """fs.inotify.max_user_instances: the daemon continues, and reports what to raise."""
    tries = [0]

    def few() -> INotify:
        tries[0] += 1
        if tries[0] < 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return INotify()

    async def story(watcher: Watcher, noticed: Noticed) -> None:
        assert "max_user_instances" in watcher.warning
        await until(lambda: tries[0] == 3 and watcher.has_lost_watches)
        watcher.follow([root], [(str(root), ORDERS)])
        assert watcher.warning == ""
        (root / "orders-0" / "00000000000000000000.log").touch()
        await until(lambda: noticed == [(root, ORDERS)])

    watching(story, make=few, again_seconds=0.01)
