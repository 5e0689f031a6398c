"""A bitmap that grows at its end: one bit per record of a segment, filled chunk by chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd._kernel import store_bits

if TYPE_CHECKING:
    from numpy.typing import NDArray


class BitColumn:
    """Bits of the records of one segment, in file order."""

    def __init__(self) -> None:
        # No preallocation: a log may have thousands of segments, each with a few records or none.
        self._words = np.zeros(0, dtype=np.uint64)
        self.count = 0

    def append(self, values: NDArray[np.bool_]) -> None:
        """Add one bit per row of ``values`` [n]."""
        end = self.count + len(values)
        if end > 64 * len(self._words):
            grown = np.zeros(max(2 * len(self._words), (end + 63) // 64), dtype=np.uint64)
            grown[: len(self._words)] = self._words
            self._words = grown
        store_bits(self._words, self.count, values)
        self.count = end

    def extend(self, other: BitColumn) -> None:
        """Add the bits of ``other`` behind these."""
        bits = np.unpackbits(other.words().astype("<u8").view(np.uint8), count=other.count, bitorder="little")
        self.append(bits.astype(np.bool_))

    @classmethod
    def of(cls, words: NDArray[np.uint64], count: int) -> BitColumn:
        """The first ``count`` bits of a bitmap; later bits are cleared."""
        column = cls()
        column._words = words
        column.count = count
        return column

    def merge(self, other: BitColumn) -> None:
        """Set the bits that are set in ``other``; grow to its length if needed."""
        if other.count > self.count:
            self.append(np.zeros(other.count - self.count, dtype=np.bool_))
        words = other.words()
        self._words[: len(words)] |= words

    def words(self) -> NDArray[np.uint64]:
        """The bitmap, ``ceil(count / 64)`` words; bits past the end are clear."""
        return self._words[: (self.count + 63) // 64]
