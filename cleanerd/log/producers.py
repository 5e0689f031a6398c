"""Which producers are alive, and the offset of the last data batch of each (C-85, R192-2).

Kafka keeps this state in memory and writes it to ``<offset>.snapshot`` when a segment rolls and when it stops. Newest
snapshot plus the batches after it, to the end of the log, gives the same state again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cleanerd.errors import CleanerdError
from cleanerd.format.batch import CONTROL
from cleanerd.format.names import MAX_OFFSET, SNAPSHOT_SUFFIX, file_name
from cleanerd.format.snapshot import read_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd import _kernel
    from cleanerd.log.partition import PartitionLog
    from cleanerd.log.read import SegmentReader


@dataclass(slots=True)
class _Producer:
    epoch: int
    last_data_offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Producers:
    """The active producers of a partition, as far as cleaning needs them.

    ``last_data_offsets`` are the last offsets of the batches that hold each one's last sequence, ascending.
    ``snapshot_offset`` is where the replay began: -1 when there was no usable snapshot and the whole log was read.
    """

    last_data_offsets: tuple[int, ...]
    snapshot_offset: int
    end_offset: int
    damaged_snapshots: tuple[str, ...]


def read_producers(
    log: PartitionLog, reader: SegmentReader, *, now_ms: int, expiration_ms: int, torn_from: int | None = None
) -> Producers:
    """Rebuild the producer state at the end of the log.

    A producer is expired when ``now_ms - last timestamp >= expiration_ms``; an open transaction would keep it alive,
    but partitions with transactions are not cleaned by this version. A damaged snapshot is passed over for the next
    older one, as the broker does (F-10).

    ``torn_from`` is the recovery point when the broker was not stopped cleanly. Its recovery will cut the log at the
    first damage from there on, so damage there ends the replay, and the last batches below it are as good as the last
    of all.

    Raises:
        CorruptionError: the log itself is damaged after the snapshot (and below ``torn_from``).
    """
    damaged: list[str] = []
    state, offset, end = _state(log, reader, damaged, torn_from, MAX_OFFSET)
    states = [state]
    if torn_from is not None:
        states.append(_state(log, reader, [], torn_from, torn_from)[0])
    offsets = {
        producer.last_data_offset
        for known in states
        for producer in known.values()
        if producer.last_data_offset >= 0 and now_ms - producer.timestamp_ms < expiration_ms
    }
    return Producers(tuple(sorted(offsets)), offset, end, tuple(damaged))


def _state(
    log: PartitionLog, reader: SegmentReader, damaged: list[str], torn_from: int | None, below: int
) -> tuple[dict[int, _Producer], int, int]:
    """The producers by what lies below the offset ``below``, where the replay began, and where the log ended for it."""
    for offset, state in _snapshots(log, damaged, below):
        end = _replay(log, reader, state, offset, below, torn_from)
        if offset <= end:
            return state, offset, end
        # The log was cut after the snapshot was written, so it speaks of batches that are no more.
        damaged.append(f"{log.path / file_name(offset, SNAPSHOT_SUFFIX)}: lies beyond the log end offset {end}")
    raise AssertionError("the last of the snapshots is none, and fits every log")


def _snapshots(log: PartitionLog, damaged: list[str], below: int) -> Iterator[tuple[int, dict[int, _Producer]]]:
    """Offset and content of the usable snapshots up to ``below``, newest first; then (-1, nothing): the whole log."""
    for offset in sorted(log.snapshots, reverse=True):
        if offset < log.segments[0].base:
            break
        if offset > below:
            continue
        try:
            yield offset, _load(log.path / file_name(offset, SNAPSHOT_SUFFIX))
        except CleanerdError as error:
            damaged.append(str(error))
    yield -1, {}


def _load(path: Path) -> dict[int, _Producer]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CleanerdError(f"cannot be read: {error.strerror}", where=str(path)) from error
    entries = read_snapshot(data, str(path))
    return {
        int(entry["producer_id"]): _Producer(
            epoch=int(entry["producer_epoch"]),
            last_data_offset=int(entry["last_offset"]),
            timestamp_ms=int(entry["timestamp"]),
        )
        for entry in entries
    }


def _replay(
    log: PartitionLog,
    reader: SegmentReader,
    state: dict[int, _Producer],
    since: int,
    below: int,
    torn_from: int | None,
) -> int:
    """Bring ``state`` forward from offset ``since`` to ``below`` or the end of the log; returns the log end offset."""
    end = min(log.active.base, below)
    for index, segment in enumerate(log.segments):
        following = log.end_of(index) if index + 1 < len(log.segments) else MAX_OFFSET
        if following <= since or segment.base >= below:
            continue
        may_be_torn = torn_from is not None and following > torn_from
        position = 0
        for batches in reader.headers_until_damage(segment) if may_be_torn else reader.headers(segment):
            position += batches.consumed
            if len(batches):
                end = max(end, min(int(batches.last_offset[-1]) + 1, below))
                _apply(batches, state, since, below)
        if position < segment.size_bytes:
            break
    return end


def _apply(batches: _kernel.Batches, state: dict[int, _Producer], since: int, below: int) -> None:
    """Take the batches of one chunk into the state: of each producer only its last batch in the chunk matters."""
    inside = (batches.base_offset >= since) & (batches.last_offset < below)
    rows = np.flatnonzero((batches.producer_id >= 0) & inside)
    if len(rows) == 0:
        return
    control = (batches.attributes[rows] & CONTROL) != 0
    for is_control in (False, True):
        chosen = rows[control == is_control]
        # The last row of each producer: first of the reversed rows.
        ids, first = np.unique(batches.producer_id[chosen][::-1], return_index=True)
        for producer_id, row in zip(ids.tolist(), chosen[::-1][first].tolist(), strict=True):
            _take(state, producer_id, batches, row, is_control=is_control)


def _take(
    state: dict[int, _Producer], producer_id: int, batches: _kernel.Batches, row: int, *, is_control: bool
) -> None:
    known = state.get(producer_id)
    offset = int(batches.last_offset[row])
    timestamp_ms = int(batches.max_timestamp[row])
    if is_control:
        if known is not None and offset > known.last_data_offset:
            epoch = int(batches.producer_epoch[row])
            # A marker of another epoch ends the old one, whose sequences count no more (F-10; transaction version 2).
            last_data_offset = known.last_data_offset if epoch == known.epoch else -1
            state[producer_id] = _Producer(epoch, last_data_offset, timestamp_ms)
        return
    if known is not None and offset <= known.last_data_offset:
        return
    state[producer_id] = _Producer(int(batches.producer_epoch[row]), offset, timestamp_ms)
