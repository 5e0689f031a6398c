"""Which transactions were aborted, from their markers, and whether the transaction indexes say the same (F-8, C-69)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.errors import CorruptionError
from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.control import ControlType
from cleanerd.format.index import TXN_ENTRY, read_txn_index
from cleanerd.format.names import TXNINDEX_SUFFIX
from cleanerd.verify.kinds import Kind
from cleanerd.verify.listing import NO_END, bytes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.verify.finding import Findings
    from cleanerd.verify.listing import SegmentFile

_NONE: Final = -1


@dataclass(slots=True)
class _Open:
    """A producer's transaction as far as its batches remain; ``since``: where the one before it ended."""

    first: int
    since: int


@dataclass(frozen=True, slots=True)
class AbortMarker:
    """An ABORT marker. ``first`` is the base offset of its transaction's first remaining batch, -1 when none is left.

    ``since`` is the offset of the producer's marker before, -1 when none is left.
    """

    producer_id: int
    offset: int
    position: int
    first: int
    since: int


class Transactions:
    """The state of all transactions while the batches of a log go by in order.

    ``high_watermark``: where :meth:`last_stable_offset` is to be known.
    """

    def __init__(self, high_watermark: int = NO_END) -> None:
        self._high_watermark = high_watermark
        self._stable: int | None = None
        self._open: dict[int, _Open] = {}
        self._ended: dict[int, int] = {}
        self._aborted: list[tuple[int, int, int]] = []
        self._markers: list[AbortMarker] = []

    def begin(self, opened: Mapping[int, int]) -> None:
        """Before any batch: the transactions that are open where the walk begins, their first offsets by producer."""
        self._open.update({producer_id: _Open(first, _NONE) for producer_id, first in opened.items()})

    def take(self, batches: _kernel.Batches, *, since: int = 0) -> None:
        """Take in the next batches, in log order, without those that begin below the offset ``since``."""
        attributes = batches.attributes
        counts = (batches.magic == 2) & ((attributes & TRANSACTIONAL) != 0) & (batches.base_offset >= since)
        rows = np.flatnonzero(counts & (batches.producer_id >= 0))
        control = (attributes & CONTROL) != 0
        for row in rows:
            producer_id, base = int(batches.producer_id[row]), int(batches.base_offset[row])
            if self._stable is None and base >= self._high_watermark:
                self._stable = self._first_open()
            if not control[row]:
                if producer_id not in self._open:
                    self._open[producer_id] = _Open(base, self._ended.get(producer_id, _NONE))
                continue
            opened = self._open.pop(producer_id, None)
            since = self._ended.get(producer_id, _NONE)
            self._ended[producer_id] = base
            if batches.control_type[row] != ControlType.ABORT:
                continue
            first = _NONE if opened is None else opened.first
            if opened is not None:
                self._aborted.append((producer_id, first, base))
            self._markers.append(AbortMarker(producer_id, base, int(batches.position[row]), first, since))

    def markers(self) -> list[AbortMarker]:
        """The ABORT markers since the last call: those of a segment."""
        markers, self._markers = self._markers, []
        return markers

    def last_stable_offset(self) -> int:
        """The high watermark, or where the oldest transaction began that has no marker below it."""
        return self._first_open() if self._stable is None else self._stable

    def _first_open(self) -> int:
        return min([self._high_watermark, *(opened.first for opened in self._open.values())])

    def invisible(self) -> Invisible:
        """What no reader of committed data sees: aborted transactions, and those that have no end yet."""
        rows = [*self._aborted, *((key, opened.first, 2**63 - 1) for key, opened in self._open.items())]
        return Invisible(np.array(sorted(rows), np.int64).reshape(-1, 3))


class Invisible:
    """Ranges of offsets by producer. ``ranges``: [n, 3] int64, sorted: producer id, first offset, end (exclusive)."""

    def __init__(self, ranges: NDArray[np.int64]) -> None:
        self.ranges = ranges
        ids, starts = np.unique(ranges[:, 0], return_index=True)
        parts = np.split(ranges[:, 1:], starts[1:]) if len(ids) else []
        self._by_producer = {int(key): part for key, part in zip(ids, parts, strict=True)}
        self._ids = ids

    def batches(self, batches: _kernel.Batches) -> NDArray[np.bool_]:
        """[b]: data batches of transactions that are not committed."""
        hidden = np.zeros(len(batches), np.bool_)
        if not self._by_producer:
            return hidden
        data = ((batches.attributes & TRANSACTIONAL) != 0) & ((batches.attributes & CONTROL) == 0)
        data &= (batches.magic == 2) & np.isin(batches.producer_id, self._ids)
        rows = np.flatnonzero(data)
        for producer_id in np.unique(batches.producer_id[rows]):
            mine = rows[batches.producer_id[rows] == producer_id]
            ranges = self._by_producer[int(producer_id)]
            at = np.searchsorted(ranges[:, 0], batches.base_offset[mine], side="right") - 1
            hidden[mine] = (at >= 0) & (batches.base_offset[mine] < ranges[np.maximum(at, 0), 1])
        return hidden


def check_txn_index(file: SegmentFile, markers: list[AbortMarker], findings: Findings, *, whole: bool) -> None:
    """Compare ``.txnindex`` with the ABORT markers of its segment.

    A marker whose transaction has lost its batches may have an entry or not: the cleaning that took the last batch
    kept it, the next one does not. ``whole`` False: the segment is damaged, so a marker may be there and not be seen.

    Raises:
        CleanerdError: the index cannot be read.
    """
    path = file.companion(TXNINDEX_SUFFIX)
    name = str(path)
    data = bytes_of(path)
    entries = np.zeros(0, TXN_ENTRY)
    if data is not None:
        try:
            entries = read_txn_index(data, name)
        except CorruptionError as error:
            findings.error(Kind.TRANSACTION_INDEX_WRONG, name, error.message, position=error.position)
            return
    known = {int(entry["last_offset"]): (row, entry) for row, entry in enumerate(entries)}
    for marker in markers:
        found = known.pop(marker.offset, None)
        if found is None:
            if marker.first != _NONE:
                what = f"no entry for the transaction of producer {marker.producer_id} that was aborted at offset "
                what += f"{marker.offset}: its data from offset {marker.first} on counts as committed"
                findings.error(Kind.ABORTED_TRANSACTION_MISSING, name, what, offset=marker.offset)
            continue
        _compare(name, marker, *found, findings)
    if not whole:
        return
    for offset, (row, entry) in known.items():
        what = f"entry {row}: no ABORT marker of producer {entry['producer_id']} lies at offset {offset}"
        findings.error(Kind.TRANSACTION_INDEX_WRONG, name, what, position=row * TXN_ENTRY.itemsize, offset=offset)


def _compare(name: str, marker: AbortMarker, row: int, entry: np.void, findings: Findings) -> None:
    problem = None
    if entry["producer_id"] != marker.producer_id:
        problem = f"producer {entry['producer_id']}, the marker at {marker.offset} is one of {marker.producer_id}"
    elif marker.first != _NONE and entry["first_offset"] > marker.first:
        problem = f"begins at {entry['first_offset']}, the transaction has a batch at {marker.first}"
    elif marker.since != _NONE and entry["first_offset"] <= marker.since:
        problem = f"begins at {entry['first_offset']}, but the producer's transaction before it ends at {marker.since}"
    if problem is not None:
        findings.error(
            Kind.TRANSACTION_INDEX_WRONG,
            name,
            f"entry {row}: {problem}",
            position=row * TXN_ENTRY.itemsize,
            offset=marker.offset,
        )
