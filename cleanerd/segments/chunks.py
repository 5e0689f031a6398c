"""How many bytes of whole batches a chunk used; every reader of segments needs this."""

from __future__ import annotations

from typing import Protocol


class CountedChunk(Protocol):
    """The result of reading a chunk, of any kind."""

    @property
    def consumed(self) -> int:
        """Bytes of the whole batches that were used."""


class Consumed(CountedChunk, Protocol):
    """The fields that every chunk call of the kernel returns."""

    @property
    def needed(self) -> int:
        """Size of the batch that did not fit, 0 when unknown."""


class ChunkResult:
    """The result of a chunk, with the bytes that it used and needs."""

    __slots__ = ()

    chunk: Consumed

    @property
    def consumed(self) -> int:
        """Bytes of the whole batches that were used."""
        return self.chunk.consumed

    @property
    def needed(self) -> int:
        """Size of the batch that did not fit, 0 when unknown."""
        return self.chunk.needed
