"""What to trust in a log that may be torn: no clean shutdown, or a broker that recovers (U-32).

The broker's recovery begins with the segment of the recovery point. It reads that one and all later ones, cuts at the
first damage, and rebuilds their transaction indexes. So data at or above the recovery point is not used for decisions:
markers and data there may be lost. Below it log and indexes are on the disk, with one exception: while the broker
recovers, or if it is killed then, the transaction index of the recovery point's segment lacks entries. So that
segment's entries are found as the recovery finds them.

In every log, the broker rebuilds all indexes of a segment at start if its offset index is missing, say deleted by an
operator, or if an entry of its transaction index cannot be the segment's (F-8). Such entries are found from the log as
well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.control import ControlType
from cleanerd.format.index import TXN_ENTRY
from cleanerd.format.names import INDEX_SUFFIX, MAX_OFFSET, TXNINDEX_SUFFIX
from cleanerd.segments.aborted_transactions import IndexEntries, end_of, read_aborted, read_entries
from cleanerd.segments.producers import NONE, ProducerState, read_producers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.policy.transaction import AbortedTransactions
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.reading import SegmentReader


def decided_below(log: PartitionLog, *, may_be_torn: bool) -> int:
    """Up to where transactions are decided: data at or above this offset does not open, close or abort any.

    The high watermark; the recovery point if the log may be torn and no broker reports its last stable offset.
    """
    if may_be_torn and log.last_stable_offset is None:
        return min(log.high_watermark, log.recovery_point)
    return log.high_watermark


def decided_aborted(log: PartitionLog, reader: SegmentReader, bound: int, *, may_be_torn: bool) -> AbortedTransactions:
    """The aborted transactions that began below ``bound``, if they are decided (U-12, U-32).

    Raises:
        CorruptionError: an index is damaged, or the log below the recovery point is.
        CleanerdError: a file cannot be read.
    """
    if log.last_stable_offset is not None:
        return read_aborted(log, bound)
    if not may_be_torn:
        return loaded_aborted(log, reader, bound)
    # A checkpoint may have raised the bound: data below it was decided by an earlier cleaning.
    return recovered_aborted(log, reader, bound, below=max(bound, decided_below(log, may_be_torn=True)))


def loaded_aborted(log: PartitionLog, reader: SegmentReader, bound: int) -> AbortedTransactions:
    """The aborted transactions that began below ``bound``, as a broker has them after a clean stop.

    Raises:
        CorruptionError, CleanerdError: as :func:`decided_aborted`.
    """
    return _loaded_entries(log, reader, len(log.segments), torn_from=None).began_below(bound)


def recovered_aborted(
    log: PartitionLog, reader: SegmentReader, bound: int, *, below: int = MAX_OFFSET
) -> AbortedTransactions:
    """The aborted transactions that began below ``bound`` and ended below ``below``, as the recovery will find them.

    Raises:
        CorruptionError, CleanerdError: as :func:`decided_aborted`.
    """
    first = max((row for row, each in enumerate(log.segments) if each.base <= log.recovery_point), default=0)
    found = _loaded_entries(log, reader, first, torn_from=log.recovery_point)
    recovered, _ = _recovered_entries(log, reader, (first, len(log.segments)), below, log.recovery_point)
    found.parts.append(recovered)
    return found.began_below(bound, ended_below=below)


def _loaded_entries(log: PartitionLog, reader: SegmentReader, end: int, torn_from: int | None) -> IndexEntries:
    """The entries of the segment rows below ``end``; from the log if the broker rebuilds their indexes."""
    found = IndexEntries()
    rebuilt = []
    for row, segment in enumerate(log.segments[:end]):
        if INDEX_SUFFIX not in segment.suffixes:
            rebuilt.append(row)
        elif TXNINDEX_SUFFIX in segment.suffixes:
            stored = read_entries(log, segment)
            if (stored["last_offset"] < segment.base).any():
                rebuilt.append(row)
            else:
                found.add(stored, segment.base, end_of(log, row))
    before = None
    for run in np.split(np.array(rebuilt, dtype=np.int64), np.flatnonzero(np.diff(rebuilt) != 1) + 1):
        if len(run):  # neighbours are read together
            rows = int(run[0]), int(run[-1]) + 1
            recovered, before = _recovered_entries(log, reader, rows, MAX_OFFSET, torn_from, before)
            found.parts.append(recovered)
    return found


def _recovered_entries(
    log: PartitionLog,
    reader: SegmentReader,
    rows: tuple[int, int],
    below: int,
    torn_from: int | None,
    before: ProducerState | None = None,
) -> tuple[NDArray[np.void], ProducerState | None]:
    """The entries that the broker will write for the segments of these rows (from, to), up to ``below``.

    ``before``: the producers at the beginning of later rows, if known. The result includes them.
    """
    aborting: set[int] = set()
    for batches, count in _batches(log, reader, rows, below, torn_from):
        aborting.update(batches.producer_id[:count][batches.control_type[:count] == ControlType.ABORT].tolist())
    if not aborting:
        return np.zeros(0, TXN_ENTRY), before
    # Read again, for those producers only.
    before = read_producers(log, reader, below=log.segments[rows[0]].base, torn_from=torn_from, after=before)
    known = before.producers
    began = {producer: known[producer].open_from for producer in aborting if producer in known}
    found: list[tuple[int, ...]] = []
    for batches, count in _batches(log, reader, rows, below, torn_from):
        types, attributes = batches.control_type[:count], batches.attributes[:count]
        is_marker = (types == ControlType.COMMIT) | (types == ControlType.ABORT)
        is_data = ((attributes & TRANSACTIONAL) != 0) & ((attributes & CONTROL) == 0)
        theirs = np.isin(batches.producer_id[:count], list(aborting))
        for row in np.flatnonzero(theirs & (is_marker | is_data)).tolist():
            producer, offset = int(batches.producer_id[row]), int(batches.base_offset[row])
            if is_data[row]:
                began[producer] = offset if began.get(producer, NONE) == NONE else began[producer]
                continue
            since, began[producer] = began.get(producer, NONE), NONE
            if since != NONE and types[row] == ControlType.ABORT:
                # The last stable offset of that time is unknown; too low an offset only makes readers search further.
                found.append((0, 0, producer, since, offset, since))
    return np.array(found, dtype=TXN_ENTRY), before


def _batches(
    log: PartitionLog, reader: SegmentReader, rows: tuple[int, int], below: int, torn_from: int | None
) -> Iterator[tuple[_kernel.Batches, int]]:
    """The batches of these segment rows (from, to), and how many of them are below ``below``.

    Damage ends a torn log. Below its recovery point, and after a clean stop, damage is an error: the broker cuts only
    that segment, and the data after the damage could have contained transactions.
    """
    for row, segment in enumerate(log.segments[slice(*rows)], rows[0]):
        if segment.base >= below:
            return
        following = log.end_of(row) if row + 1 < len(log.segments) else MAX_OFFSET
        may_be_torn = torn_from is not None and following > torn_from
        position = 0
        for batches in reader.headers_until_damage(segment) if may_be_torn else reader.checked_headers(segment):
            position += batches.consumed
            count = int(np.searchsorted(batches.last_offset, below))
            yield batches, count
            if count < len(batches):
                return
        if may_be_torn and position < segment.size_bytes:
            return
