"""The scanning threads: one per log directory, so that a disk that hangs delays only its own.

The event loop passes a scan's result to ``merge``. A late scan is abandoned for the moment: its directory is treated as
unreadable, no work begins there, and no request is sent to it until it answers. The threads also remove the state of
deleted partitions, so that the state directory does not grow.

Scans and jobs run at the same time. A scan that is under way when a job ends may show the log as before the job, or
half cleaned: acting on it would clean twice. So its result for that partition is dropped, and the scanner skips the
partition if it has not reached it yet.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import structlog

from cleanerd.admin.peers import Peers
from cleanerd.daemon.discovery.agent_probe import AgentProbe
from cleanerd.daemon.discovery.facts_cache import FactsCache
from cleanerd.daemon.discovery.log_dir_scan import LogDirScan, ScanContext, failed_scan
from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
from cleanerd.daemon.discovery.metadata_readings import MetadataReadings
from cleanerd.daemon.limits import DAEMON_LIMITS, DaemonLimits
from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.workers import WorkerDiedError, WorkerPool
from cleanerd.errors import CleanerdError
from cleanerd.segments.log_dir import META_PROPERTIES, read_log_dir
from cleanerd.state.gone_partitions import OtherPlacesOfTopic, SweepResult, delete_gone_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from cleanerd.daemon.directory_snapshot import DirectorySnapshot
    from cleanerd.format.names import TopicPartition
    from cleanerd.state.cleaner_checkpoint import StateStore

SWEEP_SECONDS: Final = 30.0
"""Shortest interval of sweeps per log directory; a cluster may create and delete topics all day."""

KEPT_SECONDS: Final = 600.0
"""Interval of checks of rules that are kept for a topic: another file may have them, or the topic may be deleted."""

_log = structlog.get_logger()


class StateSweeper:
    """Sweeps after a log directory's first scan, and after partitions have disappeared; used by its scan thread only.

    It does nothing in observe mode, which writes nothing.
    """

    def __init__(self, period_seconds: float = SWEEP_SECONDS, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._period_seconds = period_seconds
        self._present: dict[Path, frozenset[TopicPartition]] = {}
        self._due: set[Path] = set()
        self._not_before: dict[Path, float] = {}
        self._kept_until: dict[Path, float] = {}

    def after(
        self, scan: LogDirScan, store: StateStore, *, all_seen: bool = True, log_dirs: Collection[Path] = ()
    ) -> None:
        """Called after each scan of a log directory. ``all_seen``: all of ``log_dirs`` answer."""
        if scan.present is None or scan.mode.work == "observe":
            return
        before = self._present.get(scan.path)
        self._present[scan.path] = scan.present
        now = self._clock()
        if before is None or before - scan.present or now >= self._kept_until.get(scan.path, math.inf):
            self._due.add(scan.path)
        if scan.path in self._due and now >= self._not_before.get(scan.path, 0.0):
            self._due.discard(scan.path)
            self._not_before[scan.path] = now + self._period_seconds
            swept = _sweep(scan, store, log_dirs if all_seen else None)
            self._kept_until[scan.path] = now + KEPT_SECONDS if swept.kept else math.inf


def _sweep(scan: LogDirScan, store: StateStore, log_dirs: Collection[Path] | None) -> SweepResult:
    """``log_dirs``: None if one of them does not answer."""
    facts = scan.facts
    if facts is None:
        return SweepResult()
    others = tuple(path for path in facts.log_dirs if path != scan.path)
    try:
        # An unmounted disk's owner and content are unknown: it may have the metadata log.
        all_seen = log_dirs is not None and all((path / META_PROPERTIES).exists() for path in log_dirs)
        # A live daemon needs no metadata log; in ZooKeeper mode the broker reports its topics. Without one, the topic
        # may be on another broker now.
        elsewhere = OtherPlacesOfTopic(others, facts.topic_id, all_seen and facts.metadata is not None)
        swept = delete_gone_state(store, read_log_dir(scan.path), elsewhere)
    except (CleanerdError, OSError):
        return SweepResult()  # the directory or the state directory just disappeared: its next use reports that
    if swept.removed:
        _log.info(LogEvent.PARTITIONS_FORGOTTEN, log_dir=str(scan.path), partitions=swept.removed)
    return swept


MakeScanner: TypeAlias = "Callable[[Path, FactsCache, DaemonLimits], LogDirScanner]"


@dataclass(frozen=True, slots=True, eq=False)
class _Attended:
    """A managed log directory with its thread.

    ``under_way``: its scans, each with the partitions on which a job has ended since.
    """

    scanner: LogDirScanner
    sweeper: StateSweeper
    thread: WorkerPool
    under_way: dict[asyncio.Future[LogDirScan], set[TopicPartition]] = field(default_factory=dict)

    def begin_scan(self, context: ScanContext, names: Collection[TopicPartition] | None) -> asyncio.Future[LogDirScan]:
        """Begin a scan; :meth:`end_scan` has to follow."""
        outdated: set[TopicPartition] = set()
        found = self.thread.submit(lambda: self.scan(replace(context, outdated=outdated), names))
        self.under_way[found] = outdated
        return found

    def end_scan(self, found: asyncio.Future[LogDirScan]) -> LogDirScan:
        """Its result, without the partitions on which a job has ended since.

        Raises:
            WorkerDiedError: the scan failed.
        """
        outdated = self.under_way.pop(found)
        scan = found.result()
        if not outdated:
            return scan
        return replace(scan, scans=tuple(each for each in scan.scans if each.name not in outdated))

    def outdate(self, name: TopicPartition) -> None:
        """Note that the scans under way do not count for a partition."""
        for outdated in self.under_way.values():
            outdated.add(name)

    def scan(self, context: ScanContext, names: Collection[TopicPartition] | None) -> LogDirScan:
        context.store.recheck()
        return self.scanner.scan(context, names)

    def sweep(self, context: ScanContext, scan: LogDirScan) -> None:
        """Runs after ``scan`` was merged: with thousands of partitions it takes as long as scanning many of them."""
        self.sweeper.after(scan, context.store, all_seen=not context.silent, log_dirs=context.log_dirs)


class ScanThreads:
    """``merge`` receives results, ``warn`` errors; ``wake`` is called when a directory answers again.

    ``scanner`` and ``sweeper`` make the scanner and the sweeper of a log directory. ``caught_up`` is called after
    merging a late scan: a partition may be due.
    """

    def __init__(
        self,
        merge: Callable[[LogDirScan], None],
        warn: Callable[[str], None],
        wake: Callable[[], None],
        limits: DaemonLimits = DAEMON_LIMITS,
        *,
        scanner: MakeScanner = LogDirScanner,
        sweeper: Callable[[], StateSweeper] = StateSweeper,
        caught_up: Callable[[], None] = lambda: None,
        peers: Peers | None = None,
    ) -> None:
        self._limits = limits
        self._make_scanner = scanner
        self._make_sweeper = sweeper
        self._merge = merge
        self._warn = warn
        self._wake = wake
        self._caught_up_with = caught_up
        self._managed: dict[Path, _Attended] = {}
        self._readings = MetadataReadings()
        self._peers = peers or Peers()
        self._context: ScanContext | None = None
        self.late: set[Path] = set()
        """Directories that do not answer."""
        self.silent: frozenset[Path] = frozenset()
        """Directories that did not answer a probe; scans of other directories do not read them."""
        self._answering = AgentProbe(self._answers, limits)
        self._missed: set[Path] = set()
        self._live: set[Path] = set()
        self._behind: dict[Path, asyncio.Future[None]] = {}
        """Late scans that were left behind, but not abandoned yet."""

    def attend(self, log_dirs: Collection[Path]) -> list[Path]:
        """Manage exactly these directories; returns the ones that are dropped."""
        gone = [path for path in self._managed if path not in log_dirs]
        for path in gone:
            self._end(path, self._managed.pop(path))
            self.late.discard(path)
            self._answering.forget(path)
        for path in log_dirs:
            if path not in self._managed:
                scanner = self._make_scanner(path, FactsCache(self._readings, self._peers), self._limits)
                thread = WorkerPool(1, f"cleanerd-scan-{path.name}")
                self._managed[path] = _Attended(scanner, self._make_sweeper(), thread)
        return gone

    async def scan(
        self,
        context: ScanContext,
        wanted: Mapping[Path, Collection[TopicPartition] | None],
        *,
        wait_for_all: bool = True,
    ) -> None:
        """Scan these directories, or these partitions in them; returns when all responsive ones have answered.

        Without ``wait_for_all`` slow scans are left behind after a moment, and merged when they end, so that one that
        hangs delays no other.
        """
        before = [self._behind[path] for path in wanted if path in self._behind]
        if before and wait_for_all:
            await asyncio.wait(before)
        # With its agent's report a directory can be scanned even if others do not answer.
        soon = self._limits.together_seconds if self._live.issuperset(wanted) else None
        mute = await self._answering.silent(tuple(self._managed), soon)
        for path in mute - self.late:
            if path not in self._managed:
                continue  # a reload has dropped it since the request
            self.late.add(path)
            self._merge(_hanging(path, self._limits.probe_seconds))
        self.silent = mute = mute | self._answering.pending(tuple(self._managed))
        context = self._context = replace(context, silent=mute)
        self._missed |= self._behind.keys() & wanted.keys()
        away = mute | self.late | self._behind.keys()
        answering = [path for path in wanted if path in self._managed and path not in away]
        scans: dict[Path, asyncio.Future[None]] = {}
        try:
            for path in answering:
                # Threads that scan at once wait for Python's lock: on unchanged directories that triples the CPU.
                if scans:
                    *_, previous = scans.values()
                    await asyncio.wait([previous], timeout=self._limits.one_by_one_seconds)
                if path not in self.late:
                    scans[path] = asyncio.ensure_future(self._scan_directory(path, context, wanted[path]))
            if scans:
                await asyncio.wait(scans.values(), timeout=None if wait_for_all else self._limits.together_seconds)
        except asyncio.CancelledError:
            for each in scans.values():
                each.cancel()
            raise
        for path, each in scans.items():
            if each.done():
                each.result()
            else:
                self._behind[path] = each
                each.add_done_callback(partial(self._caught_up, path))

    def job_ended(self, path: Path, name: TopicPartition, seen: DirectorySnapshot | None) -> None:
        """Note that a job on a partition has ended; ``seen``: the job's own scan, if it is used."""
        attended = self._managed.get(path)
        if attended is None:
            return
        # In this order: a scan that uses the note has to skip the partition, because its result is dropped.
        attended.outdate(name)
        if seen is not None:
            attended.scanner.note(name, seen)

    def clear_quarantine(self, path: Path, name: TopicPartition) -> None:
        """Have its quarantine removed from the state directory by a scan that is not under way yet."""
        attended = self._managed.get(path)
        if attended is not None:
            attended.outdate(name)
            attended.scanner.clear_quarantine(name)

    async def run(self, path: Path, question: Callable[[LogDirScanner], Any]) -> Any:
        """Run ``question`` in the thread of a directory.

        Raises:
            WorkerDiedError: the directory is not managed any more, or does not answer; or the exception of
                ``question``.
        """
        if path not in self._managed or path in self.late:
            raise WorkerDiedError(f"{path} does not answer")
        attended = self._managed[path]
        answer = attended.thread.submit(lambda: question(attended.scanner))
        await asyncio.wait([answer], timeout=self._limits.scan_seconds)
        if not answer.done():
            answer.cancel()  # no task awaits its later error, which asyncio would log with a traceback
            raise WorkerDiedError(f"{path} does not answer")
        return answer.result()

    def close(self) -> None:
        """Stop scanning; a scan that hangs is not waited for."""
        self._answering.close()
        for each in tuple(self._behind.values()):
            each.cancel()
        for path, attended in self._managed.items():
            self._end(path, attended)

    def _end(self, path: Path, attended: _Attended) -> None:
        """In its own thread, which ends when the disk answers: this one serves all directories."""
        attended.thread.close()
        giving = threading.Thread(target=attended.scanner.release, name="cleanerd-give-back", daemon=True)
        try:
            giving.start()
        except RuntimeError:  # the limit of threads is reached
            attended.scanner.release()
        else:
            giving.join(0.0 if path in self.late else self._limits.give_back_seconds)

    async def _scan_directory(self, path: Path, context: ScanContext, names: Collection[TopicPartition] | None) -> None:
        attended = self._managed.get(path)
        if attended is None:
            return  # a reload has dropped it since the request
        found = attended.begin_scan(context, names)
        await asyncio.wait([found], timeout=self._limits.scan_seconds)
        if found.done():
            self._deliver(attended, context, found)
        elif self._managed.get(path) is attended:
            if path not in self.late:
                self.late.add(path)
                self._merge(_hanging(path, self._limits.scan_seconds))
            # Each of several waiting results is used, because the scanner does not repeat its findings.
            found.add_done_callback(partial(self._came_back, attended, context))

    def _caught_up(self, path: Path, scan: asyncio.Future[None]) -> None:
        self._behind.pop(path, None)
        missed = path in self._missed
        self._missed.discard(path)
        if scan.cancelled() or path in self.late:
            return
        scan.result()
        self._caught_up_with()
        if missed:
            self._wake()

    def _answers(self, path: Path) -> None:
        self.late.discard(path)
        self._wake()

    def _came_back(self, attended: _Attended, context: ScanContext, found: asyncio.Future[LogDirScan]) -> None:
        if self._managed.get(attended.scanner.path) is attended:
            self.late.discard(attended.scanner.path)
            self._deliver(attended, context, found)
            self._wake()

    def _deliver(self, attended: _Attended, context: ScanContext, found: asyncio.Future[LogDirScan]) -> None:
        path = attended.scanner.path
        try:
            scan = attended.end_scan(found)
        except WorkerDiedError as error:
            _log.exception(LogEvent.SCAN_FAILED, log_dir=str(path))
            self._warn(f"a scan of {path} failed: {error}")
            return
        # Other settings need a new scan, even of unchanged directories.
        is_outdated = self._context is not None and self._context.settings is not context.settings
        if self._managed.get(path) is attended and not is_outdated:
            is_live = scan.choice is not None and scan.choice.mode == "live"
            (self._live.add if is_live else self._live.discard)(path)
            self._merge(scan)
            if scan.present is not None:
                attended.thread.submit(partial(attended.sweep, context, scan)).add_done_callback(self._swept)

    def _swept(self, ended: asyncio.Future[None]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            _log.error(LogEvent.STATE_REMOVAL_FAILED, exc_info=error)
            self._warn(f"removing the state of deleted partitions failed: {error}")


def _hanging(path: Path, seconds: float) -> LogDirScan:
    error = f"{path}: did not answer within {seconds:.0f} s: does its disk hang? (see the kernel's log)"
    return failed_scan(path, error)
