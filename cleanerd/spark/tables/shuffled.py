"""Writes a large whole log with many tasks: its keys are shuffled, its values are read at their places."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from cleanerd.segments.same_file import changed
from cleanerd.spark.latest_by_tasks import by_file, find_winners, on_winners
from cleanerd.spark.source.options import RAW
from cleanerd.spark.source.part import part_of, split_of
from cleanerd.spark.source.reading import ReadOptions, SourceReading
from cleanerd.spark.source.rows import SourceRows, to_arrow, without_null_headers
from cleanerd.spark.tables.columns import ROWS
from cleanerd.spark.tables.files import write_rows
from cleanerd.spark.tables.latest import SUMMARY_COLUMNS, summary_row
from cleanerd.spark.values.decoding import BatchDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from cleanerd.spark.header_walk import HeaderSummary
    from cleanerd.spark.logs import Log


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
    return on_winners(winners, partial(write_segments, segments, how), SUMMARY_COLUMNS)


def write_segments(
    segments: Sequence[tuple[int, Log]], how: Mapping[str, Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the records with the given file and offset, sorted by both.

    ``segments``: by file the number of its log, and the log with only this segment. ``how``: see :func:`write_found`.

    Raises:
        CorruptionError: more is undecodable than allowed. SegmentChangedError: a segment has changed since its winners
            were found.
        CleanerdError: a file cannot be read or written.
    """
    for log, found in groupby(by_file(batches), lambda each: segments[each[0]][0]):
        rows = chain.from_iterable(_read(segments[number][1], offsets) for number, offsets in found)
        decoder = BatchDecoder(how["decoding"])
        found_rows = decoder.batches(map(without_null_headers, rows))
        files = write_rows(how["place"], found_rows, how["columns"])
        yield summary_row({"log": log, "files": list(map(asdict, files)), "undecoded": decoder.failed})


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
