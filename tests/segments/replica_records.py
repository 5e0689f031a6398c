"""Partition records of a metadata log, as bytes, and a log of them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tests.segments.metadata_logs import LOG
from tests.support.format_bytes import metadata, metadata_batch, unsigned_varint

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence
    from pathlib import Path


T0 = 1_700_000_000_000
MINUTE_MS = 60_000
NO_OP = metadata(20)


def ids(brokers: Sequence[int]) -> bytes:
    """A compact array of broker ids."""
    return unsigned_varint(len(brokers) + 1) + struct.pack(f">{len(brokers)}i", *brokers)


def partition(
    topic_id: uuid.UUID, number: int, replicas: Sequence[int], isr: Sequence[int], adding: Sequence[int] = ()
) -> bytes:
    """PartitionRecord."""
    arrays = ids(replicas) + ids(isr) + ids(()) + ids(adding)
    return metadata(3, struct.pack(">i", number) + topic_id.bytes + arrays + struct.pack(">iii", 1, 0, 0))


def change(
    topic_id: uuid.UUID,
    number: int,
    isr: Sequence[int] | None = None,
    replicas: Sequence[int] | None = None,
    adding: Sequence[int] | None = None,
) -> bytes:
    """PartitionChangeRecord."""
    fields = [(tag, ids(value)) for tag, value in ((0, isr), (2, replicas), (4, adding)) if value is not None]
    tags = b"".join(bytes([tag]) + unsigned_varint(len(data)) + data for tag, data in fields)
    return metadata(5, struct.pack(">i", number) + topic_id.bytes, tags=unsigned_varint(len(fields)) + tags)


def log_of(directory: Path, *batches: tuple[float, tuple[bytes, ...]], end: float = 100, start: int = 0) -> Path:
    """A metadata log with one batch per minute after T0, and a no-op at minute ``end``."""
    directory.mkdir(exist_ok=True)
    data, offset = b"", start
    for minute, values in (*batches, (end, (NO_OP,))):
        data += metadata_batch(offset, *values, timestamp=int(T0 + minute * MINUTE_MS))
        offset += len(values)
    (directory / LOG).write_bytes(data)
    return directory
