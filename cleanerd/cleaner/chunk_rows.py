"""The records of a chunk that a pass over a segment reads, and the places where a rewrite may begin."""

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

    Records of the ``excluded`` [b] batches take no part: control batches and aborted data (C-18, C-19).
    """

    first: int
    last: int
    excluded: NDArray[np.bool_]


class KnownChunk(NamedTuple):
    """A chunk whose facts are known: ``record`` is its first record's number in the segment.

    ``excluded`` are its control batches and aborted data, as in :class:`ChunkRows`.
    """

    chunk: _kernel.Chunk
    record: int
    excluded: NDArray[np.bool_]

    def rows(self, first: int, last: int) -> ChunkRows:
        """The rows among the segment's records ``first`` to ``last`` (exclusive)."""
        count = len(self.chunk.records)
        return ChunkRows(min(max(first - self.record, 0), count), min(max(last - self.record, 0), count), self.excluded)


class RewriteStart(NamedTuple):
    """Where a rewrite may begin: file position, number of the batch there and of its first record in the segment."""

    position: int
    batch: int
    record: int


BEGINNING: Final = RewriteStart(0, 0, 0)
