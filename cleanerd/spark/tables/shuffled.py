"""Writes a large whole log with many tasks: its keys are shuffled, its values are read at their places."""

from __future__ import annotations

from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from cleanerd.segments.same_file import changed
from cleanerd.spark.latest_by_tasks import by_file, find_winners, on_winners
from cleanerd.spark.source.options import RAW
from cleanerd.spark.source.part import part_item, split_of
from cleanerd.spark.source.reading import ReadOptions, SourceReading
from cleanerd.spark.source.rows import SourceRows, to_arrow, without_null_headers
from cleanerd.spark.tables.columns import ROWS, columns_from
from cleanerd.spark.tables.files import write_rows
from cleanerd.spark.tables.latest import SUMMARY_COLUMNS, summary_row
from cleanerd.spark.tables.place import place_from
from cleanerd.spark.values.decoding import decoder_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from cleanerd.spark.header_walk import HeaderSummary
    from cleanerd.spark.logs import Log
    from cleanerd.spark.task_runner import Item


def write_found(
    session: SparkSession, logs: Sequence[Log], walks: Sequence[HeaderSummary], how: Item, *, tombstones: bool
) -> DataFrame:
    """Tasks that write the winner of each key of ``logs``: a file per log and task.

    ``how`` has the ``place``, the ``columns`` and the ``decoding``. Returns the ``files``, the number of their ``log``,
    and how many keys and values were ``undecoded``.
    """
    winners, files = find_winners(session, logs, walks, tombstones=tombstones)
    items = [{**part_item(logs[number], file.base, file.end), "log": number} for file, number in files]
    return on_winners(winners, partial(write_segments, items, how), SUMMARY_COLUMNS)


def write_segments(
    items: Sequence[dict[str, Any]], how: Item, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the records with the given file and offset, sorted by both; ``items``: their segments, by number.

    ``how``: as for :func:`write_found`.

    Raises:
        CorruptionError: more is undecodable than allowed. SegmentChangedError: a segment has changed since its winners
            were found.
        CleanerdError: a file cannot be read or written.
    """
    for log, found in groupby(by_file(batches), lambda each: int(items[each[0]]["log"])):
        rows = chain.from_iterable(_read(items[number], offsets) for number, offsets in found)
        decoder = decoder_from(how["decoding"])
        found_rows = decoder.batches(map(without_null_headers, rows))
        files = write_rows(place_from(how["place"]), found_rows, columns_from(how["columns"]))
        yield summary_row({"log": log, "files": [each.to_item() for each in files], "undecoded": decoder.failed})


def _read(item: Item, wanted: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """The records at the offsets ``wanted`` [n], ascending, of the segment in ``item``.

    Raises:
        SegmentChangedError: some were removed.
        CleanerdError: it cannot be read.
    """
    split = split_of({**item, "begin": int(wanted[0]), "end": int(wanted[-1]) + 1})
    found = 0
    for rows in SourceReading(split, ReadOptions(RAW, skip_damage=False, tombstones=True, map_bytes=0), ROWS).rows():
        keep = rows.keep & np.isin(rows.decoded.chunk.records.offset, wanted)
        if keep.any():
            found += int(keep.sum())
            yield to_arrow(SourceRows(rows.decoded, keep, rows.hidden, rows.reach, rows.segment), ROWS)
    if found != len(wanted):
        path = item["segments"][0][0]
        raise changed(f"{found} of {len(wanted)} records are there", path)
