"""Finds the aborted transactions from their markers, and compares them with the transaction indexes (F-8, C-69)."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.errors import CorruptionError
from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.control import ControlType
from cleanerd.format.index import TXN_ENTRY, read_txn_index
from cleanerd.format.names import TXNINDEX_SUFFIX
from cleanerd.host.memory import facts_bytes
from cleanerd.verify.kinds import FindingKind
from cleanerd.verify.listing import NO_END, SegmentFile, bytes_of, size_of
from cleanerd.verify.walk import READ_LIMITS, ReadLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.verify.finding import Findings

_NONE: Final = -1
_ABORT: Final = int(ControlType.ABORT)

MARKER_BYTES: Final = 192
"""Memory per ABORT marker of a segment while its index is compared: the columns, and sums."""


@dataclass(slots=True)
class _Open:
    """The remaining batches of a producer's transaction; ``since``: where its previous transaction ended."""

    first: int
    since: int


@dataclass(frozen=True, slots=True)
class AbortMarkers:
    """The ABORT markers of a segment, in its order; each column is [m] int64.

    ``first``: the base offset of a transaction's first remaining batch. ``since``: the offset of the producer's
    previous marker. -1: there is none.
    """

    producer_id: NDArray[np.int64]
    offset: NDArray[np.int64]
    first: NDArray[np.int64]
    since: NDArray[np.int64]


class Transactions:
    """The state of all transactions while the batches of a log are added in order.

    ``high_watermark``: where :meth:`last_stable_offset` is needed.
    """

    def __init__(self, high_watermark: int = NO_END, read_limits: ReadLimits = READ_LIMITS) -> None:
        self._high_watermark = high_watermark
        self._kept_bytes = read_limits.kept_bytes
        self._stable: int | None = None
        self._open: dict[int, _Open] = {}
        self._ended: dict[int, int] = {}
        self._aborted = array("q")
        self._markers = array("q")
        self._markers_fit = True

    def begin(self, opened: Mapping[int, int]) -> None:
        """Begin before any batch: ``opened`` has the first offsets of open transactions by producer."""
        self._open.update({producer_id: _Open(first, _NONE) for producer_id, first in opened.items()})

    def add(self, batches: _kernel.Batches, *, since: int = 0) -> None:
        """Add the next batches, in log order, without those that begin below the offset ``since``."""
        attributes = batches.attributes
        counts = (batches.magic == 2) & ((attributes & TRANSACTIONAL) != 0) & (batches.base_offset >= since)
        rows = np.flatnonzero(counts & (batches.producer_id >= 0))
        columns = (batches.producer_id, batches.base_offset, (attributes & CONTROL) != 0, batches.control_type)
        for producer_id, base, is_control, kind in zip(*(each[rows].tolist() for each in columns), strict=True):
            if self._stable is None and base >= self._high_watermark:
                self._stable = self._first_open()
            if not is_control:
                if producer_id not in self._open:
                    self._open[producer_id] = _Open(base, self._ended.get(producer_id, _NONE))
                continue
            opened = self._open.pop(producer_id, None)
            since = self._ended.get(producer_id, _NONE)
            self._ended[producer_id] = base
            if kind != _ABORT:
                continue
            first = _NONE if opened is None else opened.first
            if opened is not None:
                self._aborted.extend((producer_id, first, base))
            self._record_marker((producer_id, base, first, since))

    def markers(self) -> AbortMarkers | None:
        """The ABORT markers since the last call: those of a segment. None: there is not enough memory (U-35)."""
        found, self._markers = self._markers, array("q")
        fit, self._markers_fit = self._markers_fit, True
        return AbortMarkers(*_rows(found, 4).T) if fit else None

    def _record_marker(self, marker: tuple[int, int, int, int]) -> None:
        if not self._markers_fit:
            return
        self._markers.extend(marker)
        if len(self._markers) // len(marker) * MARKER_BYTES > self._kept_bytes:
            self._markers, self._markers_fit = array("q"), False

    def last_stable_offset(self) -> int:
        """The high watermark, or the start of the oldest transaction without a marker below it."""
        return self._first_open() if self._stable is None else self._stable

    def _first_open(self) -> int:
        return min([self._high_watermark, *(opened.first for opened in self._open.values())])

    def invisible(self) -> InvisibleRanges:
        """Data that consumers of committed data do not see: aborted transactions, and open ones."""
        opened = array("q")
        for producer_id, each in self._open.items():
            opened.extend((producer_id, each.first, NO_END))
        rows = np.concatenate([_rows(self._aborted, 3), _rows(opened, 3)])
        return InvisibleRanges(rows[np.lexsort(rows.T[::-1])])


class InvisibleRanges:
    """Ranges of offsets by producer. ``ranges``: [n, 3] int64, sorted: producer id, first offset, end (exclusive)."""

    def __init__(self, ranges: NDArray[np.int64]) -> None:
        self.ranges = ranges
        self._ids, self._starts = np.unique(ranges[:, 0], return_index=True)
        self._ends = np.append(self._starts[1:], len(ranges))

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Whether the transactional data batch of ``producer_id`` at ``offset`` has an ABORT marker."""
        one = int(np.searchsorted(self._ids, producer_id))
        if one == len(self._ids) or self._ids[one] != producer_id:
            return False
        ranges = self.ranges[self._starts[one] : self._ends[one]]
        at = int(np.searchsorted(ranges[:, 1], offset, side="right")) - 1
        return at >= 0 and offset < int(ranges[at, 2]) < NO_END

    def batches(self, batches: _kernel.Batches) -> NDArray[np.bool_]:
        """[b]: data batches of transactions that are not committed."""
        hidden = np.zeros(len(batches), np.bool_)
        if not len(self._ids):
            return hidden
        data = ((batches.attributes & TRANSACTIONAL) != 0) & ((batches.attributes & CONTROL) == 0)
        data &= (batches.magic == 2) & np.isin(batches.producer_id, self._ids)
        rows = np.flatnonzero(data)
        for producer_id in np.unique(batches.producer_id[rows]):
            mine = rows[batches.producer_id[rows] == producer_id]
            one = np.searchsorted(self._ids, producer_id)
            ranges = self.ranges[self._starts[one] : self._ends[one]]
            at = np.searchsorted(ranges[:, 1], batches.base_offset[mine], side="right") - 1
            hidden[mine] = (at >= 0) & (batches.base_offset[mine] < ranges[np.maximum(at, 0), 2])
        return hidden


def check_txn_index(
    file: SegmentFile, markers: AbortMarkers | None, findings: Findings, *, whole: bool, end_offset: int
) -> None:
    """Compare ``.txnindex`` with the ABORT markers of its segment.

    A marker whose transaction has lost its batches may have an entry or not: the cleaning that took the last batch
    kept it, the next one does not. ``whole`` False: the segment is damaged, so a marker may be there and not be seen.
    Of a segment that grows, entries at or above ``end_offset`` were not there when its batches were read.

    Raises:
        CleanerdError: the index cannot be read.
    """
    path = file.companion(TXNINDEX_SUFFIX)
    name = str(path)
    if markers is None:
        what = f"was not compared with its segment: that has more than {facts_bytes() // MARKER_BYTES} ABORT markers"
        findings.error(FindingKind.NOT_VERIFIED, name, f"{what} (more memory is needed)")
        return
    data = bytes_of(path)
    entries = np.zeros(0, TXN_ENTRY)
    if data is not None:
        try:
            entries = read_txn_index(data, name)
        except CorruptionError as error:
            findings.error(FindingKind.TRANSACTION_INDEX_WRONG, name, error.message, position=error.position)
            return
    if not file.sealed and size_of(file.path) > file.size_bytes:
        entries = entries[entries["last_offset"] < end_offset]
    ends = entries["last_offset"].astype(np.int64)  # they rise
    rows = np.searchsorted(ends, markers.offset)
    known = np.isin(markers.offset, ends)
    for at in np.flatnonzero(~known & (markers.first != _NONE)):
        offset = int(markers.offset[at])
        what = f"no entry for the transaction of producer {markers.producer_id[at]} that was aborted at offset "
        what += f"{offset}: its data from offset {markers.first[at]} on is treated as committed"
        findings.error(FindingKind.ABORTED_TRANSACTION_MISSING, name, what, offset=offset)
    found = np.flatnonzero(known)
    _compare(name, markers, found, entries, rows[found], findings)
    if not whole:
        return
    for row in np.flatnonzero(~np.isin(ends, markers.offset)):
        what = f"entry {row}: producer {entries['producer_id'][row]} has no ABORT marker at offset {ends[row]}, so its "
        what += f"data from offset {entries['first_offset'][row]} on is treated as aborted without one"
        position = int(row) * TXN_ENTRY.itemsize
        findings.error(FindingKind.TRANSACTION_INDEX_WRONG, name, what, position=position, offset=int(ends[row]))


def _compare(
    name: str,
    markers: AbortMarkers,
    found: NDArray[np.intp],
    entries: NDArray[np.void],
    rows: NDArray[np.intp],
    findings: Findings,
) -> None:
    """The markers ``found`` [f] with the ``rows`` [f] of the index that are about their offsets."""
    producer, offset = markers.producer_id[found], markers.offset[found]
    first, since = markers.first[found], markers.since[found]
    named = entries["producer_id"][rows].astype(np.int64)
    begins = entries["first_offset"][rows].astype(np.int64)
    other = named != producer
    late = (first != _NONE) & (begins > first)
    early = (since != _NONE) & (begins <= since)
    for at in np.flatnonzero(other | late | early):
        if other[at]:
            problem = f"producer {named[at]}, the marker at {offset[at]} is one of {producer[at]}"
        elif late[at]:
            problem = f"begins at {begins[at]}, the transaction has a batch at {first[at]}"
        else:
            problem = f"begins at {begins[at]}, but the producer's transaction before it ends at {since[at]}"
        findings.error(
            FindingKind.TRANSACTION_INDEX_WRONG,
            name,
            f"entry {rows[at]}: {problem}",
            position=int(rows[at]) * TXN_ENTRY.itemsize,
            offset=int(offset[at]),
        )


def _rows(values: array[int], width: int) -> NDArray[np.int64]:
    """[n, width]: a copy."""
    return np.array(values, np.int64).reshape(-1, width)
