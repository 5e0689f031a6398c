"""How far a chunk of whole batches went, whatever was made of it: what every reader of segments goes by."""

from __future__ import annotations

from typing import Protocol


class CountedChunk(Protocol):
    """A chunk, whatever was made of it."""

    @property
    def consumed(self) -> int:
        """Bytes of whole batches that were used."""


class Consumed(CountedChunk, Protocol):
    """What every chunk call of the kernel returns at least."""

    @property
    def needed(self) -> int:
        """Size of the batch that did not fit, 0 when unknown."""


class ChunkResult:
    """What was made of a chunk, together with it: what the chunk used and needs is what this did."""

    __slots__ = ()

    chunk: Consumed

    @property
    def consumed(self) -> int:
        """Bytes of whole batches that were used."""
        return self.chunk.consumed

    @property
    def needed(self) -> int:
        """Size of the batch that did not fit, 0 when unknown."""
        return self.chunk.needed
