"""The message formats of a log, by each segment's first batch (R192-4, R534-4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.reading import SegmentReader


@dataclass(frozen=True, slots=True)
class Formats:
    """Lowest and highest magic of the segments' first batches (None: the log is empty), and how many are v0 or v1."""

    lowest: int | None
    highest: int | None
    legacy_segments: int


def glance(log: PartitionLog, reader: SegmentReader) -> Formats:
    """The format with which each segment begins; reads only first chunks.

    Raises:
        CorruptionError: a segment does not begin with a batch.
    """
    magics = []
    for segment in log.segments:
        first = next(iter(reader.headers(segment)), None)
        if first is not None and len(first):
            magics.append(int(first.magic[0]))
    return Formats(min(magics, default=None), max(magics, default=None), sum(magic < 2 for magic in magics))
