"""Scans a log directory repeatedly, reading as little as possible.

A partition is surveyed again when its directory changed (a segment was rolled, deleted, replaced); when its topic's
configuration or the directory's mode did; when time alone changes the answer; when something other than the active
segment limited it; and regularly in any case. Otherwise a scan costs one ``stat``, and a listing if the broker only
deleted old files, as it does a minute after each cleaning.

One thread scans. Others may call :meth:`LogDirScanner.note` and :meth:`LogDirScanner.clear_quarantine`, and jobs use
the configurations that were resolved here.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from cleanerd.broker.live_broker import LiveBroker
from cleanerd.broker.mode import SINGLE_TRY, ModeChoice, choose_mode
from cleanerd.daemon.directory_snapshot import CONFIG_APPLIED_MS, FORCED_SCAN_MS, DirectorySnapshot, files_in, mtime_ns
from cleanerd.daemon.discovery.daemon_lock import DaemonLock
from cleanerd.daemon.discovery.facts_cache import FactsCache
from cleanerd.daemon.discovery.log_dir_scan import DirMode, LogDirScan, ScanContext, dir_mode, failed_scan
from cleanerd.daemon.limits import DAEMON_LIMITS, DaemonLimits
from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.partition_scan import FailedScan, PartitionScan, scan_partition
from cleanerd.errors import AgentRefusalError, Cause, CleanerdError, RefusedError, as_cleanerd_error
from cleanerd.resolution.broker_start import start_warnings
from cleanerd.resolution.checkpoint_pair import CheckpointPairs, is_separate_write
from cleanerd.resolution.partitions import (
    BesideBrokerPartitions,
    LivePartitions,
    OfflinePartitions,
    Partitions,
    ResolvedTopics,
)
from cleanerd.resolution.selection import why_excluded
from cleanerd.segments.log_dir import LogDir, LogDirMemory, read_log_dir
from cleanerd.state.quarantine import forget_quarantine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cleanerd.broker.partition_snapshot import PartitionSnapshot
    from cleanerd.config.load import Settings
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.resolution.targets import TargetPartition
    from cleanerd.state.in_progress import CrashSuspect, InFlightMarkers

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Known:
    """The inputs of the last scan of the whole directory."""

    log_dir: LogDir
    choice: ModeChoice
    facts: BrokerFacts
    compacted: frozenset[TopicPartition] | None
    mode: DirMode
    targets: Mapping[TopicPartition, TargetPartition]
    excluded: Mapping[TopicPartition, str]
    present: frozenset[TopicPartition]
    has_suspects: bool


class LogDirScanner:
    """Scans one log directory repeatedly, and caches unchanged results."""

    def __init__(self, path: Path, facts: FactsCache | None = None, limits: DaemonLimits = DAEMON_LIMITS) -> None:
        """``facts``: a cache of broker facts; None: a new one."""
        self._limits = limits
        self.path = path
        self._patience = replace(SINGLE_TRY, answer_seconds=limits.agent_seconds, place_seconds=limits.place_seconds)
        self._path_text = str(path)
        self._facts = facts or FactsCache()
        self._seen: dict[TopicPartition, DirectorySnapshot] = {}
        self._away_since_ms: int | None = None
        self._settings: Settings | None = None
        self._readings = CheckpointPairs(limits.settle_seconds)
        self._read_at = 0.0
        self._last: _Known | None = None
        self._memory = LogDirMemory()
        self._resolved: dict[str, ResolvedTopics] = {}
        self._known_by_files: dict[str, tuple[BrokerFacts, TopicConfig | None]] = {}
        self._lock = DaemonLock(path)
        self._notes: deque[tuple[TopicPartition, DirectorySnapshot]] = deque()
        self._clearings: deque[TopicPartition] = deque()
        self._to_clear: set[TopicPartition] = set()
        self._start_warnings: tuple[str, ...] = ()
        self._start_checked_at = -math.inf

    def note(self, name: TopicPartition, seen: DirectorySnapshot) -> None:
        """Use a worker's scan at the end of its job; called from any thread. The next scan uses it."""
        self._notes.append((name, seen))

    def clear_quarantine(self, name: TopicPartition) -> None:
        """Remove its quarantine from the state directory, once, before the next scan of it; called from any thread."""
        self._clearings.append(name)

    def _collect_notes(self) -> None:
        while self._clearings:
            self._to_clear.add(self._clearings.popleft())
        while self._notes:
            name, seen = self._notes.popleft()
            before = self._seen.get(name)
            if before is not None:
                # A configuration that changed since our last scan still has to be applied; so does a job's scan with
                # settings from before a reload.
                seen.config = before.config
                seen.inherit_since(before)
                seen.settled = seen.settled and (seen.settings is None or seen.settings is self._settings)
                self._seen[name] = seen

    def release(self) -> None:
        """Release the directory to other daemons permanently; from any thread."""
        self._lock.end()

    def scan(self, context: ScanContext, only: Collection[TopicPartition] | None = None) -> LogDirScan:
        """Scan now. Does not raise ordinary errors.

        ``only``: these partitions, using earlier facts about the directory; without ``context.only_due`` even if they
        are not due.
        """
        now_ms = context.now_ms()
        self._collect_notes()
        for path, name in context.stale:
            if path == self._path_text and name in self._seen:
                self._seen[name].settled = False
        # Earlier results are not used while a directory does not answer: they may depend on it.
        before = self._last
        known = before if context.settings is self._settings and not context.silent else None
        if only is not None and known is not None:
            return self._scan_some(context, known, only, now_ms)
        # A scan of some partitions does not prove that a failed directory works again.
        self._last = None
        choice = None
        try:
            self._read_at = time.monotonic()
            log_dir = read_log_dir(self.path, self._memory)
            total, free = _space(self.path)
            others = context.others(self.path)
            choice = self._choice(context, log_dir, others, before)
            mode = dir_mode(context.settings.daemon.cleanerd_mode, choice, self._away_ms(choice, now_ms))
            mode = self._lock.checked(mode)
            _require_all_seen(context, choice)
            facts = self._facts.get(context, log_dir, running=choice.mode != "offline")
        except (CleanerdError, OSError) as error:
            return failed_scan(self.path, _describe(error), choice)
        if context.settings is not self._settings:
            self._settings = context.settings
            self._seen.clear()
        self._readings.add(log_dir)
        with self._partitions(context, log_dir, choice, facts) as partitions:
            try:
                targets = _targets(partitions, choice, before)
            except CleanerdError as error:
                return LogDirScan(self.path, online=True, error=_describe(error), mode=mode, choice=choice, facts=facts,
                               total_bytes=total, free_bytes=free)  # fmt: skip
            excluded = _excluded(context.settings, targets)
            scans = tuple(self._scan_partitions(context, partitions, targets, mode, now_ms, only, excluded))
        same = before is not None and targets is before.targets
        present = before.present if before is not None and same else frozenset(targets)
        self._check_start(log_dir, facts, same=before is not None and present == before.present)
        suspects = _suspects(context.in_flight, log_dir, scans, now_ms)
        self._last = _Known(
            log_dir=log_dir,
            choice=choice,
            facts=facts,
            compacted=partitions.compacted,
            mode=mode,
            targets=targets,
            excluded=excluded,
            present=present,
            has_suspects=bool(suspects),
        )
        if not same:
            for name in set(self._seen) - present:
                del self._seen[name]
            self._to_clear &= present
            topics = {name.topic for name in present}
            for topic in (self._resolved.keys() | self._known_by_files.keys()) - topics:
                self._resolved.pop(topic, None)
                self._known_by_files.pop(topic, None)
        return LogDirScan(
            self.path,
            online=True,
            error="",
            mode=mode,
            choice=choice,
            facts=facts,
            total_bytes=total,
            free_bytes=free,
            scans=scans,
            present=present,
            excluded=excluded,
            warnings=self._warnings(self._last, suspects),
            taken=self._lock.taken,
            suspects=suspects,
            resolved=self._resolved,
        )

    def _scan_some(
        self, context: ScanContext, known: _Known, only: Collection[TopicPartition], now_ms: int
    ) -> LogDirScan:
        total = free = 0
        with contextlib.suppress(OSError):
            total, free = _space(self.path)
        targets = {name: known.targets[name] for name in only if name in known.targets}
        with self._partitions(context, known.log_dir, known.choice, known.facts) as partitions:
            scans = tuple(self._scan_partitions(context, partitions, targets, known.mode, now_ms, only, known.excluded))
        suspects = _suspects(context.in_flight, known.log_dir, scans, now_ms) if known.has_suspects else {}
        return LogDirScan(
            self.path,
            online=True,
            error="",
            mode=known.mode,
            choice=known.choice,
            facts=known.facts,
            total_bytes=total,
            free_bytes=free,
            scans=scans,
            resolved=self._resolved,
            warnings=self._warnings(known, suspects),
        )

    def _warnings(self, known: _Known, suspects: Mapping[TopicPartition, CrashSuspect]) -> tuple[str, ...]:
        killed = (f"{name}: {suspect.reason}" for name, suspect in suspects.items())
        of_dir = (*known.facts.warnings, *self._facts.warnings, *self._lock.warnings, *_links(known.log_dir))
        return (*of_dir, *_held_by_unknown(known), *self._start_warnings, *killed)

    def _check_start(self, log_dir: LogDir, facts: BrokerFacts, *, same: bool) -> None:
        """Check what the broker's next start does with the directory (U-60); ``same``: its partitions are unchanged."""
        now = time.monotonic()
        if not same or now - self._start_checked_at >= self._limits.start_check_seconds:
            self._start_warnings = tuple(start_warnings(log_dir, facts))
            self._start_checked_at = now

    def read(self, context: ScanContext, name: TopicPartition) -> PartitionSnapshot:
        """Read one partition for ``explain``.

        Raises:
            CleanerdError: it cannot be read.
        """
        log_dir = read_log_dir(self.path)
        choice = self._choice(context, log_dir, context.others(self.path), self._last)
        _require_all_seen(context, choice)
        facts = self._facts.get(context, log_dir, running=choice.mode != "offline")
        with self._partitions(context, log_dir, choice, facts) as partitions:
            return partitions.read(name)

    def _scan_partitions(
        self,
        context: ScanContext,
        partitions: Partitions,
        targets: Mapping[TopicPartition, TargetPartition],
        mode: DirMode,
        now_ms: int,
        only: Collection[TopicPartition] | None,
        excluded: Mapping[TopicPartition, str],
    ) -> Iterator[PartitionScan | FailedScan]:
        kind = f"{mode.mode}/{partitions.kind}"
        for name, target in targets.items():
            if only is not None and name not in only:
                continue
            if excluded and name in excluded:
                self._seen.pop(name, None)
                continue
            if context.outdated and name in context.outdated:
                continue
            if (only is None or context.only_due) and not self._is_due(target, kind, now_ms, reported=context.only_due):
                continue
            yield self._scan_partition(context, partitions, target, kind, now_ms)

    def _is_due(self, target: TargetPartition, kind: str, now_ms: int, *, reported: bool) -> bool:
        """Whether to scan it; ``reported``: a change was reported, which file times are too coarse to show."""
        seen = self._seen.get(target.name)
        if seen is None or not seen.settled or seen.mode != kind:
            return True
        path = f"{self._path_text}/{target.name}"
        changed_ns = mtime_ns(path)
        if reported or changed_ns < 0 or seen.mtime_ns != changed_ns:
            if seen.files != files_in(path):
                return True
            seen.mtime_ns = changed_ns
        # All times are nearer than that, unless the clock jumped back.
        if not 0 < seen.again_ms - now_ms <= 2 * FORCED_SCAN_MS or target.error is not None:
            return True
        known, config = seen.config, target.config
        if seen.removal_wait_changed(target.name.partition, config, now_ms):
            return True
        return config is not known and config is not None and known is not None and config != known

    def _scan_partition(
        self,
        context: ScanContext,
        partitions: Partitions,
        target: TargetPartition,
        kind: str,
        now_ms: int,
    ) -> PartitionScan | FailedScan:
        name, known = target.name, target.config
        before = self._seen.get(name)
        # Scanned again next time, unless this scan decides otherwise.
        self._seen[name] = DirectorySnapshot(-1, -1, known, kind, False, 0, None)
        try:
            reading = partitions.read(name)
            if name in self._to_clear:
                forget_quarantine(context.store, reading.log_dir, reading.log)
                self._to_clear.discard(name)
            scan = scan_partition(reading, context.store, now_ms)
        except (CleanerdError, OSError) as error:
            return FailedScan(name, _describe(error), as_cleanerd_error(error, str(self.path)).cause)
        except Exception as error:  # noqa: BLE001 - a bug that one partition brings out: the others go on
            _log.exception(LogEvent.SCAN_FAILED, partition=str(name))
            return FailedScan(name, f"unexpected error: {type(error).__name__}: {error}", Cause.DATA)
        seen = DirectorySnapshot.of(scan, reading, known, kind, reading.log.listed)
        seen.inherit_since(before)
        if before is not None and known is not before.config and known != before.config:
            # The broker applies a changed configuration after it is in the files: this scan may still have the old one.
            seen.again_ms = min(seen.again_ms, now_ms + CONFIG_APPLIED_MS)
        self._seen[name] = seen
        return scan

    def _away_ms(self, choice: ModeChoice, now_ms: int) -> int:
        if choice.mode != "offline":
            self._away_since_ms = None
            return 0
        if self._away_since_ms is None or self._away_since_ms > now_ms:
            self._away_since_ms = now_ms
        return now_ms - self._away_since_ms

    def _choice(
        self, context: ScanContext, log_dir: LogDir, others: Sequence[Path], before: _Known | None
    ) -> ModeChoice:
        """As :func:`choose_mode`. While the agent has no free connection, the mode before.

        Raises:
            AgentRefusalError: the agent has no free connection, and was never queried.
        """
        configured = context.settings.daemon.cleanerd_agent_socket
        try:
            return choose_mode(log_dir, others, configured, context.agents, self._patience)
        except AgentRefusalError:
            if before is None or before.choice.mode != "live":
                raise
            return before.choice

    @contextlib.contextmanager
    def _partitions(
        self, context: ScanContext, log_dir: LogDir, choice: ModeChoice, facts: BrokerFacts
    ) -> Iterator[Partitions]:
        if choice.mode == "live" and choice.socket is not None:
            with LiveBroker(choice.socket, self._patience, context.agents) as broker:
                yield LivePartitions(
                    log_dir,
                    facts,
                    broker,
                    resolved=self._resolved,
                    known_by_files=self._known_by_files,
                    since=context.requested_at,
                )
        elif choice.mode == "on-start":
            # If a log was just truncated or is new, no checkpoint is known to be newer.
            ends = {
                name: seen.active
                for name, seen in self._seen.items()
                if seen.active is not None and is_separate_write(seen.since, self._read_at, self._limits.settle_seconds)
            }
            yield BesideBrokerPartitions(log_dir, facts, self._readings.earlier(ends))
        else:
            yield OfflinePartitions(log_dir, facts)


def _targets(
    partitions: Partitions, choice: ModeChoice, before: _Known | None
) -> Mapping[TopicPartition, TargetPartition]:
    """The targets of the last scan, if names and configuration are the same.

    Raises:
        CleanerdError: see :meth:`Partitions.targets`.
    """
    if before is not None and before.choice.mode == choice.mode:
        same = before.facts is partitions.facts and before.log_dir.partitions is partitions.log_dir.partitions
        if same and before.compacted == partitions.compacted:
            return before.targets
    return {target.name: target for target in partitions.targets()}


def _held_by_unknown(known: _Known) -> Iterator[str]:
    """U-70: that tombstones wait because the replicas are unknown, if those of any topic here wait at all."""
    configs = (target.config for name, target in known.targets.items() if name not in known.excluded)
    if known.facts.unknown_replicas and any(config is not None and config.replicas is not None for config in configs):
        yield f"{known.log_dir.path}: {known.facts.replicas_note}"


def _excluded(settings: Settings, targets: Collection[TopicPartition]) -> dict[TopicPartition, str]:
    daemon = settings.daemon
    reasons = {
        topic: why_excluded(topic, daemon.cleanerd_topics_include, daemon.cleanerd_topics_exclude)
        for topic in {name.topic for name in targets}
    }
    return {name: reasons[name.topic] for name in targets if reasons[name.topic]}


def _space(path: Path) -> tuple[int, int]:
    status = os.statvfs(path)
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def _suspects(
    in_flight: InFlightMarkers | None, log_dir: LogDir, scans: Iterable[PartitionScan | FailedScan], now_ms: int
) -> dict[TopicPartition, CrashSuspect]:
    """The partitions that a killed process was cleaning (U-35), unless nothing is left to do: then it had finished."""
    if in_flight is None:
        return {}
    suspects = in_flight.suspects(log_dir)
    for scan in scans:
        if scan.name in suspects and isinstance(scan, PartitionScan) and scan.has_nothing_to_do(now_ms):
            in_flight.outlived(log_dir, scan.name)
            del suspects[scan.name]
    return suspects


def _links(log_dir: LogDir) -> tuple[str, ...]:
    return tuple(f"{log_dir.path / str(name)}: is a symbolic link and not followed" for name in log_dir.linked)


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _require_all_seen(context: ScanContext, choice: ModeChoice) -> None:
    """Check that all directories were read, because a replica that is being moved is not cleaned.

    A running broker with its agent reports such replicas; otherwise all directories must be read.

    Raises:
        RefusedError: another log directory does not answer.
    """
    if context.silent and choice.mode != "live":
        raise RefusedError(
            "does not answer, so it is unknown which replicas are being moved there",
            where=str(min(context.silent)),
            hint="nothing is cleaned in the other log directories either until it does",
        )
