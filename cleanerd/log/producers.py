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
from cleanerd.format.names import SNAPSHOT_SUFFIX, file_name
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


def read_producers(log: PartitionLog, reader: SegmentReader, *, now_ms: int, expiration_ms: int) -> Producers:
    """Rebuild the producer state at the end of the log.

    A producer is expired when ``now_ms - last timestamp >= expiration_ms``; an open transaction would keep it alive,
    but partitions with transactions are not cleaned by this version. A damaged snapshot is passed over for the next
    older one, as the broker does (F-10).

    Raises:
        CorruptionError: the log itself is damaged after the snapshot.
    """
    damaged: list[str] = []
    for offset, state in _snapshots(log, damaged):
        end = _replay(log, reader, state, offset)
        if offset <= end:
            break
        # The log was cut after the snapshot was written, so it speaks of batches that are no more.
        damaged.append(f"{log.path / file_name(offset, SNAPSHOT_SUFFIX)}: lies beyond the log end offset {end}")
    offsets = sorted(
        producer.last_data_offset
        for producer in state.values()
        if producer.last_data_offset >= 0 and now_ms - producer.timestamp_ms < expiration_ms
    )
    return Producers(tuple(offsets), offset, end, tuple(damaged))


def _snapshots(log: PartitionLog, damaged: list[str]) -> Iterator[tuple[int, dict[int, _Producer]]]:
    """Offset and content of the usable snapshots, newest first; (-1, nothing) comes last: then the whole log counts."""
    for offset in sorted(log.snapshots, reverse=True):
        if offset < log.segments[0].base:
            break
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


def _replay(log: PartitionLog, reader: SegmentReader, state: dict[int, _Producer], since: int) -> int:
    """Bring ``state`` forward from offset ``since`` to the end of the log; returns the log end offset."""
    end = log.active.base
    for index, segment in enumerate(log.segments):
        if index + 1 < len(log.segments) and log.end_of(index) <= since:
            continue
        for batches in reader.headers(segment):
            if len(batches):
                end = max(end, int(batches.last_offset[-1]) + 1)
                _apply(batches, state, since)
    return end


def _apply(batches: _kernel.Batches, state: dict[int, _Producer], since: int) -> None:
    """Take the batches of one chunk into the state: of each producer only its last batch in the chunk matters."""
    rows = np.flatnonzero((batches.producer_id >= 0) & (batches.base_offset >= since))
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
        # A marker keeps the producer alive. Its data history stays protected, which is a superset of Kafka's and so
        # safe (C-85).
        if known is not None:
            known.timestamp_ms = max(known.timestamp_ms, timestamp_ms)
        return
    if known is not None and offset <= known.last_data_offset:
        return
    state[producer_id] = _Producer(int(batches.producer_epoch[row]), offset, timestamp_ms)
