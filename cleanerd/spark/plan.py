"""Cuts a Spark cleaning into tasks and shards of keys; these numbers do not change the result."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cleanerd import __version__
from cleanerd.cleaner.estimate import MAX_SHARDS, distinct_keys
from cleanerd.cleaner.map_size import (
    HEADROOM,
    MAP_ENTRY_BYTES,
    MIN_MAP_BYTES,
    MIN_VERSIONED_MAP_BYTES,
    SHARE_OF_LOG,
    VERSIONED_ENTRY_BYTES,
)
from cleanerd.host.memory import worker_batch_bytes, worker_share
from cleanerd.segments.pool import ReaderPool, index_entries, parts_between

if TYPE_CHECKING:
    from cleanerd.cleaner.plan import CleaningPlan, Source

SPLIT_BYTES: Final = 128 << 20
"""The least part of a segment for one task: an empty task costs a tenth of a second."""

LOCAL_BYTES: Final = 64 << 20
"""Below this size the driver cleans by itself, in less time than the jobs would take to start."""
LOCAL_MASTER_BYTES: Final = 256 << 20
"""The same if tasks would run on the driver's machine and use its cores."""

SINGLE_TASK_BYTES: Final = 1 << 30
"""Up to this size one task cleans alone if the keys fit one map, even if other cores are idle."""

LEAST_TASK_BYTES: Final = 4 << 20
LEAST_SHARD_BYTES: Final = 8 << 20
"""The least size of a map: idle cores alone do not justify smaller shards."""

COMBINED_RECORDS: Final = 1 << 20
"""Records of a split that compete before the shuffle; 60 MB."""

BLOCK_RECORDS: Final = 1 << 15
"""Rows of one block in a shuffle, about a megabyte."""


@dataclass(frozen=True, slots=True)
class SegmentSplit:
    """A part of a segment: file positions ``start`` to ``end``.

    ``segment``: its row among sources and later segments. ``guessed``: an index says that it begins and ends at
    batches.
    """

    segment: int
    number: int
    start: int
    end: int
    guessed: bool

    @property
    def bytes(self) -> int:
        """How many bytes of the segment to read."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of shards, the memory of a shard's map, and how segments are split."""

    shards: int
    map_bytes: int
    split_bytes: int = SPLIT_BYTES
    combined_records: int = COMBINED_RECORDS
    block_records: int = BLOCK_RECORDS


def first_sizes(plan: CleaningPlan, *, shards: int | None, cores: int, split_bytes: int) -> Sizes:
    """The first sizes: enough shards for the expected keys, and for the cores if there are many keys.

    ``shards``: at least that many.
    """
    offsets = max(plan.end_offset - plan.first_dirty_offset, 0)
    entry_bytes = VERSIONED_ENTRY_BYTES if plan.rules.versioned else MAP_ENTRY_BYTES
    needed = offsets * entry_bytes / plan.map_load
    if needed > LEAST_SHARD_BYTES:
        keys = distinct_keys(plan, share=SHARE_OF_LOG)
        needed = min(needed, HEADROOM * keys * entry_bytes / plan.map_load) if keys else needed
    largest = max(plan.map_bytes, _least(plan))
    wanted = max(-(-needed // largest), min(cores, needed // LEAST_SHARD_BYTES), shards or 1)
    count = int(min(wanted, MAX_SHARDS))
    return Sizes(count, _map_bytes(plan, needed / count), split_bytes)


def larger_sizes(plan: CleaningPlan, sizes: Sizes) -> Sizes | None:
    """The next sizes after a map was full; None: there are none."""
    largest = max(plan.map_bytes, _least(plan))
    if sizes.map_bytes < largest:
        return replace(sizes, map_bytes=min(4 * sizes.map_bytes, largest))
    return replace(sizes, shards=min(2 * sizes.shards, MAX_SHARDS)) if sizes.shards < MAX_SHARDS else None


def _map_bytes(plan: CleaningPlan, needed: float) -> int:
    least = _least(plan)
    return max(least, min(plan.map_bytes, int(needed) + least))


def _least(plan: CleaningPlan) -> int:
    return MIN_VERSIONED_MAP_BYTES if plan.rules.versioned else MIN_MAP_BYTES


def splits_of(path: str, sources: Sequence[Source], split_bytes: int, *, first: int = 0) -> list[SegmentSplit]:
    """The sources, split at batches in their offset indexes; ``first``: the first one's row."""
    splits = []
    for row, source in enumerate(sources, first):
        segment = source.segment
        positions = []
        if segment.size_bytes >= 2 * split_bytes:
            positions = index_entries(path, segment)["position"].tolist()
        parts = parts_between(positions, segment.size_bytes, split_bytes)
        splits += [SegmentSplit(row, number, part.start, part.end, len(parts) > 1) for number, part in enumerate(parts)]
    return splits


def tasks_of(splits: Sequence[SegmentSplit], *, cores: int, split_bytes: int) -> list[list[SegmentSplit]]:
    """Groups of neighbouring splits for tasks: a few tasks per core, none of them tiny."""
    total = sum(split.bytes for split in splits)
    wanted = min(max(total // max(2 * cores, 1), LEAST_TASK_BYTES), split_bytes)
    tasks: list[list[SegmentSplit]] = []
    task_bytes = wanted
    for split in splits:
        if task_bytes >= wanted:
            tasks.append([])
            task_bytes = 0
        tasks[-1].append(split)
        task_bytes += split.bytes
    return tasks


def pack_plan(plan: CleaningPlan) -> bytes:
    """The plan for :func:`plan_of`."""
    return pickle.dumps((__version__, pickle.dumps(plan)))


def readers_of(plan: CleaningPlan) -> ReaderPool:
    """Opens the partition of a task's plan to read it."""
    return ReaderPool(plan.path, workers=1, chunk_bytes=plan.chunk_bytes, largest_batch_bytes=plan.max_unpacked_bytes)


@functools.lru_cache(maxsize=2)
def plan_of(packed: bytes) -> CleaningPlan:
    """The plan of a task; unpacked once in a worker, whose memory differs from the driver's (U-35).

    Raises:
        ValueError: another release made the plan; only that release can carry it out.
    """
    release, data = pickle.loads(packed)  # noqa: S301 - the driver made it
    if release != __version__:
        raise ValueError(f"a plan of cleanerd {release}, this is {__version__}")
    plan: CleaningPlan = pickle.loads(data)  # noqa: S301
    return replace(
        plan,
        max_unpacked_bytes=min(plan.max_unpacked_bytes, worker_batch_bytes()),
        facts_bytes=min(plan.facts_bytes, worker_share(plan.map_bytes).facts_bytes),
    )
