"""Records of a v2 batch, decoded to be shown and for tests (F-2.3). The cleaner uses the kernel's columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cleanerd._kernel import CorruptLogError, decompress
from cleanerd.errors import CorruptionError
from cleanerd.format.batch import CODEC_NAMES, HEADER_BYTES, BatchHeader, check_crc, parse_header
from cleanerd.format.reader import ByteReader

MAX_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a consumer sees it. A ``key`` or ``value`` of None is null; header keys are bytes."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    attributes: int
    """0..255; Kafka writes 0."""


def records_of(
    batch: bytes, *, limit_bytes: int, where: str | None = None, position: int = 0, verify_crc: bool = True
) -> list[Record]:
    """The records of the v2 batch ``batch`` (all its bytes), in order.

    ``position`` is its place in the file ``where``; ``limit_bytes`` limits the decompressed records.

    Raises:
        CorruptionError: what :func:`cleanerd.format.batch.parse_header` and ``check_crc`` raise; an unknown codec or
            damaged compressed data; a record that does not use exactly its length; bytes left after the last record.
    """
    header = parse_header(batch, where=where, origin=position)
    if len(batch) != header.size_bytes:
        raise CorruptionError(
            f"{len(batch)} bytes of a batch of {header.size_bytes}", where=where, position=position + 8
        )
    if verify_crc:
        check_crc(batch, header, where=where, position=position)
    if header.codec == 0:
        reader = ByteReader(batch, at=HEADER_BYTES, where=where, origin=position)
    elif header.record_count == 0 and len(batch) == HEADER_BYTES:
        return []
    else:
        plain = unpack(header.codec, batch[HEADER_BYTES:], limit_bytes, where=where, position=position)
        reader = ByteReader(plain, where=where, origin=position, unpacked=True)
    records = []
    for index in range(header.record_count):
        if not reader.left:
            reader.fail(f"{header.record_count} records announced, the bytes end after {index}")
        records.append(_record(reader, header))
    if reader.left:
        reader.fail(f"{reader.left} bytes left after the last of {header.record_count} records")
    return records


def unpack(codec: int, data: bytes, limit_bytes: int, *, where: str | None, position: int) -> bytes:
    """Decompress the payload of the batch at ``position``, at most ``limit_bytes``.

    Raises:
        CorruptionError: an unknown codec, damaged data, more than the limit.
    """
    if codec >= len(CODEC_NAMES):
        raise CorruptionError(f"codec {codec} is unknown", where=where, position=position)
    try:
        return decompress(codec, data, limit_bytes)
    except CorruptLogError as error:
        raise CorruptionError(f"{CODEC_NAMES[codec]}: {error}", where=where, position=position) from None


def _record(reader: ByteReader, header: BatchHeader) -> Record:
    body = reader.slice(reader.varint())
    attributes = body.int8() & 0xFF
    timestamp = _int64(header.base_timestamp + body.varlong())
    place = body.at
    offset = header.base_offset + body.varint()
    if not header.base_offset <= offset <= MAX_OFFSET:
        body.fail(f"record offset {offset} is below the base offset {header.base_offset} or too large", at=place)
    key = _nullable(body)
    value = _nullable(body)
    count = body.varint()
    if not 0 <= count <= body.left:
        body.fail(f"{count} headers announced, {body.left} bytes left")
    headers = tuple((body.raw(body.varint()), _nullable(body)) for _ in range(count))
    if body.left:
        body.fail(f"{body.left} bytes left at the end of a record")
    if header.is_log_append_time:
        timestamp = header.max_timestamp
    return Record(offset, timestamp, key, value, headers, attributes)


def _nullable(reader: ByteReader) -> bytes | None:
    size = reader.varint()
    return None if size == -1 else reader.raw(size)


def _int64(value: int) -> int:
    """Wrap around like a Java long: a horizon can make deltas overflow, and adding them overflows back (C-50)."""
    return (value + 2**63) % 2**64 - 2**63
