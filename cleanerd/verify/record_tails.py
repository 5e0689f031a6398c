"""The records of a v2 batch, parsed only as far as a comparison needs: offset, time, and the rest as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.errors import CorruptionError
from cleanerd.format.batch import HEADER_BYTES
from cleanerd.format.record import unpack
from cleanerd.host.memory import batch_bytes

if TYPE_CHECKING:
    from cleanerd.format.batch import BatchHeader

Tails = dict[int, tuple[int, bytes]]
"""Offset -> timestamp, and the bytes from the key's length to the end of the last header."""


def tails_of(content: bytes, header: BatchHeader) -> Tails | None:
    """The records of the v2 batch ``content``; None if only decoding can describe its damage."""
    data = content[HEADER_BYTES:]
    try:
        if header.codec and header.record_count:
            data = unpack(header.codec, data, batch_bytes(), where=None, position=0)
        return _tails(data, header)
    except (CorruptionError, IndexError):
        return None


def _tails(data: bytes, header: BatchHeader) -> Tails:
    """One loop and no calls for the short numbers that nearly all are: this is done for every record.

    Raises:
        IndexError: a number goes past the end.
    """
    tails: Tails = {}
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    at = 0
    for _ in range(header.record_count):
        raw = data[at]
        at += 1
        if raw > 0x7F:
            raw, at = _longer(data, at, raw)
        end = at + (raw >> 1)  # a length is never negative
        raw = data[at + 1]  # behind the attributes, which may differ (U-14)
        at += 2
        if raw > 0x7F:
            raw, at = _longer(data, at, raw)
        timestamp = base_timestamp + ((raw >> 1) ^ -(raw & 1))
        raw = data[at]
        at += 1
        if raw > 0x7F:
            raw, at = _longer(data, at, raw)
        timestamp = timestamp if append_time is None else append_time
        tails[base_offset + ((raw >> 1) ^ -(raw & 1))] = (timestamp, data[at:end])
        at = end
    return tails


def _longer(data: bytes, at: int, raw: int) -> tuple[int, int]:
    """The rest of a number whose first byte is ``raw``, and where it ends; still zigzag."""
    raw &= 0x7F
    for shift in range(7, 70, 7):
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return raw, at
