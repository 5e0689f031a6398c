"""A random sample of a log's ranges, and what their records show by themselves (U-41).

A range is a fixed number of bytes of a segment, with the batches that begin in it. All of them are decoded, hashed and
judged as in a cleaning. If all ranges are sampled, the result is exact.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.cleaner.chunk_rows import ChunkRows
from cleanerd.cleaner.evidence import SegmentEvidence, legacy_rows
from cleanerd.cleaner.index import keyed_rows
from cleanerd.errors import CleanerdError
from cleanerd.format.batch import HEADER_BYTES
from cleanerd.policy.retain import BATCH_ABORTED, BATCH_CONTROL, BATCH_EXPIRED, BATCH_PROTECTED, BATCH_REBUILT
from cleanerd.policy.tombstone import tombstones
from cleanerd.segments.pool import index_entries
from cleanerd.segments.reading import SegmentReader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.plan import CleaningPlan, Source

FAR: Final = 4
"""An index with gaps of more ranges than this is useless: finding a batch would take too long."""

BYTES_A_RECORD: Final = 200
"""Memory per record of the sample, with all results."""

STAYS, GOES, CONTESTS, MAY_GO = range(4)
"""What a record's batch shows: it is retained, is removed, depends on its key's other records, or also on a guard."""


@dataclass(frozen=True, slots=True)
class SampledRange:
    """Bytes ``start`` to ``end`` of a source; ``dirty``: they are about the dirty part of it."""

    source: Source
    start: int
    end: int
    dirty: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of ``s`` ranges with ``b`` batches and ``n`` records.

    ``stretches`` [s]: the range is of the dirty section; ``sizes`` [s]: bytes of its batches. ``parts``: the number of
    ranges and of bytes of the dirty and the clean section. Of a record: ``key_hash``, 0 if it does not compete for its
    key; ``present``, ``version`` and ``offset``, which rank the records of a key; ``stretch`` and ``batch``, its rows
    in the sample; ``fate``, one of STAYS, GOES, CONTESTS, MAY_GO; ``dirty``. A batch without records is one record. Of
    a batch: ``batch_emptied``, its header stays when all of its records are removed; ``batch_rebuilt``, it gets a v2
    header when one of them is retained.
    """

    stretches: NDArray[np.bool_]
    sizes: NDArray[np.int64]
    parts: tuple[tuple[int, int], tuple[int, int]]
    key_hash: NDArray[np.uint64]
    present: NDArray[np.bool_]
    version: NDArray[np.int64]
    offset: NDArray[np.int64]
    stretch: NDArray[np.int32]
    batch: NDArray[np.int32]
    fate: NDArray[np.uint8]
    dirty: NDArray[np.bool_]
    batch_size: NDArray[np.int64]
    batch_records: NDArray[np.int64]
    batch_emptied: NDArray[np.bool_]
    batch_rebuilt: NDArray[np.bool_]


def draw_sample(plan: CleaningPlan, *, budget_bytes: int, stretch_bytes: int, advance: Callable[[int], None]) -> Sample:
    """Draw and read ranges of about ``budget_bytes`` in total; fewer if their records exceed the memory.

    The dirty section comes first, because it also decides about the clean one. The plan's hash key alone determines the
    ranges.

    Raises:
        CleanerdError: the log is damaged or changed, or its indexes are unusable.
    """
    stretches = _cut(plan, stretch_bytes)
    dirty = [each for each in stretches if each.dirty]
    clean = [each for each in stretches if not each.dirty]
    dice = random.Random(plan.hash_key)  # noqa: S311 - random, but the same for the same plan
    drawn = _draw(dice, dirty, clean, budget_bytes, together=plan.rules.versioned)
    gathered = _SampleColumns(plan)
    most_records = max(plan.facts_bytes // BYTES_A_RECORD, 1)
    with SegmentReader.open(plan.path, chunk_bytes=8 * stretch_bytes, largest_batch_bytes=plan.max_unpacked_bytes) as (
        reader
    ):
        for each in drawn:
            if gathered.records > most_records and gathered.enough:
                break
            gathered.read_range(each, reader, advance, FAR * stretch_bytes)
    parts = tuple((len(part), sum(each.end - each.start for each in part)) for part in (dirty, clean))
    return gathered.sample((parts[0], parts[1]))


def _cut(plan: CleaningPlan, stretch_bytes: int) -> list[SampledRange]:
    """All ranges of the log below the end of the cleaned range, in order."""
    found = []
    for source in plan.sources:
        dirty_from = 0
        if source.end <= plan.first_dirty_offset:
            dirty_from = source.segment.size_bytes
        elif source.base < plan.first_dirty_offset:
            entries = index_entries(plan.path, source.segment)
            offsets = entries["relative_offset"].astype(np.int64) + source.base
            row = int(np.searchsorted(offsets, plan.first_dirty_offset))
            dirty_from = int(entries["position"][row - 1]) if row else 0
        for start in range(0, source.segment.size_bytes, stretch_bytes):
            end = min(start + stretch_bytes, source.segment.size_bytes)
            found.append(SampledRange(source, start, end, start >= dirty_from))
    return found


def _draw(
    dice: random.Random,
    dirty: Sequence[SampledRange],
    clean: Sequence[SampledRange],
    budget_bytes: int,
    *,
    together: bool,
) -> list[SampledRange]:
    """Random ranges, in random order; ``together``: an equal share of both sections.

    Both sections are spread evenly over the order, so that an early stop has a part of each.
    """
    sizes = [sum(each.end - each.start for each in part) for part in (dirty, clean)]
    if together:
        shares = [min(1.0, budget_bytes / max(sum(sizes), 1))] * 2
    else:
        of_dirty = min(sizes[0], max(budget_bytes * 3 // 4, budget_bytes - sizes[1]))
        shares = [min(1.0, given / max(size, 1)) for given, size in zip((of_dirty, budget_bytes - of_dirty), sizes,
                                                                        strict=True)]  # fmt: skip
    order = []
    for part, share in zip((dirty, clean), shares, strict=True):
        count = min(len(part), max(int(len(part) * share), min(len(part), 2)))
        order += [((row + 0.5) / count, each) for row, each in enumerate(dice.sample(part, count))]
    return [each for _, each in sorted(order, key=lambda pair: pair[0])]


class _SampleColumns:
    """The columns of the ranges that were read."""

    def __init__(self, plan: CleaningPlan) -> None:
        self._plan = plan
        self._rows: list[dict[str, NDArray[Any]]] = []
        self._batches: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]] = []
        self._dirty: list[bool] = []
        self._sizes: list[int] = []
        self._batch_count = 0
        self.records = 0
        self._indexes: dict[int, list[int]] = {}

    @property
    def enough(self) -> bool:
        """Whether each section has enough ranges for statistics."""
        return len(self._dirty) >= 64

    def read_range(
        self, stretch: SampledRange, reader: SegmentReader, advance: Callable[[int], None], far: int
    ) -> None:
        """Read one. Raises CleanerdError."""
        segment = stretch.source.segment
        if segment.base not in self._indexes:
            self._indexes[segment.base] = index_entries(self._plan.path, segment)["position"].tolist()
        places = self._indexes[segment.base]
        row = bisect_right(places, stretch.start)
        start = places[row - 1] if row else 0
        beyond = bisect_left(places, stretch.end, row)
        after = places[beyond] if beyond < len(places) else segment.size_bytes
        if stretch.start - start > max(far, self._plan.max_message_bytes + far):
            raise CleanerdError("its offset index is of no use", where=f"{self._plan.path}/{segment.base:020d}.index")
        evidence = SegmentEvidence(self._plan, stretch.source)
        size = 0
        for chunk in reader.chunks(replace(segment, size_bytes=after), self._decode, start=start):
            size += self._add(chunk, evidence, stretch)
            advance(chunk.consumed)
        self._dirty.append(stretch.dirty)
        self._sizes.append(size)

    def _decode(self, data: NDArray[np.uint8], position: int) -> _kernel.Chunk:
        plan = self._plan
        return _kernel.decode_chunk(
            data,
            position,
            hash_key=plan.hash_key,
            version_header=plan.rules.version_header,
            version_encoding=plan.rules.encoding,
            tombstone_header=plan.rules.flag_header,
            max_unpacked=plan.max_unpacked_bytes,
        )

    def _add(self, chunk: _kernel.Chunk, evidence: SegmentEvidence, stretch: SampledRange) -> int:
        """Add the rows of a chunk whose batches begin in the range; returns the bytes of these batches."""
        plan, batches, records = self._plan, chunk.batches, chunk.records
        before = len(evidence.batch_flags())
        evidence.add(chunk)
        flags = evidence.batch_flags()[before:]
        # The last batch of a segment keeps its header (U-13).
        flags[batches.position.astype(np.int64) + batches.size == stretch.source.segment.size_bytes] |= BATCH_PROTECTED
        counts = np.diff(batches.first_record).astype(np.int64)
        inside = (batches.position >= stretch.start) & (batches.position < stretch.end)
        rows = np.repeat(inside, counts)
        of_batch = np.cumsum(inside) - 1 + self._batch_count
        version, present = plan.rules.ranking.versions(records)
        fates, contests = _fates(plan, chunk, np.repeat(flags, counts))
        columns: dict[str, NDArray[Any]] = {
            "key_hash": np.where(contests, records.key_hash[::2], np.uint64(0)),
            "present": present,
            "version": version,
            "offset": records.offset,
            "batch": np.repeat(of_batch, counts).astype(np.int32),
            "fate": fates,
            "dirty": records.offset >= plan.first_dirty_offset,
        }
        headers = np.flatnonzero(inside & (counts == 0))
        for found in (
            {name: column[rows] for name, column in columns.items()},
            _headers(plan, batches.base_offset[headers], of_batch[headers], flags[headers]),
        ):
            found["stretch"] = np.full(len(found["batch"]), len(self._dirty), dtype=np.int32)
            self._rows.append(found)
            self.records += len(found["batch"])
        sizes = batches.size[inside].astype(np.int64)
        self._batches.append((sizes, np.maximum(counts[inside], 1), flags[inside]))
        self._batch_count += len(sizes)
        return int(sizes.sum())

    def sample(self, parts: tuple[tuple[int, int], tuple[int, int]]) -> Sample:
        def column(name: str, kind: type) -> NDArray[Any]:
            return np.concatenate([np.zeros(0, kind), *(rows.pop(name) for rows in self._rows)], dtype=kind)

        flags = np.concatenate([np.zeros(0, np.uint8), *(flags for _, _, flags in self._batches)])
        return Sample(
            stretches=np.array(self._dirty, dtype=np.bool_),
            sizes=np.array(self._sizes, dtype=np.int64),
            parts=parts,
            key_hash=column("key_hash", np.uint64),
            present=column("present", np.bool_),
            version=column("version", np.int64),
            offset=column("offset", np.int64),
            stretch=column("stretch", np.int32),
            batch=column("batch", np.int32),
            fate=column("fate", np.uint8),
            dirty=column("dirty", np.bool_),
            batch_size=np.concatenate([np.zeros(0, np.int64), *(sizes for sizes, _, _ in self._batches)]),
            batch_records=np.concatenate([np.zeros(0, np.int64), *(counts for _, counts, _ in self._batches)]),
            batch_emptied=(flags & BATCH_PROTECTED) != 0,
            batch_rebuilt=(flags & BATCH_REBUILT) != 0,
        )


def _headers(
    plan: CleaningPlan, offset: NDArray[np.int64], batch: NDArray[np.int64], flags: NDArray[np.uint8]
) -> dict[str, NDArray[Any]]:
    """A row per batch without records: removed, unless a producer's state depends on it."""
    stays = (flags & BATCH_PROTECTED) != 0
    return {
        "key_hash": np.zeros(len(offset), dtype=np.uint64),
        "present": np.zeros(len(offset), dtype=np.bool_),
        "version": np.zeros(len(offset), dtype=np.int64),
        "offset": offset,
        "batch": batch.astype(np.int32),
        "fate": np.where(stays, np.uint8(STAYS), np.uint8(GOES)),
        "dirty": offset >= plan.first_dirty_offset,
    }


def _fates(
    plan: CleaningPlan, chunk: _kernel.Chunk, flags: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """[n] uint8: the part of the decision (``policy/retain.py``) that does not depend on other records of the key.

    And [n] bool: whether the record can supersede others of its key, as a removed tombstone can.
    """
    records, rules = chunk.records, plan.rules
    everywhere = ChunkRows(0, len(records), np.zeros(len(chunk.batches), dtype=np.bool_))
    control, aborted = ((flags & flag) != 0 for flag in (BATCH_CONTROL, BATCH_ABORTED))
    past_horizon = (flags & BATCH_EXPIRED) != 0
    untouched = records.offset >= plan.end_offset
    if rules.versioned:
        untouched |= records.offset < plan.log_start_offset
    contests = keyed_rows(chunk, everywhere) & ~untouched & ~control & ~aborted
    fates = np.where(contests, np.uint8(CONTESTS), np.uint8(GOES))
    if not rules.versioned or rules.tombstone_guard != "forever":
        late = tombstones(records.flags, rules.tombstone_mode, legacy_rows(chunk.batches)) & past_horizon
        guarded = rules.versioned or plan.proven_offset < plan.first_dirty_offset or plan.unproven_below > 0
        fates[late & contests] = MAY_GO if guarded else GOES
    fates[untouched | control] = STAYS
    fates[control & past_horizon] = MAY_GO
    fates[aborted] = GOES
    return fates, contests


def weights(sample: Sample, goes: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """[n] twice: the least and the most bytes removed with each record, if those of ``goes`` are removed.

    A batch's header is removed with its last record, so it is included where all of them are known to be removed,
    unless a producer's state depends on it. A batch that becomes v2 has its new header (see ``header_costs``).
    """
    counts = np.maximum(sample.batch_records, 1)
    added = np.where(sample.batch_rebuilt, HEADER_BYTES, 0)
    whole = (sample.batch_size - np.where(sample.batch_emptied, HEADER_BYTES, 0) + added) / counts
    payload = (
        np.where(sample.batch_rebuilt, sample.batch_size, np.maximum(sample.batch_size - HEADER_BYTES, 0)) / counts
    )
    gone = np.bincount(sample.batch, weights=goes, minlength=len(counts))
    at_least = np.where((gone == sample.batch_records) | (sample.batch_records == 1), whole, payload)
    return at_least[sample.batch], np.maximum(whole, payload)[sample.batch]


def header_costs(sample: Sample) -> NDArray[np.float64]:
    """[n]: each record's share of the header that its v0 or v1 batch gets as v2."""
    costs = np.where(sample.batch_rebuilt, HEADER_BYTES, 0) / np.maximum(sample.batch_records, 1)
    found: NDArray[np.float64] = costs[sample.batch]
    return found
