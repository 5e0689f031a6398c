"""Encoder for test logs: v2 batches field by field, so that a test can also write what no broker would.

Only the codecs and the CRC come from the kernel; the layout (F-2) is written out here on its own.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cleanerd import _kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CONTROL",
    "HAS_DELETE_HORIZON",
    "LOG_APPEND_TIME",
    "TRANSACTIONAL",
    "Record",
    "encode_batch",
    "encode_legacy",
    "encode_marker",
    "encode_record",
    "encode_wrapper",
    "keyed_batch",
    "seal",
    "varint",
]

LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
HAS_DELETE_HORIZON = 0x40

LZ4 = 3
LZ4_CHECKSUM_V0 = b"\x1a"
"""The value of magic 0 instead of 0x82, the right one, in the frames that Kafka writes (KAFKA-3160)."""

BASE_TIMESTAMP_MS = 1_700_000_000_000

_HEADER_AFTER_CRC = struct.Struct(">hiqqqhii")


@dataclass(frozen=True, slots=True)
class Record:
    """One record. ``offset_delta`` None means: one more than the record before (0 for the first)."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = BASE_TIMESTAMP_MS
    offset_delta: int | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = field(default=())
    attributes: int = 0


def varint(value: int) -> bytes:
    """Zigzag varint of up to 64 bits."""
    raw = ((value << 1) ^ (value >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while raw >= 0x80:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


def _field(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def encode_record(record: Record, *, offset_delta: int, timestamp_delta: int) -> bytes:
    """Encode a record with its length in front (F-2.3)."""
    body = bytearray((record.attributes & 0xFF,))
    body += varint(timestamp_delta) + varint(offset_delta) + _field(record.key) + _field(record.value)
    body += varint(len(record.headers))
    for key, value in record.headers:
        body += _field(key) + _field(value)
    return varint(len(body)) + bytes(body)


def seal(batch: bytes) -> bytes:
    """Correct the length and the CRC of a v2 batch: for tests that damage other bytes."""
    sealed = bytearray(batch)
    sealed[8:12] = struct.pack(">i", len(sealed) - 12)
    sealed[17:21] = struct.pack(">I", _kernel.crc32c(np.frombuffer(bytes(sealed[21:]), np.uint8)))
    return bytes(sealed)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    log_append_time: int | None = None,
    transactional: bool = False,
    control: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    delete_horizon: int | None = None,
    record_count: int | None = None,
    attributes: int | None = None,
    payload: bytes | None = None,
) -> bytes:
    """Encode a v2 batch with right length and CRC.

    ``log_append_time``: the append time in ms, sets the timestamp type too. ``delete_horizon``: sets bit 6.
    ``attributes`` replaces all bits, ``payload`` the (compressed) records. Other fields follow from the records, as a
    producer would write them; an empty batch gets base and maximum timestamp -1.
    """
    deltas: list[int] = []
    for record in records:
        following = deltas[-1] + 1 if deltas else 0
        deltas.append(following if record.offset_delta is None else record.offset_delta)
    if delete_horizon is not None:
        base_timestamp = delete_horizon
    elif base_timestamp is None:
        base_timestamp = records[0].timestamp if records else -1
    if log_append_time is not None:
        max_timestamp = log_append_time
    elif max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=-1)
    if attributes is None:
        attributes = codec
        attributes |= LOG_APPEND_TIME if log_append_time is not None else 0
        attributes |= TRANSACTIONAL if transactional else 0
        attributes |= CONTROL if control else 0
        attributes |= HAS_DELETE_HORIZON if delete_horizon is not None else 0
    if payload is None:
        plain = b"".join(
            encode_record(record, offset_delta=delta, timestamp_delta=record.timestamp - base_timestamp)
            for record, delta in zip(records, deltas, strict=True)
        )
        payload = _kernel.compress(codec, plain) if records else b""
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if deltas else 0
    after_crc = _HEADER_AFTER_CRC.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records) if record_count is None else record_count,
    )
    return seal(struct.pack(">qiibI", base_offset, 0, leader_epoch, 2, 0) + after_crc + payload)


def keyed_batch(
    base_offset: int,
    entries: Sequence[tuple[str | None, str | None]],
    *,
    timestamp: int = BASE_TIMESTAMP_MS,
    codec: int = 0,
) -> bytes:
    """Encode ``[("k1", "v1"), ("k2", None)]`` at consecutive offsets, all with one timestamp."""
    records = [
        Record(
            key=None if key is None else key.encode(),
            value=None if value is None else value.encode(),
            timestamp=timestamp,
        )
        for key, value in entries
    ]
    return encode_batch(records, base_offset=base_offset, codec=codec)


def encode_marker(
    base_offset: int,
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = BASE_TIMESTAMP_MS,
    leader_epoch: int = 0,
    delete_horizon: int | None = None,
) -> bytes:
    """Encode the control batch that ends a transaction (F-2.7): 78 bytes without a horizon."""
    record = Record(
        key=struct.pack(">hh", 0, int(commit)), value=struct.pack(">hi", 0, coordinator_epoch), timestamp=timestamp
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        transactional=True,
        control=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        delete_horizon=delete_horizon,
    )


def encode_legacy(
    offset: int, key: bytes | None, value: bytes | None, *, magic: int = 1, timestamp: int = -1, attributes: int = 0
) -> bytes:
    """Encode one v0 or v1 message (F-3) with its CRC-32."""
    body = struct.pack(">bB", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for content in (key, value):
        body += struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def encode_wrapper(
    offset: int, inner: bytes, *, magic: int = 1, codec: int = 1, timestamp: int = -1, append_time: bool = False
) -> bytes:
    """Encode a compressed wrapper (F-3.1) around ``inner``: messages from :func:`encode_legacy`, one after the other.

    ``offset`` is that of the last message; in magic 1 those inside are relative.
    """
    packed = _kernel.compress(codec, inner)
    if magic == 0 and codec == LZ4:
        packed = packed[:6] + LZ4_CHECKSUM_V0 + packed[7:]
    attributes = codec | (LOG_APPEND_TIME if append_time else 0)
    return encode_legacy(offset, None, packed, magic=magic, timestamp=timestamp, attributes=attributes)
