"""Batches and records read in plain Python, and refused as the format says (F-1, F-2): half of the reference kernel.

The kernel decompresses zstd: the standard library cannot.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd import _kernel
from tests.support.reference_codecs import DamagedError, crc32c, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALLEST_SIZE = (14, 22, 49)


class CorruptError(Exception):
    """The attributes of the kernel's CorruptLogError, without the reason."""

    def __init__(self, position: int, base_offset: int, record: int = -1) -> None:
        super().__init__(position, base_offset, record)
        self.position = position
        self.base_offset = base_offset
        self.record = record


class BadBatchError(Exception):
    def __init__(self, record: int = -1) -> None:
        super().__init__(record)
        self.record = record


@dataclass(frozen=True, slots=True)
class Header:
    base_offset: int
    size: int
    leader_epoch: int
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
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def append_time(self) -> bool:
        return bool(self.attributes & 8)


@dataclass(frozen=True, slots=True)
class Parsed:
    attributes: int
    timestamp: int
    offset_delta: int
    key: bytes | None
    has_value: bool
    tail: bytes
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def wrap(value: int, bits: int = 64) -> int:
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


class _Cursor:
    def __init__(self, data: bytes, record: int) -> None:
        self.data, self.at, self.record = data, 0, record

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise BadBatchError(self.record)
        self.at += count
        return self.data[self.at - count : self.at]

    def varint(self, bits: int = 32) -> int:
        raw = 0
        for group in range(5 if bits == 32 else 10):
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << 7 * group
            if byte < 0x80:
                raw &= (1 << bits) - 1
                return raw >> 1 ^ -(raw & 1)
        raise BadBatchError(self.record)

    def field(self) -> bytes | None:
        length = self.varint()
        return None if length < 0 else self.take(length)


def _parse_record(body: bytes, index: int, header: Header) -> Parsed:
    cursor = _Cursor(body, index)
    attributes = cursor.take(1)[0]
    delta = cursor.varint(64)
    tail_at = cursor.at
    offset_delta = cursor.varint()
    key, value = cursor.field(), cursor.field()
    count = cursor.varint()
    if count < 0 or count > len(body) - cursor.at:
        raise BadBatchError(index)
    headers = []
    for _ in range(count):
        name = cursor.field()
        if name is None:
            raise BadBatchError(index)
        headers.append((name, cursor.field()))
    if cursor.at != len(body):
        raise BadBatchError(index)
    timestamp = header.max_timestamp if header.append_time else wrap(header.base_timestamp + delta)
    return Parsed(attributes, timestamp, offset_delta, key, value is not None, body[tail_at:], tuple(headers))


def records_of(
    header: Header, payload: bytes, wanted: Callable[[int], bool] = lambda _index: True
) -> Iterator[tuple[int, Parsed]]:
    """The records that are ``wanted``, each with its number; of the others only the length is read."""
    if header.record_count > len(payload) // 7:
        raise BadBatchError
    whole = _Cursor(payload, -1)
    for index in range(header.record_count):
        whole.record = index
        body = whole.take(whole.varint())
        if not wanted(index):
            continue
        yield index, _parse_record(body, index, header)
    if whole.at != len(payload):
        raise BadBatchError


def control_type(header: Header, batch: bytes) -> int:
    """The type of a control batch by its first record's key (F-2.7); -1: not a control batch, or an emptied one."""
    if header.magic < 2 or not header.attributes & 0x20 or header.record_count == 0:
        return -1
    if header.attributes & 7:
        raise BadBatchError
    whole = _Cursor(batch[61:], 0)
    key = _parse_record(whole.take(whole.varint()), 0, header).key
    if key is None or len(key) < 4:
        raise BadBatchError(0)
    version, kind = struct.unpack_from(">hh", key)
    if version < 0 or kind < 0:
        raise BadBatchError(0)
    return int(kind)


def decompress(codec: int, data: bytes, limit: int) -> bytes:
    """Decompress a payload; DamagedError."""
    if codec != 4:
        return unpack(codec, data, limit)
    try:
        return _kernel.decompress(4, data, limit)
    except _kernel.CorruptLogError as error:
        raise DamagedError(error.reason) from error


def payload_of(header: Header, batch: bytes, limit: int) -> bytes:
    codec, packed = header.attributes & 7, batch[61:]
    if codec > 4:
        raise BadBatchError
    if codec == 0 or (not packed and header.record_count == 0):
        return packed
    try:
        return decompress(codec, packed, limit)
    except DamagedError as error:
        raise BadBatchError from error


def check_crc(header: Header, batch: bytes) -> None:
    if (crc32c(batch[21:]) if header.magic == 2 else zlib.crc32(batch[16:])) != header.crc:
        raise BadBatchError


class Walk:
    """Batches of a chunk, one ``peek`` after the other."""

    def __init__(self, data: bytes, position: int) -> None:
        if position < 0 or position + len(data) > 0xFFFF_FFFF:
            raise ValueError(position)
        self.data, self.position, self.consumed, self.needed = data, position, 0, 0

    def corrupt(self, record: int = -1) -> CorruptError:
        (base_offset,) = struct.unpack_from(">q", self.data, self.consumed)
        return CorruptError(self.position + self.consumed, base_offset, record)

    def peek(self) -> tuple[Header, bytes] | None:
        rest = self.data[self.consumed :]
        if len(rest) < 12:
            return None
        base_offset, size = struct.unpack_from(">qi", rest)
        if size < 14 or (len(rest) >= 17 and (rest[16] > 2 or size < SMALLEST_SIZE[rest[16]])) or base_offset < 0:
            raise self.corrupt()
        if len(rest) < size + 12:
            self.needed = size + 12
            return None
        batch, magic = rest[: size + 12], rest[16]
        if magic < 2:
            crc, attributes = struct.unpack_from(">IxB", batch, 12)
            attributes &= 0x0F if magic else 0x07
            timestamp = struct.unpack_from(">q", batch, 18)[0] if magic else -1
            return Header(base_offset, size + 12, -1, magic, crc, attributes, 0, -1, timestamp, -1, -1, -1, 0), batch
        epoch, crc = struct.unpack_from(">ixI", batch, 12)
        header = Header(base_offset, size + 12, epoch, 2, crc, *struct.unpack_from(">hiqqqhii", batch, 21))
        if header.record_count < 0 or header.last_offset_delta < 0 or header.last_offset >= 1 << 63:
            raise self.corrupt()
        return header, batch
