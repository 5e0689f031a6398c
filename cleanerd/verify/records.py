"""The records of a segment as the kernel's columns, and those of one batch in full."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.format.batch import CONTROL, CRC_FROM, HAS_DELETE_HORIZON, HEADER
from cleanerd.format.legacy import parse_message, records_of_message
from cleanerd.format.record import Record, records_of
from cleanerd.host.memory import batch_bytes, batch_bytes_of_objects
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from cleanerd.verify.walk import CHUNK_BYTES, Damage, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

HASH_KEY_BYTES: Final = 16
NO_HORIZON: Final = -1
NO_TIMESTAMP: Final = -1
"""Kafka's timestamp for a record without one, and for an emptied batch."""


@dataclass(frozen=True, slots=True)
class DataRecords:
    """Data records of some batches.

    ``batch``: each one's row in ``batches``; ``key_hash``: [n, 2]. ``version`` is undefined if ``has_version`` is
    False. ``is_tombstone``: by the topic's mode. ``filled``: the rows of the batches that have records, control records
    included; ``lowest_ms`` and ``highest_ms``: their records' lowest and highest timestamps.
    """

    batches: _kernel.Batches
    batch: NDArray[np.intp]
    offset: NDArray[np.int64]
    key_hash: NDArray[np.uint64]
    has_key: NDArray[np.bool_]
    version: NDArray[np.int64]
    has_version: NDArray[np.bool_]
    is_tombstone: NDArray[np.bool_]
    filled: NDArray[np.intp]
    lowest_ms: NDArray[np.int64]
    highest_ms: NDArray[np.int64]


def new_hash_key() -> bytes:
    """A random key for the hashes of one run."""
    return os.urandom(HASH_KEY_BYTES)


def read_rows(
    path: Path,
    size_bytes: int,
    hash_key: bytes,
    damaged: Callable[[Damage], None],
    *,
    chunk_bytes: int = CHUNK_BYTES,
    rules: KeyRules = KAFKAS_RULES,
    checksums: bool = False,
) -> Iterator[tuple[NDArray[np.uint8], DataRecords]]:
    """The data records of a segment file, chunk by chunk, with the bytes of their batches.

    Decodable records are included whatever their checksum is; with ``checksums`` a wrong one is also reported as
    damage.

    Raises:
        CleanerdError: the file cannot be read.
    """

    def decode(data: NDArray[np.uint8], position: int) -> _kernel.Chunk:
        return rules.decode(data, position, hash_key, batch_bytes())

    for data, chunk in walk(path, size_bytes, decode, damaged, chunk_bytes=chunk_bytes):
        if checksums:
            for damage in _wrong_checksums(data, chunk.batches):
                damaged(damage)
        yield data, _rows(chunk, rules)


def _wrong_checksums(data: NDArray[np.uint8], batches: _kernel.Batches) -> Iterator[Damage]:
    """Batches in ``data`` [bytes] with a wrong CRC. A single call checks whether there are any."""
    if not len(batches) or _wrong_checksum(data, int(batches.position[0])) is None:
        return
    starts = (batches.position - batches.position[0]).tolist()
    for row, (start, end) in enumerate(zip(starts, [*starts[1:], len(data)], strict=True)):
        reason = _wrong_checksum(data[start:end], int(batches.position[row]))
        if reason is not None:
            yield Damage(int(batches.position[row]), int(batches.base_offset[row]), reason, end - start)


def _wrong_checksum(data: NDArray[np.uint8], position: int) -> str | None:
    try:
        _kernel.scan_headers(data, position, verify_crc=True)
    except _kernel.CorruptLogError as error:
        return error.reason
    return None


def _rows(chunk: _kernel.Chunk, rules: KeyRules) -> DataRecords:
    batches, records = chunk.batches, chunk.records
    first = batches.first_record.astype(np.int64)
    counts: NDArray[np.int64] = first[1:] - first[:-1]
    batch = np.repeat(np.arange(len(batches)), counts)
    filled = np.flatnonzero(counts)
    starts = first[:-1][filled]
    is_data = ((batches.attributes & CONTROL) == 0)[batch]
    version, has_version = rules.versions(records)
    return DataRecords(
        batches=batches,
        batch=batch[is_data],
        offset=records.offset[is_data],
        key_hash=records.key_hash.reshape(-1, 2)[is_data],
        has_key=((records.flags & _kernel.FLAG_HAS_KEY) != 0)[is_data],
        version=version[is_data],
        has_version=has_version[is_data],
        is_tombstone=rules.tombstones(records.flags, (batches.magic < 2)[batch])[is_data],
        filled=filled,
        lowest_ms=np.minimum.reduceat(records.timestamp, starts) if len(starts) else np.zeros(0, np.int64),
        highest_ms=np.maximum.reduceat(records.timestamp, starts) if len(starts) else np.zeros(0, np.int64),
    )


def records_in(content: bytes, position: int) -> list[Record]:
    """The records of a batch of any magic; ``position`` is for errors. Checksums are not verified.

    Raises:
        CorruptionError: it cannot be decoded.
    """
    if content[16] >= 2:
        return records_of(content, limit_bytes=batch_bytes_of_objects(), position=position, verify_crc=False)
    message = parse_message(content, position=position, verify_crc=False)
    return records_of_message(message, limit_bytes=batch_bytes_of_objects(), position=position)


def horizons(batches: _kernel.Batches) -> NDArray[np.int64]:
    """[b]: the delete horizon in ms, NO_HORIZON if the batch has none."""
    has = (batches.magic == 2) & ((batches.attributes & HAS_DELETE_HORIZON) != 0)
    return np.where(has, batches.base_timestamp, NO_HORIZON)


def hashes_of(keys: Sequence[bytes | None], hash_key: bytes) -> NDArray[np.uint64]:
    """[n, 2]: the kernel's hashes of these keys, computed from a batch made of them."""
    body = bytearray()
    for delta, key in enumerate(keys):
        field = _varint(-1) if key is None else _varint(len(key)) + key
        record = b"\x00" + _varint(0) + _varint(delta) + field + _varint(-1) + _varint(0)
        body += _varint(len(record)) + record
    header = np.zeros(1, HEADER)
    header["batch_length"] = HEADER.itemsize - 12 + len(body)
    header["magic"], header["producer_id"], header["base_sequence"] = 2, -1, -1
    header["producer_epoch"] = -1
    header["last_offset_delta"], header["record_count"] = max(len(keys) - 1, 0), len(keys)
    batch = bytearray(header.tobytes() + bytes(body))
    batch[17:21] = struct.pack(">I", _kernel.crc32c(np.frombuffer(bytes(batch[CRC_FROM:]), np.uint8)))
    chunk = _kernel.decode_chunk(np.frombuffer(bytes(batch), np.uint8), 0, hash_key=hash_key)
    return chunk.records.key_hash.reshape(-1, 2)


def _varint(value: int) -> bytes:
    """Zigzag, 7 bits per byte, low group first (F-2.3)."""
    rest = (value << 1) ^ (value >> 31)
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
