"""When tombstones of a clean log may go although nothing new is written: from the horizons in its batch headers.

A cleaning knows it from its decision; this is for logs that somebody else cleaned. Kafka itself never asks: its cleaner
only looks at a log again when enough of it is dirty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.policy.tombstone import next_horizon_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cleanerd.log.read import SegmentReader
    from cleanerd.log.segment import Segment


def next_purge_ms(
    reader: SegmentReader,
    segments: Sequence[Segment],
    now_ms: int,
    progress: Callable[[int], None] = lambda _bytes: None,
) -> int | None:
    """The earliest horizon in ``segments``; ``now_ms`` if one has passed, None when there is none (C-47..C-49).

    A horizon stays in its batch after what it was for is gone, so one that has passed may mean nothing: a cleaning
    finds out, once.

    Raises:
        CorruptionError, CleanerdError: a segment cannot be read.
    """
    earliest: int | None = None
    for segment in segments:
        for batches in reader.headers(segment):
            # Any horizon above -1, the past included.
            found = next_horizon_ms(batches.attributes, batches.base_timestamp, -1)
            if found is not None:
                earliest = found if earliest is None else min(earliest, found)
            progress(batches.consumed)
    return None if earliest is None else max(earliest, now_ms)
