"""A worker's job on one partition, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from cleanerd.cleaner.reclaimable import Reclaimable
from cleanerd.state.cleaner_checkpoint import LastSegment  # noqa: TC001 - pydantic resolves the annotation

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.daemon.directory_snapshot import DirectorySnapshot
    from cleanerd.daemon.partition_scan import PartitionScan
    from cleanerd.daemon.view import Trigger
    from cleanerd.daemon.work.progress import JobProgress
    from cleanerd.format.names import TopicPartition
    from cleanerd.host.clock import Clock
    from cleanerd.policy.state_digest import StateDigest
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.resolution.partitions import ResolvedTopics
    from cleanerd.state.cleaner_checkpoint import Retry, StateStore
    from cleanerd.state.in_progress import InFlightMarkers


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait after the first failure, and the longest one. Milliseconds."""

    first_ms: int
    longest_ms: int

    def wait_ms(self, failures: int) -> int:
        doublings = min(max(failures, 1) - 1, 62)
        return min(self.first_ms << doublings, max(self.longest_ms, self.first_ms))


Kind = Literal["live", "stage", "observe", "horizons", "drop", "estimate", "digest", "verify"]


class ExternalStager(Protocol):
    """Another process that may stage a partition: Spark (`SparkOffload`)."""

    def stage(self, job: CleaningJob, resources: Resources, options: CleaningOptions) -> CleaningResult | None:
        """Have it staged; None if the worker has to stage it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """One partition's turn.

    ``before``: its quarantine so far, None without one; ``socket``: the agent's, if live. ``clock``: the time that its
    deletions use. ``resolved``: configurations from scans of the directory. ``in_flight``: records that it runs.
    ``alone``: no other job runs, because a process was killed while it cleaned this partition. ``spark_offload``:
    stages it instead. ``started_ms`` of a verification: when the cleaning began.
    """

    name: TopicPartition
    path: Path
    kind: Kind
    trigger: Trigger
    scan: PartitionScan
    facts: BrokerFacts
    socket: Path | None
    store: StateStore
    progress: JobProgress
    started_ms: int
    threads: int
    before: Retry | None
    backoff: Backoff
    clock: Clock
    resolved: dict[str, ResolvedTopics] | None = None
    spark_offload: ExternalStager | None = None
    in_flight: InFlightMarkers | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True)
class JobReclaimable:
    """The bytes below the active segment after a cleaning; exact, unless there is an ``estimate``.

    The other fields identify the log: it was to be cleaned from ``first_dirty_offset`` to ``first_uncleanable_offset``,
    and ``closed`` was its last segment before the active one.
    """

    bytes_before: int
    bytes_after: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    estimate: Reclaimable | None = None
    closed: LastSegment | None = None

    @property
    def reclaimable(self) -> Reclaimable:
        """The reclaimable bytes of the log at that time."""
        if self.estimate is not None:
            return self.estimate
        saved = max(0, self.bytes_before - self.bytes_after)
        return Reclaimable(saved, saved, saved, "exact")

    def now(self, scan: PartitionScan) -> Reclaimable | None:
        """The reclaimable bytes of the current log; None if it was cleaned since."""
        if self.is_of(scan):
            return self.reclaimable
        if self.first_dirty_offset != scan.first_dirty_offset or not scan.dirty_bytes:
            return None
        return self.reclaimable.grown(scan.dirty_bytes - self.dirty_bytes, self.dirty_bytes)

    def is_of(self, scan: PartitionScan) -> bool:
        """Whether the log is still the same: nothing was written, and it was not cleaned."""
        return (self.first_dirty_offset, self.first_uncleanable_offset, self.clean_bytes, self.dirty_bytes) == (
            scan.first_dirty_offset, scan.first_uncleanable_offset, scan.clean_bytes, scan.dirty_bytes,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScanAfterJob:
    """The partition at the job's end, scanned by the worker, with its directory's state."""

    scan: PartitionScan
    seen: DirectorySnapshot


@dataclass(frozen=True, slots=True)
class Verification:
    """A verified cleaning: the first error, or an empty text. ``is_compared``: with the segments that it replaced."""

    finding: str
    is_compared: bool


@dataclass(frozen=True, slots=True)
class JobDone:
    """The result. ``result`` is None if nothing was to be cleaned (a scan), or it was stopped.

    ``failed``: why the partition is not cleaned now, ``retry``: until when. ``horizons``: the next tombstone removal is
    known now. ``after``: the state now, None if a scan has to follow.
    """

    job: CleaningJob
    ended_ms: int
    result: CleaningResult | None = None
    saving: JobReclaimable | None = None
    stopped: bool = False
    failed: str = ""
    retry: Retry | None = None
    passing: str = ""
    horizons: bool = False
    next_purge_ms: int | None = None
    after: ScanAfterJob | None = None
    digests: tuple[StateDigest, ...] = ()
    verified: Verification | None = None

    @property
    def began_ms(self) -> int:
        """When it began; not later than its end, even if the clock was set back, so sums of times never decrease."""
        return min(self.job.started_ms, self.ended_ms)
