"""The aborted transactions of a partition, from every ``.txnindex`` up to the end of the log (U-12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd.errors import CleanerdError
from cleanerd.format.index import TXN_ENTRY, read_txn_index
from cleanerd.format.names import TXNINDEX_SUFFIX, file_name
from cleanerd.policy.transaction import AbortedTransactions
from cleanerd.segments.same_file import read_companion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.segment import Segment


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
    return began_below(index_entries(log, log.segments), bound)


def index_entries(log: PartitionLog, segments: Sequence[Segment]) -> NDArray[np.void]:
    """The entries of the transaction indexes of ``segments``, dtype ``TXN_ENTRY``.

    Raises:
        CorruptionError, CleanerdError: as :func:`read_aborted`.
    """
    parts = [np.zeros(0, dtype=TXN_ENTRY)]
    for segment in segments:
        if TXNINDEX_SUFFIX not in segment.suffixes:
            continue
        path = log.path / file_name(segment.base, TXNINDEX_SUFFIX)
        data = read_companion(log.path, segment, TXNINDEX_SUFFIX)
        if data is None:
            raise CleanerdError("is gone", where=str(path))
        parts.append(read_txn_index(data, str(path)))
    return np.concatenate(parts, dtype=TXN_ENTRY)


def began_below(entries: NDArray[np.void], bound: int) -> AbortedTransactions:
    """The entries that began below the offset ``bound``."""
    return AbortedTransactions(entries[entries["first_offset"] < bound])
