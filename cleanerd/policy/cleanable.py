"""Whether a log is worth cleaning, and how far it may be cleaned: Kafka's own bounds and ratio (C-03, C-05..C-11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class FirstDirty:
    """Where the dirty section begins.

    ``repair``: how a wrong checkpoint was corrected (C-03); empty if it was right.
    """

    offset: int
    repair: str


def first_dirty(checkpoint: int | None, log_start_offset: int, log_end_offset: int) -> FirstDirty:
    """The first dirty offset from a checkpoint that may be missing or wrong (C-02, C-03).

    Both other offsets are valid.
    """
    if checkpoint is None:
        return FirstDirty(log_start_offset, "")
    if checkpoint < log_start_offset:
        return FirstDirty(
            log_start_offset, f"the checkpoint says {checkpoint}, below the log start offset {log_start_offset}"
        )
    if checkpoint > log_end_offset:
        return FirstDirty(
            log_start_offset,
            f"the checkpoint says {checkpoint}, above the log end offset {log_end_offset}: the whole log is dirty",
        )
    return FirstDirty(checkpoint, "")


class LimitedBy(StrEnum):
    """What sets the first uncleanable offset (S-01), as shown to operators and in ``--json``."""

    ACTIVE_SEGMENT = "the active segment"
    HIGH_WATERMARK = "the high watermark"
    RECOVERY_POINT = "the recovery point"
    OPEN_TRANSACTION = "an open transaction"
    MIN_COMPACTION_LAG = "min.compaction.lag.ms"


@dataclass(frozen=True, slots=True)
class FirstUncleanableOffset:
    """The first offset that may not be cleaned.

    ``limits``: each limit and its offset. ``limited_by`` names the lowest. ``offset`` is that one rounded down to the
    start of a segment (C-07), because a cleaning takes whole segments at its upper end.
    """

    offset: int
    limited_by: LimitedBy
    limits: Mapping[LimitedBy, int]


def first_uncleanable_offset(
    limits: Mapping[LimitedBy, int], bases: Sequence[int], first_dirty_offset: int
) -> FirstUncleanableOffset:
    """Round the lowest limit down to a segment start, but not below that of the first dirty offset (C-05..C-07).

    Args:
        limits: what limits cleaning -> offset. Contains the active segment's base.
        bases: base offsets of all segments, ascending; the last is the active one.
        first_dirty_offset: the raw bound is raised to it (C-06).
    """
    limited_by = min(limits, key=lambda name: limits[name])
    raw = max(limits[limited_by], first_dirty_offset)
    if raw >= bases[-1]:
        return FirstUncleanableOffset(bases[-1], limited_by, dict(limits))
    rounded = max((base for base in bases if base <= raw), default=bases[0])
    return FirstUncleanableOffset(rounded, limited_by, dict(limits))


@dataclass(frozen=True, slots=True)
class Dirtiness:
    """Sizes and ratio of one partition (C-08, C-09); sizes are those of the ``.log`` files."""

    clean_bytes: int
    cleanable_bytes: int

    @property
    def ratio(self) -> float:
        """Share of the cleanable bytes that is dirty; 0.0 if there are no cleanable bytes."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


def dirtiness(bases: Sequence[int], sizes: Sequence[int], first_dirty_offset: int, end_offset: int) -> Dirtiness:
    """How dirty a log is; a segment with the first dirty offset in its middle counts on both sides (C-08)."""
    clean = sum(size for base, size in zip(bases, sizes, strict=True) if base < first_dirty_offset)
    rows = segment_range(bases, min(first_dirty_offset, end_offset), end_offset)
    return Dirtiness(clean, sum(sizes[row] for row in rows))


def segment_range(bases: Sequence[int], start: int, end: int) -> range:
    """Rows of the segments that have offsets from ``start`` up to ``end`` (exclusive); empty if these are equal."""
    if start >= end:
        return range(0)
    first = max((row for row, base in enumerate(bases) if base <= start), default=0)
    return range(first, sum(base < end for base in bases))


def too_young(largest_timestamps_ms: Iterable[tuple[int, int]], now_ms: int, min_lag_ms: int) -> tuple[int, int] | None:
    """The first entry whose segment is younger than the minimum compaction lag (C-05), or None.

    Args:
        largest_timestamps_ms: (base offset, largest timestamp) of the non-active segments from the first dirty on.
        now_ms: the time of this cleaning.
        min_lag_ms: ``min.compaction.lag.ms``; 0 switches the rule off.
    """
    if min_lag_ms <= 0:
        return None
    return next((segment for segment in largest_timestamps_ms if segment[1] > now_ms - min_lag_ms), None)


def due_at_ms(first_timestamps_ms: Sequence[int], max_lag_ms: int) -> int | None:
    """When ``max.compaction.lag.ms`` makes a log overdue (C-10); None if no segment has a timestamp.

    Args:
        first_timestamps_ms: of each dirty segment that is not active, the largest timestamp of its first batch.
        max_lag_ms: the setting.
    """
    earliest = min((timestamp for timestamp in first_timestamps_ms if timestamp > 0), default=None)
    return None if earliest is None else earliest + max_lag_ms


def is_eligible(dirty: Dirtiness, overdue: int, min_ratio: float) -> bool:
    """C-11: whether to clean: overdue with something to clean, or a dirty ratio above the setting."""
    return (overdue > 0 and dirty.cleanable_bytes > 0) or dirty.ratio > min_ratio
