"""Makes the :class:`DaemonView`: the value that metrics, HTTP, ``status`` and ``top`` show."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from cleanerd.daemon.limits import DAEMON_LIMITS, OF_A_VIEW, DaemonLimits, pause_seconds
from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.status.view_parts import log_dir_view, partition_view, running_view
from cleanerd.daemon.view import CanaryView, DaemonView, ErasureView, PartitionView
from cleanerd.host.clock import wall_ms
from cleanerd.humanize import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cleanerd.daemon.configuration import Configuration
    from cleanerd.daemon.discovery.log_dir_scan import LogDirScan
    from cleanerd.daemon.partition_scan import Key
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.status.counters import Counters
    from cleanerd.daemon.status.replica_differences import ReplicaDifferences
    from cleanerd.daemon.status.trend import TrendRing
    from cleanerd.daemon.work.job import CleaningJob

_log = structlog.get_logger()

WARNINGS: Final = 50
"""How many of the newest warnings are shown; all of them are logged."""

SOON_SECONDS: Final = 0.1
"""Several changes together cause one view, after at least this delay."""

STALE_SECONDS: Final = 30.0
"""Without changes a view is made this often: it shows that the daemon is alive."""

STUCK_SECONDS: Final = 120.0
"""A scan of everything that takes longer than this and four intervals hangs: a disk does not answer."""


class Publisher:
    """Owns the view. ``running``: the workers' jobs. ``pop_warnings``: the new ones. ``canary``: its state."""

    def __init__(
        self,
        configuration: Configuration,
        registry: PartitionRegistry,
        running: Mapping[Key, CleaningJob],
        counters: Counters,
        pop_warnings: Callable[[], list[str]],
        trend: TrendRing,
        replicas: ReplicaDifferences,
        *,
        canary: Callable[[], CanaryView | None] = lambda: None,
        version: str,
        started_ms: int,
        limits: DaemonLimits = DAEMON_LIMITS,
        erasures: Callable[[], tuple[ErasureView, ...]] = tuple,
    ) -> None:
        self._limits = limits
        self._erasures = erasures
        self._configuration = configuration
        self._registry = registry
        self._running = running
        self._counters = counters
        self._pop_warnings = pop_warnings
        self._trend = trend
        self._replicas = replicas
        self._canary = canary
        self._host = socket.gethostname()
        self._version = version
        self._started_ms = started_ms
        self._events: dict[str, float] = {}
        self._of_settings: tuple[str, ...] = ()
        self._not_reloaded = ""
        self._round_ended_at = time.monotonic()
        self._last_scan_ms: int | None = None
        self.ready = False
        self._pending: asyncio.TimerHandle | None = None
        self._took = 0.0
        self.view = self._make()
        self._made_at = time.monotonic()

    def publish(self) -> None:
        """Replace the view by a new one."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        trend_warnings, self._trend.warnings = self._trend.warnings, []
        for warning in (*self._pop_warnings(), *trend_warnings):
            self.warn(warning)
        began = time.thread_time()  # CPU time: a suspended machine did not work for it
        self.view = self._make()
        self._took = time.thread_time() - began
        self._made_at = time.monotonic()

    def soon(self) -> None:
        """Publish within a moment: many changes together give one view."""
        if self._pending is None:
            wait = max(SOON_SECONDS, pause_seconds(self._took, OF_A_VIEW))
            self._pending = asyncio.get_running_loop().call_later(wait, self.publish)

    def is_stale(self) -> bool:
        """Whether the view is older than a few moments."""
        return time.monotonic() - self._made_at > STALE_SECONDS

    def round_ended(self) -> None:
        """Note that all partitions were scanned."""
        self._round_ended_at = time.monotonic()
        self._last_scan_ms = wall_ms()
        self.ready = self.ready or not self._configuration.is_behind

    def reloaded(self, warnings: list[str]) -> None:
        """Note that new settings apply.

        The daemon stays ready, and work continues with the current state. Warnings about an earlier try are dropped.
        """
        self._of_settings = tuple(warnings)
        self._not_reloaded = ""
        for warning in warnings:
            _log.warning(LogEvent.SETTING_NOT_APPLIED, reason=warning)
        self.publish()

    def not_reloaded(self, warning: str) -> None:
        """Note that a reload failed: the warning stays until a reload succeeds."""
        self._not_reloaded = warning
        _log.warning(LogEvent.SETTING_NOT_APPLIED, reason=warning)
        self.publish()

    def warn(self, text: str) -> None:
        """Add a warning for the operator, without duplicates; the newest come last."""
        if text not in self._events:
            _log.warning(LogEvent.WARNING_RAISED, kind="event", reason=text)
        self._events.pop(text, None)
        self._events[text] = time.monotonic()
        while len(self._events) > WARNINGS:
            self._events.pop(next(iter(self._events)))

    def _about_settings(self) -> list[str]:
        return [*([self._not_reloaded] if self._not_reloaded else []), *self._of_settings]

    def _of_late(self) -> list[str]:
        oldest = time.monotonic() - self._limits.event_seconds
        self._events = {text: at for text, at in self._events.items() if at > oldest}
        return list(self._events)

    def status_line(self) -> str:
        """The line that ``systemctl status`` shows: the current state, and faults."""
        partitions = self._registry.partitions
        bad = sum(entry.quarantine is not None for entry in partitions.values())
        return (
            f"{self._configuration.settings.daemon.cleanerd_mode}: {counted(len(partitions), 'partition')}, "
            f"{len(self._running)} being cleaned, {bad} quarantined"
            + (", paused" if self.view.paused else "")
            + (f"; {self._registry.held}" if self._registry.held else "")
            + ("" if self.view.healthy else f"; unhealthy: {self.view.unhealthy_reason}")
        )

    def _make(self) -> DaemonView:
        registry, daemon = self._registry, self._configuration.settings.daemon
        reason = self._unhealthy_reason()
        views = tuple([entry.view or partition_view(registry, entry) for entry in registry.by_name()])
        for swapped_in in registry.pop_swapped_in():
            self._counters.add_swapped_in(swapped_in)
        totals = replace(self._counters.totals(), staged_bytes=sum(map(_staged_bytes, views)))
        now_ms = wall_ms()
        held = self._counters.pop_longest_hold()
        differing = self._replicas.current()
        return DaemonView(
            version=self._version,
            started_ms=self._started_ms,
            made_ms=now_ms,
            ready=self.ready,
            healthy=not reason,
            unhealthy_reason=reason,
            mode=daemon.cleanerd_mode,
            paused=registry.pauses.everything,
            threads=daemon.log_cleaner_threads,
            window_open=self._configuration.window_is_open(),
            last_scan_ms=self._last_scan_ms,
            map_utilization=max(_utilizations(registry), default=0.0),
            settings_generation=self._configuration.generation,
            log_dirs=tuple(log_dir_view(registry, found) for found in self._dirs()),
            partitions=views,
            running=tuple(running_view(job) for job in self._running.values()),
            history=self._counters.history,
            warnings=tuple(
                dict.fromkeys([*self._about_settings(), *self._of_dirs(), *differing.texts, *self._of_late()])
            ),
            totals=totals,
            host=self._host,
            trend=self._trend.observe(now_ms, totals, held, lambda: sum(each.dirty_bytes or 0 for each in views)),
            canary=self._canary(),
            scan_interval_ms=daemon.log_cleaner_backoff_ms,
            differing_partitions=differing.count,
            erasures=self._erasures(),
            has_peers=daemon.cleanerd_cluster_peers != (),
        )

    def _unhealthy_reason(self) -> str:
        silent = time.monotonic() - self._round_ended_at
        backoff = self._configuration.settings.daemon.log_cleaner_backoff_ms / 1000
        if silent > max(STUCK_SECONDS, 4 * backoff):
            return f"the scan of the log directories has not ended for {silent:.0f} s: a disk may hang (kernel log)"
        dirs = self._dirs()
        if dirs and not any(found.online for found in dirs):
            return f"no log directory can be read: {dirs[0].error}"
        return ""

    def _dirs(self) -> list[LogDirScan]:
        """In the order of the settings, whichever answered first."""
        found = self._registry.dirs
        return [found[str(path)] for path in self._configuration.log_dirs if str(path) in found]

    def _of_dirs(self) -> Iterable[str]:
        for found in self._dirs():
            if found.error:
                yield f"{found.path}: {found.error}" if str(found.path) not in found.error else found.error
            yield from found.warnings


def _staged_bytes(partition: PartitionView) -> int:
    """What its staged cleaning frees; 0 if it is unknown, because another process staged it."""
    last = partition.last_cleaning
    if partition.phase != "staged" or last is None or last.result.get("outcome") != "staged":
        return 0
    return max(0, int(last.result["bytes_before"]) - int(last.result["bytes_after"]))


def _utilizations(registry: PartitionRegistry) -> Iterable[float]:
    cleanings = (entry.last_cleaning for entry in registry.partitions.values())
    return (float(clean.result.get("map_utilization", 0.0)) for clean in cleanings if clean is not None)
