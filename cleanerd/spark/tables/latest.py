"""Reads a part of a log in a task: writes each key's winner as a file of the table."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from cleanerd.spark.source.options import LATEST, MAP_BYTES, RAW
from cleanerd.spark.source.part import split_of
from cleanerd.spark.source.read import read_split
from cleanerd.spark.source.reading import ReadOptions, SourceReading
from cleanerd.spark.source.rows import SourceRows, without_null_headers
from cleanerd.spark.tables.columns import ROWS
from cleanerd.spark.tables.files import write_rows
from cleanerd.spark.values.decoding import BatchDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from cleanerd.spark.logs import Log

SUMMARY_SCHEMA: Final = pa.schema([("summary", pa.string())])
"""A task's result: JSON."""
SUMMARY_COLUMNS: Final = "summary string"

_OFFSETS: Final = pa.schema([("offset", pa.int64())])


def summary_row(document: Mapping[str, Any]) -> pa.RecordBatch:
    """A row of :data:`TOLD`."""
    return pa.RecordBatch.from_arrays([pa.array([json.dumps(document)])], schema=SUMMARY_SCHEMA)


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
    yield summary_row(
        {
            "number": item["number"],
            "files": list(map(asdict, files)),
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
