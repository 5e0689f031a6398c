"""The initial number of shards, so that phase 1 rarely starts over (U-20).

A few ranges of the dirty section are decoded. The number of their keys, and of keys that occur in exactly one or two of
them, gives the number of further keys (Chao's estimate and its curve). A wrong estimate costs time but does not change
a result.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from cleanerd import _kernel
from cleanerd.cleaner.chunk_rows import ChunkRows
from cleanerd.cleaner.index import dirty_sources, keyed_rows
from cleanerd.errors import CleanerdError
from cleanerd.format.batch import CONTROL
from cleanerd.segments.pool import index_entries
from cleanerd.segments.reading import SegmentReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.segments.segment import Segment

MAX_SHARDS = 4096
SAMPLES = 32
LEAST_SAMPLE_BYTES = 4096
MOST_SAMPLE_BYTES = 512 * 1024
SHARE_OF_LOG = 16
"""Divisor: the samples are about this part of the dirty bytes, but at least a batch each."""

MARGIN = 1.2
"""One shard too few costs most of a pass, one too many a whole pass. The estimate is a few per cent off."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The dirty part of a segment, approximately file positions ``start`` to ``end``."""

    segment: Segment
    start: int
    end: int

    @property
    def bytes(self) -> int:
        return self.end - self.start


def first_shards(plan: CleaningPlan, capacity: int, keys_of: Callable[[CleaningPlan], float] | None = None) -> int:
    """The number of shards to begin with if a map holds ``capacity`` keys; 1 to ``MAX_SHARDS``.

    Every key has an offset of its own, so nothing is read if the dirty offsets fit. ``keys_of`` estimates the keys;
    None: :func:`distinct_keys`.
    """
    offsets = plan.end_offset - plan.first_dirty_offset
    if offsets <= capacity:
        return 1
    wanted = min(offsets, MARGIN * (keys_of or distinct_keys)(plan)) / max(capacity, 1)
    return min(max(int(np.ceil(wanted)), 1), MAX_SHARDS)


def distinct_keys(plan: CleaningPlan, *, share: int = SHARE_OF_LOG) -> float:
    """About how many keys the dirty range has; 0 if no sample could be read.

    The samples are about one in ``share`` of the dirty bytes. Errors are ignored: phase 1 reads everything and reports
    them.
    """
    stretches = list(_dirty_stretches(plan))
    dirty_bytes = sum(stretch.bytes for stretch in stretches)
    wanted = dirty_bytes // (share * SAMPLES)
    sample_bytes = min(max(wanted, LEAST_SAMPLE_BYTES), MOST_SAMPLE_BYTES, plan.chunk_bytes)
    samples = []
    sampled_bytes = 0
    with SegmentReader.open(plan.path, chunk_bytes=sample_bytes) as reader:
        for segment, start in _places(plan.path, stretches):
            with contextlib.suppress(CleanerdError):
                consumed, keys = _sample(plan, reader, segment, start)
                sampled_bytes += consumed
                samples.append(keys)
    return extrapolate(samples, dirty_bytes / sampled_bytes * len(samples)) if samples else 0.0


def extrapolate(samples: Sequence[NDArray[np.uint64]], total: float) -> float:
    """The number of distinct keys in ``total`` ranges of a log, from the distinct key hashes of some ``samples``.

    Exact if all keys are equally frequent or none recurs; otherwise a little too low. A key that occurs only within a
    short time is counted once per range.
    """
    seen = np.diff(np.flatnonzero(_begins(np.sort(np.concatenate(samples)))), append=sum(map(len, samples)))
    once, twice = (int(np.count_nonzero(seen == times)) for times in (1, 2))
    unseen = once * (once - 1) / (2 * (twice + 1))
    if unseen == 0.0:
        return float(len(seen))
    chance = once / (once + len(samples) * unseen)
    found: float = len(seen) + unseen * (1 - (1 - chance) ** max(total - len(samples), 0.0))
    return found


def _dirty_stretches(plan: CleaningPlan) -> Iterator[_Stretch]:
    for source in dirty_sources(plan):
        segment = source.segment
        start, end = 0, segment.size_bytes
        if source.base < plan.first_dirty_offset or source.end > plan.end_offset:
            entries = index_entries(plan.path, segment)
            offsets = entries["relative_offset"].astype(np.int64) + source.base
            first, last = np.searchsorted(offsets, (plan.first_dirty_offset, plan.end_offset)).tolist()
            start = int(entries["position"][first - 1]) if first else start
            end = min(int(entries["position"][last]), end) if last < len(entries) else end
        if start < end:
            yield _Stretch(segment, start, end)


def _places(path: str, stretches: Sequence[_Stretch]) -> list[tuple[Segment, int]]:
    """Where to sample: as evenly over the dirty bytes as the known batch positions allow."""
    ends = list(accumulate(stretch.bytes for stretch in stretches))
    places = {}
    indexes: dict[int, NDArray[np.int64]] = {}
    for number in range(SAMPLES if ends else 0):
        target = (2 * number + 1) * ends[-1] // (2 * SAMPLES)
        row = bisect_right(ends, target)
        stretch = stretches[row]
        if row not in indexes:
            indexes[row] = index_entries(path, stretch.segment)["position"].astype(np.int64)
        before = np.searchsorted(indexes[row], target - ends[row] + stretch.end, side="right")
        start = max(int(indexes[row][before - 1]), stretch.start) if before else stretch.start
        places[row, start] = (stretch.segment, start)
    return list(places.values())


def _sample(plan: CleaningPlan, reader: SegmentReader, segment: Segment, start: int) -> tuple[int, NDArray[np.uint64]]:
    """The bytes of the chunk at ``start``, and the distinct low words of its dirty keys' hashes."""

    def decode(data: NDArray[np.uint8], position: int) -> _kernel.Chunk:
        return _kernel.decode_chunk(data, position, hash_key=plan.hash_key, max_unpacked=plan.max_unpacked_bytes)

    with contextlib.closing(reader.chunks(segment, decode, start=start)) as chunks:
        chunk = next(chunks)
    records = chunk.records
    rows = ChunkRows(
        int(np.searchsorted(records.offset, plan.first_dirty_offset)),
        int(np.searchsorted(records.offset, plan.end_offset)),
        (chunk.batches.attributes & CONTROL) != 0,
    )
    hashes = np.sort(records.key_hash[::2][keyed_rows(chunk, rows)])
    return chunk.consumed, hashes[_begins(hashes)]


def _begins(ascending: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """[n] bool: the value differs from the previous one.

    ``np.unique`` builds a hash table and imports ``numpy.ma``.
    """
    result = np.ones(len(ascending), dtype=np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=result[1:])
    return result
