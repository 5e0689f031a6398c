"""cleanerd.daemon.discovery.scan_threads: a log directory whose disk hangs delays no other."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from cleanerd.config.load import load_settings
from cleanerd.daemon.directory_snapshot import DirectorySnapshot
from cleanerd.daemon.discovery.log_dir_scan import DirMode, LogDirScan, ScanContext
from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
from cleanerd.daemon.discovery.scan_threads import ScanThreads, StateSweeper
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.partition_scan import FailedScan
from cleanerd.daemon.registry.pauses import Pauses, save_pauses
from cleanerd.daemon.workers import WorkerDiedError
from cleanerd.errors import Cause, CleanerdError
from cleanerd.format.names import TopicPartition
from cleanerd.fsio.held_file import DAEMON_FILE, holder_of
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.cleaner.driver import scratch
from tests.daemon.service import assignments, broker, is_clean, partition, recorded, serve, until
from tests.support.log_dirs import make_log_dir, write_checkpoint, write_partition
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from cleanerd.daemon.service import Service


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "good"


SOON_LATE = DaemonLimits(scan_seconds=0.3)


class Disk:
    """Every scan of ``path`` waits while the disk hangs; ``scanner`` makes the scanner."""

    def __init__(self, path: Path, *, works: bool = False) -> None:
        self.works = threading.Event()
        self.scans = 0
        disk = self

        class Scanner(LogDirScanner):
            def scan(self, *arguments: Any) -> Any:
                if self.path == path:
                    disk.scans += 1
                    disk.works.wait(PATIENCE_SECONDS)
                return super().scan(*arguments)

        self.scanner = Scanner
        if works:
            self.works.set()


@pytest.mark.slow
def test_a_disk_that_hangs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other directory is cleaned; this one is offline and queried once; when it answers it is cleaned too."""
    bad = root.parent / "bad"
    disk = Disk(bad)
    followed: list[set[Path]] = []
    with broker(root, 2), broker(bad, {"lost-0": two_groups()}):

        async def story(service: Service) -> None:
            await until("the others are clean", lambda: service.view().totals.cleanings.get("cleaned") == 2)
            online = {str(root): True, str(bad): False}
            # On a busy machine a scan of the good one can be late too, for a moment.
            await until("offline", lambda: {d.path: d.online for d in service.view().log_dirs} == online)
            view = service.view()
            assert view.ready
            assert view.healthy
            assert any(f"{bad}: did not answer within" in text for text in view.warnings)
            rounds = view.last_scan_ms
            await until("scans continue", lambda: service.view().last_scan_ms != rounds)
            assert disk.scans == 1
            assert not any(bad in each for each in followed), "inotify would hang, and the daemon with it"
            realpath = os.path.realpath

            def resolved(path: Any) -> str:
                assert path != bad or threading.current_thread() is not threading.main_thread()
                return realpath(path)

            # No path is resolved on the event loop, which the disk would block.
            monkeypatch.setattr(os.path, "realpath", resolved)
            service.reload()
            disk.works.set()
            await until("it is clean too", lambda: service.view().totals.cleanings.get("cleaned") == 3)
            await until("all are well", lambda: all(found.online for found in service.view().log_dirs))
            await until("it is watched", lambda: bad in followed[-1])

        serve(assignments(root, bad), story, limits=SOON_LATE, scanner=disk.scanner, watcher=recorded(followed))


@pytest.mark.slow
def test_a_disk_that_starts_to_hang_stops_no_other(root: Path) -> None:
    """OP-10: nothing of the healthy directory waits during the minute that the other one has to answer."""
    bad = root.parent / "bad"
    disk = Disk(bad, works=True)
    with broker(root), broker(bad, {"lost-0": two_groups()}):

        async def story(service: Service) -> None:
            await until("both are clean", lambda: service.view().totals.cleanings.get("cleaned") == 2)
            disk.works.clear()
            before = disk.scans
            try:
                await until("it hangs", lambda: disk.scans > before)
                before = disk.scans
                began = time.monotonic()
                write_partition(root / "orders-1", two_groups())
                offsets = {"orders-0": 8, "orders-1": 8}
                write_checkpoint(root / "replication-offset-checkpoint", offsets)
                write_checkpoint(root / "recovery-point-offset-checkpoint", offsets)
                await until("the other is cleaned", lambda: service.view().totals.cleanings.get("cleaned") == 3)
                assert time.monotonic() - began < DaemonLimits().scan_seconds / 2
                assert disk.scans == before, "it is not queried again before it answers"
            finally:
                disk.works.set()
            await until("it is scanned again", lambda: disk.scans > before)

        serve(assignments(root, bad), story, scanner=disk.scanner)


@pytest.mark.slow
def test_explain_of_a_hanging_directory_answers_at_once(root: Path) -> None:
    """It worked, and now it hangs: explain reports it at once, and the shutdown does not wait."""
    disk = Disk(root, works=True)
    with broker(root):

        async def story(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))
            disk.works.clear()
            await until("it hangs", lambda: not service.view().log_dirs[0].online)
            assert "did not answer" in partition(service.view()).reason
            with pytest.raises(CleanerdError, match="does not answer"):
                await service.control_api.explain("orders-0")
            assert not disk.works.is_set()
            reported.append(time.monotonic())

        reported: list[float] = []
        serve(assignments(root), story, limits=SOON_LATE, scanner=disk.scanner)
        assert time.monotonic() - reported[0] < PATIENCE_SECONDS / 2
        disk.works.set()


@pytest.mark.slow
def test_a_bug_in_a_scan_is_reported(root: Path) -> None:
    """Its thread ends and is replaced; the next scan is as usual."""
    bugs = [ZeroDivisionError("a bug")]

    class Buggy(LogDirScanner):
        def scan(self, *arguments: Any) -> Any:
            if bugs:
                raise bugs.pop()
            return super().scan(*arguments)

    with broker(root):

        async def story(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))
            assert f"a scan of {root} failed: ZeroDivisionError: a bug" in service.view().warnings

        serve(assignments(root), story, scanner=Buggy)


def test_explain_does_not_wait_for_a_hanging_disk(root: Path) -> None:
    """It is not yet known that the disk hangs: explain does not wait as long as the disk does."""
    works = threading.Event()

    class Hangs(LogDirScanner):
        def read(self, *_: Any) -> Any:
            works.wait(PATIENCE_SECONDS)

    with broker(root):

        async def story(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))
            try:
                with pytest.raises(CleanerdError, match="does not answer"):
                    await asyncio.wait_for(service.control_api.explain("orders-0"), 10)
            finally:
                works.set()

        serve(assignments(root), story, limits=SOON_LATE, scanner=Hangs)


def test_the_shutdown_does_not_wait_for_a_scan_after_a_cleaning(root: Path) -> None:
    """The job is done, and its disk hangs during the next scan: the shutdown waits for nothing."""
    works = threading.Event()

    class Hangs(LogDirScanner):
        def scan(self, context: ScanContext, only: Any = None) -> Any:
            if only is not None:
                works.wait(PATIENCE_SECONDS)
                raise ZeroDivisionError("no listener any more")
            return super().scan(context, only)

    with broker(root):

        async def story(service: Service) -> None:
            await until("clean", lambda: service.view().totals.cleanings.get("cleaned") == 1)
            reported.append(time.monotonic())

        reported: list[float] = []
        try:
            serve(assignments(root, log_cleaner_backoff_ms="3600000"), story, scanner=Hangs)
            assert time.monotonic() - reported[0] < PATIENCE_SECONDS / 2
        finally:
            works.set()


def test_a_changed_mode_takes_effect_at_once(root: Path) -> None:
    """Between a reload and the scans with its settings, nothing starts that only the old ones allowed."""
    reported = assignments(root)
    with broker(root):
        (root.parent / "state").mkdir()
        assert not save_pauses(root.parent / "state", Pauses(everything=True))

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            service.configuration.reread = lambda: load_settings([], [*reported, "cleanerd.mode=observe"], {})
            service.reload()
            service.registry.pause(None, paused=False)
            service.dispatcher.schedule()
            assert not service.dispatcher.running
            await until("worked out", lambda: next(iter(service.registry.partitions.values())).saving is not None)
            assert not service.view().totals.cleanings

        serve(reported, story)


class Scene:
    """A log directory whose scans wait for ``works``; ``merged`` has their results, in order."""

    def __init__(self, root: Path, *, limits: DaemonLimits = SOON_LATE) -> None:
        self.works = threading.Event()
        self.merged: list[LogDirScan] = []
        self.woken = 0
        self.path = root
        self.released: list[Path] = []
        self.begun = threading.Event()
        self.context: ScanContext | None = None
        self.noted: list[bool] = []
        scene = self

        class Scanner(LogDirScanner):
            def scan(self, context: ScanContext, only: Any = None) -> LogDirScan:
                return scene._scan(context, only)

            def note(self, name: TopicPartition, _seen: DirectorySnapshot) -> None:
                assert scene.context is not None
                scene.noted.append(name in scene.context.outdated)

            def release(self) -> None:
                scene.works.wait(PATIENCE_SECONDS)
                scene.released.append(self.path)

        self.scans = ScanThreads(self.merged.append, lambda _text: None, self._wake, limits, scanner=Scanner)
        self.scans.attend([root])

    def _wake(self) -> None:
        self.woken += 1

    def _scan(self, context: ScanContext, names: Any = None) -> LogDirScan:
        self.context = context
        self.begun.set()
        self.works.wait(PATIENCE_SECONDS)
        mode = DirMode("live", "whole" if names is None else "one", "live")
        return LogDirScan(
            self.path, online=True, error="", mode=mode, choice=None, facts=None, total_bytes=0, free_bytes=0,
            scans=tuple(FailedScan(TopicPartition("orders", each), "damaged", Cause.DATA) for each in range(3)),
        )  # fmt: skip


def world(root: Path) -> ScanContext:
    return ScanContext(load_settings([], assignments(root), {}), (root,), StateStore(root.parent / "state"))


@pytest.mark.slow
def test_an_error_after_the_client_gave_up_is_not_logged(root: Path) -> None:
    """The client already had its answer, a timeout: asyncio logged the error with a traceback."""
    scene = Scene(root)
    reported: list[str] = []

    def question(_scanner: LogDirScanner) -> None:
        scene.works.wait(PATIENCE_SECONDS)
        raise ZeroDivisionError

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context["message"]))
        (thread,) = scene.scans._managed[root].thread._threads.values()
        with pytest.raises(WorkerDiedError, match="does not answer"):
            await scene.scans.run(root, question)
        scene.works.set()
        await asyncio.to_thread(thread.join, PATIENCE_SECONDS)
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(story())
    scene.scans.close()
    assert reported == []


def test_two_scans_that_come_late(root: Path) -> None:
    """The scanner reports nothing twice: the result of the second scan must not get lost."""
    scene = Scene(root)

    async def story() -> None:
        reported = world(root)
        await asyncio.gather(scene.scans.scan(reported, {root: None}), scene.scans.scan(reported, {root: set()}))
        assert [found.online for found in scene.merged] == [False], "it is reported once"
        scene.works.set()
        await until("both", lambda: scene.woken == 2)
        assert [found.mode.reason for found in scene.merged[1:]] == ["whole", "one"]
        await scene.scans.scan(reported, {root: None})
        assert len(scene.merged) == 4, "it is queried again"

    asyncio.run(story())
    scene.scans.close()


@pytest.mark.parametrize("late", [False, True])
def test_a_scan_under_way_when_a_job_ends_does_not_count(root: Path, late: bool) -> None:
    """R534-6, C-11: it may show the log as before the job. Its other partitions count, and so does the next scan.

    The scanner learns that it has to skip the partition before it receives the job's own scan: otherwise it could use
    that one for a result that is dropped.
    """
    scene = Scene(root, limits=SOON_LATE if late else DaemonLimits())
    own = DirectorySnapshot(1, 2, None, "live/live", settled=True, again_ms=0, active=(0, 0))

    def merged() -> list[int]:
        return [each.name.partition for each in scene.merged[-1].scans]

    async def story() -> None:
        scan = asyncio.ensure_future(scene.scans.scan(world(root), {root: None}))
        await until("it is under way", scene.begun.is_set)
        scene.scans.job_ended(root, TopicPartition("orders", 0), own)
        scene.scans.clear_quarantine(root, TopicPartition("orders", 2))
        if late:
            await until("it is late", lambda: bool(scene.merged))
        scene.works.set()
        await scan
        await until("it is merged", lambda: bool(scene.merged) and scene.merged[-1].online)
        assert merged() == [1]
        await scene.scans.scan(world(root), {root: None})
        assert merged() == [0, 1, 2]
        assert scene.noted == [True]

    try:
        asyncio.run(story())
    finally:
        scene.works.set()
        scene.scans.close()


def test_a_late_scan_with_old_settings(root: Path) -> None:
    """It answers, and is queried again: its live mode comes from settings that no longer apply."""
    scene = Scene(root)

    async def story() -> None:
        await scene.scans.scan(world(root), {root: None})
        await scene.scans.scan(world(root), {root: None})
        scene.works.set()
        await until("it answers", lambda: scene.woken == 1)
        assert [found.online for found in scene.merged] == [False]

    asyncio.run(story())
    scene.scans.close()


def test_the_sweep_runs_after_the_scan_is_reported(root: Path) -> None:
    """S-51: with thousands of partitions the sweep takes long, and nothing waits for it; a bug in it is reported."""
    make_log_dir(root, {"orders-0": two_groups()})
    merged, warned = list[LogDirScan](), list[str]()
    swept: list[Path] = []
    resume = threading.Event()

    class Waiting(StateSweeper):
        def after(self, scan: LogDirScan, _store: object, *, all_seen: bool = True, log_dirs: object = ()) -> None:
            assert (all_seen, log_dirs) == (True, (root,))
            resume.wait(PATIENCE_SECONDS)
            swept.append(scan.path)
            if len(swept) == 2:
                raise ValueError("a bug")

    scans = ScanThreads(merged.append, warned.append, lambda: None, sweeper=Waiting)

    async def story() -> None:
        reported = world(root)
        scans.attend([root])
        await scans.scan(reported, {root: None})
        assert (len(merged), swept) == (1, [])
        resume.set()
        await scans.scan(reported, {root: None})
        assert swept[:1] == [root], "before the next scan, by the same thread"
        await until("the second is reported", lambda: bool(warned))
        assert "a bug" in warned[0]
        await scans.scan(reported, {root: set()})
        assert len(swept) == 2, "a scan of some of its partitions finds no partition missing"
        await scans.scan(reported, {root: None})
        await until("another thread has taken its place", lambda: len(swept) == 3)
        assert [scan.online for scan in merged] == [True] * 4

    asyncio.run(story())
    scans.close()


def test_a_directory_dropped_while_it_hangs(root: Path) -> None:
    """U-39: its lock is released when its disk answers, so that any daemon can manage it again.

    It was held until the daemon ended, which reported that another daemon, itself, had the directory.
    """
    make_log_dir(root, {"orders-0": two_groups()})
    disk, merged = Disk(root, works=True), list[LogDirScan]()
    # A scan that is to be late hangs; the others have time, also on a busy machine.
    limits = DaemonLimits(scan_seconds=2.0)
    scans = ScanThreads(merged.append, lambda _text: None, lambda: None, limits, scanner=disk.scanner)

    async def scan() -> LogDirScan:
        await scans.scan(world(root), {root: None})
        return merged[-1]

    async def story() -> None:
        scans.attend([root])
        assert not (await scan()).taken
        assert holder_of(root, DAEMON_FILE) is not None
        disk.works.clear()
        assert not (await scan()).online
        assert scans.attend([]) == [root]
        disk.works.set()
        await until("it is given back", lambda: holder_of(root, DAEMON_FILE) is None)
        scans.attend([root])
        assert ((await scan()).taken, merged[-1].online) == ("", True)
        scans.attend([])

    asyncio.run(story())
    scans.close()
    assert holder_of(root, DAEMON_FILE) is None


def test_a_directory_dropped_just_before_it_hangs(root: Path) -> None:
    """This is not known yet: releasing its lock would block the event loop, and with it the daemon."""
    scene = Scene(root, limits=DaemonLimits(give_back_seconds=0.1))
    assert scene.scans.attend([]) == [root]
    assert scene.released == []
    scene.works.set()

    async def story() -> None:
        await until("it is given back", lambda: scene.released == [root])

    asyncio.run(story())


@pytest.mark.slow
@pytest.mark.parametrize("hanging", [frozenset(), frozenset({"disk0"})])
def test_a_scan_waits_for_the_one_before_it_only(root: Path, hanging: frozenset[str]) -> None:
    """One after the other; beside a disk that hangs, only the next one waits for it, and for a moment."""
    log_dirs = [make_log_dir(root / f"disk{number}", {"orders-0": two_groups()}) for number in range(4)]
    works, noted = threading.Event(), list[tuple[str, str]]()

    class Noting(LogDirScanner):
        def scan(self, *arguments: Any) -> LogDirScan:
            noted.append((self.path.name, "begins"))
            if self.path.name in hanging:
                works.wait(PATIENCE_SECONDS)
            found = super().scan(*arguments)
            noted.append((self.path.name, "ends"))
            return found

    limits = DaemonLimits(one_by_one_seconds=3.0 if hanging else PATIENCE_SECONDS, together_seconds=0.1)
    scans = ScanThreads(lambda _found: None, lambda _text: None, lambda: None, limits, scanner=Noting)

    async def story() -> float:
        scans.attend(log_dirs)
        began = time.monotonic()
        await scans.scan(world(root), dict.fromkeys(log_dirs), wait_for_all=False)
        took = time.monotonic() - began
        works.set()
        await until("all have ended", lambda: sum(what == "ends" for _, what in noted) == len(log_dirs))
        return took

    took = asyncio.run(story())
    scans.close()
    one_by_one = [(f"disk{number}", what) for number in range(4) for what in ("begins", "ends")]
    if hanging:
        assert [each for each in noted if each[0] != "disk0"] == one_by_one[2:]
        assert 3.0 <= took < 8.0
    else:
        assert noted == one_by_one
