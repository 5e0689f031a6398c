"""What is believed of a log that may be torn: no clean shutdown, or a broker that recovers (U-32).

The broker's recovery begins with the segment that the recovery point lies in. It reads that one and all after it from
the log, cuts at the first damage, and makes their transaction indexes anew. So nothing that lies at or above the
recovery point decides anything: it may be gone, a marker as well as the data behind it. Below it log and indexes are on
the disk, with one exception: while the broker recovers, and when it is killed over it, the transaction index of the
segment that the recovery point lies in lacks entries. So those of that segment are found as the recovery finds them.

Whole or torn, wherever a segment's offset index is missing, as where somebody deleted the indexes, or where an entry of
its transaction index cannot be of that segment, the broker makes all indexes of the segment anew while it loads the log
(F-8). Such entries are found from the log likewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.control import ControlType
from cleanerd.format.index import TXN_ENTRY
from cleanerd.format.names import INDEX_SUFFIX, MAX_OFFSET, TXNINDEX_SUFFIX
from cleanerd.segments.aborted_transactions import began_below, index_entries, read_aborted
from cleanerd.segments.producers import NONE, read_producers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.policy.transaction import AbortedTransactions
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.producers import ProducerState
    from cleanerd.segments.reading import SegmentReader


def decided_below(log: PartitionLog, *, may_be_torn: bool) -> int:
    """Up to where transactions are decided: what lies at or above this offset opens, closes and aborts none.

    The high watermark; where the log may be torn and no broker tells its last stable offset, no more than the recovery
    point.
    """
    if may_be_torn and log.last_stable_offset is None:
        return min(log.high_watermark, log.recovery_point)
    return log.high_watermark


def decided_aborted(log: PartitionLog, reader: SegmentReader, bound: int, *, may_be_torn: bool) -> AbortedTransactions:
    """The aborted transactions that began below ``bound``, as far as they are decided (U-12, U-32).

    Raises:
        CorruptionError: an index is damaged, or the log below the recovery point is.
        CleanerdError: a file cannot be read.
    """
    if log.last_stable_offset is not None:
        return read_aborted(log, bound)
    if not may_be_torn:
        return loaded_aborted(log, reader, bound)
    # A clean point may have raised the bound: what is below it was decided before.
    return recovered_aborted(log, reader, bound, below=max(bound, decided_below(log, may_be_torn=True)))


def loaded_aborted(log: PartitionLog, reader: SegmentReader, bound: int) -> AbortedTransactions:
    """The aborted transactions that began below ``bound``, as a broker will have them that was stopped cleanly.

    Raises:
        CorruptionError, CleanerdError: as :func:`decided_aborted`.
    """
    return began_below(_loaded_entries(log, reader, len(log.segments), torn_from=None), bound)


def recovered_aborted(
    log: PartitionLog, reader: SegmentReader, bound: int, *, below: int = MAX_OFFSET
) -> AbortedTransactions:
    """The aborted transactions that began below ``bound`` and ended below ``below``, as the recovery will find them.

    Raises:
        CorruptionError, CleanerdError: as :func:`decided_aborted`.
    """
    first = max((row for row, each in enumerate(log.segments) if each.base <= log.recovery_point), default=0)
    flushed = _loaded_entries(log, reader, first, torn_from=log.recovery_point)
    recovered, _ = _recovered_entries(log, reader, (first, len(log.segments)), below, log.recovery_point)
    entries = np.concatenate([flushed, recovered], dtype=TXN_ENTRY)
    return began_below(entries[entries["last_offset"] < below], bound)


def _loaded_entries(log: PartitionLog, reader: SegmentReader, end: int, torn_from: int | None) -> NDArray[np.void]:
    """The entries of the segment rows below ``end``, from the log where the broker makes their indexes anew."""
    parts = [np.zeros(0, TXN_ENTRY)]
    anew = []
    for row, segment in enumerate(log.segments[:end]):
        if INDEX_SUFFIX not in segment.suffixes:
            anew.append(row)
        elif TXNINDEX_SUFFIX in segment.suffixes:
            stored = index_entries(log, [segment])
            if (stored["last_offset"] < segment.base).any():
                anew.append(row)
            else:
                parts.append(stored)
    before = None
    for run in np.split(np.array(anew, dtype=np.int64), np.flatnonzero(np.diff(anew) != 1) + 1):
        if len(run):  # a run of neighbours is read at once
            rows = int(run[0]), int(run[-1]) + 1
            found, before = _recovered_entries(log, reader, rows, MAX_OFFSET, torn_from, before)
            parts.append(found)
    return np.concatenate(parts, dtype=TXN_ENTRY)


def _recovered_entries(
    log: PartitionLog,
    reader: SegmentReader,
    rows: tuple[int, int],
    below: int,
    torn_from: int | None,
    before: ProducerState | None = None,
) -> tuple[NDArray[np.void], ProducerState | None]:
    """What the broker writes into the transaction indexes of the segments of these rows (from, to), up to ``below``.

    ``before``: the producers at the beginning of rows further up, if they are known. What is known here comes with it.
    """
    aborting: set[int] = set()
    for batches, count in _batches(log, reader, rows, below, torn_from):
        aborting.update(batches.producer_id[:count][batches.control_type[:count] == ControlType.ABORT].tolist())
    if not aborting:
        return np.zeros(0, TXN_ENTRY), before
    # Once more, for those producers only.
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
                # The last stable offset of then is not known; a low one makes a reader look further, no more.
                found.append((0, 0, producer, since, offset, since))
    return np.array(found, dtype=TXN_ENTRY), before


def _batches(
    log: PartitionLog, reader: SegmentReader, rows: tuple[int, int], below: int, torn_from: int | None
) -> Iterator[tuple[_kernel.Batches, int]]:
    """The batches of these segment rows (from, to), and how many of them lie below ``below``.

    Damage ends a torn log. Below its recovery point, and where the broker was stopped cleanly, it ends nothing: the
    broker cuts that segment alone, and what lies behind the damage would have told of transactions.
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
