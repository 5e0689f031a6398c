"""Counts records by the time of writing, in spans, however far apart their timestamps are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

MOST_SPANS: Final = 512
"""Limit of spans; above it, spans are merged in pairs, because producers may write any timestamp."""

LEAST_MS: Final = 60_000


@dataclass(slots=True)
class WriteTimes:
    """``counts``: records by the number of their span; span ``n`` begins ``n * span_ms`` after 1970.

    ``span_ms`` is LEAST_MS times a power of two, so that counts of parts can be added in any order. Records without a
    timestamp (-1, or any other before 1970) are left out.
    """

    span_ms: int = LEAST_MS
    counts: Counter[int] = field(default_factory=Counter)

    def add(self, timestamps: NDArray[np.int64]) -> None:
        """Count [n] records by their timestamps, milliseconds since 1970."""
        spans, counts = np.unique(timestamps[timestamps >= 0] // self.span_ms, return_counts=True)
        self._count(dict(zip(spans.tolist(), counts.tolist(), strict=True)))

    def add_all(self, other: WriteTimes) -> None:
        """Count what ``other`` has counted."""
        while self.span_ms < other.span_ms:
            self._widen()
        wider = self.span_ms // other.span_ms
        for span, count in other.counts.items():
            self.counts[span // wider] += count
        self._count({})

    def _count(self, counts: Mapping[int, int]) -> None:
        self.counts.update(counts)
        while len(self.counts) > MOST_SPANS:
            self._widen()

    def _widen(self) -> None:
        wide: Counter[int] = Counter()
        for span, count in self.counts.items():
            wide[span // 2] += count
        self.span_ms, self.counts = 2 * self.span_ms, wide
