"""Reads logs in tasks and writes the winner of each key as files of the table.

The keys of a large log are shuffled between many tasks, and its values are read at their places.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from cleanerd.segments.same_file import changed
from cleanerd.spark.latest_by_tasks import by_file, find_winners, on_winners
from cleanerd.spark.source.options import LATEST, MAP_BYTES, RAW
from cleanerd.spark.source.plan import part_of, split_of
from cleanerd.spark.source.read import read_split
from cleanerd.spark.source.reading import ReadOptions, SourceReading
from cleanerd.spark.source.rows import SourceRows, to_arrow, without_null_headers
from cleanerd.spark.tables.files import ROWS, write_rows
from cleanerd.spark.task_runner import RESULT_COLUMNS, result_row
from cleanerd.spark.values.decoding import BatchDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from cleanerd.spark.header_walk import HeaderSummary
    from cleanerd.spark.logs import Log


_OFFSETS: Final = pa.schema([("offset", pa.int64())])


def write_latest(item: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Write the committed winner of each key of a part of a log, deleted keys too if ``tombstones``.

    Returns ``number``, the ``files``, how many records and markers are ``stored``, selected or not, and how many keys
    and values were ``undecoded``.

    Raises:
        CorruptionError: the log has unreadable bytes; or more is undecodable than allowed.
        CleanerdError: a file cannot be read or written.
    """
    split = split_of(item["log"], item["begin"], item["end"])
    stored = 0

    def count(rows: SourceRows) -> None:
        nonlocal stored
        offset = rows.decoded.chunk.records.offset
        stored += int(((offset >= rows.reach.begin) & (offset < rows.reach.end)).sum())

    how = ReadOptions(LATEST, skip_damage=False, tombstones=item["tombstones"], map_bytes=MAP_BYTES)
    batches = read_split(split, how, ROWS, count) if split.pieces else iter(())
    decoder = BatchDecoder(item["decoding"])
    rows = decoder.batches(map(without_null_headers, batches))
    files = write_rows(item["place"], rows, item["columns"])
    yield result_row(
        {
            "number": item["number"],
            "files": files,
            "stored": stored,
            "undecoded": decoder.failed,
        }
    )


def stored_of(log: Log, wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[n]: whether ``log`` still has a record at each offset in ``wanted`` [n], ascending.

    Raises:
        CorruptionError, CleanerdError: a segment cannot be read.
    """
    found = np.zeros(len(wanted), np.bool_)
    bases = np.array([each.base for each in log.segments], np.int64)
    numbers = np.searchsorted(bases, wanted, side="right") - 1
    for number, rows in groupby(range(len(wanted)), key=lambda row: int(numbers[row])):
        if number < 0:
            continue  # below the first segment
        row = list(rows)
        begin, end = int(wanted[row[0]]), int(wanted[row[-1]]) + 1
        split = split_of(replace(log, segments=(log.segments[number],)), begin, end)
        for chunk in SourceReading(
            split, ReadOptions(RAW, skip_damage=False, tombstones=True, map_bytes=0), _OFFSETS
        ).rows():
            found[row] |= np.isin(wanted[row], chunk.decoded.chunk.records.offset)
    return found


def write_found(
    session: SparkSession,
    logs: Sequence[Log],
    walks: Sequence[HeaderSummary],
    how: Mapping[str, Any],
    *,
    tombstones: bool,
) -> DataFrame:
    """Tasks that write the winner of each key of ``logs``: a file per log and task.

    ``how`` has the ``place``, the ``columns`` and the ``decoding``. Returns the ``files``, the number of their ``log``,
    and how many keys and values were ``undecoded``.
    """
    winners, files = find_winners(session, logs, walks, tombstones=tombstones)
    segments = [(number, part_of(logs[number], file.base, file.end)) for file, number in files]
    return on_winners(winners, partial(write_segments, segments, how), RESULT_COLUMNS)


def write_segments(
    segments: Sequence[tuple[int, Log]], how: Mapping[str, Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the records with the given file and offset, sorted by both.

    ``segments``: by file the number of its log, and the log with only this segment. ``how``: see :func:`write_found`.

    Raises:
        CorruptionError: more is undecodable than allowed. SegmentChangedError: a segment has changed since its winners
            were found.
    """
    for log, found in groupby(by_file(batches), lambda each: segments[each[0]][0]):
        rows = chain.from_iterable(_read(segments[number][1], offsets) for number, offsets in found)
        decoder = BatchDecoder(how["decoding"])
        found_rows = decoder.batches(map(without_null_headers, rows))
        files = write_rows(how["place"], found_rows, how["columns"])
        yield result_row({"log": log, "files": files, "undecoded": decoder.failed})


def _read(log: Log, wanted: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """The records at the offsets ``wanted`` [n], ascending, of ``log``, which has one segment."""
    split = split_of(log, int(wanted[0]), int(wanted[-1]) + 1)
    found = 0
    for rows in SourceReading(split, ReadOptions(RAW, skip_damage=False, tombstones=True, map_bytes=0), ROWS).rows():
        keep = rows.keep & np.isin(rows.decoded.chunk.records.offset, wanted)
        if keep.any():
            found += int(keep.sum())
            yield to_arrow(SourceRows(rows.decoded, keep, rows.hidden, rows.reach, rows.segment), ROWS)
    if found != len(wanted):
        raise changed(f"{found} of {len(wanted)} records are there", str(log.segments[0].path))
