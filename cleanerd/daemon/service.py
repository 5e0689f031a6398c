"""``cleanerd run``: one asyncio process that scans, chooses, has workers clean, and reports its state.

::

    scan_loop    every log.cleaner.backoff.ms, or on inotify events: scan the log directories (a thread each)
                 -> merge into the registry -> choose -> hand jobs to the workers -> publish a new DaemonView
    dispatcher   workers clean, stage or work out what a cleaning would save; when one is done its partition is
                 scanned again
    signals      SIGTERM, SIGINT: stop between two chunks; SIGHUP: read the settings again

Everything else happens on the event loop, so nothing here needs a lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from cleanerd import __version__
from cleanerd.admin.cluster_compare import ClusterComparison, DaemonAnswer, compare, of_one_cluster
from cleanerd.admin.peers import Peers
from cleanerd.broker.agent_pool import AgentPool
from cleanerd.daemon.canary import Canary
from cleanerd.daemon.configuration import Configuration
from cleanerd.daemon.control import ControlServer
from cleanerd.daemon.control_api import ControlApi
from cleanerd.daemon.control_client import control_socket
from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
from cleanerd.daemon.discovery.watch import Watcher
from cleanerd.daemon.dispatcher import Dispatcher, JobTools, RunJob
from cleanerd.daemon.erasures import Erasures
from cleanerd.daemon.estimate_cache import EstimateCache
from cleanerd.daemon.limits import DAEMON_LIMITS, DaemonLimits
from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.notify import Notifier
from cleanerd.daemon.registry.partition_registry import PartitionRegistry, RegistrySettings
from cleanerd.daemon.registry.pauses import load_pauses
from cleanerd.daemon.scan_loop import ScanLoop
from cleanerd.daemon.status.counters import Counters
from cleanerd.daemon.status.log_messages import StandingWarnings
from cleanerd.daemon.status.publisher import Publisher
from cleanerd.daemon.status.replica_differences import ReplicaDifferences
from cleanerd.daemon.status.trend import TrendRing
from cleanerd.daemon.superseded_by_reload import is_superseded
from cleanerd.daemon.with_timeout import with_timeout
from cleanerd.daemon.work.backup_limits import SWEEP_SECONDS, BackupLimits
from cleanerd.daemon.work.run_job import run
from cleanerd.daemon.work.spark_offload import SparkOffload
from cleanerd.daemon.work.throttle import Rates, Throttle
from cleanerd.daemon.workers import WorkerDiedError, WorkerPool
from cleanerd.errors import CleanerdError
from cleanerd.fsio import held_directories
from cleanerd.host.clock import Clock, wall_ms
from cleanerd.policy.removal import ERASURE_READING_MS
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.state.in_progress import InFlightMarkers
from cleanerd.state.last_time import read_clock, save_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cleanerd.config.load import Settings
    from cleanerd.daemon.directory_snapshot import DirectorySnapshot
    from cleanerd.daemon.discovery.scan_threads import MakeScanner
    from cleanerd.daemon.http.server import HttpServer
    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.view import DaemonView
    from cleanerd.format.names import TopicPartition

HANG_UP_SECONDS: Final = 5.0
"""How long the daemon's end waits for clients of the HTTP server."""

WRITE_SECONDS: Final = 5.0
"""How long the daemon's end waits until the latest figures are on the disk."""

TICK_SECONDS: Final = 1.0
"""Interval of views of jobs under way."""

IDLE_TICK_SECONDS: Final = 5.0
"""The same without jobs: to wake up an idle process costs more CPU than the tick itself."""

ERASURE_SECONDS: Final = ERASURE_READING_MS / 1000
"""Seconds between readings of the open erasure requests. Each reads one small file, and one batch per partition."""

STATUS_SECONDS: Final = 5.0
"""Interval of the line for ``systemctl status``."""

_log = structlog.get_logger()


class Service:
    """The daemon.

    ``reread`` reads the settings again; ``spark_offload`` offloads to Spark; ``more_warnings``: of the caller. ``http``
    makes the server from HOST:PORT, the current view and ``explain``. Tests replace the rest: ``limits``; ``clock`` and
    ``store``, by default those of the state directory; ``run_job``; ``scanner`` and ``watcher``, which make the scanner
    of a log directory and the watcher of changes.
    """

    def __init__(
        self,
        settings: Settings,
        reread: Callable[[], Settings],
        *,
        http: Callable[..., HttpServer] | None = None,
        notifier: Notifier | None = None,
        spark_offload: SparkOffload | None = None,
        more_warnings: Callable[[], list[str]] = list,
        limits: DaemonLimits = DAEMON_LIMITS,
        clock: Clock | None = None,
        store: StateStore | None = None,
        run_job: RunJob = run,
        scanner: MakeScanner = LogDirScanner,
        watcher: Callable[[Callable[[Path, TopicPartition | None], None]], Watcher] = Watcher,
    ) -> None:
        daemon = settings.daemon
        self.configuration = Configuration(settings, reread)
        self._others: list[DaemonAnswer] | None = None
        self._cluster: tuple[DaemonView, list[DaemonAnswer], ClusterComparison] | None = None
        store = store or StateStore(daemon.cleanerd_state_dir)
        self._clock = clock = clock or read_clock(daemon.cleanerd_state_dir, store.warnings)
        in_flight, spark_offload = InFlightMarkers(store), spark_offload or SparkOffload()
        self._throttle = Throttle(Rates.of(settings))
        self._backup_limits = BackupLimits(store, clock)
        self._sweeper = WorkerPool(1, "cleanerd-sweeper")
        workers = WorkerPool(daemon.log_cleaner_threads, "cleanerd-worker")
        pauses, unreadable = load_pauses(daemon.cleanerd_state_dir)
        self._savings = EstimateCache(daemon.cleanerd_state_dir, self._write)
        self.registry = PartitionRegistry(
            RegistrySettings.of(settings), pauses, self._savings.recall, self._clear_quarantine
        )
        warnings = StandingWarnings(store, clock)
        agents = AgentPool()
        self._erasures = Erasures(
            daemon.cleanerd_state_dir, self.registry, agents, clock.now_ms, lambda: self.configuration.settings
        )
        counters = Counters(store, clock, self._throttle, workers, agents)
        self._writer = WorkerPool(1, "cleanerd-writer")
        self._written: asyncio.Future[str] | None = None
        self.canary = Canary(
            self.configuration, self.registry, now_ms=clock.now_ms, changed=self._changed, write=self._write
        )
        self.dispatcher = Dispatcher(
            self.configuration,
            self.registry,
            counters,
            workers,
            JobTools(store, in_flight, clock, self._throttle, spark_offload, self._backup_limits, agents, run=run_job),
            self.canary,
            rescan=self._rescan,
            job_ended=self._job_ended,
            changed=self._changed,
            broke=self._broke,
            limits=limits,
        )
        self._trend = TrendRing(daemon.cleanerd_state_dir, self._write)
        peers = Peers(answered=self._peers_answered)
        self.publisher = Publisher(
            self.configuration,
            self.registry,
            self.dispatcher.running,
            counters,
            lambda: [
                *warnings.passed(),
                *spark_offload.pop_warnings(),
                *self._backup_limits.pop_warnings(),
                *more_warnings(),
            ],
            self._trend,
            ReplicaDifferences(self.registry, lambda: peers.digests),
            canary=self.canary.view,
            version=__version__,
            started_ms=wall_ms(),
            limits=limits,
            erasures=self._erasures.views,
        )
        self.scan_loop = ScanLoop(
            self.configuration,
            self.registry,
            self.publisher,
            warnings,
            store,
            in_flight,
            clock,
            agents=agents,
            peers=peers,
            limits=limits,
            after_scan=self.dispatcher.scanned,
            scanner=scanner,
            watcher=watcher,
        )
        for warning in (*([unreadable] if unreadable else []), *self._savings.warnings):
            self.publisher.warn(warning)
        self.notifier = notifier or Notifier()
        self._hurry = asyncio.Event()
        self._stopping: asyncio.Future[int] | None = None
        self.control_api = ControlApi(
            self.configuration, self.registry, self.publisher, self.dispatcher, self.scan_loop, self.reload,
            self._write, canary=self.canary, limits=limits,
        )  # fmt: skip
        self._control = ControlServer(control_socket(settings), self.control_api.handlers(), note=self.control_api.note)
        self._http: HttpServer | None = None
        if http is not None and daemon.cleanerd_http_listen is not None:
            host, port = daemon.cleanerd_http_listen
            self._http = http(f"{host}:{port}", self.view, self.control_api.explain, cluster=self._compare)

    def view(self) -> DaemonView:
        """The current view; costs nothing."""
        return self.publisher.view

    def _peers_answered(self, answers: Mapping[str, Any]) -> None:
        """Keep the answers of the other daemons for ``/cluster``; called in a scan's thread."""
        self._others = [DaemonAnswer.of(*each) for each in answers.items()]

    def _compare(self) -> ClusterComparison | None:
        """This daemon as it is now beside the others' last answers, once for each view; called in a thread."""
        view, others, known = self.view(), self._others, self._cluster
        if others is None:
            return None
        if known is not None and known[0] is view and known[1] is others:
            return known[2]
        own = DaemonAnswer(view.host, view.to_json())
        cluster_id = next((each.cluster_id for each in view.log_dirs if each.cluster_id is not None), None)
        found = compare(of_one_cluster([own, *others], cluster_id))
        self._cluster = view, others, found
        return found

    async def run(self) -> int:
        """Run until a signal comes; returns its number.

        Raises:
            CleanerdError: it cannot begin.
        """
        loop = asyncio.get_running_loop()
        self._stopping = loop.create_future()
        # Before the daemon is visible: from then on a stop or reload is intended for it.
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self.stop, each)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        try:
            await self._control.start()
        except BaseException:
            self._end_threads()
            raise
        tasks: list[asyncio.Task[None]] = []
        try:
            if self._http is not None:
                await self._http.start()
            works = (self.scan_loop.run(self._ready), self._ticks(), self.scan_loop.watch(), self._sweeps())
            tasks = [asyncio.create_task(work) for work in (*works, self._follow_erasures())]
            _log.info(LogEvent.DAEMON_STARTED, version=__version__,
                      log_dirs=[str(path) for path in self.configuration.log_dirs],
                      mode=self.configuration.settings.daemon.cleanerd_mode,
                      control=str(self._control.path),
                      page=None if self._http is None else self._http.address)  # fmt: skip
            self._log_observe_mode()
            number = await self._until_stopped(tasks)
        finally:
            self.notifier.stopping()
            await self._wind_up(tasks)
        _log.info(LogEvent.DAEMON_STOPPED, signal=signal.Signals(number).name)
        return number

    def _log_observe_mode(self) -> None:
        """Explain in the log why nothing is cleaned, for an operator who forgot the mode."""
        if self.configuration.settings.daemon.cleanerd_mode == "observe":
            origin = self.configuration.settings.origins["cleanerd.mode"]
            _log.info(
                LogEvent.OBSERVE_MODE,
                reason=f"cleanerd.mode is observe ({origin})",
                hint="set cleanerd.mode to auto, live or on-start to clean",
            )

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Begin to end the daemon; a second call does not wait for requests."""
        if self._stopping is None:
            return
        if self._stopping.done():
            self._hurry.set()
        else:
            self.dispatcher.begin_nothing()
            self._stopping.set_result(number)

    async def _rescan(self, entry: PartitionEntry) -> None:
        await self.scan_loop.rescan(entry)

    def _job_ended(self, log_dir: Path, name: TopicPartition, seen: DirectorySnapshot | None) -> None:
        self.scan_loop.threads.job_ended(log_dir, name, seen)

    def _clear_quarantine(self, log_dir: Path, name: TopicPartition) -> None:
        self.scan_loop.threads.clear_quarantine(log_dir, name)

    def _changed(self) -> None:
        self.publisher.soon()

    def _broke(self, error: BaseException) -> None:
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_exception(error)

    async def _until_stopped(self, tasks: list[asyncio.Task[None]]) -> int:
        if self._stopping is None:
            raise AssertionError("not started")
        waited: list[asyncio.Future[Any]] = [self._stopping, *tasks]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                await task  # a bug in the daemon itself: it must not continue with a part missing
        return await self._stopping

    async def _wind_up(self, tasks: list[asyncio.Task[None]]) -> None:
        if self._stopping is not None:
            self._stopping.cancel()
        for task in tasks:
            task.cancel()
        await self.dispatcher.end(self._hurry)
        # Requests are answered as long as scans run.
        await self._control.stop()
        if self._http is not None:
            with contextlib.suppress(TimeoutError):
                await with_timeout(HANG_UP_SECONDS, self._http.stop())
        self.publisher.publish()
        self._trend.save()
        if self.publisher.ready:  # otherwise most of the stored estimates were not used yet
            self._savings.save(self.registry.partitions.values(), now=True)
        self._save_time()
        if self._written is not None:
            with contextlib.suppress(TimeoutError, WorkerDiedError):
                await with_timeout(WRITE_SECONDS, self._written)
        self._end_threads()
        await asyncio.gather(*tasks, return_exceptions=True)
        held_directories.close_all()

    def _end_threads(self) -> None:
        self._writer.close()
        self.dispatcher.workers.close()
        self._sweeper.close()
        self.scan_loop.threads.close()

    def _ready(self) -> None:
        self.notifier.ready(self.publisher.status_line())

    def _reloaded(self) -> None:
        """Note the end of a reload, which systemd waits for."""
        self.notifier.reloaded(self.publisher.status_line())

    async def _ticks(self) -> None:
        """Update the progress of jobs, and send systemd's watchdog message."""
        watchdog, notified_at = self.notifier.watchdog_seconds, 0.0
        status_at = time.monotonic()
        while True:
            most = IDLE_TICK_SECONDS if watchdog is None else min(IDLE_TICK_SECONDS, watchdog / 2)
            tick = min(TICK_SECONDS, most)
            if not self.dispatcher.running:
                with contextlib.suppress(TimeoutError):
                    await with_timeout(most - tick, self.dispatcher.begun.wait())
            await asyncio.sleep(tick)
            self.dispatcher.begun.clear()
            if self.dispatcher.running or self.publisher.is_stale():
                self.publisher.publish()
            self.notifier.resend()
            if watchdog is not None and time.monotonic() - notified_at >= watchdog / 2:
                notified_at = time.monotonic()
                self.notifier.watchdog()
            if self.publisher.ready and self.notifier.is_active and time.monotonic() - status_at >= STATUS_SECONDS:
                status_at = time.monotonic()
                self.notifier.status(self.publisher.status_line())

    def _write(self, work: Callable[[], str], done: Callable[[str], None]) -> None:
        """Write in one thread, in the order of the calls: a disk that hangs delays no view."""

        def ended(written: asyncio.Future[str]) -> None:
            if not written.cancelled() and written.exception() is None:
                done(written.result())

        try:
            self._written = self._writer.submit(work)
        except RuntimeError:  # the first view is made before the event loop runs
            done(work())
        else:
            self._written.add_done_callback(ended)

    async def _sweeps(self) -> None:
        """Delete old backups of replaced segments, and store the estimates."""
        while True:
            log_dirs, settings = self.configuration.log_dirs, self.configuration.settings
            if settings.daemon.cleanerd_keep_replaced_dir:
                try:
                    await self._sweeper.submit(partial(self._backup_limits.sweep, log_dirs, settings))
                except WorkerDiedError:  # a minute later a thread may be available
                    _log.exception(LogEvent.PRUNING_FAILED)
            if self.publisher.ready:
                self._savings.save(self.registry.partitions.values())
            self._save_time()
            await asyncio.sleep(SWEEP_SECONDS)

    async def _follow_erasures(self) -> None:
        """U-88: give partitions of open erasure requests priority."""
        while True:
            try:
                found = await self._sweeper.submit(self._erasures.reading())
            except WorkerDiedError:  # as in the sweeps
                _log.exception(LogEvent.ERASURE_READING_FAILED)
            else:
                for warning in found.warnings:
                    self.publisher.warn(warning)
                self._erasures.apply(found)
                if found.requests:
                    self.dispatcher.schedule()
            await asyncio.sleep(ERASURE_SECONDS)

    def _save_time(self) -> None:
        """U-42: store the time, for the next start."""
        keep = partial(save_time, self.configuration.settings.daemon.cleanerd_state_dir, self._clock.last())
        self._write(keep, lambda _problem: None)

    def _on_hangup(self) -> None:
        refused = ""
        try:
            self.reload()
        except CleanerdError as error:  # it is logged and shown
            refused = str(error)
        self.control_api.note_signal(refused)

    def reload(self) -> dict[str, Any]:
        """Reload the settings.

        Raises:
            CleanerdError: they are wrong; the old ones stay.
        """
        before = self.configuration.settings
        self.notifier.reloading()
        try:
            change = self.configuration.reload()
        except Exception as caught:
            error = caught if isinstance(caught, CleanerdError) else _unexpected(caught)
            self.publisher.not_reloaded(f"settings not reloaded: {error}")
            self._reloaded()
            raise error from caught
        self._apply_settings(before)
        self.publisher.reloaded([f"{key} was changed: takes effect at the next start" for key in change.need_restart])
        _log.info(LogEvent.SETTINGS_RELOADED, changed=list(change.keys), next_start=list(change.need_restart))
        self._reloaded()
        self.scan_loop.wake()
        return {
            "changed": list(change.keys),
            "needs_restart": list(change.need_restart),
            "generation": self.configuration.generation,
        }

    def _apply_settings(self, before: Settings) -> None:
        settings, log_dirs = self.configuration.settings, self.configuration.log_dirs
        self._throttle.set_rates(Rates.of(settings))
        self.dispatcher.workers.resize(settings.daemon.log_cleaner_threads)
        self.registry.settings = RegistrySettings.of(settings)
        self.canary.refresh()
        gone = self.scan_loop.threads.attend(log_dirs)
        for path in gone:
            self.registry.forget_dir(str(path))
        self.dispatcher.interrupt(lambda job: job.path in gone or is_superseded(job, before, settings))


def _unexpected(bug: Exception) -> CleanerdError:
    """The error for a bug in reading the settings: the current ones stay."""
    _log.exception(LogEvent.RELOAD_FAILED, exc_info=bug)
    return CleanerdError(f"unexpected error: {type(bug).__name__}: {bug}")
