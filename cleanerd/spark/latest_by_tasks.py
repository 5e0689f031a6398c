"""Finds the places of retained records with many tasks, for a log that is too large for one task.

Tasks scan segments and send the best record of each key. A shard of the keys picks the best of these, and its place
goes to the task that reads the segments again.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from cleanerd.spark.audit import new_digest_key
from cleanerd.spark.grouping import Columns, Groups, columns_of, dealt, joined, select_rows, shard_of
from cleanerd.spark.logs import Log, work_on
from cleanerd.spark.record_scan import KEYS, RecordFact, SegmentWork, scan
from cleanerd.spark.rows import pack, unpack
from cleanerd.spark.session_info import cores_of
from cleanerd.spark.task_runner import spread, tasks_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from cleanerd.spark.header_walk import HeaderSummary
    from cleanerd.verify.listing import SegmentFile

LARGE_BYTES: Final = 1 << 30
"""A log larger than this is read by many tasks with a shuffle of its keys, if all of it is written."""

_COMPETES: Final = int(RecordFact.VISIBLE | RecordFact.HAS_KEY)
_KEY: Final = ("part", "high", "low")
_OF_WINNER: Final = ("has_version", "version", "offset", "file", "is_tombstone")
SENT_ROWS: Final = 1 << 20
_BLOCK_ROWS: Final = 1 << 15
_SHARD_BYTES: Final = 64 << 20
"""About as much of a log as one shard of its keys covers."""

_BLOCKS: Final = pa.schema([("target", pa.int32()), ("rows", pa.binary())])
_BLOCK_COLUMNS: Final = "target int, rows binary"
_PLACES: Final = pa.schema([("file", pa.int32()), ("offset", pa.int64())])


def find_winners(
    session: SparkSession, logs: Sequence[Log], walks: Sequence[HeaderSummary], *, tombstones: bool
) -> tuple[DataFrame, list[tuple[SegmentFile, int]]]:
    """The places of retained records, for :func:`on_winners`: each file in one partition, sorted by file.

    Also returns the files by number, each with the number of its log. Call it in a block of ``queries`` with blocks for
    rows.
    """
    files, items = work_on(logs, walks, new_digest_key(), stable=True)
    sizes = [size for size, _ in items]
    shards = max(cores_of(session), -(-sum(sizes) // _SHARD_BYTES))
    best = spread(session, items, partial(best_of_segment, shards), _BLOCKS, _BLOCK_COLUMNS)
    tasks = max(1, tasks_for(session, sizes))
    function = partial(best_of_shard, tombstones)
    places = best.repartitionById(shards, "target").mapInArrow(function, "file int, rows binary")
    placed = places.repartitionById(tasks, places["file"] % tasks).sortWithinPartitions("file")
    owners = {work.file: work.part for _, work in items}
    return placed, [(file, owners[number]) for number, file in enumerate(files)]


def on_winners(
    winners: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], columns: Any
) -> DataFrame:
    """Call ``function`` in tasks with file and offset of each winner, sorted by both, as ``mapInArrow`` does."""
    return winners.mapInArrow(partial(_with_places, function), columns)


def best_of_segment(shards: int, work: SegmentWork, sent_rows: int = SENT_ROWS) -> Iterator[pa.RecordBatch]:
    """The best record of each key in a segment, by shard; sent on after ``sent_rows`` rows."""
    waiting: list[Columns] = []
    count = 0
    for batch in scan(work, KEYS):
        rows = columns_of(batch)
        rows = select_rows(rows, (rows["flags"] & _COMPETES) == _COMPETES)
        waiting.append({
            "part": rows["part"],
            "high": rows["key_high"],
            "low": rows["key_low"],
            "has_version": ((rows["flags"] & RecordFact.HAS_VERSION) != 0).astype(np.uint8),
            "version": rows["version"],
            "offset": rows["offset"],
            "file": rows["file"],
            "is_tombstone": ((rows["flags"] & RecordFact.TOMBSTONE) != 0).astype(np.uint8),
        })  # fmt: skip
        count += len(batch)
        if count >= sent_rows:
            yield from _dealt(waiting, shards)
            waiting, count = [], 0
    if waiting:
        yield from _dealt(waiting, shards)


def _dealt(waiting: Sequence[Columns], shards: int) -> Iterator[pa.RecordBatch]:
    best = _best(waiting)
    for target, rows in dealt(best, shard_of(best["high"], shards), shards, _BLOCK_ROWS):
        yield _block(target, rows, _BLOCKS)


def _best(several: Sequence[Columns]) -> Columns:
    """Each key once, with the highest (has a version, version, offset)."""
    groups = Groups.of(joined(several), _KEY)
    winner = groups.best([groups.rows[name] for name in ("has_version", "version", "offset", "file")])
    return {**groups.firsts(_KEY), **select_rows({name: groups.rows[name] for name in _OF_WINNER}, winner)}


def _block(number: int, rows: Columns, schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([number], pa.int32()), pa.array([pack({}, rows)], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def best_of_shard(
    tombstones: bool,  # noqa: FBT001 - bound
    batches: Iterator[pa.RecordBatch],
    sent_rows: int = SENT_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The place of the best record of each key of a shard, by file; deleted keys only with ``tombstones``."""
    waiting: list[Columns] = []
    rows = added = 0
    for batch in batches:
        for data in batch.column(1):
            waiting.append(unpack(data.as_py())[1])
            rows += len(waiting[-1]["high"])
        if rows >= max(sent_rows, added):
            waiting, rows = [_best(waiting)], 0
            added = len(waiting[0]["high"])
    if not waiting:
        return
    best = _best(waiting)
    if not tombstones:
        best = select_rows(best, best["is_tombstone"] == 0)
    files, number = np.unique(best["file"], return_inverse=True)
    schema = pa.schema([("file", pa.int32()), ("rows", pa.binary())])
    offsets = {"offset": best["offset"]}
    for target, of_file in dealt(offsets, number.astype(np.int64), len(files), max(len(number), 1)):
        yield _block(int(files[target]), of_file, schema)


def _with_places(
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return function(_places(batches))


def _places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A batch per file: the shards' results, merged."""
    rows = (row for batch in batches for row in zip(batch.column(0).to_pylist(), batch.column(1), strict=True))
    for number, of_file in groupby(rows, key=lambda row: row[0]):
        offset = np.sort(np.concatenate([unpack(data.as_py())[1]["offset"] for _, data in of_file]))
        columns = [pa.array(np.full(len(offset), number, np.int32)), pa.array(offset)]
        yield pa.RecordBatch.from_arrays(columns, schema=_PLACES)


def by_file(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each file's number once, with all its offsets, from the rows of :func:`on_winners`."""
    number = -1
    parts: list[NDArray[np.int64]] = []
    for batch in batches:
        files = batch.column(0).to_numpy(zero_copy_only=False)
        offsets = batch.column(1).to_numpy(zero_copy_only=False)
        edges = [0, *(np.flatnonzero(files[1:] != files[:-1]) + 1), len(files)]
        for start, end in pairwise(edges):
            if start == end:
                continue
            if files[start] != number:
                if parts:
                    yield number, np.concatenate(parts)
                number, parts = int(files[start]), []
            parts.append(offsets[start:end])
    if parts:
        yield number, np.concatenate(parts)
