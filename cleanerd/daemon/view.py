"""The daemon's state as one frozen value, the only source of metrics, HTTP, the status page and ``top``.

The service replaces the :class:`DaemonView` when something changed. Its readers never wait for a disk, a lock or a
cleaning: a scrape reads a finished value.

Times are milliseconds since the epoch, sizes bytes, ratios 0 to 1; None where unknown (yet).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from cleanerd.cleaner.hanging_transaction import OpenTransaction
    from cleanerd.cleaner.reclaimable import Method
    from cleanerd.policy.state_digest import StateDigest

_PARTITION_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")

PartitionMode = Literal["live", "on-start", "offline", "observe"]
PartitionPhase = Literal["idle", "queued", "cleaning", "staged", "paused", "refused", "quarantined", "excluded"]
"""The state of a partition.

``idle``: not worth cleaning now, see ``reason``. ``refused``: an operator has to act first (U-6, U-8); ``excluded``:
settings leave it to Kafka (U-11, include/exclude).
"""

Outlook = Literal["now", "next", "restart", "observe", "no"]
"""When a cleaning takes effect: it runs, it is next, at the broker's next start, in observe mode, or not at all."""

Trigger = Literal["ratio", "overdue", "erasure", "tombstone_removal", "manual"]
"""Why a partition is cleaned: its dirty ratio, ``max.compaction.lag.ms``, an open erasure request, expired tombstones,
or an operator's request."""

RunPhase = Literal["survey", "index", "decide", "rewrite", "swap"]


@dataclass(frozen=True, slots=True)
class QuarantineView:
    """A partition that waits after an error: since when, why, and when it is tried again."""

    reason: str
    since_ms: int
    failures: int
    retry_at_ms: int | None


@dataclass(frozen=True, slots=True)
class CleaningView:
    """A finished cleaning: ``result`` is the entry of ``clean --json``."""

    topic: str
    partition: int
    started_ms: int
    ended_ms: int
    trigger: Trigger
    result: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {**self.summary(), "result": dict(self.result)}

    def summary(self) -> dict[str, Any]:
        """The part that a list of thousands of partitions shows."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "started_ms": self.started_ms,
            "ended_ms": self.ended_ms,
            "trigger": self.trigger,
            **{key: self.result.get(key) for key in ("outcome", "reason", "bytes_before", "bytes_after")},
        }


@dataclass(frozen=True, slots=True)
class RunningView:
    """A running cleaning: ``done_bytes`` of ``total_bytes`` in this phase."""

    topic: str
    partition: int
    log_dir: str
    started_ms: int
    trigger: Trigger
    phase: RunPhase
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One compacted partition.

    ``phase``, ``outlook`` and ``reason`` come from one value (OP-11). ``dirty_bytes``: between the first dirty offset
    and the bound; ``size_bytes``: the whole log. None if not scanned, as in an excluded partition.
    ``reclaimable_bytes``: what a clean would save, from ``reclaimable_low_bytes`` to ``reclaimable_high_bytes``:
    ``exact``, from a ``sample``, or before that a ``guess`` by what cleanings saved. ``overdue_at_ms``: when
    max.compaction.lag.ms makes it due.
    ``next_purge_ms``: when tombstones or markers of its clean part may go although nothing new was written.
    ``delegated``: whether Kafka's own cleaner is kept away (U-8); None where that is not needed.
    ``has_wrong_times``: timestamps are not in milliseconds, so no deadline can be known (OP-18).
    ``open_transaction``: the one that limits the cleaning (OP-14).
    ``waits_for``: brokers out of the ISR since ``waits_since_ms`` (U-70), or less clean (U-79; then that is None). For
    these, tombstones and markers past their delete horizon wait.
    ``tombstones_kept``: at most so many tombstones and markers wait; None: unknown.
    ``waits_at``: by broker of ``waits_for`` the end of its log, of ``log_end_offset``, where its daemon reports it.
    ``digests``: the newest ones of the latest state at grid offsets, for comparison with other replicas (U-90).
    """

    topic: str
    partition: int
    log_dir: str
    phase: PartitionPhase
    outlook: Outlook
    mode: PartitionMode
    reason: str
    strategy: str
    fingerprint: str
    first_dirty_offset: int | None
    first_uncleanable_offset: int | None
    size_bytes: int | None
    dirty_bytes: int | None
    dirty_ratio: float | None
    reclaimable_bytes: int | None
    reclaimable_exact: bool
    reclaimable_low_bytes: int | None
    reclaimable_high_bytes: int | None
    reclaimable_method: Method | None
    overdue_at_ms: int | None
    next_purge_ms: int | None
    delegated: bool | None
    fingerprint_changed: bool
    quarantine: QuarantineView | None
    last_cleaning: CleaningView | None
    open_transaction: OpenTransaction | None = None
    has_wrong_times: bool = False
    waits_for: tuple[int, ...] = ()
    waits_since_ms: int | None = None
    waits_at: tuple[tuple[int, int], ...] = ()
    log_end_offset: int | None = None
    tombstones_kept: int | None = None
    digests: tuple[StateDigest, ...] = ()

    def is_held(self, now_ms: int) -> bool:
        """Whether tombstones or markers past their delete horizon wait for a replica."""
        return bool(self.waits_for) and self.next_purge_ms is not None and self.next_purge_ms <= now_ms

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    def to_json(self) -> dict[str, Any]:
        """The entry of ``/status``, with a summary of the last cleaning."""
        return {
            **{name: getattr(self, name) for name in _PARTITION_FIELDS},
            "state": self.phase,
            "open_transaction_since_ms": None if self.open_transaction is None else self.open_transaction.since_ms,
            "open_transaction": None if self.open_transaction is None else self.open_transaction.to_json(),
            "digests": [each.to_json() for each in self.digests],
            "quarantine": None if self.quarantine is None else asdict(self.quarantine),
            "last_cleaning": None if self.last_cleaning is None else self.last_cleaning.summary(),
        }


_PARTITION_FIELDS: Final = tuple(each.name for each in fields(PartitionView))
"""Computed once: a busy daemon writes thousands of entries a second."""


@dataclass(frozen=True, slots=True)
class LogDirView:
    """A log directory. ``agent``: the agent's own report, None without one; ``node_id``: the broker's.

    ``kafka_cleaner``: whether Kafka's own cleaner works there, in words (OP-13). ``kafka_cleaner_runs``: None if
    neither settings nor agent show it.
    """

    path: str
    online: bool
    mode: PartitionMode
    mode_reason: str
    total_bytes: int
    free_bytes: int
    reserve_bytes: int
    agent: Mapping[str, Any] | None
    error: str = ""
    node_id: int | None = None
    kafka_cleaner: str = ""
    kafka_cleaner_runs: bool | None = None
    cluster_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        shallow = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**shallow, "agent": None if self.agent is None else dict(self.agent)}


ErasureStage = Literal["unknown", "blocked", "dirty", "tombstone", "kept", "certify"]
"""``unknown``: its partition was not scanned.

``blocked``: the tombstone cannot be cleaned yet. ``dirty``: a cleaning is due. ``tombstone``: only the tombstone is
left, until its delete horizon. ``kept``: removed from the log, but segments that are kept for ``undo`` have the key.
``certify``: removed from both.
"""


@dataclass(frozen=True, slots=True)
class ErasureView:
    """An open erasure request (U-88). ``stages``: by partition on this host, the stage and its reason."""

    id: str
    topic: str
    requested_ms: int
    deadline_ms: int
    stages: Mapping[str, tuple[ErasureStage, str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The entry of ``/status``."""
        stages = [{"partition": name, "stage": stage, "reason": why} for name, (stage, why) in self.stages.items()]
        return {
            **{name: getattr(self, name) for name in ("id", "topic", "requested_ms", "deadline_ms")},
            "stages": stages,
        }


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by duration: at most each of ``bounds`` (seconds) and above the one before; the last count: longer.

    ``counts`` has one more than ``bounds``.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float

    @classmethod
    def of(cls, bounds: tuple[float, ...]) -> Histogram:
        return cls(bounds, (0,) * (len(bounds) + 1), 0.0)

    def plus(self, value: float) -> Histogram:
        """A copy with one more value."""
        at = bisect_left(self.bounds, value)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return Histogram(self.bounds, counts, self.sum + value)

    def with_all_of(self, other: Histogram) -> Histogram:
        """The sum of two histograms with the same bounds."""
        counts = tuple(map(sum, zip(self.counts, other.counts, strict=True)))
        return Histogram(self.bounds, counts, self.sum + other.sum)


DURATION_BOUNDS: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)


@dataclass(frozen=True, slots=True)
class Trend:
    """A day of figures: points of ``every_ms``, the last one ends at ``end_ms``; None while the daemon was down.

    ``held_us``: the longest time that a swap held a partition's lock. The other three are sums, and the dirty bytes at
    the end of each point.
    """

    every_ms: int
    end_ms: int
    reclaimed_bytes: tuple[int | None, ...]
    dirty_bytes: tuple[int | None, ...]
    cleanings: tuple[int | None, ...]
    held_us: tuple[int | None, ...]

    def to_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, slots=True)
class DaemonTotals:
    """Counters since the daemon's start; they only increase, except ``staged_bytes``.

    ``outcomes``, ``dropped``: by the words of ``clean --json``.

    ``staged_bytes``: what the current staged cleanings save once ``cleanerd apply`` swaps them in; ``bytes_before`` and
    ``bytes_after`` leave them out until then. ``observed``: partitions whose savings were computed. ``state_errors``:
    files of the state directory that were damaged, or could not be read or written. ``clock_jumps``: ahead.
    ``key_passes``: more than one per cleaning if the keys do not fit the offset map. ``durations``: of completed
    cleanings.
    """

    cleanings: Mapping[str, int] = field(default_factory=dict)
    removed_records: Mapping[str, int] = field(default_factory=dict)
    read_records: int = 0
    kept_records: int = 0
    key_passes: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    staged_bytes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    swaps: int = 0
    refused_swaps: int = 0
    malformed_versions: int = 0
    dead_workers: int = 0
    worker_restarts: int = 0
    throttled_seconds: float = 0.0
    observed: int = 0
    state_errors: int = 0
    clock_jumps: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    durations: Histogram = field(default_factory=lambda: Histogram.of(DURATION_BOUNDS))

    def to_json(self) -> dict[str, Any]:
        shallow = {each.name: getattr(self, each.name) for each in fields(self)}
        shallow |= {"durations": asdict(self.durations)}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in shallow.items()}


@dataclass(frozen=True, slots=True)
class CanaryView:
    """The state of ``cleanerd.canary``: partitions cleaned since they were last verified, and verified ever.

    ``verifying``: the partition that is being verified. ``held_partition``: the one with the ``finding`` that caused a
    hold; None without a hold, empty if the finding is not about a partition.
    """

    budget: str
    unverified: int
    unverified_bytes: int
    verified: int
    verifying: str = ""
    held_partition: str | None = None
    held_log_dir: str | None = None
    finding: str = ""
    held_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DaemonView:
    """The state at one moment, of the machine ``host``. ``ready``: every log directory was scanned since the start.

    ``map_utilization``: the fullest offset map of any last cleaning; ``last_scan_ms``: when the scheduler last scanned
    everything, ``scan_interval_ms``: its interval (log.cleaner.backoff.ms). ``differing_partitions``: how many have
    another latest state than another replica (U-90). ``has_peers``: ``/cluster`` has the other daemons.
    """

    version: str
    started_ms: int
    made_ms: int
    ready: bool
    healthy: bool
    unhealthy_reason: str
    mode: Literal["auto", "live", "on-start", "observe"]
    paused: bool
    threads: int
    window_open: bool
    last_scan_ms: int | None
    map_utilization: float
    settings_generation: int
    log_dirs: tuple[LogDirView, ...] = ()
    partitions: tuple[PartitionView, ...] = ()
    running: tuple[RunningView, ...] = ()
    history: tuple[CleaningView, ...] = ()
    warnings: tuple[str, ...] = ()
    totals: DaemonTotals = field(default_factory=DaemonTotals)
    host: str = ""
    trend: Trend | None = None
    scan_interval_ms: int = 15_000
    differing_partitions: int = 0
    canary: CanaryView | None = None
    erasures: tuple[ErasureView, ...] = ()
    has_peers: bool = False

    def named(self, name: str) -> PartitionView | None:
        """``TOPIC-N``, found without a scan (D-15): ``partitions`` ascend by topic, partition and log directory."""
        topic, _, number = name.rpartition("-")
        if not _PARTITION_NUMBER.fullmatch(number):
            return None
        wanted = (topic, int(number))
        place = bisect_left(self.partitions, wanted, key=lambda each: (each.topic, each.partition))
        found = self.partitions[place] if place < len(self.partitions) else None
        return found if found is not None and (found.topic, found.partition) == wanted else None

    def to_json(self) -> dict[str, Any]:
        return {**self.to_json_without_partitions(), "partitions": [each.to_json() for each in self.partitions]}

    def to_json_without_partitions(self) -> dict[str, Any]:
        """Everything except the partitions, for callers that have those already."""
        shallow = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "partitions"}
        return {
            "schema": 1,
            **shallow,
            "log_dirs": [each.to_json() for each in self.log_dirs],
            "running": [asdict(each) for each in self.running],
            "history": [each.to_json() for each in self.history],
            "erasures": [each.to_json() for each in self.erasures],
            "warnings": list(self.warnings),
            "totals": self.totals.to_json(),
            "canary": None if self.canary is None else asdict(self.canary),
            "trend": None if self.trend is None else self.trend.to_json(),
            "swaps_total": self.totals.swaps,
        }
