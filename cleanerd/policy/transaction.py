"""Transactions: which data is aborted, and when a marker is not needed any more (C-18, C-19, C-37, C-38, C-69).

Two questions, answered column by column:

* Is a data batch aborted? An aborted transaction of its producer must reach from at or below its last offset to a
  marker beyond it. That needs no memory of earlier batches, so it is known while a chunk is indexed (U-12: the marker
  may lie beyond the bound).
* Is a marker still needed? Only if the log has a batch of its transaction, which may be empty or removed by this
  cleaning. That is a walk in log order with one bit per producer and kind: :class:`OpenTransactions`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.control import ControlType
from cleanerd.format.index import TXN_ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from cleanerd import _kernel

# Kinds of batches in transactions, in the order of the log.
COMMITTED_DATA: Final = 0
ABORTED_DATA: Final = 1
COMMIT: Final = 2
ABORT: Final = 3


class AbortedTransactions:
    """The entries of all transaction indexes of a partition, for queries by batch.

    ``entries`` has dtype ``TXN_ENTRY``; ``last_offset`` is the offset of the ABORT marker, unique in a log. ``stored``:
    the indexes' content if the log's markers corrected it (U-44), else None. ``disordered``: an offset in each segment
    whose index is wrong: entries out of order, repeated, missing, or of another segment.
    """

    def __init__(
        self,
        entries: NDArray[np.void],
        stored: NDArray[np.void] | None = None,
        disordered: frozenset[int] = frozenset(),
    ) -> None:
        self.entries = entries if len(entries) == 0 else entries[np.argsort(entries["last_offset"], kind="stable")]
        self.stored = stored
        self.disordered = disordered
        self._markers = self.entries["last_offset"].astype(np.int64)
        if len(entries) == 0:  # true for most partitions, and checked several times per cleaning
            self._producers, self._keys, self._first_offsets = self._markers, self._markers, self._markers
            self._step = 1
            return
        self._producers, ranks = np.unique(self.entries["producer_id"].astype(np.int64), return_inverse=True)
        # One ascending number per entry, by producer and then by marker: the place among all markers breaks ties.
        self._step = len(self.entries) + 1
        keys = ranks.astype(np.int64) * self._step + np.arange(len(self.entries), dtype=np.int64)
        order = np.argsort(keys)
        self._keys = keys[order]
        self._first_offsets = self.entries["first_offset"].astype(np.int64)[order]

    def __len__(self) -> int:
        return len(self.entries)

    def covers(
        self, producer_id: NDArray[np.int64], base_offset: NDArray[np.int64], last_offset: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """[k] bool: the transactional data batch belongs to an aborted transaction (C-37).

        The producer's first transaction whose marker follows the batch decides, if it began at or below the batch's
        end.
        """
        result = np.zeros(len(producer_id), dtype=np.bool_)
        if len(self.entries) == 0 or len(producer_id) == 0:
            return result
        rank = np.minimum(np.searchsorted(self._producers, producer_id), len(self._producers) - 1)
        rows = np.flatnonzero(self._producers[rank] == producer_id)
        markers_before = np.searchsorted(self._markers, base_offset[rows], side="right")
        place = np.searchsorted(self._keys, rank[rows] * self._step + markers_before)
        inside = np.minimum(place, len(self._keys) - 1)
        same_producer = (place < len(self._keys)) & (self._keys[inside] // self._step == rank[rows])
        result[rows] = same_producer & (self._first_offsets[inside] <= last_offset[rows])
        return result

    def is_stored(self, entries: NDArray[np.void], base: int, end: int) -> bool:
        """Whether the index of the segment from ``base`` up to ``end`` (exclusive) has exactly these entries (F-8)."""
        if any(base <= offset < end for offset in self.disordered):
            return False
        stored = self.entries if self.stored is None else self.stored
        if len(stored) == 0:
            return len(entries) == 0
        rows = slice(*np.searchsorted(stored["last_offset"].astype(np.int64), (base, end)))
        return stored[rows].tobytes() == entries.tobytes()

    def digest(self, base: int, end: int) -> str:
        """SHA-256, in hexadecimal, of the entries whose marker is in ``base`` up to ``end`` (exclusive).

        It covers each producer id, first and last offset, as 8 big-endian bytes, ascending by the last. Last stable
        offsets are left out: a recovery writes others, and readers do not depend on them.
        """
        if len(self.entries) == 0:
            return hashlib.sha256().hexdigest()
        rows = slice(*np.searchsorted(self._markers, (base, end)).tolist())
        names = ("producer_id", "first_offset", "last_offset")
        numbers = np.stack([self.entries[rows][name].astype(np.int64) for name in names], axis=1)
        return hashlib.sha256(numbers.astype(">i8").tobytes()).hexdigest()

    def ended_by(self, marker_offsets: NDArray[np.int64]) -> NDArray[np.void]:
        """The entries whose ABORT marker is at one of ``marker_offsets`` (ascending), dtype ``TXN_ENTRY``."""
        if len(self.entries) == 0 or len(marker_offsets) == 0:
            return np.zeros(0, dtype=TXN_ENTRY)
        return self.entries[np.isin(self._markers, marker_offsets)]


@dataclass(frozen=True, slots=True)
class TransactionEvents:
    """The batches of a segment that matter to transactions, in file order.

    ``batch`` [k]: the row in the segment's batch table. ``producer_id`` [k]: its producer. ``kind`` [k]: one of the
    four kinds. ``offset`` [k]: the last offset (of a marker: the marker's).
    """

    batch: NDArray[np.uint32]
    producer_id: NDArray[np.int64]
    kind: NDArray[np.uint8]
    offset: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.batch)


def events_of(batches: _kernel.Batches, aborted: AbortedTransactions, first_row: int) -> TransactionEvents:
    """Pick the transactional data batches and the markers out of a chunk; ``first_row`` is its first batch's row."""
    attributes = batches.attributes
    control = (attributes & CONTROL) != 0
    data = np.flatnonzero(((attributes & TRANSACTIONAL) != 0) & ~control)
    types = batches.control_type
    markers = np.flatnonzero((types == ControlType.COMMIT) | (types == ControlType.ABORT))
    is_aborted = aborted.covers(batches.producer_id[data], batches.base_offset[data], batches.last_offset[data])
    rows = np.concatenate([data, markers])
    kind = np.concatenate(
        [
            np.where(is_aborted, np.uint8(ABORTED_DATA), np.uint8(COMMITTED_DATA)),
            np.where(types[markers] == ControlType.COMMIT, np.uint8(COMMIT), np.uint8(ABORT)),
        ]
    )
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    return TransactionEvents(
        batch=(rows + first_row).astype(np.uint32),
        producer_id=batches.producer_id[rows],
        kind=kind[order],
        offset=batches.last_offset[rows],
    )


@dataclass(frozen=True, slots=True)
class TransactionEdges:
    """How the batches of a segment change the open transactions.

    Each field is a pair, for committed and aborted transactions. Of the producers in ``touched``, those in ``open``
    have an open transaction at the segment's end. Other producers do not change.
    """

    touched: tuple[frozenset[int], frozenset[int]]
    open: tuple[frozenset[int], frozenset[int]]

    @classmethod
    def of(cls, events: Sequence[TransactionEvents]) -> TransactionEdges:
        """The edges of a segment's ``events``, in file order."""
        inside = OpenTransactions()
        touched: tuple[set[int], set[int]] = (set(), set())
        for each in events:
            inside.ended(each)
            for kinds, seen in zip(((COMMITTED_DATA, COMMIT), (ABORTED_DATA, ABORT)), touched, strict=True):
                seen.update(each.producer_id[np.isin(each.kind, kinds)].tolist())
        committed, aborted = inside.producers
        return cls((frozenset(touched[0]), frozenset(touched[1])), (frozenset(committed), frozenset(aborted)))


class OpenTransactions:
    """Which producers have a batch since their last marker; carried over all segments of a cleaning (C-33)."""

    def __init__(self, committed: Iterable[int] = (), aborted: Iterable[int] = ()) -> None:
        self._committed: set[int] = set(committed)
        self._aborted: set[int] = set(aborted)

    @property
    def producers(self) -> tuple[frozenset[int], frozenset[int]]:
        """Producers of open committed and open aborted transactions."""
        return frozenset(self._committed), frozenset(self._aborted)

    def pass_by(self, edges: TransactionEdges) -> OpenTransactions:
        """The open transactions before a segment, of the producers in it; then advance past the segment."""
        before = OpenTransactions(self._committed & edges.touched[0], self._aborted & edges.touched[1])
        self._committed = (self._committed - edges.touched[0]) | edges.open[0]
        self._aborted = (self._aborted - edges.touched[1]) | edges.open[1]
        return before

    def ended(self, events: TransactionEvents) -> NDArray[np.bool_]:
        """[k] bool: the event is a marker whose transaction has a batch. Call in log order (C-37)."""
        result = np.zeros(len(events), dtype=np.bool_)
        for data, marker, seen in ((COMMITTED_DATA, COMMIT, self._committed), (ABORTED_DATA, ABORT, self._aborted)):
            rows = np.flatnonzero((events.kind == data) | (events.kind == marker))
            if len(rows):
                is_data = events.kind[rows] == data
                result[rows] = ~is_data & _follows_data(events.producer_id[rows], is_data, seen)
        return result


def _follows_data(producer_id: NDArray[np.int64], is_data: NDArray[np.bool_], seen: set[int]) -> NDArray[np.bool_]:
    """[k] bool: the producer's previous event is a data batch; ``seen`` carries over between calls."""
    order = np.argsort(producer_id, kind="stable")
    producers, data = producer_id[order], is_data[order]
    starts = np.flatnonzero(np.concatenate([[True], producers[1:] != producers[:-1]]))
    follows = np.concatenate([[False], data[:-1]])
    ends = np.concatenate([starts[1:], [len(producers)]]) - 1
    ids = producers[starts].tolist()
    follows[starts] = [producer in seen for producer in ids]
    for producer, open_now in zip(ids, data[ends].tolist(), strict=True):
        (seen.add if open_now else seen.discard)(producer)
    result = np.empty(len(order), dtype=np.bool_)
    result[order] = follows
    return result
