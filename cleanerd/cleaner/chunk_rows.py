"""The records of a chunk that take part in a cleaning, and the places where a rewrite may begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cleanerd import _kernel


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """Rows ``first`` to ``last`` (exclusive) of a chunk's record table are in the dirty range.

    Records of the ``excluded`` [b] batches do not take part: control batches and aborted data (C-18, C-19).
    """

    first: int
    last: int
    excluded: NDArray[np.bool_]


class KnownChunk(NamedTuple):
    """A chunk that was read before.

    ``record``: its first record's number in the segment. ``excluded``: its control batches and aborted data, as in
    :class:`ChunkRows`.
    """

    chunk: _kernel.Chunk
    record: int
    excluded: NDArray[np.bool_]

    def rows(self, first: int, last: int) -> ChunkRows:
        """The rows of the segment's records ``first`` to ``last`` (exclusive)."""
        count = len(self.chunk.records)
        return ChunkRows(min(max(first - self.record, 0), count), min(max(last - self.record, 0), count), self.excluded)


class RewriteStart(NamedTuple):
    """Where a rewrite may begin: file position, and the numbers of the batch and the record there in the segment."""

    position: int
    batch: int
    record: int


BEGINNING: Final = RewriteStart(0, 0, 0)
