"""When the keys of a topic that keeps write times were last written (U-65, ``compaction.winner.retention=write-time``).

By version a retained record may be older than those that it supersedes. Retention deletes a segment by the largest
timestamp of its batches, so the retained record's batch takes the largest of theirs. They may be anywhere in the log:
once the offset map knows each retained record, one more pass finds those that it supersedes.

A batch has its own largest timestamp, not that of a record: it shows what the batch took over before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd.cleaner.index import keyed_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd._kernel import OffsetMap
    from cleanerd.cleaner.chunk_rows import KnownChunk
    from cleanerd.cleaner.index import ChunkDecoding, Contestants


def take_over(
    decoder: ChunkDecoding, offset_map: OffsetMap, contestants: Sequence[Contestants], shard: int, shards: int
) -> None:
    """Have each winner's batch take over the times of the batches that it superseded records of.

    ``offset_map`` holds the winners of one shard of the keys.

    Raises:
        CorruptionError, CleanerdError: a segment cannot be read.
    """
    rows = sorted(contestants, key=lambda each: each.first_ordinal)
    starts = np.array([each.first_ordinal + each.first for each in rows], dtype=np.int64)
    for each in rows:
        for known in each.evidence.replay(decoder.chunks(each.evidence.source)):
            mask = keyed_rows(known.chunk, known.rows(each.first, each.last))
            winners = offset_map.ordinals(known.chunk.records.key_hash, mask, shard=shard, shards=shards)
            own = each.first_ordinal + known.record + np.arange(len(mask))
            superseded = np.flatnonzero(mask & (winners >= 0) & (winners != own))
            times = _batch_times(known)[superseded]
            of_row = np.searchsorted(starts, winners[superseded], side="right") - 1
            for row in np.unique(of_row).tolist():
                mine = of_row == row
                numbers = winners[superseded][mine] - rows[row].first_ordinal
                rows[row].evidence.take_over(numbers, times[mine])


def _batch_times(known: KnownChunk) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """[n]: of each record the largest timestamp of its batch."""
    batches = known.chunk.batches
    return np.repeat(batches.max_timestamp, np.diff(batches.first_record))
