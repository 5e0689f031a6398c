"""Partition records of a metadata log, as bytes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tests.support.format_bytes import metadata, unsigned_varint

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence


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
