"""Which message formats a log holds, as far as a glance tells (R192-4, R534-4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleanerd.log.partition import PartitionLog
    from cleanerd.log.read import SegmentReader


def legacy_segments(log: PartitionLog, reader: SegmentReader) -> int:
    """How many segments begin with a batch of message format v0 or v1; nothing behind the first chunk is read.

    Raises:
        CorruptionError: a segment does not begin with batches.
    """
    count = 0
    for segment in log.segments:
        first = next(iter(reader.headers(segment)), None)
        if first is not None and len(first) and first.magic[0] < 2:
            count += 1
    return count
