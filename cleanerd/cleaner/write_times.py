"""When the keys of a topic that keeps write times were last written (U-65, ``compaction.winner.retention=write-time``).

Under a version strategy a retained record may be older than those that it supersedes. Retention deletes a segment by
the largest timestamp of its batches, so the retained record's batch takes over the largest of theirs. Superseded
records may be anywhere in the log, so another pass finds them after the offset map is complete.

The largest timestamp in a batch header includes times that it took over before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd.cleaner.index import ChunkDecoding, Contestants, keyed_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd._kernel import OffsetMap


class WriteTimes:
    """Passes the times of superseded records on to the batches of the winners."""

    def __init__(self, contestants: Sequence[Contestants]) -> None:
        self._rows = sorted(contestants, key=lambda each: each.first_ordinal)
        self._starts = np.array([each.first_ordinal + each.first for each in self._rows], dtype=np.int64)

    def take_over(self, ordinals: NDArray[np.int64], winners: NDArray[np.int64]) -> None:
        """The records ``ordinals`` [n] lost to the records ``winners`` [n]; -1: no winner."""
        superseded = np.flatnonzero((winners >= 0) & (winners != ordinals))
        winners = winners[superseded]
        times = np.zeros(len(superseded), dtype=np.int64)
        for row, mine, numbers in self._by_segment(ordinals[superseded]):
            times[mine] = row.evidence.batch_times(numbers)
        for row, mine, numbers in self._by_segment(winners):
            row.evidence.take_over(numbers, times[mine])

    def _by_segment(
        self, ordinals: NDArray[np.int64]
    ) -> Iterator[tuple[Contestants, NDArray[np.bool_], NDArray[np.int64]]]:
        """The segments of ``ordinals`` [n], which of these are in each, and their record numbers there."""
        of_row = np.searchsorted(self._starts, ordinals, side="right") - 1
        for row in np.unique(of_row).tolist():
            mine = of_row == row
            yield self._rows[row], mine, ordinals[mine] - self._rows[row].first_ordinal


def take_over(
    decoder: ChunkDecoding, offset_map: OffsetMap, contestants: Sequence[Contestants], shard: int, shards: int
) -> None:
    """Let each winner's batch take over the times of the batches whose records it superseded.

    ``offset_map`` holds the winners of one shard of the keys.

    Raises:
        CorruptionError, CleanerdError: a segment cannot be read.
    """
    times = WriteTimes(contestants)
    for each in contestants:
        for known in each.evidence.replay(decoder.chunks(each.evidence.source)):
            mask = keyed_rows(known.chunk, known.rows(each.first, each.last))
            winners = offset_map.ordinals(known.chunk.records.key_hash, mask, shard=shard, shards=shards)
            times.take_over(each.first_ordinal + known.record + np.arange(len(mask)), winners)
