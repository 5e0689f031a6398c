"""How many keys of a log have another retained record under another strategy. Reads only.

Both strategies judge the whole log from its start to the bound, as ``clean --from-start`` would: records that an
earlier cleaning removed are gone and cannot be counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from cleanerd.cleaner.index import ChunkDecoding, Contest, DirtyIndex
from cleanerd.cleaner.map_size import SIZING, MapSizing, MapUse, with_map
from cleanerd.cleaner.metadata_budget import MetadataBudget
from cleanerd.config.fingerprint import parts_of
from cleanerd.config.strategy_keys import STRATEGIES, TOMBSTONE_MODES
from cleanerd.errors import UnsupportedLogError
from cleanerd.policy.rules import Rules, TombstoneMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.record_anomalies import RecordAnomalies
    from cleanerd.segments.pool import ReaderPool


@dataclass(frozen=True, slots=True)
class SwitchCost:
    """``differing`` of ``keys`` keys have another winner; ``oddities``: the anomalies under the other strategy."""

    keys: int
    differing: int
    oddities: RecordAnomalies


def rules_of_fingerprint(text: str) -> Rules:
    """The compaction settings of a fingerprint (U-6).

    Raises:
        UnsupportedLogError: it is one that this release does not know.
    """
    parts = parts_of(text)
    strategy, mode = parts.get("strategy"), parts.get("tombstone.mode")
    if strategy not in STRATEGIES or mode not in TOMBSTONE_MODES:
        raise UnsupportedLogError(f"was cleaned by rules that this release does not know: {text[:80]!r}")
    return Rules(
        strategy=strategy,
        header=parts.get("header", ""),
        encoding="varlong" if parts.get("encoding") == "varlong" else "long",
        tombstone_mode=cast("TombstoneMode", mode),
        tombstone_header=parts.get("tombstone.header", ""),
    )


def compare(
    plan: CleaningPlan, other: Rules, pool: ReaderPool, advance: Callable[[int], None], sizing: MapSizing = SIZING
) -> SwitchCost:
    """Judge the log by the plan's rules and by ``other``; exact for any map size.

    Raises:
        CorruptionError, UnsupportedLogError, CleanerdError: the log cannot be read or indexed.
    """
    whole = replace(plan, first_dirty_offset=plan.log_start_offset)
    now, _ = _winners(whole, pool, advance, sizing)
    then, oddities = _winners(replace(whole, rules=other), pool, advance, sizing)
    # Every key has one winner under both, and both bitmaps are over the same records.
    return SwitchCost(
        keys=_count(now),
        differing=sum(_count_words(new & ~old) for old, new in zip(now, then, strict=True)),
        oddities=oddities,
    )


def _winners(
    plan: CleaningPlan, pool: ReaderPool, advance: Callable[[int], None], sizing: MapSizing
) -> tuple[list[NDArray[np.uint64]], RecordAnomalies]:
    """The bitmap of retained records, for each segment from the log start on."""

    def attempt(use: MapUse) -> DirtyIndex:
        index = DirtyIndex(plan, MetadataBudget(plan))
        decoder = ChunkDecoding(plan, pool, advance)
        for key_pass in use.passes:
            index.build(decoder, key_pass)
            index.take_winners(key_pass.decide(decoder, Contest((), 0, index.ordinals)).dirty)
        return index

    index = with_map(plan, attempt, sizing)
    return [index.winners(row).copy() for row in range(len(index.evidence))], index.oddities


def _count(bitmaps: list[NDArray[np.uint64]]) -> int:
    return sum(_count_words(words) for words in bitmaps)


def _count_words(words: NDArray[np.uint64]) -> int:
    return int(np.bitwise_count(words).sum())
