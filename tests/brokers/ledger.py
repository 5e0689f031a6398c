"""Acknowledged records, and those that a cleaning must retain: the rules of compaction over plain lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

Headers = tuple[tuple[str, bytes | None], ...]


class Partition(NamedTuple):
    """A partition of the lifecycle, as clients name it."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Dropped:
    """The number of records that a cleaning must remove, by the names of ``clean --json``."""

    superseded: int
    tombstone: int
    keyless: int
    aborted: int = 0


@dataclass(slots=True)
class History:
    """One partition: the records that a consumer must see, ascending, and all acknowledged ones.

    ``timed_tombstones`` are the offsets of tombstones with a delete horizon from an earlier cleaning. ``aborted`` are
    the records of aborted transactions in the log: only read_uncommitted consumers see them.
    """

    visible: list[Record] = field(default_factory=list)
    acknowledged: dict[int, Record] = field(default_factory=dict)
    timed_tombstones: set[int] = field(default_factory=set)
    aborted: list[Record] = field(default_factory=list)

    def add(self, records: Iterable[Record]) -> None:
        """Add acknowledged records, in any order."""
        for record in records:
            assert record.offset not in self.acknowledged, f"offset {record.offset} was acknowledged twice"
            self.acknowledged[record.offset] = record
            self.visible.append(record)
        self.visible.sort()

    def clean(self, end: int, *, tombstones_expire: bool) -> Dropped:
        """Apply Kafka's rules for a cleaning of everything below ``end`` (C-38, C-45).

        ``tombstones_expire``: the existing delete horizons are in the past now.
        """
        newest = {record.key: record.offset for record in self.visible if record.offset < end}
        kept, superseded, expired, keyless = [], 0, 0, 0
        for record in self.visible:
            if record.offset >= end:
                kept.append(record)
            elif record.key is None:
                keyless += 1
            elif newest[record.key] > record.offset:
                superseded += 1
            elif tombstones_expire and record.offset in self.timed_tombstones:
                expired += 1
            else:
                kept.append(record)
        self.visible = kept
        aborted = [record for record in self.aborted if record.offset < end]
        self.aborted = [record for record in self.aborted if record.offset >= end]
        self.timed_tombstones = {record.offset for record in kept if record.value is None and record.offset < end}
        return Dropped(superseded, expired, keyless, len(aborted))

    def first_at_or_after(self, timestamp_ms: int) -> Record | None:
        """The answer of ``offsetsForTimes``: the first record by offset with that timestamp or a later one."""
        return next((record for record in self.visible if record.timestamp_ms >= timestamp_ms), None)

    def interesting_times_ms(self, limit: int) -> list[int]:
        """Times before, at, between and after those of retained and removed records."""
        known = sorted({record.timestamp_ms for record in self.acknowledged.values()})
        step = max(1, len(known) * 3 // limit)
        around = {time + shift for time in known[::step] for shift in (-1, 0, 1)}
        return sorted(around | {0, known[0] - 1, known[-1], known[-1] + 1, known[-1] + 86_400_000})
