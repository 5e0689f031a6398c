"""Space that a broker preallocated (``preallocate=true``): zeros after the last batch of its active segment (F-1).

Zeros end the active segment only: a broker releases the space when it rolls the segment or stops. In a closed segment
its recovery treats zeros as damage, and drops everything after them.
"""

from __future__ import annotations

import errno
import os
from typing import Final

import numpy as np

_FIRST_BYTES: Final = 1 << 16
_MOST_BYTES: Final = 1 << 20


def only_zeros(descriptor: int, start: int, end: int) -> bool:
    """Whether a file has only zeros from ``start`` to ``end``, or to its own end. Holes are not read.

    Raises:
        OSError: it cannot be read.
    """
    piece_bytes = _FIRST_BYTES
    while start < end:
        data_at = _next_data(descriptor, start)
        if data_at is None or data_at >= end:
            return True
        piece = os.pread(descriptor, min(piece_bytes, end - data_at), data_at)
        if np.frombuffer(piece, np.uint8).any():
            return False
        if not piece:
            return True
        start, piece_bytes = data_at + len(piece), min(4 * piece_bytes, _MOST_BYTES)
    return True


def _next_data(descriptor: int, start: int) -> int | None:
    """The next position with stored data, from ``start`` on; None: there is none."""
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return start  # the file system does not know holes
        raise
