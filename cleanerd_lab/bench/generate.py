"""Generates logs for measurements, fast: whole blocks of batches as one NumPy array, no Python per record.

Within a shape every record has the same size. One in a hundred is a tombstone, which has a header as long as the
missing value.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd._kernel import ACTION_COPY, IndexBuilder, compress, crc32c, rewrite_chunk
from cleanerd.format.batch import CRC_FROM, HEADER, HEADER_BYTES
from cleanerd.format.checkpoint import write_offset_checkpoint
from cleanerd.format.names import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIMEINDEX_SUFFIX,
    TopicPartition,
    file_name,
    uuid_to_base64,
)
from cleanerd.format.snapshot import SNAPSHOT_ENTRY, write_snapshot
from cleanerd.segments.log_dir import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

PARTITION: Final = TopicPartition("bench", 0)
BASE_TIMESTAMP_MS: Final = 1_700_000_000_000
INDEX_INTERVAL_BYTES: Final = 4096
BLOCK_BYTES: Final = 8 * 1024 * 1024
TOMBSTONE_SHARE: Final = 0.01
_SEED: Final = 20_240_501

_KEY_BYTES: Final = 20
# Record: length (2), attributes, timestamp delta, offset delta, key length, key, value length (2), value, header count.
_LENGTH_AT, _TIMESTAMP_AT, _OFFSET_AT, _KEY_AT = 0, 3, 4, 6
_VALUE_LENGTH_AT: Final = _KEY_AT + _KEY_BYTES
_VALUE_AT: Final = _VALUE_LENGTH_AT + 2
_FRAMING_BYTES: Final = _VALUE_AT + 1
VERSION_HEADER: Final = "v"
# One header: its count, the length of its name, the name, the length of its value; the value is a long.
_VERSION_HEAD: Final = np.frombuffer(b"\x02\x02v\x10", np.uint8)
_VERSION_BYTES: Final = len(_VERSION_HEAD) + 8 - 1
"""The header's size without the count, which also exists without headers."""
_HEX: Final = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), np.uint8).reshape(256, 2)
_VALUE_TEXT: Final = (
    b'{"customer":"################","status":"shipped","amount":####.##,"note":"############################"}'
)
_POOL_ROWS: Final = 16_384


@dataclass(frozen=True, slots=True)
class LogShape:
    """The composition of a log. ``superseded``: the share of records with a newer one of the same key.

    ``versions``: all records except tombstones have a random version in header ``VERSION_HEADER``; a share of ``ties``
    has the same version, higher than all others. A share of ``hot`` has the same key.
    """

    name: str
    label: str
    record_bytes: int
    batch_records: int
    superseded: float
    codec: int = 0
    versions: bool = False
    ties: float = 0.0
    hot: float = 0.0

    @property
    def unpacked_batch_bytes(self) -> int:
        """A batch before compression, header included."""
        return HEADER_BYTES + self.batch_records * self.record_bytes


SHAPES: Final = (
    LogShape("a80", "128 B records, 64 per batch, 80 % superseded", 128, 64, 0.8),
    LogShape("a10", "the same, 10 % superseded", 128, 64, 0.1),
    LogShape("single", "batches of one record, 200 B, 80 % superseded", 200 - HEADER_BYTES, 1, 0.8),
    LogShape("lz4", "as the first, lz4", 128, 64, 0.8, codec=3),
    LogShape("zstd", "as the first, zstd", 128, 64, 0.8, codec=4),
)
"""What `make bench` measures: many and few superseded records, single records, two codecs."""


@dataclass(frozen=True, slots=True)
class MadeLog:
    """A log directory with one partition, ``bench-0``, as a broker leaves it after a clean stop.

    ``records`` and ``log_bytes`` are those of the sealed segments; the active one has a single further batch.
    """

    shape: LogShape
    log_dir: Path
    records: int
    log_bytes: int
    segment_bytes: int
    end_offset: int

    @property
    def partition_dir(self) -> Path:
        """Where the segments are."""
        return self.log_dir / str(PARTITION)


def make_log(log_dir: Path, shape: LogShape, *, unpacked_bytes: int, segment_bytes: int) -> MadeLog:
    """Write a log of about ``unpacked_bytes`` before compression, in segments of at most ``segment_bytes``.

    The same arguments give the same bytes.

    Raises:
        OSError: ``log_dir`` exists, or cannot be written.
    """
    batches = max(unpacked_bytes // shape.unpacked_batch_bytes, 2)
    log_dir.mkdir(parents=True)
    partition = log_dir / str(PARTITION)
    partition.mkdir()
    segment = _NewSegment(partition, 0)
    log_bytes = offset = 0
    for data in _batches(shape, batches):
        if segment.size_bytes + len(data) > segment_bytes:
            segment.close()
            segment = _NewSegment(partition, offset)
        segment.append(data)
        log_bytes += len(data)
        offset += shape.batch_records
    segment.close()
    active = _NewSegment(partition, offset)
    active.append(next(_batches(shape, 1, first_offset=offset)))
    active.close()
    end = offset + shape.batch_records
    # Snapshots are taken when a segment ends and when the broker stops; without any, the producers' state is read from
    # all batches.
    for snapshot_offset in (offset, end):
        snapshot = write_snapshot(np.zeros(0, SNAPSHOT_ENTRY))
        (partition / file_name(snapshot_offset, SNAPSHOT_SUFFIX)).write_bytes(snapshot)
    write_broker_files(log_dir, {PARTITION: end})
    return MadeLog(shape, log_dir, offset, log_bytes, segment_bytes, end)


class _NewSegment:
    """A ``.log`` while it is written, with the indexes that a broker would have."""

    def __init__(self, partition: Path, base: int) -> None:
        self.size_bytes = 0
        self._partition = partition
        self._base = base
        self._file = (partition / file_name(base, SEGMENT_SUFFIX)).open("wb")

    def append(self, data: memoryview) -> None:
        self._file.write(data)
        self.size_bytes += len(data)

    def close(self) -> None:
        self._file.close()
        index = IndexBuilder(
            self._base, INDEX_INTERVAL_BYTES, max_offset_entries=self.size_bytes, max_time_entries=self.size_bytes
        )
        data = np.fromfile(self._partition / file_name(self._base, SEGMENT_SUFFIX), np.uint8)
        # Copying every batch shows the builder where each one begins, as when a cleaned segment is written.
        actions = np.full(self.size_bytes // HEADER_BYTES, ACTION_COPY, np.uint8)
        keep = np.zeros(self.size_bytes // 64 + 1, np.uint64)
        position = 0
        while position < len(data):
            piece = data[position : position + BLOCK_BYTES]
            written = rewrite_chunk(piece, position, keep, 0, actions, verify_crc=False)
            index.append(written)
            position += written.consumed
        for suffix, content in zip((INDEX_SUFFIX, TIMEINDEX_SUFFIX), index.finish(), strict=True):
            (self._partition / file_name(self._base, suffix)).write_bytes(content)


def write_broker_files(log_dir: Path, log_ends: dict[TopicPartition, int]) -> None:
    """The files of a stopped broker beside its partitions: its identity, and checkpoints at the logs' ends."""
    properties = {
        "version": "1",
        "node.id": "1",
        "cluster.id": "AAAAAAAAAAAAAAAAAAAAAA",
        "directory.id": uuid_to_base64(uuid.UUID(int=7)),
    }
    (log_dir / META_PROPERTIES).write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    for name in (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        (log_dir / name).write_bytes(write_offset_checkpoint(log_ends))
    (log_dir / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":-1}')


def _batches(shape: LogShape, count: int, *, first_offset: int = 0) -> Iterator[memoryview]:
    """``count`` encoded batches with consecutive offsets."""
    random = np.random.default_rng(_SEED + first_offset)
    distinct = _keys_to_draw_from(count * shape.batch_records, shape.superseded)
    pool = _value_pool(shape.record_bytes - _FRAMING_BYTES - shape.versions * _VERSION_BYTES, random)
    per_block = max(BLOCK_BYTES // shape.unpacked_batch_bytes, 1)
    for start in range(0, count, per_block):
        size = min(per_block, count - start)
        keys = random.integers(0, distinct, size=(size, shape.batch_records), dtype=np.uint64)
        if shape.hot:
            keys[random.random(keys.shape) < shape.hot] = distinct
        yield from _block(shape, keys, pool, random, first_offset + start * shape.batch_records)


def _block(
    shape: LogShape, keys: NDArray[np.uint64], pool: NDArray[np.uint8], random: np.random.Generator, first_offset: int
) -> Iterator[memoryview]:
    batches, each = keys.shape
    rows = np.zeros((batches, shape.unpacked_batch_bytes), dtype=np.uint8)
    header = rows[:, :HEADER_BYTES].view(HEADER)[:, 0]
    header["base_offset"] = first_offset + each * np.arange(batches)
    header["partition_leader_epoch"] = 0
    header["magic"] = 2
    header["attributes"] = shape.codec
    header["last_offset_delta"] = each - 1
    header["base_timestamp"] = BASE_TIMESTAMP_MS + header["base_offset"]
    header["max_timestamp"] = header["base_timestamp"] + (each - 1)
    header["producer_id"] = header["producer_epoch"] = header["base_sequence"] = -1
    header["record_count"] = each
    _fill_records(rows[:, HEADER_BYTES:].reshape(batches, each, shape.record_bytes), keys, pool, random, shape.ties)
    if shape.codec:
        yield from _packed(shape.codec, rows, header)
        return
    header["batch_length"] = shape.unpacked_batch_bytes - 12
    header["crc"] = [crc32c(row) for row in rows[:, CRC_FROM:]]
    for row in rows:
        yield row.data


def _fill_records(
    records: NDArray[np.uint8],
    keys: NDArray[np.uint64],
    pool: NDArray[np.uint8],
    random: np.random.Generator,
    ties: float,
) -> None:
    """Write all bytes of ``records`` [batches, records, bytes]."""
    batches, each, record_bytes = records.shape
    value_bytes = pool.shape[1]
    records[:, :, _LENGTH_AT : _LENGTH_AT + 2] = _two_byte_varint(record_bytes - 2)
    # Deltas up to 63 take one byte, twice the value.
    records[:, :, _TIMESTAMP_AT] = records[:, :, _OFFSET_AT] = 2 * np.arange(each, dtype=np.uint8)
    records[:, :, _KEY_AT - 1] = 2 * _KEY_BYTES
    records[:, :, _KEY_AT : _KEY_AT + 4] = np.frombuffer(b"key-", np.uint8)
    # An odd factor spreads the numbers over 64 bits and keeps them distinct.
    spread = (keys * np.uint64(0x9E37_79B9_7F4A_7C15)).astype(">u8").view(np.uint8)
    records[:, :, _KEY_AT + 4 : _VALUE_LENGTH_AT] = _HEX[spread].reshape(batches, each, 16)
    records[:, :, _VALUE_LENGTH_AT:_VALUE_AT] = _two_byte_varint(value_bytes)
    records[:, :, _VALUE_AT : _VALUE_AT + value_bytes] = pool[random.integers(0, len(pool), size=(batches, each))]
    headers_at = _VALUE_AT + value_bytes
    if headers_at + 1 < record_bytes:
        records[:, :, headers_at : headers_at + len(_VERSION_HEAD)] = _VERSION_HEAD
        versions = random.integers(0, 2**62, size=(batches, each)).astype(">i8")
        if ties:
            versions[random.random((batches, each)) < ties] = 2**62
        records[:, :, headers_at + len(_VERSION_HEAD) :] = versions.view(np.uint8).reshape(batches, each, 8)
    tombstones = random.random((batches, each)) < TOMBSTONE_SHARE
    records[tombstones, _VALUE_LENGTH_AT:] = _tombstone_tail(record_bytes - _VALUE_LENGTH_AT)


def _packed(codec: int, rows: NDArray[np.uint8], header: NDArray[np.void]) -> Iterator[memoryview]:
    payloads = [compress(codec, row.tobytes()) for row in rows[:, HEADER_BYTES:]]
    header["batch_length"] = [HEADER_BYTES - 12 + len(payload) for payload in payloads]
    for row, payload in zip(rows, payloads, strict=True):
        data = np.empty(HEADER_BYTES + len(payload), dtype=np.uint8)
        data[:HEADER_BYTES] = row[:HEADER_BYTES]
        data[HEADER_BYTES:] = np.frombuffer(payload, np.uint8)
        data[:HEADER_BYTES].view(HEADER)["crc"] = crc32c(data[CRC_FROM:])
        yield data.data


def _value_pool(value_bytes: int, random: np.random.Generator) -> NDArray[np.uint8]:
    """[rows, value_bytes]: JSON-like text, about half of it random letters and digits."""
    text = (_VALUE_TEXT * (value_bytes // len(_VALUE_TEXT) + 1))[:value_bytes]
    pool = np.tile(np.frombuffer(text, np.uint8), (_POOL_ROWS, 1))
    letters = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyz", np.uint8)
    holes = np.flatnonzero(pool[0] == ord("#"))
    pool[:, holes] = letters[random.integers(0, len(letters), size=(_POOL_ROWS, len(holes)))]
    return pool


def _tombstone_tail(size: int) -> NDArray[np.uint8]:
    """The record from the value's length on: no value, one header ``p`` with the remaining bytes."""
    head = b"\x01\x02\x02p"
    filler = size - len(head) - 2
    tail = np.full(size, ord("."), dtype=np.uint8)
    tail[: len(head)] = np.frombuffer(head, np.uint8)
    tail[len(head) : len(head) + 2] = _two_byte_varint(filler)
    return tail


def _two_byte_varint(value: int) -> NDArray[np.uint8]:
    """Zigzag varint of a number from 64 to 8191."""
    if not 64 <= value <= 8191:
        raise ValueError(f"{value} does not take two bytes")
    return np.array([2 * value & 0x7F | 0x80, 2 * value >> 7], dtype=np.uint8)


def _keys_to_draw_from(records: int, superseded: float) -> int:
    """How many keys to draw from, uniformly, so that ``records`` draws leave that share superseded.

    With x draws per key, (1 - e^-x) / x of the records are the last of their key; x is found by bisection.
    """
    low, high = 1e-6, 1e6
    for _ in range(100):
        middle = (low * high) ** 0.5
        last = -np.expm1(-middle) / middle
        low, high = (middle, high) if last > 1 - superseded else (low, middle)
    return max(int(records / low), 1)
