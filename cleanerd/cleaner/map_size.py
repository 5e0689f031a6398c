"""How large an offset map, in how many shards: small enough to be fast, large enough to begin only once (U-19, U-20).

A map that fits its keys is quicker to fill than one with room for every offset, as more of it is at hand in the CPU's
caches. So a large one is sized by an estimate; when that was too low, phase 1 begins again with all the memory that the
dirty range may take, and then with more shards. Where keys do not fit the memory, a file may hold them all
(``cleanerd.map.dir``, U-43). None of this changes a result.

Each pass reads the whole log, and so many passes are needed as its keys fill maps: together they cost the square of the
keys. Where other partitions wait, the bytes that all passes read are limited, and a cleaning ends at the offset where
the keys fill as many passes (D-11), as Kafka's cleaner ends where its map is full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from cleanerd._kernel import OffsetMap
from cleanerd.cleaner.estimate import MAX_SHARDS, distinct_keys, first_shards
from cleanerd.cleaner.index import OffsetMapFullError
from cleanerd.cleaner.map_file import MapFileError, MapFilePace, opened
from cleanerd.errors import CleanerdError, TooManyPassesError
from cleanerd.humanize import human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.cleaner.plan import CleaningPlan

T = TypeVar("T")

MIN_MAP_BYTES: Final = 48 * 1024
MAP_ENTRY_BYTES: Final = 16
MIN_VERSIONED_MAP_BYTES: Final = 72 * 1024
VERSIONED_ENTRY_BYTES: Final = 24
"""With the eight bytes of a version, or of an ordinal without one (U-19)."""

HEADROOM: Final = 1.5
"""How many times the keys that are expected fit: too small a map costs most of a pass, too large a one little."""

CUT_SHARE: Final = 16
"""A cleaning ends one part in so many before the offset where the map was full: keys are not dealt out evenly."""

SHARE_OF_LOG: Final = 64
"""One in so many of the dirty bytes is read to guess; it is only about the memory."""


@dataclass(frozen=True, slots=True)
class MapSize:
    """Memory of the map in bytes, and into how many shards the keys are cut."""

    bytes: int
    shards: int


@dataclass(frozen=True, slots=True)
class MapUse:
    """A map, and into how many shards the keys are cut; ``pace`` of one in a file.

    ``note`` is what the operator should know of it: why it is a file, or is none; "" if none was requested.
    """

    offset_map: OffsetMap
    shards: int
    note: str = ""
    pace: MapFilePace | None = None


@dataclass(frozen=True, slots=True)
class MapSizing:
    """How a map is sized.

    A map of ``worth_a_guess_bytes`` is not made smaller: the samples would cost more than they save. ``distinct_keys``
    estimates the keys of a plan; ``pace`` holds a map in a file against so many passes. ``passes_bytes``: how much all
    passes may read together, None for no limit; one pass is always allowed (D-11).
    """

    worth_a_guess_bytes: int = 8 * 1024 * 1024
    max_shards: int = MAX_SHARDS
    distinct_keys: Callable[..., float] = distinct_keys
    pace: Callable[[int], MapFilePace] = MapFilePace
    passes_bytes: int | None = None

    def most_shards(self, plan: CleaningPlan) -> int:
        """How many shards, and so how many passes, this plan may take."""
        if self.passes_bytes is None:
            return self.max_shards
        log_bytes = sum(source.segment.size_bytes for source in plan.sources)
        return max(1, min(self.max_shards, self.passes_bytes // max(1, log_bytes)))

    def first_size(self, plan: CleaningPlan) -> MapSize:
        """What to begin with."""
        largest = most_bytes(plan)
        offsets = _offsets(plan)
        capacity = int(largest * plan.map_load / _entry_bytes(plan))
        if offsets > capacity:
            return MapSize(largest, first_shards(plan, capacity, self.distinct_keys))
        if largest <= self.worth_a_guess_bytes:
            return MapSize(largest, 1)
        keys = self.distinct_keys(plan, share=SHARE_OF_LOG)
        guessed = int(HEADROOM * keys * _entry_bytes(plan) / plan.map_load) if keys else largest
        return MapSize(min(max(guessed, self.worth_a_guess_bytes), largest), 1)

    def next_size(self, plan: CleaningPlan, size: MapSize) -> MapSize | None:
        """What to try when ``size`` was too small; None when there is nothing more."""
        largest = most_bytes(plan)
        if size.bytes < largest:
            return MapSize(largest, size.shards)
        most = self.most_shards(plan)
        return MapSize(largest, min(2 * size.shards, most)) if size.shards < most else None


SIZING: Final = MapSizing()


def with_map(plan: CleaningPlan, attempt: Callable[[MapUse], T], sizing: MapSizing = SIZING) -> T:
    """``attempt(use)``, again with a larger map or more shards for as long as it raises MapFullError.

    Before keys are cut into shards a file is tried, where the plan names a directory.

    Raises:
        TooManyPassesError: the distinct keys do not fit the largest number of shards.
        CleanerdError: nor does any part of them.
    """
    size = sizing.first_size(plan)
    note = ""
    file_is_next = bool(plan.map_dir)
    while True:
        if file_is_next and size.shards > 1:
            file_is_next = False
            try:
                return _in_file(plan, size, attempt, sizing)
            except MapFileError as error:
                note = f"no offset map in a file in {plan.map_dir}: {error}; the keys are read in several passes"
        size = MapSize(size.bytes, min(size.shards, sizing.most_shards(plan)))
        try:
            offset_map = OffsetMap(size.bytes, load=plan.map_load, versions=plan.rules.versioned)
            return attempt(MapUse(offset_map, size.shards, note))
        except OffsetMapFullError as error:
            larger = sizing.next_size(plan, size)
            if larger is None:
                raise _too_many(plan, size, error.offset) from error
            size = larger


def _too_many(plan: CleaningPlan, size: MapSize, full_at: int) -> CleanerdError:
    """D-11: where the cleaning could end instead, when the map was full at offset ``full_at``."""
    what = f"the keys of {plan.name} do not fit {size.shards} shards of a map of {size.bytes} bytes"
    hint = "raise log.cleaner.dedupe.buffer.size"
    fitting = full_at - plan.first_dirty_offset
    end_offset = full_at - max(1, fitting // CUT_SHARE)
    if end_offset <= plan.first_dirty_offset:
        return CleanerdError(what, where=plan.path, hint=hint)
    return TooManyPassesError(what, end_offset, where=plan.path, hint=hint)


def _in_file(plan: CleaningPlan, shards: MapSize, attempt: Callable[[MapUse], T], sizing: MapSizing) -> T:
    """One pass with a file that is as large as all ``shards`` together, at most as the dirty range could need.

    Raises:
        MapFileError: it cannot be done, or not as fast.
    """
    most = _most_needed(plan)
    size_bytes = min(shards.shards * shards.bytes, most)
    while True:
        note = (
            f"the offset map was a file of {human_bytes(size_bytes)} in {plan.map_dir}: the keys do not fit "
            f"{human_bytes(plan.map_bytes)} of memory"
        )
        try:
            with (
                opened(plan.map_dir) as file,
                file.offset_map(
                    size_bytes,
                    load=plan.map_load,
                    versions=plan.rules.versioned,
                    reserve_bytes=plan.map_reserve_bytes,
                ) as offset_map,
            ):
                return attempt(MapUse(offset_map, 1, note, sizing.pace(shards.shards)))
        except OffsetMapFullError as error:
            if size_bytes == most:
                raise MapFileError("the keys do not fit it") from error
            size_bytes = most


def most_bytes(plan: CleaningPlan) -> int:
    """No more than was allowed, nor than the dirty range could need, as every key there has an offset of its own."""
    return max(_least(plan), min(plan.map_bytes, _most_needed(plan)))


def _most_needed(plan: CleaningPlan) -> int:
    return int(_offsets(plan) * _entry_bytes(plan) / plan.map_load) + _least(plan)


def _least(plan: CleaningPlan) -> int:
    return MIN_VERSIONED_MAP_BYTES if plan.rules.versioned else MIN_MAP_BYTES


def _entry_bytes(plan: CleaningPlan) -> int:
    return VERSIONED_ENTRY_BYTES if plan.rules.versioned else MAP_ENTRY_BYTES


def _offsets(plan: CleaningPlan) -> int:
    return max(plan.end_offset - plan.first_dirty_offset, 0)
