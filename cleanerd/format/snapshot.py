"""Producer snapshots ``<offset>.snapshot`` (F-10): the state of every producer below that offset."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd._kernel import crc32c
from cleanerd.errors import CorruptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION: Final = 1

SNAPSHOT_ENTRY: Final = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),  # -1: only markers are known
        ("last_offset", ">i8"),  # last data offset, -1 with last_sequence -1
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),  # -1: no marker so far
        ("current_txn_first_offset", ">i8"),  # -1: no open transaction
    ]
)
"""One producer's entry, 46 bytes."""

_HEADER = struct.Struct(">hIi")
_CRC_FROM = 6


def read_snapshot(data: bytes, where: str) -> NDArray[np.void]:
    """The producers of a snapshot, dtype ``SNAPSHOT_ENTRY``, in the file's (arbitrary) order.

    Raises:
        CorruptionError: another version, a wrong CRC-32C, a size that does not fit the count.
    """
    if len(data) < _HEADER.size:
        raise CorruptionError(
            f"{len(data)} bytes are too short for a producer snapshot", where=where, position=len(data)
        )
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptionError(
            f"producer snapshot version {version} is unknown, only {VERSION} is", where=where, position=0
        )
    actual = crc32c(np.frombuffer(data, np.uint8, offset=_CRC_FROM))
    if actual != crc:
        raise CorruptionError(f"CRC-32C is {actual:08x}, {crc:08x} is stored", where=where, position=2)
    if count < 0 or len(data) != _HEADER.size + count * SNAPSHOT_ENTRY.itemsize:
        raise CorruptionError(f"{count} producers do not fit {len(data)} bytes", where=where, position=_CRC_FROM)
    return np.frombuffer(data, SNAPSHOT_ENTRY, offset=_HEADER.size)


def write_snapshot(entries: NDArray[np.void]) -> bytes:
    """The file for ``entries`` (dtype ``SNAPSHOT_ENTRY``, one row a producer).

    Raises:
        ValueError: another dtype.
    """
    if entries.dtype != SNAPSHOT_ENTRY:
        raise ValueError(f"producer snapshot entries have dtype {entries.dtype}")
    body = struct.pack(">i", len(entries)) + entries.tobytes()
    return struct.pack(">hI", VERSION, crc32c(np.frombuffer(body, np.uint8))) + body
