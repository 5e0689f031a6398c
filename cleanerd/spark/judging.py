"""Judges two sides of many partitions: records are matched by offset, and then by key.

With a session, tasks scan segments, distribute the records by windows of offsets, judge each window, and distribute its
keys by hash. Without one, this process handles one partition after the other. It cuts a log that exceeds its memory
into pieces by offset or by key, and reads it once per piece.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from cleanerd.spark.grouping import Columns, columns_of, dealt, joined, select_rows, shard_of
from cleanerd.spark.local_threshold import local_rows
from cleanerd.spark.record_pairs import PairFindings, Pairs, paired
from cleanerd.spark.record_scan import SegmentWork, scan
from cleanerd.spark.rows import pack, unpack
from cleanerd.spark.session_info import cores_of
from cleanerd.spark.task_runner import RESULT_COLUMNS, received, result_row, results_in, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Limits of what is in memory at once.

    Without a session and with two gigabytes, this process has ``most_records`` rows of 60 bytes and ``most_keys`` keys
    of some 100 bytes, and reads ``slice_rows`` rows at once. A log is cut into at most ``most_pieces``: an offset that
    occurs a million times cannot be cut. A window is ``window_bits`` bits of offsets: a task matches its records at
    once. ``waiting_rows`` rows of keys wait before they are added up.
    """

    most_records: int = 1 << 22
    most_keys: int = 1 << 22
    slice_rows: int = 1 << 18
    most_pieces: int = 4096
    window_bits: int = 16
    waiting_rows: int = 1 << 19


LIMITS: Final = MemoryLimits()

_BLOCK_ROWS: Final = 1 << 15
_SHARD_BYTES: Final = 64 << 20
"""About as much of a log as one task matches."""
_FEWER: Final = 2
"""By which factor the number of pieces grows if a log was too large."""
_PARTS: Final = 16
"""Parts of the hashes, so that fewer keys are sorted at once."""

_BLOCKS: Final = pa.schema([
    ("target", pa.int32()), ("part", pa.int32()), ("window", pa.int64()), ("found", pa.binary()), ("rows", pa.binary()),
])  # fmt: skip
_BLOCK_COLUMNS: Final = "target int, part int, window long, found binary, rows binary"
_SCANNED: Final = ("offset", "key_high", "key_low", "version", "flags", "digest_high", "digest_low", "attributes",
                   "size", "epoch")  # fmt: skip


@dataclass(frozen=True, slots=True)
class JudgeFunctions:
    """Three functions of a module, which tasks import.

    ``of_records`` receives a partition's number, some of its records, and the limit of places of a kind; it returns its
    findings, and rows of their keys with ``part``, ``high`` and ``low``. ``added`` merges rows of keys, so that each
    key has one row. ``of_keys`` returns the findings of one partition's merged keys.
    """

    of_records: Callable[[int, Pairs, int], tuple[PairFindings, Columns]]
    added: Callable[[Sequence[Columns]], Columns]
    of_keys: Callable[[Columns, int], PairFindings]


def judged(
    session: SparkSession | None,
    items: Sequence[tuple[int, SegmentWork]],
    judge: JudgeFunctions,
    most: int,
    advance: Callable[[int], None],
    limits: MemoryLimits = LIMITS,
) -> dict[int, PairFindings]:
    """The findings of ``judge`` in ``items`` (work for :func:`scan`), by partition.

    ``most``: limit of places of each kind. Without a ``session`` this process does it, within ``limits``.

    Raises:
        CleanerdError: a file cannot be read.
    """
    if session is not None:
        return _by_tasks(session, items, judge, most)
    found = {}
    for part, of_part in groupby(items, key=lambda each: each[1].part):
        mine = list(of_part)
        found[part] = _judge_locally(part, [item for _, item in mine], judge, most, limits)
        advance(sum(size for size, _ in mine))
    return found


def _by_tasks(
    session: SparkSession, items: Sequence[tuple[int, SegmentWork]], judge: JudgeFunctions, most: int
) -> dict[int, PairFindings]:
    shards = max(cores_of(session), -(-sum(size for size, _ in items) // _SHARD_BYTES))
    blocks = spread(session, items, partial(deal_records, shards), _BLOCKS, _BLOCK_COLUMNS)
    windows = blocks.repartitionById(shards, "target").sortWithinPartitions("part", "window")
    keys = windows.mapInArrow(partial(judge_windows, judge, most, shards), _BLOCK_COLUMNS)
    rows_found = keys.repartitionById(shards, "target").mapInArrow(partial(judge_keys, judge, most), RESULT_COLUMNS)
    found: dict[int, PairFindings] = {}
    for of_shard in results_in(rows_found):
        for part, each in of_shard.items():
            found.setdefault(part, PairFindings()).add(each, most)
    return found


def deal_records(shards: int, work: SegmentWork) -> Iterator[pa.RecordBatch]:
    """The records of one piece of work, by window of offsets."""
    part = work.part
    for batch in scan(work):
        columns = columns_of(batch)
        scanned = {name: columns[name] for name in _SCANNED}
        window = columns["offset"] >> LIMITS.window_bits
        different, number = np.unique(window, return_inverse=True)
        for at, rows in dealt(scanned, number.astype(np.int64), len(different), max(len(number), 1)):
            place = int(different[at])
            yield _block((part + place) % shards, part, place, None, rows)


def _block(target: int, part: int, window: int, found: bytes | None, rows: Columns | None) -> pa.RecordBatch:
    packed = None if rows is None else pack({}, rows)
    columns = [pa.array([value], kind) for value, kind in zip((target, part, window, found, packed), _BLOCKS.types,
                                                              strict=True)]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=_BLOCKS)


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    for batch in batches:
        part, window, found = (batch.column(name).to_pylist() for name in ("part", "window", "found"))
        for at, rows in enumerate(batch.column("rows")):
            yield part[at], window[at], found[at], rows.as_py()


def judge_windows(
    judge: JudgeFunctions, most: int, shards: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Judge windows, sorted by part and window: yields findings, and their keys by shard."""
    found: dict[int, PairFindings] = {}
    waiting = _PendingKeys(judge)
    for (part, _), of_window in groupby(_rows_of(batches), key=lambda row: row[:2]):
        several = [unpack(rows)[1] for *_, rows in of_window if rows is not None]
        here, keys = judge.of_records(part, paired(several), most)
        found.setdefault(part, PairFindings()).add(here, most)
        if waiting.add(keys):
            yield from _blocks_of(waiting, shards)
    yield from _blocks_of(waiting, shards)
    for part, each in found.items():
        yield _block(part % shards, part, 0, pickle.dumps(each), None)


def _blocks_of(waiting: _PendingKeys, shards: int) -> Iterator[pa.RecordBatch]:
    for keys in waiting.drain():
        for target, rows in dealt(keys, shard_of(keys["high"], shards), shards, _BLOCK_ROWS):
            yield _block(target, -1, 0, None, rows)


class _PendingKeys:
    """Rows of keys that wait to be merged, many at once; large numbers are split by parts of the hash."""

    def __init__(self, judge: JudgeFunctions, limits: MemoryLimits = LIMITS) -> None:
        self._judge = judge
        self._least_rows = limits.waiting_rows
        self._waiting: list[Columns] = []
        self._waiting_rows = self._added_rows = 0
        self._added: dict[int, Columns] = {}

    def add(self, keys: Columns) -> int:
        """The number of keys, if it was counted; else 0."""
        self._waiting.append(keys)
        self._waiting_rows += len(keys["high"])
        if self._waiting_rows < max(self._least_rows, self._added_rows // 2):
            return 0
        self._add_up()
        return self._added_rows

    def _add_up(self) -> None:
        keys = joined(self._waiting)
        self._waiting, self._waiting_rows = [], 0
        for number, rows in dealt(keys, shard_of(keys["low"], _PARTS), _PARTS, max(len(keys["high"]), 1)):
            before = [self._added[number]] if number in self._added else []
            self._added[number] = self._judge.added([*before, rows])
        self._added_rows = sum(len(each["high"]) for each in self._added.values())

    def drain(self) -> Iterator[Columns]:
        """Yield all keys, merged, in portions."""
        if not self._added and self._waiting:
            yield self._judge.added(self._waiting)
        elif self._added:
            if self._waiting:
                self._add_up()
            while self._added:
                yield self._added.popitem()[1]
        self._waiting, self._waiting_rows, self._added_rows = [], 0, 0


def judge_keys(judge: JudgeFunctions, most: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Judge one shard of the keys, with the findings from windows: yields them by part."""
    found: dict[int, PairFindings] = {}
    waiting = _PendingKeys(judge)
    for part, _, data, rows in _rows_of(batches):
        if data is not None:
            found.setdefault(part, PairFindings()).add(received(data), most)
        if rows is not None:
            waiting.add(unpack(rows)[1])
    for part, each in _findings(judge, waiting, most):
        found.setdefault(part, PairFindings()).add(each, most)
    yield result_row(found)


def _findings(judge: JudgeFunctions, waiting: _PendingKeys, most: int) -> Iterator[tuple[int, PairFindings]]:
    """The findings of the waiting keys by part; a part may occur several times."""
    for keys in waiting.drain():
        parts, starts = np.unique(keys["part"], return_index=True)
        edges = [*starts.tolist(), len(keys["part"])]
        for at, part in enumerate(parts.tolist()):
            yield part, judge.of_keys(select_rows(keys, np.arange(edges[at], edges[at + 1])), most)


class _TooManyRecordsError(Exception):
    """One piece of the offsets has too many records."""


class _TooManyKeysError(Exception):
    """One shard of the keys has too many."""


def _judge_locally(
    part: int, items: Sequence[SegmentWork], judge: JudgeFunctions, most: int, limits: MemoryLimits
) -> PairFindings:
    pieces = shards = 1
    while True:
        try:
            found = PairFindings()
            for shard in range(shards):
                found.add(_judge_shard_locally(part, items, judge, most, (pieces, shard, shards), limits), most)
        except _TooManyRecordsError:
            pieces *= _FEWER
        except _TooManyKeysError:
            shards *= _FEWER
        else:
            return found


def _judge_shard_locally(
    part: int,
    items: Sequence[SegmentWork],
    judge: JudgeFunctions,
    most: int,
    cut: tuple[int, int, int],
    limits: MemoryLimits,
) -> PairFindings:
    """Judge one shard of the keys; the first one also returns the records' own findings."""
    pieces, shard, shards = cut
    found = PairFindings()
    waiting = _PendingKeys(judge, limits)
    for piece in range(pieces):
        for rows in _slices(_piece(items, piece, pieces, limits), limits):
            here, keys = judge.of_records(part, paired([rows]), most)
            if shard == 0:
                found.add(here, most)
            if shards > 1:
                keys = select_rows(keys, shard_of(keys["high"], shards) == shard)
            if waiting.add(keys) > local_rows(limits.most_keys) and shards < limits.most_pieces:
                raise _TooManyKeysError
    for _, each in _findings(judge, waiting, most):
        found.add(each, most)
    return found


def _slices(several: list[Columns], limits: MemoryLimits) -> Iterator[Columns]:
    """The rows of ``several``, in portions of whole windows; ``several`` is empty afterwards."""
    if not several:
        return
    # One column at a time, so that little is in memory twice.
    rows = {name: np.concatenate([each.pop(name) for each in several]) for name in _SCANNED}
    several.clear()
    window = rows["offset"] >> limits.window_bits
    order = np.argsort(window, kind="stable")
    window = window[order]
    begins = [*(np.flatnonzero(window[1:] != window[:-1]) + 1).tolist(), len(order)]
    at = 0
    for begin in begins:
        if begin - at >= limits.slice_rows or begin == len(order):
            yield select_rows(rows, order[at:begin])
            at = begin


def _piece(items: Sequence[SegmentWork], piece: int, pieces: int, limits: MemoryLimits) -> list[Columns]:
    """The records of every ``pieces``-th window."""
    found: list[Columns] = []
    count = 0
    for item in items:
        for batch in scan(item):
            columns = columns_of(batch)
            rows = {name: columns[name] for name in _SCANNED}
            if pieces > 1:
                rows = select_rows(rows, (columns["offset"] >> limits.window_bits) % pieces == piece)
            found.append(rows)
            count += len(rows["offset"])
            if count > local_rows(limits.most_records) and pieces < limits.most_pieces:
                raise _TooManyRecordsError
    return found
