"""Messages of magic 0 and 1 (F-3), decoded to be shown; the cleaner copies or refuses such messages."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from cleanerd.errors import CorruptionError
from cleanerd.format.batch import CODEC_MASK, FRAME_BYTES, SIZE_AT, SMALLEST_LEGACY_SIZE, TIMESTAMP_TYPE, parse_frame
from cleanerd.format.reader import ByteReader
from cleanerd.format.record import Record, unpack

_CRC_FROM: Final = 16
_LZ4_FRAME_MAGIC: Final = b"\x04\x22\x4d\x18"


@dataclass(frozen=True, slots=True)
class LegacyMessage:
    """A message or wrapper as stored. ``timestamp`` is -1 in magic 0."""

    offset: int
    size_bytes: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """0 for a plain message; otherwise this is a wrapper and ``value`` holds compressed messages."""
        return self.attributes & CODEC_MASK


def parse_message(
    data: bytes, *, where: str | None = None, position: int = 0, verify_crc: bool = True
) -> LegacyMessage:
    """Decode the message that ``data`` holds; ``position`` is its place in the file.

    Raises:
        CorruptionError: a bad frame, a wrong CRC-32, lengths that do not fit.
    """
    frame = parse_frame(data, where=where, origin=position)
    if frame is None or frame.size_bytes != len(data) or frame.magic > 1:
        raise CorruptionError(
            f"{len(data)} bytes are not a whole message of magic 0 or 1", where=where, position=position
        )
    reader = ByteReader(data, at=FRAME_BYTES, where=where, origin=position)
    crc = reader.int32() & 0xFFFFFFFF
    actual = zlib.crc32(data[_CRC_FROM:])
    if verify_crc and actual != crc:
        raise CorruptionError(
            f"CRC-32 of the message at offset {frame.offset} is {actual:08x}, {crc:08x} is stored",
            where=where,
            position=position,
        )
    magic = reader.int8()
    attributes = reader.int8() & 0xFF
    timestamp = reader.int64() if magic == 1 else -1
    key, value = (_nullable(reader) for _ in range(2))
    if reader.left:
        reader.fail(f"{reader.left} bytes left at the end of a message")
    return LegacyMessage(
        offset=frame.offset,
        size_bytes=frame.size_bytes,
        crc=crc,
        magic=magic,
        attributes=attributes,
        timestamp=timestamp,
        key=key,
        value=value,
    )


def records_of_message(
    message: LegacyMessage, *, limit_bytes: int, where: str | None = None, position: int = 0
) -> list[Record]:
    """The message itself, or the messages inside the wrapper with their absolute offsets (F-3.1).

    Raises:
        CorruptionError: damaged data, nested compression, an empty wrapper, relative offsets above the wrapper's.
    """
    if message.codec == 0:
        return [_as_record(message, message.offset, message.timestamp)]
    if not message.value:
        raise CorruptionError("a compressed message without a value", where=where, position=position)
    packed = message.value
    if message.magic == 0 and message.codec == 3:
        packed = _right_header_checksum(packed)
    plain = unpack(message.codec, packed, limit_bytes, where=where, position=position)
    inner = _inner_messages(plain, where=where, position=position)
    if not inner:
        raise CorruptionError("a compressed message without messages in it", where=where, position=position)
    base = 0
    if message.magic == 1 and message.offset != 0:
        base = message.offset - inner[-1].offset
        if base < 0:
            raise CorruptionError(
                f"inner offset {inner[-1].offset} is above the wrapper's {message.offset}",
                where=where,
                position=position,
            )
    append_time = message.magic == 1 and message.attributes & TIMESTAMP_TYPE
    return [
        # For a consumer a message of magic 0 has no timestamp, even inside a wrapper of magic 1.
        _as_record(part, base + part.offset, message.timestamp if append_time and part.magic else part.timestamp)
        for part in inner
    ]


def _inner_messages(plain: bytes, *, where: str | None, position: int) -> list[LegacyMessage]:
    """Whole messages in ``plain``; one that is cut off ends them silently, as in Kafka."""
    messages: list[LegacyMessage] = []
    at = 0
    while True:
        try:
            size_bytes = _message_size(plain, at)
            if size_bytes is None:
                return messages
            message = parse_message(plain[at : at + size_bytes])
        except CorruptionError as error:
            raise CorruptionError(
                f"{error.message} (in a compressed message, byte {at} unpacked)", where=where, position=position
            ) from None
        if message.codec != 0:
            raise CorruptionError("a compressed message inside a compressed message", where=where, position=position)
        messages.append(message)
        at += size_bytes


def _message_size(plain: bytes, at: int) -> int | None:
    """The size in bytes of the message at ``at``; None if it is cut off. Only its size field is read."""
    left = len(plain) - at
    if left < FRAME_BYTES:
        return None
    length: int = struct.unpack_from(">i", plain, at + SIZE_AT)[0]
    if length < SMALLEST_LEGACY_SIZE:
        raise CorruptionError(f"batch size {length} is below {SMALLEST_LEGACY_SIZE}, the smallest of any magic")
    return FRAME_BYTES + length if FRAME_BYTES + length <= left else None


def _as_record(message: LegacyMessage, offset: int, timestamp: int) -> Record:
    return Record(offset, timestamp, message.key, message.value, (), message.attributes)


def _nullable(reader: ByteReader) -> bytes | None:
    size = reader.int32()
    return None if size == -1 else reader.raw(size)


def _right_header_checksum(frame: bytes) -> bytes:
    """Correct the header checksum of an lz4 frame in magic 0, which wrongly covers the frame magic (KAFKA-3160)."""
    if len(frame) < 7 or not frame.startswith(_LZ4_FRAME_MAGIC):
        return frame
    end = 14 if frame[4] & 0x08 else 6
    if len(frame) <= end:
        return frame
    checksum = _xxh32(frame[4:end]) >> 8 & 0xFF
    return frame[:end] + bytes([checksum]) + frame[end + 1 :]


def _xxh32(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes: an lz4 frame descriptor is shorter."""
    prime1, prime2, prime3, prime4, prime5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF
    value = prime5 + len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value = (value + int.from_bytes(data[at : at + 4], "little") * prime3) & mask
        value = ((value << 17 | value >> 15) & mask) * prime4 & mask
    for byte in data[whole:]:
        value = (value + byte * prime5) & mask
        value = ((value << 11 | value >> 21) & mask) * prime1 & mask
    value = (value ^ value >> 15) * prime2 & mask
    value = (value ^ value >> 13) * prime3 & mask
    return value ^ value >> 16
