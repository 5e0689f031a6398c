"""Writes the latest state as Parquet files in a directory: a task per partition, or several for a large one.

A task writes under its own name beside the others, which readers ignore; files that a successful task reported become
part of the state. So of a repeated task only one file is used. Without a session this process does the same, one
partition after the other.
"""

from __future__ import annotations

import json
import shutil
import uuid
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from cleanerd.errors import ConfigError, system_error
from cleanerd.spark.latest_by_tasks import by_file, find_winners, on_winners
from cleanerd.spark.logs import Log, size_of_all
from cleanerd.spark.new_directory import make_new_directory, remove_attempts
from cleanerd.spark.source.options import LATEST, MAP_BYTES
from cleanerd.spark.source.plan import split_of
from cleanerd.spark.source.read import read_split
from cleanerd.spark.source.reading import ReadOptions
from cleanerd.spark.source.rows import without_null_headers
from cleanerd.spark.state_rows import STATE, rows_at
from cleanerd.spark.task_runner import RESULT_COLUMNS, result_row, results, results_in
from cleanerd.spark.values.decoding import SIDE, BatchDecoder, Decoding, require_within, undecoded_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.header_walk import HeaderSummary
    from cleanerd.verify.listing import SegmentFile

UNDECODED: Final = "_undecoded"
"""The sub-directory of undecodable records, which are not part of the state."""

_DONE: Final = "_SUCCESS"
"""Spark's empty file: writing is complete."""
_ATTEMPTS: Final = "_attempts"
"""The tasks' directory, removed at the end."""
_SUFFIX: Final = ".snappy.parquet"
_WRITTEN: Final = pa.schema(list(STATE)[1:])
"""The topic is the name of a sub-directory."""


def write_files(
    session: SparkSession | None,
    logs: Sequence[Log],
    walks: Sequence[HeaderSummary],
    target: Path,
    *,
    tombstones: bool,
    decoding: Decoding | None,
    advance: Callable[[int], None],
    large_bytes: int,
) -> dict[TopicPartition, tuple[int, int]]:
    """Write the state of ``logs`` below the new directory ``target``, which all tasks see.

    Returns the number of records of each, and of keys and values that could not be decoded. The topic is the name of a
    sub-directory, not a column. Written files are removed after an exception. Many tasks read a log of more than
    ``large_bytes``.

    Raises:
        ConfigError: ``target`` exists. CorruptionError: a log has unreadable bytes; or more is undecodable than
            allowed.
        CleanerdError: a file cannot be read, ``target`` not be written.
    """
    make_new_directory(target)
    try:
        (target / _ATTEMPTS).mkdir()
        how = {"place": str(target / _ATTEMPTS), "decoding": decoding, "tombstones": tombstones}
        summary = _written_by_tasks(session, logs, walks, how, advance, large_bytes)
        counts = _rename_files(target, logs, summary)
        if decoding is not None:
            require_within(decoding.limit, sum(failed for _, failed in counts.values()))
            _rename_undecoded(target, [each["side"] for _, each in summary if each["side"] is not None])
        remove_attempts(target / _ATTEMPTS)
        (target / _DONE).touch()
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, OSError):
            raise system_error("cannot be written", str(target), error) from error
        raise
    return counts


def _written_by_tasks(
    session: SparkSession | None,
    logs: Sequence[Log],
    walks: Sequence[HeaderSummary],
    how: dict[str, Any],
    advance: Callable[[int], None],
    large_bytes: int,
) -> list[tuple[int, dict[str, Any]]]:
    """The tasks' reports on their files, with the number of the log."""
    items, large = [], []
    for number, (log, walked) in enumerate(zip(logs, walks, strict=True)):
        begin, size_bytes = max(log.log_start, log.segments[0].base), size_of_all([log])
        if walked.stable_end <= begin:
            continue
        if session is not None and size_bytes > large_bytes:
            large.append(number)
        else:
            items.append((size_bytes, (number, log, begin, walked.stable_end)))
    summary = results(session, items, partial(write_log, how), advance)
    if session is not None and large:
        mine = [logs[number] for number in large]
        winners, files = find_winners(session, mine, [walks[number] for number in large], tombstones=how["tombstones"])
        places = [(large[number], mine[number].name, file) for file, number in files]
        summary += results_in(on_winners(winners, partial(write_winners, how, places), RESULT_COLUMNS))
    return summary


def write_log(how: Mapping[str, Any], item: tuple[int, Log, int, int]) -> Iterator[pa.RecordBatch]:
    """Write the latest state of one log as a file; no file without records, as with Spark.

    ``item``: the log's number, the log, and the offsets from and to (exclusive) which it is read.

    Raises:
        CorruptionError: it has unreadable bytes; or more is undecodable than allowed.
        CleanerdError: a file cannot be read or written.
    """
    latest = ReadOptions(LATEST, skip_damage=False, tombstones=how["tombstones"], map_bytes=MAP_BYTES)
    number, log, begin, end = item
    split = split_of(log, begin, end)
    rows = map(without_null_headers, read_split(split, latest, _WRITTEN)) if split.pieces else iter(())
    yield result_row((number, _written(how, log.name.topic, rows)))


def write_winners(
    how: Mapping[str, Any], places: Sequence[tuple[int, TopicPartition, SegmentFile]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the records with the given file and offset, sorted by both, as a file for each log.

    ``places``: the log's number, partition and segment by file.

    Raises:
        CorruptionError: a segment has changed since its winners were found; or more cannot be decoded.
        CleanerdError: a file cannot be read or written.
    """
    for (number, name), found in groupby(by_file(batches), lambda each: places[each[0]][:2]):
        batches_found = (batch for file, offsets in found for batch in rows_at(*places[file][1:], offsets))
        rows = (batch.select(_WRITTEN.names) for batch in batches_found)
        yield result_row((number, _written(how, name.topic, rows)))


def _written(how: Mapping[str, Any], topic: str, rows: Iterable[pa.RecordBatch]) -> dict[str, Any]:
    """Write ``rows`` to a new file, and undecodable ones to another; returns the report."""
    place, name, decoder = how["place"], uuid.uuid4().hex, BatchDecoder(how["decoding"])
    summary: dict[str, Any] = {"path": None, "side": None, "rows": 0}
    writer: pq.ParquetWriter | None = None
    side: list[pa.RecordBatch] = []
    try:
        for batch in decoder.batches(rows):
            if writer is None:
                summary["path"] = f"{place}/{name}{_SUFFIX}"
                writer = pq.ParquetWriter(summary["path"], batch.schema, compression="snappy")
            writer.write_batch(batch)
            side += undecoded_rows(batch, topic)
            summary["rows"] += len(batch)
        if side:
            summary["side"] = f"{place}/{name}-side{_SUFFIX}"
            pq.write_table(pa.Table.from_batches(side, SIDE), summary["side"])
    except FileNotFoundError as error:
        raise ConfigError(
            "is not there on the host of this task, though the driver made it",
            where=place,
            hint="name a directory that all executors see, or a table in an object store (--format delta)",
        ) from error
    except OSError as error:
        raise system_error("cannot be written", place, error) from error
    finally:
        if writer is not None:
            writer.close()
    return {**summary, "undecoded": decoder.failed}


def _rename_files(
    target: Path, logs: Sequence[Log], summary: Iterable[tuple[int, Mapping[str, Any]]]
) -> dict[TopicPartition, tuple[int, int]]:
    """Rename the reported files to their final names."""
    counts: dict[TopicPartition, tuple[int, int]] = {}
    for number, each in summary:
        name = logs[number].name
        rows, undecoded = counts.get(name, (0, 0))
        counts[name] = (rows + each["rows"], undecoded + each["undecoded"])
        if each["path"] is not None:
            place = target / f"topic={name.topic}"
            place.mkdir(exist_ok=True)
            Path(each["path"]).rename(place / f"part-{number:05}-{uuid.uuid4()}{_SUFFIX}")
    return counts


def _rename_undecoded(target: Path, paths: Sequence[str]) -> None:
    place = target / UNDECODED
    place.mkdir()
    if not paths:
        pq.write_table(SIDE.empty_table(), place / f"part-{uuid.uuid4()}{_SUFFIX}")
    for path in paths:
        Path(path).rename(place / f"part-{uuid.uuid4()}{_SUFFIX}")


def write_offsets(rows: Sequence[Mapping[str, Any]], target: Path) -> None:
    """Write the offsets that the snapshot covers to ``target``; last, and atomically.

    Raises:
        CleanerdError: it cannot be written.
    """
    place, made = target / "_cleanerd", target / "_cleanerd.new"
    try:
        made.mkdir()
        lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        (made / f"part-00000-{uuid.uuid4()}.json").write_text(lines)
        (made / _DONE).touch()
        made.rename(place)
    except OSError as error:
        raise system_error("cannot be written", str(place), error) from error
