"""The aborted transactions of a partition, from every ``.txnindex`` up to the end of the log (U-12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd.errors import CleanerdError
from cleanerd.format.index import TXN_ENTRY, read_txn_index
from cleanerd.format.names import TXNINDEX_SUFFIX, file_name
from cleanerd.log.small_file import read_small_file
from cleanerd.policy.transaction import AbortedTransactions

if TYPE_CHECKING:
    from cleanerd.log.partition import PartitionLog


def read_aborted(log: PartitionLog, bound: int) -> AbortedTransactions:
    """Every entry that began below ``bound``, wherever its marker lies, the active segment included.

    Nothing is left out for an entry's last stable offset: an open transaction can hold that back while a later marker
    aborts data below the bound, and followers write values that are too high (U-12).

    Raises:
        CorruptionError: an index is damaged.
        CleanerdError: it cannot be read.
    """
    parts = [np.zeros(0, dtype=TXN_ENTRY)]
    for segment in log.segments:
        if TXNINDEX_SUFFIX not in segment.suffixes:
            continue
        path = log.path / file_name(segment.base, TXNINDEX_SUFFIX)
        data = read_small_file(path)
        if data is None:
            raise CleanerdError("is gone", where=str(path))
        entries = read_txn_index(data, str(path))
        parts.append(entries[entries["first_offset"] < bound])
    return AbortedTransactions(np.concatenate(parts, dtype=TXN_ENTRY))
