"""Checksums, the key hash and decompression in plain Python: slow, exact, no line shared with the kernel.

Only zstd is missing (the standard library of Python 3.11 has none); the caller has to decompress it in another way.
"""

from __future__ import annotations

import struct
import zlib

__all__ = ["DamagedError", "crc32c", "siphash_1_3_128", "unpack", "xxh32"]

_U64 = 0xFFFF_FFFF_FFFF_FFFF
_U32 = 0xFFFF_FFFF


class DamagedError(Exception):
    """The compressed bytes are damaged, or decompress to more than the limit."""


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F6_3B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data: bytes, seed: int = 0) -> int:
    """CRC-32C (Castagnoli), bit by bit from its polynomial."""
    value = seed ^ _U32
    for byte in data:
        value = value >> 8 ^ _CRC_TABLE[(value ^ byte) & 0xFF]
    return value ^ _U32


def _rotate(value: int, bits: int, width: int = 64) -> int:
    return (value << bits | value >> (width - bits)) & ((1 << width) - 1)


def _sip_round(v: list[int]) -> None:
    v[0] = (v[0] + v[1]) & _U64
    v[2] = (v[2] + v[3]) & _U64
    v[1] = _rotate(v[1], 13) ^ v[0]
    v[3] = _rotate(v[3], 16) ^ v[2]
    v[0] = _rotate(v[0], 32)
    v[2] = (v[2] + v[1]) & _U64
    v[0] = (v[0] + v[3]) & _U64
    v[1] = _rotate(v[1], 17) ^ v[2]
    v[3] = _rotate(v[3], 21) ^ v[0]
    v[2] = _rotate(v[2], 32)


def siphash_1_3_128(key: bytes, message: bytes) -> tuple[int, int]:
    """SipHash with one round per word, three at the end, 128 bits: (low, high)."""
    k0, k1 = struct.unpack("<QQ", key)
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        _sip_round(v)
        v[0] ^= word
    halves = []
    for place, marker in ((2, 0xEE), (1, 0xDD)):
        v[place] ^= marker
        for _ in range(3):
            _sip_round(v)
        halves.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return halves[0], halves[1]


def xxh32(data: bytes) -> int:
    """xxHash32, seed 0."""
    p1, p2, p3, p4, p5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    whole = len(data) // 16 * 16
    if whole:
        lanes = [p1 + p2 & _U32, p2, 0, -p1 & _U32]
        for at in range(0, whole, 16):
            for lane, word in enumerate(struct.unpack_from("<4I", data, at)):
                lanes[lane] = _rotate(lanes[lane] + word * p2 & _U32, 13, 32) * p1 & _U32
        value = sum(_rotate(lane, turn, 32) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        value = p5
    value = value + len(data) & _U32
    words = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[whole:words]):
        value = _rotate(value + word * p3 & _U32, 17, 32) * p4 & _U32
    for byte in data[words:]:
        value = _rotate(value + byte * p5 & _U32, 11, 32) * p1 & _U32
    value = (value ^ value >> 15) * p2 & _U32
    value = (value ^ value >> 13) * p3 & _U32
    return value ^ value >> 16


def _take(data: bytes, at: int, count: int) -> bytes:
    piece = data[at : at + count]
    if len(piece) != count:
        raise DamagedError("cut")
    return piece


def _gunzip(data: bytes, limit: int) -> bytes:
    output, start = b"", _gzip_header(data)
    if start is None:
        raise DamagedError("no member")
    while start is not None:
        member = zlib.decompressobj(wbits=-15)
        try:
            unpacked = member.decompress(data[start:], limit - len(output) + 1)
        except zlib.error as error:
            raise DamagedError(str(error)) from error
        output += unpacked
        if len(output) > limit:
            raise DamagedError("too much")
        data = member.unused_data
        if not member.eof or len(data) < 8:
            raise DamagedError("cut")
        if struct.unpack_from("<II", data) != (zlib.crc32(unpacked), len(unpacked)):
            raise DamagedError("trailer")
        data = data[8:]
        start = _gzip_header(data)
    return output


def _gzip_header(data: bytes) -> int | None:
    """The start of a member's deflated bytes; None if no member begins: bytes after a member then mean nothing."""
    if len(data) < 10 or data[:3] != b"\x1f\x8b\x08":
        return None
    flags, at = data[3], 10
    if flags & 4:
        if len(data) < at + 2:
            return None
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    for flag in (8, 16):
        if flags & flag:
            end = data.find(b"\0", at)
            if end < 0:
                return None
            at = end + 1
    at += 2 if flags & 2 else 0
    return at if at <= len(data) else None


def _snappy_block(data: bytes, limit: int) -> bytes:
    length = shift = at = 0
    while True:
        byte = _take(data, at, 1)[0]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if length > limit:
        raise DamagedError("too much")
    output = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            count = tag >> 2
            if count >= 60:
                extra = count - 59
                count = int.from_bytes(_take(data, at, extra), "little")
                at += extra
            output += _take(data, at, count + 1)
            at += count + 1
            continue
        if tag & 3 == 1:
            count, back = (tag >> 2 & 7) + 4, tag >> 5 << 8 | _take(data, at, 1)[0]
            at += 1
        else:
            extra = 2 if tag & 3 == 2 else 4
            count, back = (tag >> 2) + 1, int.from_bytes(_take(data, at, extra), "little")
            at += extra
        _copy_back(output, back, count)
    if len(output) != length:
        raise DamagedError("length")
    return bytes(output)


def _copy_back(output: bytearray, back: int, count: int) -> None:
    if not 0 < back <= len(output):
        raise DamagedError("copies from before the beginning")
    for _ in range(count):
        output.append(output[-back])


_XERIAL_MAGIC = bytes.fromhex("82534e4150505900")


def _unsnappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, limit)
    output, at = b"", 0
    while at < len(data):
        if data.startswith(_XERIAL_MAGIC, at):
            _take(data, at, 16)
            at += 16
            continue
        if len(data) - at < 4:
            break
        (length,) = struct.unpack(">i", _take(data, at, 4))
        if length < 0:
            raise DamagedError("negative length")
        output += _snappy_block(_take(data, at + 4, length), limit - len(output))
        at += 4 + length
    return output


def _lz4_length(data: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while True:
            byte = _take(data, at, 1)[0]
            at += 1
            length += byte
            if byte < 255:
                break
    return length, at


def _lz4_block(data: bytes) -> bytes:
    output, at = bytearray(), 0
    while True:
        token = _take(data, at, 1)[0]
        length, at = _lz4_length(data, at + 1, token >> 4)
        output += _take(data, at, length)
        at += length
        if at == len(data):
            return bytes(output)
        (back,) = struct.unpack("<H", _take(data, at, 2))
        length, at = _lz4_length(data, at + 2, token & 15)
        _copy_back(output, back, length + 4)


def _unlz4(data: bytes, limit: int) -> bytes:
    magic, flags, block_byte = struct.unpack("<IBB", _take(data, 0, 6))
    if magic != 0x184D2204 or flags & 0xE3 != 0x60 or block_byte & 0x8F or block_byte >> 4 < 4:
        raise DamagedError("descriptor")
    end = 14 if flags & 0x08 else 6
    if _take(data, end, 1)[0] != xxh32(data[4:end]) >> 8 & 0xFF:
        raise DamagedError("descriptor checksum")
    most = 1 << (8 + 2 * (block_byte >> 4))
    output, at = b"", end + 1
    while True:
        (word,) = struct.unpack("<I", _take(data, at, 4))
        at += 4
        if word == 0:
            break
        packed = _take(data, at, word & 0x7FFF_FFFF)
        at += len(packed)
        if flags & 0x10:
            if struct.unpack("<I", _take(data, at, 4))[0] != xxh32(packed):
                raise DamagedError("block checksum")
            at += 4
        block = packed if word >> 31 else _lz4_block(packed)
        if len(block) > most:
            raise DamagedError("block too large")
        output += block
        if len(output) > limit:
            raise DamagedError("too much")
    if at + (4 if flags & 0x04 else 0) > len(data):
        raise DamagedError("trailer")
    return output


def unpack(codec: int, data: bytes, limit: int) -> bytes:
    """Decompress codec 0 to 3 (F-4).

    Raises: DamagedError: damaged data or more than ``limit`` bytes.
    """
    if codec == 0:
        if len(data) > limit:
            raise DamagedError("too much")
        return data
    return {1: _gunzip, 2: _unsnappy, 3: _unlz4}[codec](data, limit)
