"""The result of one scan of a log directory, and the inputs of that scan.

The daemon's mode in a log directory: from its settings, and from the broker's state.

The daemon never takes a log directory's lock. A broker cannot start while another process holds it ("Failed to acquire
lock"), and the daemon cannot know when a broker starts. So in a directory without a broker it stages, as beside one
without the agent. ``cleanerd apply``, which runs just before the broker when the lock is free, swaps. To clean a
stopped broker's directory at once, run ``cleanerd clean``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from cleanerd.host.clock import wall_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from cleanerd.broker.agent_pool import AgentPool
    from cleanerd.broker.mode import ModeChoice
    from cleanerd.config.load import Settings
    from cleanerd.daemon.partition_scan import FailedScan, Key, PartitionScan
    from cleanerd.daemon.view import PartitionMode
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.resolution.partitions import ResolvedTopics
    from cleanerd.state.cleaner_checkpoint import StateStore
    from cleanerd.state.in_progress import CrashSuspect, InFlightMarkers


Work = Literal["live", "stage", "observe"]
Configured = Literal["auto", "live", "on-start", "observe"]

OFFLINE_GRACE_MS: Final = 60_000
"""How long a broker has to be stopped before anything is staged: a restarting broker needs the disk."""


@dataclass(frozen=True, slots=True)
class DirMode:
    """The mode of a log directory, its reason, and what a worker does there; None: it waits."""

    mode: PartitionMode
    reason: str
    work: Work | None


def dir_mode(configured: Configured, choice: ModeChoice, away_ms: int) -> DirMode:
    """The mode to use. ``away_ms``: how long no broker has run on the directory."""
    if choice.worked_on:
        return DirMode("observe" if configured == "observe" else "offline", choice.reason, None)
    if configured == "observe":
        return DirMode("observe", f"cleanerd.mode is observe; {choice.reason}", "observe")
    if choice.mode == "live" and configured != "on-start":
        return DirMode("live", choice.reason, "live")
    if configured == "live":
        return DirMode("live", f"waits, because cleanerd.mode is live: {choice.reason}", None)
    if choice.mode == "offline" and away_ms < OFFLINE_GRACE_MS:
        return DirMode("offline", f"{choice.reason}; it may be about to start", None)
    why = choice.reason if choice.mode != "live" else "cleanerd.mode is on-start"
    mode: PartitionMode = "offline" if choice.mode == "offline" else "on-start"
    return DirMode(mode, f"{why}: cleanings are staged for its next start (cleanerd apply)", "stage")


@dataclass(frozen=True, slots=True)
class ScanContext:
    """The inputs of a scan, the same for all directories. ``now_ms``: the time that its jobs use too.

    ``stale``: partitions to scan whatever their directories' times, because of their last job. ``outdated``: partitions
    to skip, because a job on them ended after the request; grows while the scan runs. ``silent``: log directories that
    do not answer. ``only_due``: of the named partitions, only those that changed since their last scan.
    ``requested_at``: monotonic seconds; data read since then is recent enough. ``agents``: connections that all scans
    and jobs share; None: each scan has its own.
    """

    settings: Settings
    log_dirs: Sequence[Path]
    store: StateStore
    now_ms: Callable[[], int] = wall_ms
    agents: AgentPool | None = None
    stale: Collection[Key] = ()
    outdated: Collection[TopicPartition] = ()
    in_flight: InFlightMarkers | None = None
    silent: frozenset[Path] = frozenset()
    only_due: bool = False
    requested_at: float = field(default_factory=time.monotonic)

    def others(self, path: Path) -> list[Path]:
        return [other for other in self.log_dirs if other != path and other not in self.silent]


@dataclass(frozen=True, slots=True)
class LogDirScan:
    """A log directory at one moment.

    ``scans``: the partitions that were scanned this time. ``present``: the compacted partitions. ``excluded``: those of
    them that settings leave to Kafka, and why (U-11). ``error``: the directory cannot be read; its earlier state stays.
    ``facts``: None while its broker is unknown. ``taken``: the other daemon that manages the directory. ``suspects``:
    the partitions that a killed process was cleaning. ``resolved``: configurations by topic, to read a partition as the
    broker reports it (`LivePartitions`).
    """

    path: Path
    online: bool
    error: str
    mode: DirMode
    choice: ModeChoice | None
    facts: BrokerFacts | None
    total_bytes: int
    free_bytes: int
    scans: tuple[PartitionScan | FailedScan, ...] = ()
    present: frozenset[TopicPartition] | None = None
    excluded: Mapping[TopicPartition, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    taken: str = ""
    suspects: Mapping[TopicPartition, CrashSuspect] = field(default_factory=dict)
    resolved: dict[str, ResolvedTopics] = field(default_factory=dict)


def failed_scan(path: Path, error: str, choice: ModeChoice | None = None) -> LogDirScan:
    """The result for a log directory that cannot be read or does not answer: no work begins there."""
    waits = DirMode("on-start", "the directory cannot be read", None)
    return LogDirScan(
        path, online=False, error=error, mode=waits, choice=choice, facts=None, total_bytes=0, free_bytes=0
    )
