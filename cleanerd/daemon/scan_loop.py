"""Scans everything at an interval, and changed partitions at once; then a cleaning may begin."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cleanerd.daemon.discovery.daemon_lock import require_free
from cleanerd.daemon.discovery.log_dir_scan import LogDirScan, ScanContext
from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
from cleanerd.daemon.discovery.scan_threads import MakeScanner, ScanThreads
from cleanerd.daemon.discovery.watch import Watcher
from cleanerd.daemon.limits import DAEMON_LIMITS, DaemonLimits
from cleanerd.daemon.status.log_messages import StandingWarnings, log_scan
from cleanerd.daemon.with_timeout import with_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from cleanerd.admin.peers import Peers
    from cleanerd.broker.agent_pool import AgentPool
    from cleanerd.daemon.configuration import Configuration
    from cleanerd.daemon.partition_scan import Key
    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.status.publisher import Publisher
    from cleanerd.format.names import TopicPartition
    from cleanerd.host.clock import Clock
    from cleanerd.state.cleaner_checkpoint import StateStore
    from cleanerd.state.in_progress import InFlightMarkers

LEAST_BACKOFF_SECONDS: Final = 0.1

IDLE_SECONDS: Final = 30.0
"""A connection to an agent that was idle for this long is closed, so that others can use its place."""


class ScanLoop:
    """``after_scan`` is called after each scan: a partition may be due."""

    def __init__(
        self,
        configuration: Configuration,
        registry: PartitionRegistry,
        publisher: Publisher,
        warnings: StandingWarnings,
        store: StateStore,
        in_flight: InFlightMarkers,
        clock: Clock,
        *,
        agents: AgentPool,
        peers: Peers,
        limits: DaemonLimits = DAEMON_LIMITS,
        after_scan: Callable[[], None],
        scanner: MakeScanner = LogDirScanner,
        watcher: Callable[[Callable[[Path, TopicPartition | None], None]], Watcher] = Watcher,
    ) -> None:
        self._configuration = configuration
        self._registry = registry
        self._publisher = publisher
        self._warnings = warnings
        self._store = store
        self._in_flight = in_flight
        self._clock = clock
        self._agents = agents
        self._after_scan = after_scan
        self._limits = limits
        self.threads = ScanThreads(
            self._merge, publisher.warn, self.wake, limits, scanner=scanner, caught_up=self._caught_up, peers=peers
        )
        self.threads.attend(configuration.log_dirs)
        self._watcher = watcher(self._noticed)
        self._noticed_names: dict[Path, set[TopicPartition] | None] = {}
        self._wake = asyncio.Event()
        self._followed: tuple[set[str], set[Key]] = set(), set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Runs until cancelled. ``ready`` is called after the first scan of everything.

        Raises:
            RefusedError: another daemon manages one of the log directories.
        """
        next_full = 0.0
        first = True
        while True:
            self._wake.clear()
            configuration = self._configuration
            backoff = max(configuration.settings.daemon.log_cleaner_backoff_ms / 1000, LEAST_BACKOFF_SECONDS)
            generation = configuration.generation
            if time.monotonic() >= next_full or first or configuration.is_behind:
                self._noticed_names.clear()
                # Before the first scan with the current settings, nothing may begin.
                everything = first or configuration.is_behind
                await self._scan(dict.fromkeys(configuration.log_dirs), wait_for_all=everything)
                self._follow()
                next_full = time.monotonic() + backoff
                configuration.record_scanned(generation)
                self._publisher.round_ended()
                if first:
                    require_free(self._registry.dirs.values())
                    ready()
            elif self._noticed_names:
                noticed, self._noticed_names = self._noticed_names, {}
                await self._scan(noticed, only_due=True, wait_for_all=False)
                self._follow()
            self._after_scan()
            if first:  # readiness requests are answered at once
                self._publisher.publish()
                first = False
            else:
                self._publisher.soon()
            with contextlib.suppress(TimeoutError):
                await with_timeout(max(0.0, next_full - time.monotonic()), self._wake.wait())
                await asyncio.sleep(min(self._limits.debounce_seconds, backoff))

    async def watch(self) -> None:
        """Run the watcher of file system changes; never ends."""
        await self._watcher.run()

    def wake(self) -> None:
        self._noticed_names.update(dict.fromkeys(self._configuration.log_dirs))
        self._wake.set()

    async def rescan(self, entry: PartitionEntry) -> None:
        if (path := self._path_of(entry)) is not None:
            await self._scan({path: {entry.name}}, wait_for_all=True)

    async def run_in_scanner(self, path: Path, question: Callable[[LogDirScanner, ScanContext], Any]) -> Any:
        """Run ``question`` in the scan thread of a log directory.

        Raises:
            WorkerDiedError: the directory is not managed any more, or does not answer; or the exception of
                ``question``.
        """
        context = self._context()
        return await self.threads.run(path, lambda scanner: question(scanner, context))

    def _context(self) -> ScanContext:
        return ScanContext(
            self._configuration.settings,
            self._configuration.log_dirs,
            self._store,
            self._clock.now_ms,
            self._agents,
            stale=frozenset(self._registry.stale),
            in_flight=self._in_flight,
            silent=self.threads.silent,
        )

    async def _scan(
        self,
        wanted: Mapping[Path, Collection[TopicPartition] | None],
        *,
        wait_for_all: bool,
        only_due: bool = False,
    ) -> None:
        await self.threads.scan(replace(self._context(), only_due=only_due), wanted, wait_for_all=wait_for_all)
        self._agents.close_idle(IDLE_SECONDS)

    def _merge(self, found: LogDirScan) -> None:
        log_scan(self._registry.dirs.get(str(found.path)), found, self._registry.is_full)
        warned = replace(found, warnings=(*found.warnings, *self._warnings.current()))
        self._registry.merge(warned, self._clock.now_ms())

    def _caught_up(self) -> None:
        self._after_scan()
        self._publisher.soon()

    def _follow(self) -> None:
        """Watch the current partitions, except on disks that do not answer."""
        log_dirs = {str(path): path for path in self._configuration.log_dirs if path not in self.threads.late}
        wanted = {key for key in self._registry.partitions if key[0] in log_dirs}
        followed = set(log_dirs), wanted
        if self._watcher.has_lost_watches or followed != self._followed:
            self._followed = followed
            self._watcher.follow(log_dirs.values(), wanted)
        if self._watcher.warning:
            self._publisher.warn(self._watcher.warning)

    def _path_of(self, entry: PartitionEntry) -> Path | None:
        return None if (found := self._registry.dirs.get(entry.path)) is None else found.path

    def _noticed(self, path: Path, name: TopicPartition | None) -> None:
        names = self._noticed_names.get(path, set())
        if name is None or names is None:
            self._noticed_names[path] = None
        else:
            names.add(name)
            self._noticed_names[path] = names
        self._wake.set()
