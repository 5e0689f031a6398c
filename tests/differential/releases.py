"""Differences of releases' cleaners from those of 3.9 and 4.3, which cleanerd follows: a comparison permits these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.kafka.judge import Comparison, Dump

INDEXES_BY_WRITE: Final = frozenset({"3.6"})
"""Releases whose cleaner makes one index entry for all batches of a write; later ones check each batch."""

DROPS_THE_END: Final = frozenset({"3.6", "4.4"})
"""Releases that drop the last batch of the cleanable section once it is empty.

4.4 keeps it if the high watermark ends there. The others keep it without records, with its time, and so does cleanerd
for every release (C-39.2).
"""


def kept_end(profile: str, before: Dump, comparison: Comparison, end_offset: int) -> set[tuple[int, int]]:
    """Base and last offset of the one batch that cleanerd may keep with its time, though the release dropped it.

    ``before``: the cleaner's input; it cleaned up to ``end_offset``. Empty if the release kept it as well.
    """
    if profile not in DROPS_THE_END:
        return set()
    ends = [(batch.base, batch.last) for batch in before.batches if batch.base < end_offset][-1:]
    return set(ends) & set(comparison.additions)
