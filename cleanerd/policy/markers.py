"""Compares the transaction indexes with the markers in the log (U-44).

An index can be missing, short or wrong beside an intact log: it was not copied, or the broker had lost its producer
state when the marker was written. Then the markers decide, where the log is unambiguous.

The comparison has two steps. :class:`MarkerCheck` compares each data batch with its producer's next marker, in columns,
and finds the producers that disagree. :class:`MarkedTransactions` reads the headers of the log again for those
producers. It corrects the entries, or names the first transaction that log and index leave undecided.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.control import ControlType
from cleanerd.format.index import TXN_ENTRY
from cleanerd.policy.transaction import (
    ABORT,
    ABORTED_DATA,
    COMMIT,
    COMMITTED_DATA,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.policy.transaction import AbortedTransactions, TransactionEvents

_NO_IDS: Final[NDArray[np.int64]] = np.zeros(0, dtype=np.int64)
_MARKER_OF: Final = COMMIT - COMMITTED_DATA
"""The difference between a kind of data and the marker that ends it."""


@dataclass(frozen=True, slots=True)
class MarkerEdges:
    """A chunk's part of a :class:`MarkerCheck`: producer ids, each array ascending and unique.

    ``contradicted``: the other kind of marker than the index says ends their data, inside the chunk. ``committing`` and
    ``aborting``: the kind of the producer's first marker in the chunk. ``committed`` and ``aborted``: producers with
    data behind their last marker in the chunk, by the kind that the index says.
    """

    contradicted: NDArray[np.int64]
    committing: NDArray[np.int64]
    aborting: NDArray[np.int64]
    committed: NDArray[np.int64]
    aborted: NDArray[np.int64]

    @classmethod
    def of(cls, producer_id: NDArray[np.int64], kind: NDArray[np.uint8]) -> MarkerEdges:
        """From data batches with records, and markers, in file order; both arrays are [k]."""
        count = len(kind)
        if count == 0:
            return cls(_NO_IDS, _NO_IDS, _NO_IDS, _NO_IDS, _NO_IDS)
        order = _by_producer(producer_id)
        ids, kinds = producer_id[order], kind[order]
        rows = np.arange(count)
        marker_rows = np.where(kinds >= COMMIT, rows, count)
        following = np.minimum.accumulate(marker_rows[::-1])[::-1]  # the next marker at or after each event
        marker = np.minimum(following, count - 1)
        ended = (following < count) & (ids[marker] == ids)
        is_data = kinds < COMMIT
        first = np.concatenate([[True], ids[1:] != ids[:-1]]) & ended
        return cls(
            contradicted=np.unique(ids[is_data & ended & (kinds + _MARKER_OF != kinds[marker])]),
            committing=ids[first & (kinds[marker] == COMMIT)],
            aborting=ids[first & (kinds[marker] == ABORT)],
            committed=np.unique(ids[~ended & (kinds == COMMITTED_DATA)]),
            aborted=np.unique(ids[~ended & (kinds == ABORTED_DATA)]),
        )

    @classmethod
    def of_events(cls, events: TransactionEvents, counts: NDArray[np.uint32], span: tuple[int, int]) -> MarkerEdges:
        """Ignores data batches without records (``counts``, per batch of the segment) and those outside of ``span``."""
        inside = (events.offset >= span[0]) & (events.offset < span[1])
        rows = (events.kind >= COMMIT) | (inside & (counts[events.batch] > 0))
        return cls.of(events.producer_id[rows], events.kind[rows])


def _by_producer(producer_id: NDArray[np.int64]) -> NDArray[np.intp]:
    """[k] rows by producer, stable. Producer ids come in blocks: if they are close, sorting 16 bits is faster."""
    lowest = producer_id.min()
    near = (producer_id - lowest).astype(np.uint16) if producer_id.max() - lowest < 1 << 16 else producer_id
    return np.argsort(near, kind="stable")


def _union(ids: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """The union, ascending. NumPy's own function imports another package, which few logs need."""
    if len(ids) and len(others):
        return np.union1d(ids, others)
    return ids if len(ids) else others


class MarkerCheck:
    """Compares the index with the markers that follow the data; takes chunks in log order."""

    def __init__(self) -> None:
        self._committed = _NO_IDS
        self._aborted = _NO_IDS
        self._contradicted = _NO_IDS

    def add_chunk(self, edges: MarkerEdges) -> None:
        """Take in the next chunk."""
        wrong = (
            np.intersect1d(self._committed, edges.aborting, assume_unique=True),
            np.intersect1d(self._aborted, edges.committing, assume_unique=True),
        )
        self._contradicted = np.unique(np.concatenate([self._contradicted, edges.contradicted, *wrong]))
        ended = np.concatenate([edges.committing, edges.aborting])
        self._committed = _union(np.setdiff1d(self._committed, ended, assume_unique=True), edges.committed)
        self._aborted = _union(np.setdiff1d(self._aborted, ended, assume_unique=True), edges.aborted)

    def add_markers(self, batches: _kernel.Batches, below: int) -> None:
        """Add the markers below the offset ``below``, from headers after the compared segments."""
        types = batches.control_type
        is_marker = (types == ControlType.COMMIT) | (types == ControlType.ABORT)
        rows = is_marker & (batches.last_offset < below) & np.isin(batches.producer_id, self.open)
        kinds = np.where(types[rows] == ControlType.COMMIT, np.uint8(COMMIT), np.uint8(ABORT))
        self.add_chunk(MarkerEdges.of(batches.producer_id[rows], kinds))

    @property
    def open(self) -> NDArray[np.int64]:
        """Producers whose last data has no marker yet."""
        return _union(self._committed, self._aborted)

    @property
    def suspects(self) -> NDArray[np.int64]:
        """Producers for which log and index disagree, and those in :attr:`open`; ascending."""
        return _union(self._contradicted, self.open)


@dataclass(slots=True)
class Transaction:
    """The remaining batches of a transaction.

    ``first``: the base offset of its first batch. ``seen`` and ``last``: the first and the last offset of its first
    batch with records that count. ``latest``: the last offset of its last such batch. -1: there is none.
    """

    producer_id: int
    epoch: int
    first: int
    seen: int = -1
    last: int = -1
    latest: int = -1


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A transaction for which index and log differ.

    ``marker``: its marker's offset, or None. ``index_claim``: the index's version, in words. ``at``: an offset in the
    segment whose index is wrong.
    """

    transaction: Transaction
    marker: int | None
    aborts: bool
    index_claim: str
    at: int


@dataclass(slots=True)
class _Producer:
    """The state of a producer while headers are read.

    ``rows``: its index entries by last offset; ``next``: the first one ahead.
    """

    rows: list[int] = field(default_factory=list)
    next: int = 0
    open: Transaction | None = None
    ended: int = -1


class MarkedTransactions:
    """Corrects the index entries of some producers from the markers in the log; takes headers in log order.

    Records count from the first offset of ``span`` up to the second one (exclusive). ``doubt``: the first transaction
    that log and index leave undecided. ``corrected``: the first one that was corrected.
    """

    def __init__(self, indexed: AbortedTransactions, producers: NDArray[np.int64], span: tuple[int, int]) -> None:
        self._entries = indexed.entries
        self._start, self._bound = span
        self._ids = producers
        self._begins = self._entries["first_offset"].astype(np.int64)
        self._ends = self._entries["last_offset"].astype(np.int64)
        self._wrong = self._duplicates()
        self._added: list[tuple[int, ...]] = []
        self._reaching_back: dict[int, Disagreement] = {}
        self._producers: defaultdict[int, _Producer] = defaultdict(_Producer)
        for row in np.flatnonzero(np.isin(self._entries["producer_id"], producers)).tolist():
            self._producers[int(self._entries["producer_id"][row])].rows.append(row)
        self.doubt: Disagreement | None = None
        self.corrected: Disagreement | None = None

    @property
    def entries(self) -> NDArray[np.void]:
        """The corrected entries, dtype ``TXN_ENTRY``."""
        return np.concatenate([self._entries[~self._wrong], np.array(self._added, TXN_ENTRY)], dtype=TXN_ENTRY)

    @property
    def producers(self) -> NDArray[np.int64]:
        """The producers of the transactions, and of dropped entries: they may need another entry. Ascending."""
        return np.union1d(self._ids, self._entries["producer_id"][self._wrong].astype(np.int64))

    @property
    def corrections(self) -> NDArray[np.int64]:
        """The last offsets of the entries that were added or dropped, ascending."""
        added = np.array([last for *_, last, _ in self._added], np.int64)
        return np.sort(np.concatenate([added, self._ends[self._wrong]]))

    def _duplicates(self) -> NDArray[np.bool_]:
        """All entries of one marker except the one that begins first, which covers most."""
        producers = self._entries["producer_id"].astype(np.int64)
        order = np.lexsort((self._begins, producers, self._ends))
        same = (np.diff(self._ends[order]) == 0) & (np.diff(producers[order]) == 0)
        result = np.zeros(len(order), np.bool_)
        result[order[1:][same]] = True
        return result

    def add(self, batches: _kernel.Batches, below: int) -> None:
        """Add the next headers; markers at or above the offset ``below`` are ignored."""
        types, attributes = batches.control_type, batches.attributes
        is_marker = ((types == ControlType.COMMIT) | (types == ControlType.ABORT)) & (batches.last_offset < below)
        self._refute(batches, np.flatnonzero(is_marker))
        is_data = ((attributes & TRANSACTIONAL) != 0) & ((attributes & CONTROL) == 0)
        inside = (batches.last_offset >= self._start) & (batches.last_offset < self._bound)
        counts = np.diff(batches.first_record) * inside
        rows = np.flatnonzero((is_data | is_marker) & np.isin(batches.producer_id, self._ids))
        columns = (batches.producer_id, batches.producer_epoch, batches.base_offset, batches.last_offset, types, counts)
        for producer_id, epoch, base, last, kind, records in zip(*(c[rows].tolist() for c in columns), strict=True):
            producer = self._producers[producer_id]
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                self._end(producer, last, aborts=kind == ControlType.ABORT)
                continue
            if producer.open is None:
                producer.open = Transaction(producer_id, epoch, base)
            if records and producer.open.seen < 0:
                producer.open.seen, producer.open.last = base, last
            if records:
                producer.open.latest = last

    def finish(self, unharmed_below: int) -> None:
        """Call after the whole log: transactions without a marker are undecided, too.

        ``unharmed_below``: below this offset, data taken as committed decides nothing, so it needs no marker.
        """
        for doubt in self._reaching_back.values():
            self._doubt(doubt)
        for producer in self._producers.values():
            opened = producer.open
            if opened is not None and opened.seen >= 0:
                left = [row for row in producer.rows[producer.next :] if not self._wrong[row]]
                is_aborted = any(self._begins[row] <= opened.latest for row in left)
                if is_aborted or opened.latest >= unharmed_below:
                    claim = "was aborted" if is_aborted else "was not aborted"
                    self._doubt(Disagreement(opened, None, False, f"it {claim}", opened.first))

    def _refute(self, batches: _kernel.Batches, rows: NDArray[np.intp]) -> None:
        """Drop entries that end at a COMMIT marker or at another producer's marker: they are certainly wrong."""
        if len(rows) == 0:
            return
        offsets = batches.last_offset[rows]
        near = np.arange(*np.searchsorted(self._ends, (offsets[0], offsets[-1] + 1)))
        place = np.searchsorted(offsets, self._ends[near])
        hit = offsets[place] == self._ends[near]
        near, markers = near[hit], rows[place[hit]]
        other = self._entries["producer_id"][near] != batches.producer_id[markers]
        self._wrong[near[other | (batches.control_type[markers] == ControlType.COMMIT)]] = True

    def _end(self, producer: _Producer, marker: int, *, aborts: bool) -> None:
        """Compare the transaction that the producer's next marker ends with the index entries up to that marker."""
        opened, since = producer.open, producer.ended
        producer.open, producer.ended = None, marker
        own = None
        while producer.next < len(producer.rows) and self._ends[producer.rows[producer.next]] <= marker:
            row = producer.rows[producer.next]
            producer.next += 1
            end = int(self._ends[row])
            if end == marker and not self._wrong[row]:
                own = row
            elif end < marker and opened is not None and 0 <= opened.seen < end:
                claim = f"it was aborted at offset {end}, where its producer has no marker"
                (self._corrected if self._wrong[row] else self._doubt)(Disagreement(opened, marker, aborts, claim, end))
        if aborts:
            self._abort(opened, own, since, marker)
        elif opened is not None and opened.seen >= 0:
            self._commit(producer, opened, marker)

    def _abort(self, opened: Transaction | None, own: int | None, since: int, marker: int) -> None:
        """``own``: the index entry of the ``marker``. ``since``: where the producer's previous transaction ended."""
        begins = -1 if own is None else int(self._begins[own])
        if own is not None:
            if (reached := self._reaching_back.pop(own, None)) is not None:
                self._corrected(reached)
            if opened is not None and 0 <= opened.last < begins:
                claim = f"it begins at offset {begins}"
                self._doubt(Disagreement(opened, marker, True, claim, marker))
            if begins > since:
                return
            self._wrong[own] = True
        if opened is None or opened.first >= self._bound:
            return
        # The last stable offset of that time is unknown; too low an offset only makes readers search further.
        self._added.append((0, 0, opened.producer_id, opened.first, marker, opened.first))
        claim = "it was not aborted" if own is None else f"it begins at offset {begins}"
        self._corrected(Disagreement(opened, marker, True, claim, marker))

    def _commit(self, producer: _Producer, opened: Transaction, marker: int) -> None:
        if self._wrong[slice(*np.searchsorted(self._ends, (marker, marker + 1)))].any():
            self._corrected(Disagreement(opened, marker, False, "it was aborted", marker))
        ahead = (row for row in producer.rows[producer.next :] if not self._wrong[row])
        row = next(ahead, None)
        if row is not None and self._begins[row] <= opened.latest:
            claim = f"it was aborted at offset {self._ends[row]}"
            self._reaching_back.setdefault(row, Disagreement(opened, marker, False, claim, int(self._ends[row])))

    def _doubt(self, found: Disagreement) -> None:
        self.doubt = self.doubt or found

    def _corrected(self, found: Disagreement) -> None:
        if found.transaction.seen >= 0:
            self.corrected = self.corrected or found
