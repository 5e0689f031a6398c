"""The producer state of a partition, as its broker would rebuild it (C-85, F-10, R192-2).

Kafka keeps this state in memory and writes it to ``<offset>.snapshot`` when a segment rolls and when it stops. The
newest snapshot plus the batches after it gives the same state. At the log's end this shows the batches with producers'
last sequences; at the high watermark, the open transactions.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from cleanerd.errors import CleanerdError, LogTooLargeError
from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.control import ControlType
from cleanerd.format.names import MAX_OFFSET, SNAPSHOT_SUFFIX, file_name
from cleanerd.format.snapshot import read_snapshot
from cleanerd.fsio.small_file import read_small_file_at
from cleanerd.host.memory import facts_bytes
from cleanerd.policy.producer import LastRecords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.reading import SegmentReader

NONE = -1

PRODUCER_BYTES: Final = 720
"""Memory per producer. Two states are needed while the log may be torn, with all results."""


@dataclass(slots=True)
class ProducerEntry:
    """The state of one producer.

    ``timestamp_ms``: the largest of its last batch. ``last_data_offset``: -1 if only markers of its epoch are known.
    ``open_from``: -1 if no transaction is open.
    """

    epoch: int
    last_data_offset: int
    timestamp_ms: int
    open_from: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """All producers' state from data below the offset ``below``, by id.

    ``snapshot_offset``: where the replay began; -1 without a usable snapshot, when the whole log was read.
    ``damaged_snapshots``: the snapshots that were not used, and why. ``torn_from``: as for :func:`read_producers`.
    """

    producers: dict[int, ProducerEntry]
    snapshot_offset: int
    end_offset: int
    damaged_snapshots: tuple[str, ...]
    below: int
    torn_from: int | None = None

    def active(self, *, now_ms: int, expiration_ms: int) -> dict[int, ProducerEntry]:
        """The producers that have not expired (C-43): wrote within ``expiration_ms``, or have an open transaction."""
        return {
            producer_id: producer
            for producer_id, producer in self.producers.items()
            if producer.open_from != NONE or now_ms - producer.timestamp_ms < expiration_ms
        }

    def is_of_all(self, log: PartitionLog, log_end: int, torn_from: int | None) -> bool:
        """Whether :func:`read_producers` gives this state for all of ``log``, which ends at ``log_end``."""
        return (
            self.torn_from == torn_from
            and self.below >= log_end
            and (not log.snapshots or log.snapshots[-1] <= self.below)
        )

    def first_open_offset(self) -> int | None:
        """The start of the oldest open transaction; None: no transaction is open."""
        return min((p.open_from for p in self.producers.values() if p.open_from != NONE), default=None)


def read_last_records(
    log: PartitionLog,
    reader: SegmentReader,
    *,
    now_ms: int,
    expiration_ms: int,
    torn_from: int | None = None,
    memory_bytes: int | None = None,
    known: ProducerState | None = None,
) -> tuple[LastRecords, tuple[str, ...]]:
    """The batches that retention protects for active producers, and the snapshots that were not used.

    ``torn_from`` is the recovery point if the broker was not stopped cleanly. Its recovery cuts the log at the first
    damage from there on, and removes later snapshots. So damage there ends the replay, which begins with an earlier
    snapshot. The last batches below the recovery point are then treated as the last ones (U-32). ``memory_bytes``: see
    :func:`read_producers`. ``known``: the state of the whole log, if it was read before.

    Raises:
        CorruptionError: the log itself is damaged after the snapshot (and below ``torn_from``).
        LogTooLargeError: see :func:`read_producers`.
    """
    if known is None:
        known = read_producers(log, reader, torn_from=torn_from, memory_bytes=memory_bytes)
    else:
        _Room.of(log, memory_bytes).require(len(known.producers))
    states = [known]
    if torn_from is not None and torn_from < states[0].end_offset:  # otherwise the same batches would be read twice
        states.append(read_producers(log, reader, below=torn_from, torn_from=torn_from, memory_bytes=memory_bytes))
    active = [
        (producer_id, producer)
        for state in states
        for producer_id, producer in state.active(now_ms=now_ms, expiration_ms=expiration_ms).items()
    ]
    last_records = LastRecords.of(
        data_offsets={p.last_data_offset for _, p in active if p.last_data_offset >= 0},
        marker_epochs={(producer_id, p.epoch) for producer_id, p in active if p.last_data_offset < 0},
        known=set[int]().union(*(state.producers for state in states)),
    )
    return last_records, states[0].damaged_snapshots


def read_producers(
    log: PartitionLog,
    reader: SegmentReader,
    *,
    below: int = MAX_OFFSET,
    torn_from: int | None = None,
    after: ProducerState | None = None,
    memory_bytes: int | None = None,
) -> ProducerState:
    """Rebuild the producer state from the batches below the offset ``below``, by default all of the log.

    A damaged snapshot is replaced by the next older one, as in the broker (F-10). ``torn_from``: see
    :func:`read_last_records`. ``after``: an earlier result of this function for a lower offset that a segment begins
    with, and for the same ``torn_from``; it is continued, so that calls for one segment after the other read each of
    them once. ``memory_bytes``: the memory limit (U-35); None: that of a program with one reading thread.

    Raises:
        CorruptionError: the log itself is damaged after the snapshot (and below ``torn_from``).
        LogTooLargeError: the producers take more memory than allowed.
    """
    damaged: list[str] = []
    room = _Room.of(log, memory_bytes)
    read = NONE if after is None else after.below
    most = below if torn_from is None else min(below, torn_from)
    for offset, producers in _snapshots(room, reader, damaged, read, most):
        end = _replay(room, reader, producers, (offset, below), torn_from)
        if offset <= end:
            return ProducerState(producers, offset, end, tuple(damaged), below, torn_from)
        # The log was truncated after this snapshot, which describes batches that no longer exist.
        damaged.append(f"{log.path / file_name(offset, SNAPSHOT_SUFFIX)}: is beyond the log end offset {end}")
    if after is None:
        after = ProducerState({}, NONE, 0, (), NONE)
    end = after.end_offset
    if end >= min(log.active.base, read):  # otherwise the broker cuts the log there
        end = _replay(room, reader, after.producers, (read, below), torn_from)
    all_damaged = (*after.damaged_snapshots, *damaged)
    return ProducerState(after.producers, after.snapshot_offset, end, all_damaged, below, torn_from)


@dataclass(frozen=True, slots=True)
class _Room:
    """The memory limit for the producers of ``log``."""

    log: PartitionLog
    memory_bytes: int

    @classmethod
    def of(cls, log: PartitionLog, memory_bytes: int | None) -> Self:
        """None: the limit of a program with one reading thread."""
        return cls(log, facts_bytes() if memory_bytes is None else memory_bytes)

    def require(self, producers: int) -> None:
        """Raises LogTooLargeError if there are too many producers."""
        if producers * PRODUCER_BYTES > self.memory_bytes:
            raise LogTooLargeError(
                f"{producers} producers wrote to the log, which takes {producers * PRODUCER_BYTES} bytes of memory, "
                f"and cleanerd may use {self.memory_bytes}; find the client that creates so many, or let the broker "
                "forget them sooner (producer.id.expiration.ms)",
                where=str(self.log.path),
            )


def _snapshots(
    room: _Room, reader: SegmentReader, damaged: list[str], above: int, below: int
) -> Iterator[tuple[int, dict[int, ProducerEntry]]]:
    """Offset and content of the usable snapshots ``above`` an offset and up to ``below``, newest first."""
    log = room.log
    for row in range(bisect_right(log.snapshots, below) - 1, -1, -1):
        offset = log.snapshots[row]
        if offset < log.segments[0].base or offset <= above:
            break
        try:
            yield offset, _load(file_name(offset, SNAPSHOT_SUFFIX), reader, room)
        except LogTooLargeError:
            raise
        except CleanerdError as error:
            damaged.append(str(error))


def _load(name: str, reader: SegmentReader, room: _Room) -> dict[int, ProducerEntry]:
    where = f"{reader.path}/{name}"
    data = read_small_file_at(name, reader.directory, where)
    if data is None:
        raise CleanerdError("is gone", where=where)
    entries = read_snapshot(data, where)
    room.require(len(entries))
    return {
        int(entry["producer_id"]): ProducerEntry(
            epoch=int(entry["producer_epoch"]),
            last_data_offset=int(entry["last_offset"]),
            timestamp_ms=int(entry["timestamp"]),
            open_from=int(entry["current_txn_first_offset"]),
        )
        for entry in entries
    }


def _replay(
    room: _Room,
    reader: SegmentReader,
    producers: dict[int, ProducerEntry],
    span: tuple[int, int],
    torn_from: int | None,
) -> int:
    """Update ``producers`` by the batches in ``span`` (from, below); returns where the log ended in it."""
    log, (since, below) = room.log, span
    named_end = min(log.active.base, below)
    end = 0
    first = max(0, bisect_right(log.segments, since, key=attrgetter("base")) - 1)
    for index in range(first, len(log.segments)):
        segment = log.segments[index]
        following = log.end_of(index) if index + 1 < len(log.segments) else MAX_OFFSET
        if segment.base >= below:
            break
        if following <= since:
            continue
        may_be_torn = torn_from is not None and following > torn_from
        position = 0
        for batches in reader.headers_until_damage(segment) if may_be_torn else reader.headers(segment):
            position += batches.consumed
            if len(batches):
                end = max(end, min(int(batches.last_offset[-1]) + 1, below))
                rows = np.flatnonzero((batches.base_offset >= since) & (batches.last_offset < below))
                _add_batches(batches, rows, producers)
                room.require(len(producers))
        if position < segment.size_bytes:
            return max(end, segment.base)  # the broker cuts the log here and deletes all later segments
    return max(end, named_end)


def _add_batches(batches: _kernel.Batches, rows: NDArray[np.int64], state: dict[int, ProducerEntry]) -> None:
    """Add the batches in ``rows`` of one chunk to the state.

    Only a few facts per producer matter: its last data batch, its last marker, and the first transactional batch after
    that. They are found for all producers at once.
    """
    rows = rows[batches.producer_id[rows] >= 0]
    if len(rows) == 0:
        return
    control = (batches.attributes & CONTROL) != 0
    is_marker = (batches.control_type == ControlType.COMMIT) | (batches.control_type == ControlType.ABORT)
    # An emptied control batch belongs to a transaction that was cleaned completely; it has no effect (F-10).
    rows = rows[~control[rows] | is_marker[rows]]
    if len(rows) == 0:
        return
    order = rows[np.argsort(batches.producer_id[rows], kind="stable")]
    ids = batches.producer_id[order]
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    for mine in np.split(order, starts[1:]):
        _add_producer(batches, mine, is_marker[mine], state)


def _add_producer(
    batches: _kernel.Batches,
    rows: NDArray[np.int64],
    is_marker: NDArray[np.bool_],
    state: dict[int, ProducerEntry],
) -> None:
    """One producer's batches of a chunk, ascending."""
    producer_id = int(batches.producer_id[rows[0]])
    known = state.get(producer_id)
    data = np.flatnonzero(~is_marker)
    last_marker = int(np.flatnonzero(is_marker)[-1]) if is_marker.any() else NONE
    epoch = int(batches.producer_epoch[rows[-1]])
    if len(data):
        last_data = rows[data[-1]]
        data_epoch, data_offset = int(batches.producer_epoch[last_data]), int(batches.last_offset[last_data])
    else:
        data_epoch = known.epoch if known is not None else NONE
        data_offset = known.last_data_offset if known is not None else NONE
    # A new epoch, in a batch or a marker (transaction version 2), clears the known sequences.
    epochs_after = batches.producer_epoch[rows[data[-1] + 1 :]] if len(data) else batches.producer_epoch[rows]
    if (epochs_after != data_epoch).any():
        data_offset = NONE
    opened = data[(data > last_marker) & ((batches.attributes[rows[data]] & TRANSACTIONAL) != 0)]
    open_from = known.open_from if known is not None and last_marker == NONE else NONE
    if open_from == NONE and len(opened):
        open_from = int(batches.base_offset[rows[opened[0]]])
    state[producer_id] = ProducerEntry(epoch, data_offset, int(batches.max_timestamp[rows[-1]]), open_from)
