"""Timestamps in another unit than milliseconds: neither lag can be kept there (OP-18)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cleanerd import _kernel

_EARLIEST_MS: Final = 1_000_000_000_000
"""A time in 2001. Kafka's records are younger, and times in seconds stay below this number for 30,000 years."""
_UNITS: Final = (("seconds", 1000, 1), ("microseconds", 1, 1000), ("nanoseconds", 1, 1_000_000))


def wrong_unit(timestamp_ms: int, now_ms: int) -> str | None:
    """OP-18: the unit of a timestamp that makes no sense in milliseconds; None if it can be milliseconds."""
    latest_ms = now_ms + 366 * 86_400_000
    if _EARLIEST_MS <= timestamp_ms <= latest_ms:
        return None
    found = (unit for unit, times, parts in _UNITS if _EARLIEST_MS <= timestamp_ms * times // parts <= latest_ms)
    return next(found, None)


@dataclass(frozen=True, slots=True)
class WrongTime:
    """A batch whose ``timestamp`` is in another ``unit`` than milliseconds (OP-18)."""

    path: str
    offset: int
    producer_id: int
    timestamp: int
    unit: str

    @property
    def note(self) -> str:
        """Where it is, who wrote it, the consequence, and what to do."""
        whose = "without a producer id" if self.producer_id < 0 else f"of producer {self.producer_id}"
        return (
            f"{self.path}: the batch at offset {self.offset} {whose} has the timestamp {self.timestamp}, which is in "
            f"{self.unit}: neither max.compaction.lag.ms nor min.compaction.lag.ms can be kept here, and retention by "
            "time is wrong, too. Correct the producer, or set message.timestamp.type=LogAppendTime for new records"
        )


def wrong_time_in(path: str, batches: _kernel.Batches, now_ms: int) -> WrongTime | None:
    """The first of a segment's ``batches`` with a time in another unit (OP-18). ``path``: of the segment."""
    columns = (batches.base_offset, batches.producer_id, batches.max_timestamp)
    for offset, producer_id, timestamp in zip(*(column.tolist() for column in columns), strict=True):
        unit = wrong_unit(timestamp, now_ms)
        if unit is not None:
            return WrongTime(path, offset, producer_id, timestamp, unit)
    return None
