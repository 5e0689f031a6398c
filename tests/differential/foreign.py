"""Compressed streams as other clients may write them: valid, but unlike those of Kafka's own producer.

Most use stored (uncompressed) blocks, which keeps the writers in this module short.
"""

from __future__ import annotations

import struct
import zlib

from tests.support.reference_codecs import xxh32

XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def gzip_member(data: bytes, *, level: int = 6, name: bytes | None = None, extra: bytes | None = None) -> bytes:
    """One RFC 1952 member; ``name`` and ``extra`` are the optional header fields."""
    flags = (4 if extra is not None else 0) | (8 if name is not None else 0)
    header = struct.pack("<BBBBIBB", 0x1F, 0x8B, 8, flags, 1_700_000_000, 0, 3)
    header += b"" if extra is None else struct.pack("<H", len(extra)) + extra
    header += b"" if name is None else name + b"\0"
    deflate = zlib.compressobj(level, zlib.DEFLATED, -15)
    return header + deflate.compress(data) + deflate.flush() + struct.pack("<II", zlib.crc32(data), len(data))


def snappy_block(data: bytes) -> bytes:
    """A raw snappy block of literals."""
    length = len(data)
    block = bytearray()
    while length >= 0x80:
        block.append(length & 0x7F | 0x80)
        length >>= 7
    block.append(length)
    for start in range(0, len(data), 60):
        literal = data[start : start + 60]
        block.append((len(literal) - 1) << 2)
        block += literal
    return bytes(block)


def xerial(*blocks: bytes) -> bytes:
    """The framing of snappy-java around raw blocks."""
    return XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def lz4_frame(
    data: bytes,
    *,
    block_bytes: int = 65536,
    size_id: int = 4,
    block_checksums: bool = False,
    content_checksum: bool = False,
    content_size: bool = False,
) -> bytes:
    """An lz4 frame of independent stored blocks."""
    flags = 0x60 | 0x10 * block_checksums | 0x08 * content_size | 0x04 * content_checksum
    descriptor = bytes([flags, size_id << 4]) + (struct.pack("<Q", len(data)) if content_size else b"")
    frame = bytearray(struct.pack("<I", 0x184D2204) + descriptor + bytes([xxh32(descriptor) >> 8 & 0xFF]))
    for start in range(0, len(data), block_bytes):
        block = data[start : start + block_bytes]
        frame += struct.pack("<I", len(block) | 1 << 31) + block
        frame += struct.pack("<I", xxh32(block)) if block_checksums else b""
    frame += struct.pack("<I", 0)
    return bytes(frame + (struct.pack("<I", xxh32(data)) if content_checksum else b""))


def zstd_frame(data: bytes, *, block_bytes: int = 1 << 17, single_segment: bool = False) -> bytes:
    """A zstd frame of raw blocks, with a window or as one segment with its size."""
    header = b"\xa0" + struct.pack("<I", len(data)) if single_segment else b"\x00\x50"
    frame = bytearray(struct.pack("<I", 0xFD2FB528) + header)
    starts = list(range(0, len(data), block_bytes)) or [0]
    for start in starts:
        block = data[start : start + block_bytes]
        last = start == starts[-1]
        frame += (len(block) << 3 | last).to_bytes(3, "little") + block
    return bytes(frame)


def zstd_skippable(content: bytes) -> bytes:
    """A frame that readers skip."""
    return struct.pack("<II", 0x184D2A53, len(content)) + content
