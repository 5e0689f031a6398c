"""A split, read by a task: the records that the view wants, in the order of their offsets.

Retained records are found with an offset map, in the task that reads the log. It has two passes: one puts hashes of
keys into the map, the other reads the bits of the retained records from it. Keys that do not fit the map are cut into
shards with a pass each, and the bits of all shards are merged.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CleanerdError
from cleanerd.segments.same_file import changed
from cleanerd.spark.source.options import LATEST
from cleanerd.spark.source.reading import ReadOptions, SourceReading
from cleanerd.spark.source.rows import SourceRows, to_arrow
from cleanerd.verify.records import HASH_KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from cleanerd.spark.source.plan import LogRange, TaskSplit

_FIRST_BYTES: Final = 1024 * 1024
_LEAST_BYTES: Final = 128 * 1024
"""The least memory of an offset map."""
_GROWS: Final = 8
_MOST_SHARDS: Final = 4096
_WORD: Final = 64


class _FullError(Exception):
    """The keys of a shard do not fit the map."""


def winners_of(reading: SourceReading, reach: LogRange, how: ReadOptions) -> Iterator[NDArray[np.bool_]]:
    """For each chunk of ``reading``, in order, [n]: the record wins its key; deleted keys only with ``tombstones``.

    Raises:
        CleanerdError: there are more keys than any number of shards takes; and what reading raises.
    """
    most = max(how.map_bytes, _LEAST_BYTES)
    memory_bytes, shards = min(_FIRST_BYTES, most), 1
    while True:
        try:
            return _LatestShards(reading, reach, memory_bytes, shards, tombstones=how.tombstones).winners()
        except _FullError:
            if memory_bytes < most:
                memory_bytes = min(_GROWS * memory_bytes, most)
            else:
                shards *= 2
        if shards > _MOST_SHARDS:
            raise CleanerdError(f"too many keys for a map of {most} bytes", where="option mapBytes")


class _LatestShards:
    """All shards of one log."""

    def __init__(
        self, reading: SourceReading, reach: LogRange, memory_bytes: int, shards: int, *, tombstones: bool
    ) -> None:
        self._reading = reading
        self._rules = reach.rules
        self._map = _kernel.OffsetMap(memory_bytes, versions=reach.rules.by_version)
        self._shards = shards
        self._tombstones = tombstones
        self._hash_key = os.urandom(HASH_KEY_BYTES)
        self._counts: list[int] = []
        self._deletes: list[NDArray[np.uint8]] = []

    def winners(self) -> Iterator[NDArray[np.bool_]]:
        bits = np.zeros(0, np.uint64)
        for shard in range(self._shards):
            self._map.clear()
            self._put(shard)
            found = self._map.winners(0, sum(map(_padded, self._counts)))
            bits = found if shard == 0 else bits | found
        return self._by_chunk(bits)

    def _put(self, shard: int) -> None:
        """Add the records of one shard's keys, each chunk from a multiple of 64 on."""
        ordinal = 0
        for row, rows in enumerate(self._reading.rows(self._hash_key)):
            chunk = rows.decoded.chunk
            records = chunk.records
            if shard == 0:
                self._note(len(records), self._rules.tombstones(records.flags, rows.is_old()))
            elif row >= len(self._counts) or len(records) != self._counts[row]:
                raise changed("it has other records than a moment ago", str(rows.segment.path))
            mask = rows.keep & ((records.flags & _kernel.FLAG_HAS_KEY) != 0)
            version, present = self._rules.versions(records) if self._rules.by_version else (None, None)
            done = self._map.put_max(
                records.key_hash, ordinal, mask, version=version, has_version=present, shard=shard, shards=self._shards
            )
            if done < len(records):
                raise _FullError
            ordinal += _padded(len(records))

    def _note(self, count: int, deletes: NDArray[np.bool_]) -> None:
        self._counts.append(count)
        if not self._tombstones:
            self._deletes.append(np.packbits(deletes, bitorder="little"))

    def _by_chunk(self, bits: NDArray[np.uint64]) -> Iterator[NDArray[np.bool_]]:
        flat = bits.view(np.uint8)
        at = 0
        for row, count in enumerate(self._counts):
            wins = np.unpackbits(flat[at : at + _padded(count) // 8], count=count, bitorder="little").view(np.bool_)
            if not self._tombstones:
                wins &= ~np.unpackbits(self._deletes[row], count=count, bitorder="little").view(np.bool_)
            yield wins
            at += _padded(count) // 8


def _padded(count: int) -> int:
    return -(-count // _WORD) * _WORD


def read_split(
    split: TaskSplit, how: ReadOptions, schema: pa.Schema, observe: Callable[[SourceRows], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of ``split`` as batches of ``schema``.

    ``observe`` receives each chunk once, including unrequested records.

    Raises:
        CorruptionError: damaged bytes that are not to be skipped.
        SegmentChangedError: a file is no longer the one that was listed.
        CleanerdError: it cannot be read.
    """
    reading = SourceReading(split, how, schema)
    if how.view == LATEST:
        winners = winners_of(reading, split.reaches[0], how)
        for rows in reading.rows():
            if observe is not None:
                observe(rows)
            wins = next(winners, None)
            if wins is None or len(wins) != len(rows.keep):
                raise changed("it has other records than a moment ago", str(rows.segment.path))
            if wins.any():
                yield to_arrow(SourceRows(rows.decoded, wins, rows.hidden, rows.reach, rows.segment), schema)
        return
    for rows in reading.rows():
        if observe is not None:
            observe(rows)
        if rows.keep.any():
            yield to_arrow(rows, schema)
        yield from reading.damages()
    yield from reading.damages()
