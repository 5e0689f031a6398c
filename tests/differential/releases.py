"""What the cleaners of releases do otherwise than 3.9's and 4.3's, which ours is like: all that a duel lets pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.kafka.judge import Comparison, Dump

INDEXES_BY_WRITE: Final = frozenset({"3.6"})
"""Releases whose cleaner makes one index entry for all batches of a write; later ones look at each batch."""

DROPS_THE_END: Final = frozenset({"3.6", "4.4"})
"""Releases that drop the batch that ends the cleanable part once nothing of it stays; 4.4 keeps it where the high
watermark ends there. The others keep it without records, with its time, and so do we whatever the release (C-39.2)."""


def kept_end(profile: str, before: Dump, comparison: Comparison, end_offset: int) -> set[tuple[int, int]]:
    """Base and last offset of the one batch that ours may have, and keep the time of, though the release dropped it.

    ``before``: what its cleaner found; it cleaned up to ``end_offset``. Empty where it did as ours does.
    """
    if profile not in DROPS_THE_END:
        return set()
    ends = [(batch.base, batch.last) for batch in before.batches if batch.base < end_offset][-1:]
    return set(ends) & set(comparison.additions)
