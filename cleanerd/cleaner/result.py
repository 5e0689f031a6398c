"""What a cleaning did: one value that table, JSON and logs share (cli.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cleanerd.errors import CleanerdError
    from cleanerd.format.names import TopicPartition

Outcome = Literal["cleaned", "staged", "unchanged", "skipped", "quarantined", "failed"]


@dataclass(frozen=True, slots=True)
class Dropped:
    """How many records went, by reason."""

    superseded: int = 0
    tombstone: int = 0
    aborted: int = 0
    keyless: int = 0
    marker: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.superseded + self.tombstone + self.aborted + self.keyless + self.marker


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """One partition after ``clean``.

    Bytes and segments are those of the whole log below the active segment, before and after. ``error`` is set when the
    partition failed or was quarantined; ``segments_rewritten`` counts the sources that were replaced, ``groups`` what
    they became.
    ``tombstones_waiting`` are past their horizon and stay (U-1, U-4). ``malformed_versions``, ``without_version``
    (R280-6; the former included) and ``nulls_without_flag`` (R87-3) are counts of the dirty part: each record counts in
    one cleaning. ``map_utilization``: entries by room of the offset map. ``next_purge_ms``: when the next tombstones or
    markers of what stays reach their delete horizon. ``bytes_read`` and ``bytes_written`` are those of the rewrite.
    """

    name: TopicPartition
    log_dir: str
    outcome: Outcome
    reason: str = ""
    strategy: str = "offset"
    first_dirty_offset: int = -1
    end_offset: int = -1
    records_read: int = 0
    records_kept: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    segments_before: int = 0
    segments_after: int = 0
    segments_rewritten: int = 0
    groups: int = 0
    dropped: Dropped = field(default_factory=Dropped)
    tombstones_waiting: int = 0
    malformed_versions: int = 0
    without_version: int = 0
    nulls_without_flag: int = 0
    far_future_timestamps: int = 0
    shards: int = 0
    map_utilization: float = 0.0
    next_purge_ms: int | None = None
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: CleanerdError | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry of ``clean --json``."""
        return {
            "topic": self.name.topic,
            "partition": self.name.partition,
            "log_dir": self.log_dir,
            "outcome": self.outcome,
            "reason": self.reason,
            "strategy": self.strategy,
            "first_dirty_offset": self.first_dirty_offset,
            "end_offset": self.end_offset,
            "records_read": self.records_read,
            "records_kept": self.records_kept,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "segments_before": self.segments_before,
            "segments_after": self.segments_after,
            "segments_rewritten": self.segments_rewritten,
            "groups": self.groups,
            "dropped": {
                "superseded": self.dropped.superseded,
                "tombstone": self.dropped.tombstone,
                "aborted": self.dropped.aborted,
                "keyless": self.dropped.keyless,
                "marker": self.dropped.marker,
            },
            "tombstones_waiting": self.tombstones_waiting,
            "malformed_versions": self.malformed_versions,
            "without_version": self.without_version,
            "nulls_without_flag": self.nulls_without_flag,
            "far_future_timestamps": self.far_future_timestamps,
            "shards": self.shards,
            "map_utilization": round(self.map_utilization, 6),
            "next_purge_ms": self.next_purge_ms,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "seconds": {name: round(value, 6) for name, value in self.seconds.items()},
            "notes": list(self.notes),
        }


def exit_code(results: list[CleaningResult]) -> int:
    """The process exit code for several partitions (formats.md section 5)."""
    failures = [result.error for result in results if result.error is not None]
    if not failures:
        return 0
    if any(result.outcome in ("cleaned", "staged", "unchanged") for result in results):
        return 6
    codes = {failure.exit_code for failure in failures}
    return next(code for code in (3, 4, 5, 1) if code in codes)
