"""Batches of magic 0 and 1 read and written in plain Python (F-3): the old half of the reference kernel."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleanerd import _kernel
from tests.support.logs import LZ4, LZ4_CHECKSUM_V0, encode_legacy, varint
from tests.support.reference_batches import SMALLEST_SIZE, BadBatchError, Header, wrap
from tests.support.reference_codecs import DamagedError, unpack, xxh32

if TYPE_CHECKING:
    from collections.abc import Iterator

APPEND_TIME = 8


@dataclass(frozen=True, slots=True)
class Message:
    magic: int
    attributes: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Opened:
    """A batch whose offsets are known. ``header`` is that of the batch, with real offsets and count."""

    header: Header
    plain: bytes
    shift: int
    verify_crc: bool

    @property
    def wrapped(self) -> bool:
        return bool(self.header.attributes & 7)


def open_legacy(header: Header, batch: bytes, *, verify_crc: bool, limit: int) -> Opened:
    """Decompress as far as the frames inside; BadBatchError."""
    outer = _parse(batch, -1, verify_crc=verify_crc)
    codec = header.attributes & 7
    if codec == 0:
        return Opened(replace(header, record_count=1), batch, 0, verify_crc=False)
    if outer.value is None or codec > LZ4:
        raise BadBatchError
    packed = outer.value
    if header.magic == 0 and codec == LZ4:
        packed = _with_checksum(packed)
    try:
        plain = unpack(codec, packed, limit)
    except DamagedError as error:
        raise BadBatchError from error
    frames = list(_frames(plain))
    if not frames:
        raise BadBatchError
    lowest, last = min(offset for offset, _ in frames), frames[-1][0]
    shift = header.base_offset - last if header.magic == 1 and header.base_offset else 0
    base = lowest + shift
    if not 0 <= shift < 1 << 63 or not base >= 0 or not 0 <= header.base_offset - base < 1 << 31:
        raise BadBatchError
    real = replace(header, base_offset=base, last_offset_delta=header.base_offset - base, record_count=len(frames))
    return Opened(real, plain[: sum(size for _, size in frames)], shift, verify_crc)


def _with_checksum(packed: bytes) -> bytes:
    """The frame with the right descriptor checksum, so that any is accepted (KAFKA-3160)."""
    if len(packed) < 7:
        return packed
    end = 14 if packed[4] & 8 else 6
    return packed[:end] + bytes([xxh32(packed[4:end]) >> 8 & 0xFF]) + packed[end + 1 :]


def _frames(plain: bytes) -> Iterator[tuple[int, int]]:
    at = index = 0
    while at + 12 <= len(plain):
        offset, size = struct.unpack_from(">qi", plain, at)
        if size < SMALLEST_SIZE[0]:
            raise BadBatchError(index)
        at += size + 12
        index += 1
        if at > len(plain):
            return
        yield offset, size + 12


def messages_of(opened: Opened) -> Iterator[Message]:
    """The messages as a consumer sees them; BadBatchError."""
    at, header = 0, opened.header
    for index in range(header.record_count):
        (size,) = struct.unpack_from(">i", opened.plain, at + 8)
        message = _parse(opened.plain[at : at + size + 12], index, verify_crc=opened.verify_crc)
        at += size + 12
        offset = message.offset + opened.shift
        nested = opened.wrapped and message.attributes & 7
        if nested or offset > header.last_offset:
            raise BadBatchError(index)
        appended = opened.wrapped and message.magic == 1 and header.append_time
        yield replace(message, offset=offset, timestamp=header.max_timestamp if appended else message.timestamp)


def _parse(data: bytes, index: int, *, verify_crc: bool) -> Message:
    offset, size, crc = struct.unpack_from(">qiI", data)
    magic, attributes = data[16:18]
    if magic > 1 or size < SMALLEST_SIZE[magic] or (verify_crc and zlib.crc32(data[16:]) != crc):
        raise BadBatchError(index)
    at = 26 if magic else 18
    timestamp = struct.unpack_from(">q", data, 18)[0] if magic else -1
    fields: list[bytes | None] = []
    for _ in range(2):
        if at + 4 > len(data):
            raise BadBatchError(index)
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if at + length > len(data):
            raise BadBatchError(index)
        fields.append(None if length < 0 else data[at : at + length])
        at += max(length, 0)
    if at != len(data):
        raise BadBatchError(index)
    return Message(magic, attributes, offset, timestamp, fields[0], fields[1])


def kept_of(opened: Opened, keep: list[bool]) -> list[Message]:
    """The kept messages."""
    return [message for index, message in enumerate(messages_of(opened)) if keep[index]]


def _rebuilt(header: Header, kept: list[Message]) -> Header:
    offsets = [each.offset for each in kept]
    return replace(
        header,
        base_offset=min(offsets),
        last_offset_delta=max(offsets) - min(offsets),
        max_timestamp=header.max_timestamp if header.append_time else max([-1, *(each.timestamp for each in kept)]),
        record_count=len(kept),
    )


def converted(header: Header, kept: list[Message], horizon: int) -> tuple[Header, bytes]:
    """Header and payload of the v2 batch that F-3.3 makes of them."""
    base = horizon if horizon >= 0 else kept[0].timestamp
    rebuilt = _rebuilt(header, kept)
    payload = b""
    for message in kept:
        body = b"\0" + varint(wrap(message.timestamp - base)) + varint(message.offset - rebuilt.base_offset)
        for content in (message.key, message.value):
            body += varint(-1) if content is None else varint(len(content)) + content
        payload += varint(len(body) + 1) + body + b"\0"
    rebuilt = replace(
        rebuilt,
        magic=2,
        attributes=header.attributes & 0x0F | (0x40 if horizon >= 0 else 0),
        base_timestamp=base,
    )
    return rebuilt, _kernel.compress(header.attributes & 7, payload)


def rebuilt_legacy(header: Header, kept: list[Message]) -> tuple[Header, bytes]:
    """The batch that F-3.2 makes of them, and its header; BadBatchError."""
    codec, append_time = header.attributes & 7, header.attributes & APPEND_TIME
    rebuilt = _rebuilt(header, kept)
    if header.magic == 0:
        rebuilt = replace(rebuilt, max_timestamp=-1)
    is_relative = bool(codec) and header.magic == 1
    if is_relative and kept[-1].offset < rebuilt.last_offset:
        raise BadBatchError  # U-45
    subtract = rebuilt.base_offset if is_relative else 0
    plain = b"".join(
        encode_legacy(
            message.offset - subtract,
            message.key,
            message.value,
            magic=header.magic,
            timestamp=header.max_timestamp if append_time else message.timestamp,
            attributes=append_time,
        )
        for message in kept
    )
    if not codec:
        return replace(rebuilt, size=len(plain)), plain
    packed = _kernel.compress(codec, plain)
    if header.magic == 0 and codec == LZ4:
        packed = packed[:6] + LZ4_CHECKSUM_V0 + packed[7:]
    wrapper = encode_legacy(
        rebuilt.last_offset, None, packed,
        magic=header.magic, timestamp=rebuilt.max_timestamp, attributes=header.attributes,
    )  # fmt: skip
    return replace(rebuilt, size=len(wrapper)), wrapper
