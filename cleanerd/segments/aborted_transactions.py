"""The aborted transactions of a partition, from every ``.txnindex`` up to the end of the log (U-12)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.index import TXN_ENTRY, read_txn_index, rises
from cleanerd.format.names import INDEX_SUFFIX, MAX_OFFSET, TXNINDEX_SUFFIX, file_name
from cleanerd.policy.transaction import AbortedTransactions
from cleanerd.segments.same_file import read_companion

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.segment import Segment


@dataclass(slots=True)
class IndexEntries:
    """The entries of a partition's transaction indexes, dtype ``TXN_ENTRY``.

    ``disordered``: as in :class:`AbortedTransactions`.
    """

    parts: list[NDArray[np.void]] = field(default_factory=lambda: [np.zeros(0, dtype=TXN_ENTRY)])
    disordered: set[int] = field(default_factory=set)

    def add(self, entries: NDArray[np.void], base: int, end: int) -> None:
        """Add the index of the segment from ``base`` up to ``end`` (exclusive); entries in any order (U-44)."""
        ends = entries["last_offset"].astype(np.int64)
        outside = ends[(ends < base) | (ends >= end)].tolist()
        if outside or not rises(ends).all():
            self.disordered.update((base, *outside))
        self.parts.append(entries)

    def began_below(self, bound: int, *, ended_below: int | None = None) -> AbortedTransactions:
        """The transactions that began below ``bound``, and ended below ``ended_below`` if it is given."""
        entries = np.concatenate(self.parts, dtype=TXN_ENTRY)
        counts = entries["first_offset"] < bound
        if ended_below is not None:
            counts &= entries["last_offset"] < ended_below
        return AbortedTransactions(entries[counts], disordered=frozenset(self.disordered))


def read_aborted(log: PartitionLog, bound: int) -> AbortedTransactions:
    """Every entry that began below ``bound``, wherever its marker is, the active segment included.

    For a log that may be torn: ``segments/torn_tail.py``.

    An entry's last stable offset is not used: an open transaction can hold it back while a later marker aborts data
    below the bound, and followers write values that are too high (U-12).

    Raises:
        SegmentChangedError: a segment was replaced since it was listed.
        CorruptionError: an index is damaged.
        CleanerdError: it cannot be read.
    """
    found = IndexEntries()
    for row, segment in enumerate(log.segments):
        if TXNINDEX_SUFFIX in segment.suffixes:
            found.add(read_entries(log, segment), segment.base, end_of(log, row))
    return found.began_below(bound)


def end_of(log: PartitionLog, row: int) -> int:
    """Where the offsets of the segment ``row`` end (exclusive)."""
    return log.segments[row + 1].base if row + 1 < len(log.segments) else MAX_OFFSET


def read_entries(log: PartitionLog, segment: Segment) -> NDArray[np.void]:
    """The entries of a segment's transaction index in the order of the file, dtype ``TXN_ENTRY``.

    Raises:
        CorruptionError, CleanerdError: as :func:`read_aborted`.
    """
    path = log.path / file_name(segment.base, TXNINDEX_SUFFIX)
    data = read_companion(log.path, segment, TXNINDEX_SUFFIX)
    if data is None:
        raise CleanerdError("is gone", where=str(path))
    try:
        return read_txn_index(data, str(path), in_any_order=True)
    except CorruptionError as error:
        error.hint = (
            f"stop the broker and delete {file_name(segment.base, INDEX_SUFFIX)}: broker and cleanerd then make the "
            "transaction index of this segment from the log"
        )
        raise
