"""What another strategy would keep: how many keys of a log have another winner under it. Reads only.

The whole log from its start to the bound is judged by both strategies, as ``clean --from-start`` would: what an earlier
cleaning took is gone and can not be counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cleanerd._kernel import OffsetMap
from cleanerd.cleaner.decide import map_bytes
from cleanerd.cleaner.estimate import MAX_SHARDS, first_shards
from cleanerd.cleaner.index import Decoder, DirtyIndex, MapFullError
from cleanerd.errors import CleanerdError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from cleanerd.cleaner.oddities import Oddities
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.log.pool import ReaderPool
    from cleanerd.policy.rules import Rules


@dataclass(frozen=True, slots=True)
class Switch:
    """``differing`` of ``keys`` keys have another winner; ``oddities`` is what the other strategy finds odd."""

    keys: int
    differing: int
    oddities: Oddities


def compare(plan: CleaningPlan, other: Rules, pool: ReaderPool, advance: Callable[[int], None]) -> Switch:
    """Judge the log by the plan's rules and by ``other``; exact, whatever the map's size.

    Raises:
        CorruptionError, UnsupportedLogError, CleanerdError: the log cannot be read or indexed.
    """
    whole = replace(plan, first_dirty_offset=plan.log_start_offset)
    now, _ = _winners(whole, pool, advance)
    then, oddities = _winners(replace(whole, rules=other), pool, advance)
    # Every key has one winner under either, and both bitmaps are over the same records.
    return Switch(
        keys=_count(now),
        differing=sum(_count_words(new & ~old) for old, new in zip(now, then, strict=True)),
        oddities=oddities,
    )


def _winners(
    plan: CleaningPlan, pool: ReaderPool, advance: Callable[[int], None]
) -> tuple[list[NDArray[np.uint64]], Oddities]:
    """Of each segment from the log start on, the bitmap of the records that won their key."""
    offset_map = OffsetMap(map_bytes(plan), load=plan.map_load, versions=plan.rules.versioned)
    shards = first_shards(plan, offset_map.capacity)
    while True:
        index = DirtyIndex(plan)
        try:
            for shard in range(shards):
                index.build(Decoder(plan, pool, advance), offset_map, shard, shards)
                index.take_winners(offset_map, shard)
        except MapFullError as error:
            if shards == MAX_SHARDS:
                raise CleanerdError(
                    f"the keys do not fit {shards} shards of a map of {offset_map.memory_bytes} bytes",
                    where=plan.path,
                    hint="raise log.cleaner.dedupe.buffer.size",
                ) from error
            shards = min(2 * shards, MAX_SHARDS)
            continue
        return [index.winners(row).copy() for row in range(len(index.evidence))], index.oddities


def _count(bitmaps: list[NDArray[np.uint64]]) -> int:
    return sum(_count_words(words) for words in bitmaps)


def _count_words(words: NDArray[np.uint64]) -> int:
    return int(np.bitwise_count(words).sum())
