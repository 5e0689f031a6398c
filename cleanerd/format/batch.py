"""Record batch framing and the v2 batch header (F-1, F-2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from cleanerd._kernel import crc32c
from cleanerd.errors import CorruptionError

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE: Final = 0x08
"""Bit for LOG_APPEND_TIME: every record's timestamp is the batch's max timestamp."""
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
HAS_DELETE_HORIZON: Final = 0x40
"""Bit for: the base timestamp field holds the delete horizon (F-2.2)."""

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

FRAME_BYTES: Final = 12
"""Offset and size; the size field counts what follows it."""
SIZE_AT: Final = 8
MAGIC_AT: Final = 16
HEADER_BYTES: Final = 61
SMALLEST_LEGACY_SIZE: Final = 14
"""Smallest legal value of the size field: a v0 message without key and value."""
CRC_FROM: Final = 21
"""The CRC-32C of a v2 batch covers the bytes from here to its end."""

HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""The 61 bytes of a v2 header."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_FRAME: Final = struct.Struct(">qiib")
_MAX_INT32: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Frame:
    """The first fields of every batch of any version (F-1)."""

    offset: int
    size_bytes: int
    """On disk, the 12 byte frame included."""
    magic: int


def parse_frame(data: bytes, position: int = 0, *, where: str | None = None, origin: int = 0) -> Frame | None:
    """The frame at ``data[position]``; None when fewer bytes are left than a frame with magic takes (17).

    ``origin`` is the file position of ``data[0]``, for errors.

    Raises:
        CorruptionError: a size below the smallest batch of that magic, or a magic other than 0, 1, 2.
    """
    if len(data) - position < _FRAME.size:
        return None
    offset, length, _, magic = _FRAME.unpack_from(data, position)
    if magic not in {0, 1, 2}:
        raise CorruptionError(f"batch magic {magic} is unknown", where=where, position=origin + position + MAGIC_AT)
    smallest = HEADER_BYTES - FRAME_BYTES if magic == 2 else SMALLEST_LEGACY_SIZE + 8 * magic
    if length < smallest:
        raise CorruptionError(
            f"batch size {length} is below {smallest}, the smallest of magic {magic}",
            where=where,
            position=origin + position + 8,
        )
    return Frame(offset, length + FRAME_BYTES, magic)


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """A v2 batch header; the fields are those of the table in F-2, unchanged."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Bytes that the batch takes on disk, offset and size field included."""
        return self.batch_length + FRAME_BYTES

    @property
    def last_offset(self) -> int:
        """Largest offset of the batch; compaction keeps it even after its record is removed."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last offset, which wraps after 2^31-1 to 0; -1 if the batch has none (F-2.4)."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & _MAX_INT32

    @property
    def codec(self) -> int:
        """The compression codec, 0..7; 5..7 are not used."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether all records have the batch's max timestamp."""
        return bool(self.attributes & TIMESTAMP_TYPE)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction; markers are too."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the records are for the broker, not for consumers."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """From this time on the batch's tombstones may be removed; None without a horizon (F-2.2)."""
        return self.base_timestamp if self.attributes & HAS_DELETE_HORIZON else None


def parse_header(data: bytes, position: int = 0, *, where: str | None = None, origin: int = 0) -> BatchHeader:
    """The v2 header at ``data[position]``; ``origin`` is the file position of ``data[0]``, for errors.

    Raises:
        CorruptionError: fewer than 61 bytes, a magic other than 2, a size below 49, a negative record count or
            last offset delta.
    """
    place = origin + position
    if len(data) - position < HEADER_BYTES:
        raise CorruptionError(
            f"{max(0, len(data) - position)} bytes left, a batch header takes {HEADER_BYTES}",
            where=where,
            position=place,
        )
    header = BatchHeader(*_HEADER.unpack_from(data, position))
    if header.magic != 2:
        raise CorruptionError(f"batch magic {header.magic}, not 2", where=where, position=place + MAGIC_AT)
    if header.batch_length < HEADER_BYTES - FRAME_BYTES:
        raise CorruptionError(f"batch size {header.batch_length} is below 49", where=where, position=place + 8)
    if header.last_offset_delta < 0:
        raise CorruptionError(
            f"last offset delta {header.last_offset_delta} is negative", where=where, position=place + 23
        )
    if header.record_count < 0:
        raise CorruptionError(f"record count {header.record_count} is negative", where=where, position=place + 57)
    return header


def check_crc(batch: bytes, header: BatchHeader, *, where: str | None = None, position: int = 0) -> None:
    """Compare the stored CRC-32C with that of ``batch`` (the whole batch); ``position`` is its place in the file.

    Raises:
        CorruptionError: they differ.
    """
    actual = crc32c(np.frombuffer(batch, np.uint8, offset=CRC_FROM))
    if actual != header.crc:
        raise CorruptionError(
            f"CRC-32C of the batch at offset {header.base_offset} is {actual:08x}, {header.crc:08x} is stored",
            where=where,
            position=position,
        )
