"""Versions of records, one at a time: what a header's value means, and which of two records of a key wins (KIP-280).

The cleaner answers both questions column by column in the kernel; this is the same rule for readers and writers of
single records.
"""

from __future__ import annotations

from typing import Final, Literal

VersionEncoding = Literal["long", "varlong"]
"""The encoding of a version in its header: 8 bytes big-endian (KIP-280), or a zigzag varlong."""

VERSION_ENCODINGS: Final[tuple[VersionEncoding, ...]] = ("long", "varlong")
MIN_VERSION: Final = -(2**63)
MAX_VERSION: Final = 2**63 - 1

_LONG_BYTES: Final = 8
_MAX_VARLONG_BYTES: Final = 10
_MASK: Final = 2**64 - 1

Rank = tuple[bool, int, int]
"""``(has a version, version, offset)``: the record with the largest wins its key (R280-4..6)."""


def parse_version(value: bytes | None, encoding: VersionEncoding) -> int | None:
    """The version in a header's value; None when it is malformed and counts as absent (R280-5, R280-6).

    ``long``: exactly 8 bytes. ``varlong``: exactly one of at most ten bytes; bits above the 64th are dropped, as in
    Kafka. A null header is malformed under both.
    """
    if value is None:
        return None
    if encoding == "long":
        return int.from_bytes(value, "big", signed=True) if len(value) == _LONG_BYTES else None
    if not 1 <= len(value) <= _MAX_VARLONG_BYTES or value[-1] >= 0x80 or any(byte < 0x80 for byte in value[:-1]):
        return None
    raw = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(value)) & _MASK
    return (raw >> 1) ^ -(raw & 1)


def encode_version(version: int, encoding: VersionEncoding) -> bytes:
    """The header value that :func:`parse_version` reads as ``version``.

    Raises:
        ValueError: it does not fit into a signed 64-bit number.
    """
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise ValueError(f"version {version} does not fit into 64 bits")
    if encoding == "long":
        return version.to_bytes(_LONG_BYTES, "big", signed=True)
    raw = (version << 1 ^ version >> 63) & _MASK
    value = bytearray()
    while raw >= 0x80:
        value.append(raw & 0x7F | 0x80)
        raw >>= 7
    value.append(raw)
    return bytes(value)


def rank(version: int | None, offset: int) -> Rank:
    """The sort key of a key's records: no version is below every version; equal versions compare offsets.

    Under the ``offset`` strategy no record has a version.
    """
    return (version is not None, version or 0, offset)
