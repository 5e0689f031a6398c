"""A segment's decision as a file: keep bits and batch actions (KeepBitmaps).

It has all facts about records that a rewrite needs, so that another process can run it. Content, little-endian:
``CKEP``, format (u16), number of records and of batches (u64 each), the zstd-compressed keep bits (whole words) and
batch actions (a byte each), CRC-32C of everything before (u32).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd._kernel import CorruptLogError, compress, crc32c, decompress
from cleanerd.errors import CorruptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC: Final = b"CKEP"
FORMAT: Final = 1
ZSTD: Final = 4

_HEAD: Final = struct.Struct("<4sHQQ")
_CRC: Final = struct.Struct("<I")


def encode_keep(keep: NDArray[np.uint64], records: int, actions: NDArray[np.uint8]) -> bytes:
    """The file's bytes; ``keep`` has ``ceil(records / 64)`` words, ``actions`` a byte per batch."""
    body = keep.astype("<u8").tobytes() + actions.tobytes()
    data = _HEAD.pack(MAGIC, FORMAT, records, len(actions)) + compress(ZSTD, body)
    return data + _CRC.pack(crc32c(np.frombuffer(data, np.uint8)))


def decode_keep(data: bytes, where: str) -> tuple[NDArray[np.uint64], int, NDArray[np.uint8]]:
    """Keep bits, number of records, batch actions.

    Raises:
        CorruptionError: it is not such a file, or damaged.
    """
    if len(data) < _HEAD.size + _CRC.size or not data.startswith(MAGIC):
        raise CorruptionError("no keep bits", where=where)
    (crc,) = _CRC.unpack(data[-_CRC.size :])
    if crc32c(np.frombuffer(data, np.uint8)[: -_CRC.size]) != crc:
        raise CorruptionError("damaged keep bits: wrong CRC-32C", where=where)
    _, version, records, batches = _HEAD.unpack(data[: _HEAD.size])
    if version != FORMAT:
        raise CorruptionError(f"keep bits of format {version}, only {FORMAT} is known", where=where)
    words = (records + 63) // 64
    try:
        body = decompress(ZSTD, data[_HEAD.size : -_CRC.size], 8 * words + batches)
    except CorruptLogError as error:
        raise CorruptionError(f"damaged keep bits: {error.reason}", where=where) from error
    except OverflowError as error:
        raise CorruptionError(f"keep bits of {records} records and {batches} batches", where=where) from error
    if len(body) != 8 * words + batches:
        raise CorruptionError("keep bits of another length than they say", where=where)
    keep = np.frombuffer(body, "<u8", count=words).astype(np.uint64)
    return keep, records, np.frombuffer(body, np.uint8, offset=8 * words)
