"""Batches that are small on disk and large in memory, as a producer may send them."""

from __future__ import annotations

import struct
from typing import Final

from cleanerd import _kernel
from tests.support.format_bytes import record, varint
from tests.support.logs import seal

ZSTD: Final = 4
_PIECE_BYTES: Final = 16 << 20


def zeros_batch(base_offset: int, value_bytes: int, *, key: bytes = b"k") -> bytes:
    """Two records of ``key``, so that the first is superseded; the second has a value of this many zeros.

    zstd, in frames of 16 MiB each, so that making it needs no more memory than that.
    """
    first = record(0, key, b"old")
    head = bytes((0,)) + varint(0) + varint(1) + varint(len(key)) + key + varint(value_bytes)
    payload = _packed(first + varint(len(head) + value_bytes + 1) + head)
    whole, rest = divmod(value_bytes, _PIECE_BYTES)
    payload += _packed(bytes(_PIECE_BYTES)) * whole + (_packed(bytes(rest)) if rest else b"")
    return _sealed(base_offset, 2, payload + _packed(varint(0)))


def crowded_batch(base_offset: int, records: int) -> bytes:
    """This many records of a key, as small as a keyed record can be."""
    return _sealed(base_offset, records, _packed(b"".join(record(delta, b"k", b"") for delta in range(records))))


def _packed(data: bytes) -> bytes:
    return _kernel.compress(ZSTD, data)


def _sealed(base_offset: int, records: int, payload: bytes) -> bytes:
    fields = struct.pack(">hiqqqhii", ZSTD, records - 1, 0, 0, -1, -1, -1, records)
    return seal(struct.pack(">qiibI", base_offset, 0, 0, 2, 0) + fields + payload)
