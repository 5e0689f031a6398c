"""Bytes for the tests of ``format/``, made by code that shares nothing with it."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING

from cleanerd.errors import CorruptionError

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable


def refusal(call: Callable[..., object], *arguments: object) -> CorruptionError | None:
    """The CorruptionError of ``call(*arguments)``, None if it returns; any other exception passes through."""
    try:
        call(*arguments)
    except CorruptionError as error:
        return error
    return None


def label(value: object) -> str:
    """Test ids: the expected result, not the bytes."""
    return "" if isinstance(value, bytes) else str(value)


def unhex(text: str) -> bytes:
    """Hexadecimal digits with spaces, line feeds and ``|`` between them, as the specification writes them."""
    return bytes.fromhex(text.replace("|", ""))


def crc32c(data: bytes) -> int:
    """Bit by bit, so slow and plain."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def unsigned_varint(value: int) -> bytes:
    """Seven bits per byte, low ones first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Zigzag: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return unsigned_varint(2 * value if value >= 0 else -2 * value - 1)


def nullable(data: bytes | None) -> bytes:
    """A record's key or value."""
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    *,
    timestamp_delta: int = 0,
    headers: Iterable[tuple[bytes, bytes | None]] = (),
    attributes: int = 0,
) -> bytes:
    """A record with its length."""
    headers = list(headers)
    body = bytes([attributes]) + varint(timestamp_delta) + varint(offset_delta) + nullable(key) + nullable(value)
    body += varint(len(headers)) + b"".join(nullable(name) + nullable(content) for name, content in headers)
    return varint(len(body)) + body


def batch(
    base_offset: int,
    records: Iterable[bytes],
    *,
    count: int | None = None,
    last_offset_delta: int | None = None,
    attributes: int = 0,
    base_timestamp: int = 0,
    max_timestamp: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = 0,
) -> bytes:
    """A v2 batch; attribute bit 0 alone compresses the records with gzip, other codecs are left to the caller."""
    records = list(records)
    payload = b"".join(records)
    if attributes & 7 == 1:
        payload = gzip.compress(payload, mtime=0)
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        (len(records) - 1 if records else 0) if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records) if count is None else count,
    )
    covered += payload
    frame = struct.pack(">qiibI", base_offset, len(covered) + 9, leader_epoch, 2, crc32c(covered))
    return frame + covered


def compact(text: str | None) -> bytes:
    """A compact string."""
    return b"\x00" if text is None else unsigned_varint(len(text.encode()) + 1) + text.encode()


def metadata(
    api_key: int, fields: bytes = b"", *, version: int = 0, frame_version: int = 1, tags: bytes = b"\x00"
) -> bytes:
    """The value of a metadata record."""
    return unsigned_varint(frame_version) + unsigned_varint(api_key) + unsigned_varint(version) + fields + tags


def topic(name: str, topic_id: uuid.UUID) -> bytes:
    """TopicRecord."""
    return metadata(2, compact(name) + topic_id.bytes)


def remove_topic(topic_id: uuid.UUID) -> bytes:
    """RemoveTopicRecord."""
    return metadata(9, topic_id.bytes)


def config(resource_type: int, resource: str, key: str, value: str | None) -> bytes:
    """ConfigRecord."""
    return metadata(4, bytes([resource_type]) + compact(resource) + compact(key) + compact(value))


def feature(name: str, level: int) -> bytes:
    """FeatureLevelRecord."""
    return metadata(12, compact(name) + struct.pack(">h", level))


BEGIN = metadata(23)
END = metadata(24)
ABORT = metadata(25, tags=b"\x01\x00\x04\x04why")


def metadata_batch(base_offset: int, *values: bytes, timestamp: int = 1000) -> bytes:
    """A batch of the metadata log."""
    return batch(
        base_offset,
        [record(at, None, value) for at, value in enumerate(values)],
        base_timestamp=timestamp,
        max_timestamp=timestamp,
    )


def control_batch(base_offset: int, control_type: int, value: bytes, *, timestamp: int = 1000) -> bytes:
    """A KRaft control batch."""
    key = struct.pack(">hh", 0, control_type)
    return batch(
        base_offset,
        [record(0, key, value)],
        attributes=0x20,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
    )


def snapshot(*values: bytes, timestamp: int = 900) -> bytes:
    """A complete KRaft snapshot of ``values``."""
    header = control_batch(0, 3, struct.pack(">hq", 0, timestamp) + b"\x00")
    body = metadata_batch(1, *values)
    return header + body + control_batch(1 + len(values), 4, b"\x00\x00\x00")
