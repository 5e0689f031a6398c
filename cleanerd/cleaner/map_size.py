"""The size of the offset map and the number of shards (U-19, U-20).

A small map is quicker to fill, because more of it is in the CPU's caches. So a large one is sized by an estimate; if
that was too low, phase 1 starts over with the allowed memory, and then with more shards. None of this changes a result.

If the keys do not fit the memory, one pass writes them to disk (U-43, ``cleaner/key_file.py``). If that is impossible
or costs more, each shard is a pass over the whole log, and the cost of all passes grows with the square of the keys.
While other partitions wait, the bytes of all passes are limited, and a cleaning ends at the offset where the keys fill
that many passes (D-11), as Kafka's cleaner ends where its map is full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from cleanerd._kernel import Chunk, OffsetMap
from cleanerd.cleaner.estimate import MAX_SHARDS, distinct_keys, first_shards
from cleanerd.cleaner.index import FIRST_DIRTY_ORDINAL, OffsetMapFullError, Winners, dirty_sources
from cleanerd.cleaner.key_file import KeyFile, KeyFileError, opened, over_limit, require_room, row_bytes
from cleanerd.cleaner.write_times import take_over
from cleanerd.errors import CleanerdError, TooManyPassesError
from cleanerd.humanize import human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from cleanerd.cleaner.index import ChunkDecoding, Contest, KeyPass
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.policy.rules import Rules

T = TypeVar("T")

MIN_MAP_BYTES: Final = 48 * 1024
MAP_ENTRY_BYTES: Final = 16
MIN_VERSIONED_MAP_BYTES: Final = 72 * 1024
VERSIONED_ENTRY_BYTES: Final = 24
"""Size of an entry with the eight bytes of a version, or without one of an ordinal (U-19)."""

HEADROOM: Final = 1.5
"""Room for this many times the expected keys: too small a map costs most of a pass, too large a one little."""

CUT_SHARE: Final = 16
"""A cleaning ends this part before the offset where the map was full, because shards are uneven."""

LEAST_SPARED: Final = 2
"""This many passes are as cheap as keys on disk."""

SPARE_PARTS: Final = 1.5
"""Parts on disk for each expected one: an additional part costs little, an overfull one is read again."""

SHARE_OF_LOG: Final = 64
"""The estimate of the map's size reads one in this many of the dirty bytes."""


@dataclass(frozen=True, slots=True)
class MapSize:
    """Memory of the map in bytes, and the number of shards."""

    bytes: int
    shards: int


@dataclass(frozen=True, slots=True)
class MapUse:
    """The ``passes`` over the log that decide all keys, and their ``count``.

    ``note``: that the keys were on disk, or why not; empty if they fit the map.
    """

    passes: Iterable[KeyPass]
    count: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class MapPass:
    """One pass: the keys of one shard, in the map."""

    rules: Rules
    offset_map: OffsetMap
    shard: int
    shards: int

    @classmethod
    def every(cls, rules: Rules, offset_map: OffsetMap, shards: int) -> Iterator[MapPass]:
        """All passes, each with the empty map."""
        for shard in range(shards):
            offset_map.clear()
            yield cls(rules, offset_map, shard, shards)

    def add_dirty(self, chunk: Chunk, first_ordinal: int, mask: NDArray[np.bool_]) -> None:
        """Put the shard's dirty keys into the map; raises OffsetMapFullError if they do not fit."""
        records = chunk.records
        version, present = self.rules.ranking.versions(records) if self.rules.versioned else (None, None)
        dealt_with = self.offset_map.put_max(
            records.key_hash,
            first_ordinal,
            mask,
            version=version,
            has_version=present,
            shard=self.shard,
            shards=self.shards,
        )
        if dealt_with < len(mask):
            raise OffsetMapFullError(int(records.offset[dealt_with]))

    def add_clean(self, chunk: Chunk, first_ordinal: int, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which clean records have a key of the map. Under ``offset`` these are superseded; by version they compete."""
        hashes = chunk.records.key_hash
        if not self.rules.versioned:
            return self.offset_map.contains(hashes, mask, shard=self.shard, shards=self.shards)
        version, present = self.rules.ranking.versions(chunk.records)
        return self.offset_map.update_existing(
            hashes, first_ordinal, mask, version=version, has_version=present, shard=self.shard, shards=self.shards
        )

    def decide(self, decoder: ChunkDecoding, contest: Contest) -> Winners:
        """The winners in the map. If batches keep write times, another reading of the log passes these on (U-65)."""
        if self.rules.keeps_write_time:
            take_over(decoder, self.offset_map, contest.contestants, self.shard, self.shards)
        versioned = self.rules.versioned
        return Winners(
            dirty=self.offset_map.winners(FIRST_DIRTY_ORDINAL, contest.dirty_ordinals),
            clean=self.offset_map.winners(0, contest.clean_ordinals) if versioned else None,
            held=None,
            entries=len(self.offset_map),
            utilization=len(self.offset_map) / max(1, self.offset_map.capacity),
        )


@dataclass(frozen=True, slots=True)
class MapSizing:
    """How a map is sized.

    A map up to ``worth_a_guess_bytes`` is not estimated: the samples would cost more than they save. ``distinct_keys``
    estimates the keys of a plan.
    """

    worth_a_guess_bytes: int = 8 * 1024 * 1024
    max_shards: int = MAX_SHARDS
    distinct_keys: Callable[..., float] = distinct_keys

    def most_shards(self, plan: CleaningPlan) -> int:
        """The most shards, and so passes, of this plan; one is always allowed (D-11)."""
        if plan.passes_bytes is None:
            return self.max_shards
        return max(1, min(self.max_shards, plan.passes_bytes // max(1, _log_bytes(plan))))

    def first_size(self, plan: CleaningPlan) -> MapSize:
        """The size to begin with."""
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
        """The next size to try if ``size`` was too small; None: there is none."""
        largest = most_bytes(plan)
        if size.bytes < largest:
            return MapSize(largest, size.shards)
        most = self.most_shards(plan)
        return MapSize(largest, min(2 * size.shards, most)) if size.shards < most else None


SIZING: Final = MapSizing()


def with_map(plan: CleaningPlan, attempt: Callable[[MapUse], T], sizing: MapSizing = SIZING) -> T:
    """Call ``attempt(use)``, with a larger map or more shards while it raises OffsetMapFullError.

    Before the log is read in several passes, the keys are written to disk, if the plan has a directory for them.

    Raises:
        TooManyPassesError: the distinct keys do not fit the largest number of shards.
        CleanerdError: not even a part of them fits.
    """
    size = sizing.first_size(plan)
    note = ""
    may_cut = bool(plan.map_dir)
    full_at = -1
    while True:
        if may_cut and size.shards > 1 and _cut_pays(plan, size.shards):
            may_cut = False
            try:
                return _cut(plan, _cut_size(plan, size, full_at), attempt)
            except KeyFileError as error:
                note = f"the keys were not written to disk in {plan.map_dir}: {error}; they are read in several passes"
        size = MapSize(size.bytes, min(size.shards, sizing.most_shards(plan)))
        try:
            offset_map = OffsetMap(size.bytes, load=plan.map_load, versions=plan.rules.versioned)
            return attempt(MapUse(MapPass.every(plan.rules, offset_map, size.shards), size.shards, note))
        except OffsetMapFullError as error:
            full_at = error.offset
            larger = sizing.next_size(plan, size)
            if larger is None:
                raise _too_many(plan, size, error.offset) from error
            size = larger


def _too_many(plan: CleaningPlan, size: MapSize, full_at: int) -> CleanerdError:
    """D-11: the error that names an earlier end for the cleaning, if the map was full at offset ``full_at``."""
    what = f"the keys of {plan.name} do not fit {size.shards} passes with an offset map of {size.bytes} bytes"
    hint = "raise log.cleaner.dedupe.buffer.size"
    fitting = full_at - plan.first_dirty_offset
    end_offset = full_at - max(1, fitting // CUT_SHARE)
    if end_offset <= plan.first_dirty_offset:
        return CleanerdError(what, where=plan.path, hint=hint)
    return TooManyPassesError(what, end_offset, where=plan.path, hint=hint)


def _cut_pays(plan: CleaningPlan, shards: int) -> bool:
    """Whether keys on disk cost less than the passes that they save.

    Writing and reading them takes the CPU time of a pass and a half, so it has to save two. The disk moves their bytes
    twice.
    """
    return shards > LEAST_SPARED and 2 * _cut_bytes(plan) < (shards - 1) * _log_bytes(plan)


def _cut_bytes(plan: CleaningPlan) -> int:
    """The bytes of all records' rows on disk, if clean bytes have as many records as dirty ones have offsets."""
    dirty_bytes = sum(source.segment.size_bytes for source in dirty_sources(plan))
    return int(row_bytes(plan) * _offsets(plan) * _log_bytes(plan) / max(1, dirty_bytes))


def _cut_size(plan: CleaningPlan, size: MapSize, full_at: int) -> MapSize:
    """A few more shards than estimated; if the map was full at offset ``full_at``, as many as that shows."""
    fitting = full_at - plan.first_dirty_offset
    shown = _offsets(plan) / fitting if fitting > 0 else 1
    return MapSize(size.bytes, min(math.ceil(SPARE_PARTS * max(size.shards, shown)), MAX_SHARDS))


def _cut(plan: CleaningPlan, size: MapSize, attempt: Callable[[MapUse], T]) -> T:
    """One pass that cuts the keys to disk.

    Raises:
        KeyFileError: it cannot be done.
    """
    need = _cut_bytes(plan)
    if need > plan.map_file_bytes:
        raise KeyFileError(f"they need about {human_bytes(need)}, {over_limit(plan)}")
    with opened(plan.map_dir) as descriptor:
        require_room(descriptor, need, plan.map_reserve_bytes)
        note = (
            f"the keys were written to disk in {plan.map_dir}, about {human_bytes(need)} in {size.shards} parts: they "
            f"do not fit {human_bytes(plan.map_bytes)} of memory"
        )
        return attempt(MapUse((KeyFile(plan, descriptor, size.bytes, size.shards),), 1, note))


def most_bytes(plan: CleaningPlan) -> int:
    """The allowed memory, or less if the dirty range cannot need it, since every key has an offset of its own."""
    return max(_least(plan), min(plan.map_bytes, _most_needed(plan)))


def _most_needed(plan: CleaningPlan) -> int:
    return int(_offsets(plan) * _entry_bytes(plan) / plan.map_load) + _least(plan)


def _least(plan: CleaningPlan) -> int:
    return MIN_VERSIONED_MAP_BYTES if plan.rules.versioned else MIN_MAP_BYTES


def _entry_bytes(plan: CleaningPlan) -> int:
    return VERSIONED_ENTRY_BYTES if plan.rules.versioned else MAP_ENTRY_BYTES


def _log_bytes(plan: CleaningPlan) -> int:
    return sum(source.segment.size_bytes for source in plan.sources)


def _offsets(plan: CleaningPlan) -> int:
    return max(plan.end_offset - plan.first_dirty_offset, 0)
