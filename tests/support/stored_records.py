"""The data records of segments of any format, decoded in plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd.format.batch import parse_header
from cleanerd.format.legacy import parse_message, records_of_message
from cleanerd.format.record import Record, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record on disk; ``horizon_ms`` is its batch's delete horizon, None without one."""

    record: Record
    horizon_ms: int | None
    legacy: bool


def data_records(segment: bytes) -> Iterator[StoredRecord]:
    """The records of one segment; checksums verified, control batches left out."""
    position = 0
    while position < len(segment):
        size = 12 + int.from_bytes(segment[position + 8 : position + 12], "big")
        batch = segment[position : position + size]
        position += size
        if batch[16] < 2:
            for record in records_of_message(parse_message(batch), limit_bytes=LIMIT_BYTES):
                yield StoredRecord(record, None, legacy=True)
            continue
        header = parse_header(batch)
        if not header.is_control:
            for record in records_of(batch, limit_bytes=LIMIT_BYTES):
                yield StoredRecord(record, header.delete_horizon_ms, legacy=False)


def partition_records(partition: Path) -> Iterator[StoredRecord]:
    """The records of a partition directory, in order."""
    for log in sorted(partition.glob("*.log")):
        yield from data_records(log.read_bytes())
