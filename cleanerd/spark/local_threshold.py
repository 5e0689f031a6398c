"""The size below which this process works without a Spark session, which would cost more than the work.

A session takes some ten seconds of CPU before its first record. So on a local master a command with little to read
starts none; if it has to, Java is configured for a short life.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cleanerd.format.names import SEGMENT_SUFFIX
from cleanerd.host.memory import MIB, RESERVED_SHARE, measured_lately
from cleanerd.segments.remote import RemotePath
from cleanerd.verify.listing import size_of

LOCAL_BYTES: Final = 512 << 20
"""Bytes of segments that one core reads in a few seconds."""

SHORT_BYTES: Final = 2 << 30
"""Bytes of segments below which Java's second compiler costs more than it saves."""

_LEAST_ROWS: Final = 1 << 16
_ROW_BYTES: Final = 512
"""Memory per row of some 100 bytes, while it is joined, sorted and merged."""
_OVERHEAD_BYTES: Final = 160 * MIB
"""Memory of Python, its libraries, and read buffers."""


def local_rows(most: int) -> int:
    """How many rows of records or keys this process has at once without a session: ``most``, or as memory allows.

    Fewer rows only cost more walks over the log.
    """
    usable = measured_lately().bytes
    fit = (usable - usable // RESERVED_SHARE - _OVERHEAD_BYTES) // _ROW_BYTES
    return min(max(fit, _LEAST_ROWS), most)


def bytes_below(directories: Iterable[Path]) -> int:
    """Bytes of all files below ``directories`` that may contain records; unlistable ones count 0.

    Raises:
        CleanerdError: a store cannot be queried.
    """
    found = 0
    for directory in directories:
        if isinstance(directory, RemotePath):
            found += sum(size_of(each) for each in directory.files_below() if SEGMENT_SUFFIX in each.name)
            continue
        for root, _, names in os.walk(directory):
            for name in names:
                if SEGMENT_SUFFIX in name:
                    try:
                        found += os.stat(os.path.join(root, name), follow_symlinks=False).st_size
                    except OSError:
                        continue  # deleted meanwhile; reading it reports that
    return found


def is_little(read_bytes: int | None) -> bool:
    """Whether one process does it before Spark has started; None: not on this machine."""
    return read_bytes is not None and read_bytes <= LOCAL_BYTES


def is_short(read_bytes: int | None) -> bool:
    """Whether a session for that much ends before Java has warmed up; None: not on this machine."""
    return read_bytes is not None and read_bytes <= SHORT_BYTES
