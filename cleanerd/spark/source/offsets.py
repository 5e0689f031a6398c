"""The range in which a log is read, from words, offsets and times, as in Spark's ``kafka`` source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import ConfigError
from cleanerd.host.memory import batch_bytes
from cleanerd.spark.source.options import EARLIEST_OFFSET, LATEST_OFFSET, OffsetLimit
from cleanerd.spark.source.places import is_batch, offset_entries, time_entries
from cleanerd.spark.source.visible import damage_handler
from cleanerd.verify.walk import walk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cleanerd.spark.logs import Log
    from cleanerd.verify.listing import SegmentFile


def start_of(log: Log, edge: OffsetLimit, first: int, last: int, *, skip_damage: bool) -> int:
    """The first offset to read of ``log``, which is read from ``first`` to ``last`` (exclusive) at most.

    Raises:
        ConfigError: an offset below ``first``, or a time that no record has reached.
        CorruptionError, CleanerdError: see :func:`first_at`.
    """
    found = _offset_of(log, edge, first, last, skip_damage=skip_damage)
    if found is None:
        found = last if edge.word == "latest" else first
    if found < first:
        raise ConfigError(
            f"offset {found} is below {first}, where {log.name} begins",
            where=str(log.log_dir),
            hint="these records were deleted: begin at -2 (earliest) or higher",
        )
    return found


def end_of(log: Log, edge: OffsetLimit, first: int, last: int, *, skip_damage: bool) -> int:
    """One past the last offset to read of ``log``; at most ``last``.

    Raises:
        CorruptionError, CleanerdError: see :func:`first_at`.
    """
    found = _offset_of(log, edge, first, last, skip_damage=skip_damage)
    return last if found is None else min(found, last)


def _offset_of(log: Log, edge: OffsetLimit, first: int, last: int, *, skip_damage: bool) -> int | None:
    """The offset from a time or number; None if a word states it."""
    time_ms = edge.time_ms
    if time_ms is None and edge.times_ms is not None:
        time_ms = edge.times_ms[log.name]
    if time_ms is not None:
        found = first_at(log, time_ms, first, last, skip_damage=skip_damage)
        if found is None and not edge.otherwise_latest:
            raise ConfigError(
                f"no record of {log.name} is of {time_ms} ms or later",
                where=str(log.log_dir),
                hint='option("startingOffsetsByTimestampStrategy", "latest") begins at the end then',
            )
        return last if found is None else found
    if edge.offsets is None:
        return None
    offset = edge.offsets[log.name]
    return {EARLIEST_OFFSET: first, LATEST_OFFSET: last}.get(offset, offset)


def first_at(log: Log, time_ms: int, first: int, last: int, *, skip_damage: bool) -> int | None:
    """The first offset in ``first`` .. ``last`` (exclusive) with a timestamp of ``time_ms`` or later; None: none has.

    As a broker answers a consumer (``offsetsForTimes``): time indexes show which segment, then which block.

    Raises:
        CorruptionError: the data to read is damaged, unless ``skip_damage``.
        CleanerdError: a file cannot be read.
    """
    for segment in log.segments:
        if segment.end <= first or segment.base >= last:
            continue
        times, is_whole = time_entries(segment)
        if is_whole and int(times["timestamp"][-1]) < time_ms:
            continue
        found = _first_in(segment, _position_before(segment, times, time_ms), time_ms, first, skip_damage=skip_damage)
        if found is not None:
            return found if found < last else None
    return None


def _position_before(segment: SegmentFile, times: NDArray[np.void], time_ms: int) -> int:
    """A batch's position before which no record has ``time_ms`` or a later time."""
    row = int(np.searchsorted(times["timestamp"], time_ms, side="left")) - 1
    if row < 0:
        return 0
    offset = int(times["relative_offset"][row])
    entries = offset_entries(segment)
    place = int(np.searchsorted(entries["relative_offset"], offset, side="right")) - 1
    if place < 0:
        return 0
    position = int(entries["position"][place])
    known = segment.base + int(entries["relative_offset"][place])
    return position if position < segment.size_bytes and is_batch(segment, position, segment.base, known) else 0


def _first_in(segment: SegmentFile, start: int, time_ms: int, first: int, *, skip_damage: bool) -> int | None:
    def search(data: NDArray[np.uint8], position: int) -> _TimeSearch:
        return _TimeSearch(data, position, time_ms, first)

    damaged = damage_handler(segment, skip=skip_damage)
    for _, result in walk(segment.path, segment.size_bytes, search, damaged, start=start):
        if result.found is not None:
            return result.found
    return None


class _TimeSearch:
    """Reads whole batches: headers first, records only of those that may have the requested time."""

    def __init__(self, data: NDArray[np.uint8], position: int, time_ms: int, first: int) -> None:
        batches = _kernel.scan_headers(data, position)
        self.consumed, self.needed = batches.consumed, batches.needed
        self.found: int | None = None
        for row in np.flatnonzero((batches.max_timestamp >= time_ms) & (batches.last_offset >= first)).tolist():
            start = int(batches.position[row]) - position
            end = start + int(batches.size[row])
            chunk = _kernel.decode_chunk(data[start:end], position + start, max_unpacked=batch_bytes())
            records = chunk.records
            at = np.flatnonzero((records.timestamp >= time_ms) & (records.offset >= first))
            if len(at):
                self.found = int(records.offset[at[0]])
                return
