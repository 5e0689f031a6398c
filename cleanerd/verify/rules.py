"""The rules that decide between the records of a key, implemented independently of the cleaner (U-28).

The record with the highest (has a version, version, offset) stays (R280-3 to R280-6), and the topic's mode defines
tombstones (R87-2 to R87-4).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.format.record import Record

_DENIES_TOMBSTONE = (b"", b"0", b"false", None)
_FLAG_BIT = 0x20


@dataclass(frozen=True, slots=True)
class KeyRules:
    """A topic's strategy and tombstone mode; ``header`` and ``tombstone_header`` are None if they have no effect."""

    strategy: str = "offset"
    header: bytes | None = None
    encoding: str = "long"
    tombstone_mode: str = "null"
    tombstone_header: bytes | None = None
    tombstone_guard: str = "horizon"
    winner_retention: str = "record-time"

    @classmethod
    def of(cls, config: TopicConfig) -> KeyRules:
        """The rules in a topic's configuration."""
        by_header, marked = config.compaction_strategy == "header", config.tombstone_mode == "header"
        return cls(
            strategy=config.compaction_strategy,
            header=config.compaction_strategy_header.encode() if by_header else None,
            encoding=config.compaction_strategy_header_encoding,
            tombstone_mode=config.tombstone_mode,
            tombstone_header=config.tombstone_header.encode() if marked else None,
            tombstone_guard=config.tombstone_guard,
            winner_retention=config.compaction_winner_retention,
        )

    @property
    def by_version(self) -> bool:
        """Whether the retained record may precede others of its key."""
        return self.strategy != "offset"

    @property
    def keeps_write_time(self) -> bool:
        """Whether a batch takes over the times of the records that its records superseded (U-65)."""
        return self.by_version and self.winner_retention == "write-time"

    @property
    def keeps_tombstones_forever(self) -> bool:
        """Whether tombstones that won their key are never removed (U-4)."""
        return self.by_version and self.tombstone_guard == "forever"

    def decode(self, data: NDArray[np.uint8], position: int, hash_key: bytes, max_unpacked: int) -> _kernel.Chunk:
        """The kernel's columns, with the headers that these rules need. Checksums are not verified."""
        return _kernel.decode_chunk(
            data,
            position,
            hash_key=hash_key,
            version_header=self.header,
            version_encoding=self.encoding,
            tombstone_header=self.tombstone_header,
            verify_crc=False,
            max_unpacked=max_unpacked,
        )

    def versions(self, records: _kernel.Records) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """[n]: version, and whether there is one."""
        count = len(records)
        if self.strategy == "timestamp":
            return records.timestamp, np.ones(count, np.bool_)
        if self.strategy == "header":
            return records.version, (records.flags & _kernel.FLAG_HAS_VERSION) != 0
        return np.zeros(count, np.int64), np.zeros(count, np.bool_)

    def tombstones(self, flags: NDArray[np.uint8], old_format: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[n]; ``old_format`` [n]: the record is of v0 or v1, where a tombstone is a null value."""
        null: NDArray[np.bool_] = (flags & _kernel.FLAG_HAS_VALUE) == 0
        if self.tombstone_mode == "flag":
            flagged: NDArray[np.bool_] = (flags & _kernel.FLAG_TOMBSTONE) != 0
            flagged[old_format] = null[old_format]
            return flagged
        if self.tombstone_mode == "header":
            marked: NDArray[np.bool_] = (flags & _kernel.FLAG_TOMBSTONE_HEADER) != 0
            return null | marked
        return null

    def version_of(self, record: Record) -> int | None:
        """The version of one record, None without one."""
        if self.strategy == "timestamp":
            return record.timestamp
        if self.strategy != "header":
            return None
        value = _last(record.headers, self.header)
        if not isinstance(value, bytes):
            return None
        return _varlong(value) if self.encoding == "varlong" else _long(value)

    def is_tombstone(self, record: Record, magic: int) -> bool:
        """Whether one record deletes its key."""
        if self.tombstone_mode == "flag" and magic == 2:
            return bool(record.attributes & _FLAG_BIT)
        marked = (
            self.tombstone_mode == "header" and _last(record.headers, self.tombstone_header) not in _DENIES_TOMBSTONE
        )
        return record.value is None or marked


KAFKAS_RULES: Final = KeyRules()
"""The rules of a stock broker's cleaner."""


def _last(headers: Iterable[tuple[bytes, bytes | None]], name: bytes | None) -> bytes | None:
    """The value of the last header ``name``, which may be null; None without such a header."""
    return next((value for key, value in reversed(tuple(headers)) if key == name), None)


def _long(value: bytes) -> int | None:
    """A signed value of exactly eight big-endian bytes."""
    return int(struct.unpack(">q", value)[0]) if len(value) == 8 else None


def _varlong(value: bytes) -> int | None:
    """Zigzag, seven bits per byte, low group first, up to the last byte of the value."""
    if not 0 < len(value) <= 10 or value[-1] >= 0x80 or any(byte < 0x80 for byte in value[:-1]):
        return None
    raw = sum((byte & 0x7F) << 7 * at for at, byte in enumerate(value)) & (2**64 - 1)
    return (raw >> 1) ^ -(raw & 1)
