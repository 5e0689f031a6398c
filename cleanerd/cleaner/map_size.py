"""How large an offset map, in how many shards: small enough to be fast, large enough to begin only once (U-19, U-20).

A map that fits its keys is quicker to fill than one with room for every offset, as more of it is at hand in the CPU's
caches. So a large one is sized by an estimate; when that was too low, phase 1 begins again with all the memory that the
dirty range may take, and then with more shards. None of this changes a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from cleanerd._kernel import OffsetMap
from cleanerd.cleaner.estimate import MAX_SHARDS, distinct_keys, first_shards
from cleanerd.cleaner.index import MapFullError
from cleanerd.errors import CleanerdError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.cleaner.plan import CleaningPlan

T = TypeVar("T")

MIN_MAP_BYTES: Final = 48 * 1024
MAP_ENTRY_BYTES: Final = 16
MIN_VERSIONED_MAP_BYTES: Final = 72 * 1024
VERSIONED_ENTRY_BYTES: Final = 24
"""With the eight bytes of a version, or of an ordinal without one (U-19)."""

WORTH_A_GUESS_BYTES: Final = 8 * 1024 * 1024
"""A map of this size is not made smaller: the samples would cost more than they save."""

ROOM: Final = 1.5
"""How many times the keys that are expected fit: too small a map costs most of a pass, too large a one little."""

SHARE_OF_LOG: Final = 64
"""One in so many of the dirty bytes is read to guess; it is only about the memory."""


@dataclass(frozen=True, slots=True)
class MapSize:
    """Memory of the map in bytes, and into how many shards the keys are cut."""

    bytes: int
    shards: int


def with_map(plan: CleaningPlan, attempt: Callable[[OffsetMap, int], T]) -> T:
    """``attempt(map, shards)``, again with a larger map or more shards for as long as it raises MapFullError.

    Raises:
        CleanerdError: the distinct keys do not fit even the largest number of shards.
    """
    size = first_size(plan)
    while True:
        try:
            return attempt(OffsetMap(size.bytes, load=plan.map_load, versions=plan.rules.versioned), size.shards)
        except MapFullError as error:
            larger = next_size(plan, size)
            if larger is None:
                raise CleanerdError(
                    f"the keys of {plan.name} do not fit {size.shards} shards of a map of {size.bytes} bytes",
                    where=plan.path,
                    hint="raise log.cleaner.dedupe.buffer.size",
                ) from error
            size = larger


def first_size(plan: CleaningPlan) -> MapSize:
    """What to begin with."""
    largest = most_bytes(plan)
    offsets = _offsets(plan)
    capacity = int(largest * plan.map_load / _entry_bytes(plan))
    if offsets > capacity:
        return MapSize(largest, first_shards(plan, capacity))
    if largest <= WORTH_A_GUESS_BYTES:
        return MapSize(largest, 1)
    keys = distinct_keys(plan, share=SHARE_OF_LOG)
    guessed = int(ROOM * keys * _entry_bytes(plan) / plan.map_load) if keys else largest
    return MapSize(min(max(guessed, WORTH_A_GUESS_BYTES), largest), 1)


def next_size(plan: CleaningPlan, size: MapSize) -> MapSize | None:
    """What to try when ``size`` was too small; None when there is nothing more."""
    largest = most_bytes(plan)
    if size.bytes < largest:
        return MapSize(largest, size.shards)
    return MapSize(largest, min(2 * size.shards, MAX_SHARDS)) if size.shards < MAX_SHARDS else None


def most_bytes(plan: CleaningPlan) -> int:
    """No more than was allowed, nor than the dirty range could need, as every key there has an offset of its own."""
    least = MIN_VERSIONED_MAP_BYTES if plan.rules.versioned else MIN_MAP_BYTES
    needed = int(_offsets(plan) * _entry_bytes(plan) / plan.map_load) + least
    return max(least, min(plan.map_bytes, needed))


def _entry_bytes(plan: CleaningPlan) -> int:
    return VERSIONED_ENTRY_BYTES if plan.rules.versioned else MAP_ENTRY_BYTES


def _offsets(plan: CleaningPlan) -> int:
    return max(plan.end_offset - plan.first_dirty_offset, 0)
