"""The result of one scan of a log directory, and the inputs of that scan."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cleanerd.daemon.discovery.modes import DirMode
from cleanerd.host.clock import wall_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from cleanerd.broker.agent_pool import AgentPool
    from cleanerd.broker.mode import ModeChoice
    from cleanerd.config.load import Settings
    from cleanerd.daemon.partition_scan import FailedScan, Key, PartitionScan
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.resolution.partitions import ResolvedTopics
    from cleanerd.state.cleaner_checkpoint import StateStore
    from cleanerd.state.in_progress import CrashSuspect, InFlightMarkers


@dataclass(frozen=True, slots=True)
class ScanContext:
    """The inputs of a scan, the same for all directories. ``now_ms``: the time that its jobs use too.

    ``jobs_ended``: how many had ended when it was requested. ``stale``: partitions to scan because of their last job,
    whatever their directories' times (`StaleScans`). ``silent``: log directories that do not answer. ``only_due``: of
    the named partitions, only those that changed since their last scan. ``forgiven``: those whose quarantine was ended
    but is still in the state directory; each with a number. ``requested_at``: monotonic seconds; data read since then
    is recent enough. ``agents``: connections that all scans and jobs share; None: each scan has its own.
    """

    settings: Settings
    log_dirs: Sequence[Path]
    store: StateStore
    now_ms: Callable[[], int] = wall_ms
    agents: AgentPool | None = None
    jobs_ended: int = 0
    stale: Collection[Key] = ()
    in_flight: InFlightMarkers | None = None
    silent: frozenset[Path] = frozenset()
    only_due: bool = False
    forgiven: Mapping[Key, int] = field(default_factory=dict)
    requested_at: float = field(default_factory=time.monotonic)

    def others(self, path: Path) -> list[Path]:
        """The log directories other than ``path`` that answer."""
        return [other for other in self.log_dirs if other != path and other not in self.silent]


@dataclass(frozen=True, slots=True)
class LogDirScan:
    """A log directory at one moment.

    ``scans``: the partitions that were scanned this time. ``present``: the compacted partitions. ``excluded``: those of
    them that settings leave to Kafka, and why (U-11). ``error``: the directory cannot be read; its earlier state stays.
    ``facts``: None while its broker is unknown. ``jobs_ended``: see `ScanContext`. ``taken``: the other daemon that
    manages the directory. ``suspects``: the partitions that a killed process was cleaning. ``resolved``: configurations
    by topic, to read a partition as the broker reports it (`ByBroker`).
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
    jobs_ended: int = 0
    taken: str = ""
    suspects: Mapping[TopicPartition, CrashSuspect] = field(default_factory=dict)
    resolved: dict[str, ResolvedTopics] = field(default_factory=dict)


def failed_scan(path: Path, error: str, choice: ModeChoice | None = None) -> LogDirScan:
    """The result for a log directory that cannot be read or does not answer: no work begins there."""
    waits = DirMode("on-start", "the directory cannot be read", None)
    return LogDirScan(
        path, online=False, error=error, mode=waits, choice=choice, facts=None, total_bytes=0, free_bytes=0
    )
