"""The latest state of topics under their strategies, as Parquet: what a table of ``key -> value`` would hold.

Winners are found by offset alone; keys, values and headers cross into the JVM only for them, as Arrow columns that the
kernel lays out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from cleanerd import _kernel
from cleanerd.errors import ConfigError, CorruptionError
from cleanerd.format.names import TopicPartition
from cleanerd.log.chunks import WithChunk
from cleanerd.log.memory import worker_batch_bytes
from cleanerd.spark.audit import new_digest_key
from cleanerd.spark.header_walk import walk_headers
from cleanerd.spark.logs import said_of, size_of_all, work_on
from cleanerd.spark.record_scan import COLUMNS, FACTS, SCHEMA, Fact, scan, segment_from
from cleanerd.spark.snapshot_here import UNDECODED, write_here, write_offsets_here
from cleanerd.spark.source.rows import bytes_column, headers_column, time_column
from cleanerd.spark.spread import nobody, queries, spread, tasks_for
from cleanerd.spark.values.decoding import decoder_from, require_within
from cleanerd.spark.values.said import error_name
from cleanerd.verify.listing import NO_END
from cleanerd.verify.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from cleanerd.spark.header_walk import Walked
    from cleanerd.spark.logs import Log
    from cleanerd.spark.values.decoding import Decoding
    from cleanerd.verify.listing import SegmentFile
    from cleanerd.verify.walk import Damage

_WINNERS: Final = """
SELECT winner.file AS file, winner.offset AS offset FROM (
    SELECT max(named_struct('has_version', flags & {HAS_VERSION} != 0, 'version', version, 'offset', offset,
        'file', file, 'is_tombstone', flags & {TOMBSTONE} != 0)) AS winner
    FROM {records}
    WHERE flags & {COUNTS} = {COUNTS}
    GROUP BY part, key_high, key_low
) WHERE {tombstones} OR NOT winner.is_tombstone
"""

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
STATE: Final = pa.schema([
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", pa.list_(_HEADER)),
])  # fmt: skip
STATE_COLUMNS: Final = (
    "topic string, partition int, offset long, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)


@dataclass(frozen=True, slots=True)
class Taken:
    """What was written of a partition: ``keys`` records, as of ``end_offset`` (exclusive).

    ``undecoded``: keys and values of them that could not be decoded.
    """

    name: TopicPartition
    strategy: str
    log_start: int
    end_offset: int
    keys: int
    undecoded: int = 0


def write_snapshot(
    session: SparkSession | None,
    logs: Sequence[Log],
    target: str,
    *,
    tombstones: bool = False,
    whole_log: bool = False,
    decoding: Decoding | None = None,
    advance: Callable[[int], None] = nobody,
) -> list[Taken]:
    """Write the latest state of ``logs`` to the new directory ``target`` (a URL), a sub-directory a topic.

    By the tasks of ``session`` or, without one, by this process (``snapshot_here.py``), to a directory of this machine.

    As of which offsets it is stands beside it, in ``_cleanerd``, which Spark's readers pass over: it is written last,
    so a snapshot without it is not complete.

    ``tombstones``: deleted keys too, by the record that deletes them. ``whole_log``: up to the end of the log, whatever
    its high watermark, without what is not committed. ``decoding``: with the columns that it makes of keys and values;
    what it cannot decode is written to ``_undecoded`` besides, which Spark's readers pass over too.

    Raises:
        ConfigError: the high watermark of a log is not known, and not its ``whole_log`` wanted.
        CorruptionError: a log has bytes that cannot be read: its state is not known; or more of it cannot be
            decoded than may be.
        CleanerdError: a file cannot be read.
    """
    ends = [NO_END if whole_log else high_watermark_of(log) for log in logs]
    if session is None:
        walks = walked_logs(None, logs, ends, whole_log=whole_log)
        place = target.removeprefix("file://")
        counts = write_here(
            logs, walks, Path(unquote(place)), STATE, tombstones=tombstones, decoding=decoding, advance=advance
        )
        taken = _taken(logs, walks, counts)
        write_offsets_here([_offsets_of(each) for each in taken], Path(unquote(place)))
        return taken
    with queries(session, f"snapshot: {said_of(log.name for log in logs)}", size_of_all(logs), advance):
        walks = walked_logs(session, logs, ends, whole_log=whole_log)
        state = latest_state(session, logs, walks, tombstones=tombstones, decoding=decoding)
        state.write.mode("error").partitionBy("topic").parquet(target)
        taken = _taken(logs, walks, counted_rows(session, target, decoding))
        offsets = pa.Table.from_pylist([_offsets_of(each) for each in taken])
        # One JSON file, a line a partition.
        session.createDataFrame(offsets).coalesce(1).write.mode("error").json(f"{target}/_cleanerd")
    return taken


def walked_logs(
    session: SparkSession | None, logs: Sequence[Log], ends: Sequence[int], *, whole_log: bool
) -> list[Walked]:
    """The headers of ``logs``, known up to ``ends``. ``whole_log``: what is open there does not hold up what follows.

    Raises:
        CorruptionError: a log has bytes that cannot be read: its state is not known.
        CleanerdError: a file cannot be read.
    """
    walks = walk_headers(session, [log.segments for log in logs], ends)
    if whole_log:
        walks = [replace(walked, stable_end=walked.end_offset) for walked in walks]
    damaged = [text for walked in walks for text in walked.damaged]
    if damaged:
        raise CorruptionError(damaged[0], where="snapshot", hint=f"{len(damaged)} such places; cleanerd verify")
    return walks


def counted_rows(
    session: SparkSession, target: str, decoding: Decoding | None
) -> dict[TopicPartition, tuple[int, int]]:
    """How many rows of each partition lie in ``target``, and how much in them is not decoded, which goes to its side.

    Raises:
        CorruptionError: more is not decoded than may be.
    """
    sources = [] if decoding is None else [each.source for each in decoding.columns]
    # Spark would take a topic 2024 for a number, and an empty directory for a mistake.
    schema = "topic string, partition int, offset long"
    schema += "".join(f", {source} binary, {error_name(source)} string" for source in sources)
    written = session.read.schema(schema).parquet(target)
    names = [error_name(source) for source in sources]
    rows = written.groupBy("topic", "partition").agg({"*": "count", **dict.fromkeys(names, "count")}).collect()
    counts = {
        TopicPartition(row["topic"], row["partition"]): (
            row["count(1)"], sum(row[f"count({name})"] for name in names)
        )
        for row in rows
    }  # fmt: skip
    if decoding is not None:
        require_within(decoding.limit, sum(failed for _, failed in counts.values()))
        sides = [
            written.where(f"{error_name(source)} IS NOT NULL").selectExpr(
                "topic",
                "partition",
                "offset",
                f"'{source}' AS column",
                f"{source} AS bytes",
                f"{error_name(source)} AS reason",
            )
            for source in sources
        ]
        reduce(lambda one, other: one.union(other), sides).coalesce(1).write.mode("error").parquet(
            f"{target}/{UNDECODED}"
        )
    return counts


def _taken(
    logs: Sequence[Log], walks: Sequence[Walked], counts: Mapping[TopicPartition, tuple[int, int]]
) -> list[Taken]:
    return [
        Taken(
            log.name,
            log.rules.strategy,
            max(log.log_start, log.segments[0].base),
            walked.stable_end,
            *counts.get(log.name, (0, 0)),
        )
        for log, walked in zip(logs, walks, strict=True)
    ]


def high_watermark_of(log: Log) -> int:
    """That of the directory's checkpoint.

    Raises:
        ConfigError: it is not known.
    """
    if log.high_watermark is None:
        raise ConfigError(
            f"the high watermark of {log.name} is not known",
            where=str(log.log_dir),
            hint="start the broker once, or take all of the log with --whole-log",
        )
    return log.high_watermark


def _offsets_of(taken: Taken) -> dict[str, Any]:
    """From and up to which offset the snapshot speaks of a partition."""
    return {
        "topic": taken.name.topic,
        "partition": taken.name.partition,
        "strategy": taken.strategy,
        "log_start_offset": taken.log_start,
        "end_offset": taken.end_offset,
        "records": taken.keys,
    }


def latest_state(
    session: SparkSession,
    logs: Sequence[Log],
    walks: Sequence[Walked],
    *,
    tombstones: bool = False,
    decoding: Decoding | None = None,
) -> DataFrame:
    """The rows of the snapshot of ``logs``, whose headers tell ``walks``."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - what this process does alone needs no pyspark

    winners, files = find_winners(session, logs, walks, tombstones=tombstones)
    places = [_place(file, logs[number].name) for file, number in files]
    if decoding is None:
        return winners.mapInArrow(partial(read_winners, places, None), STATE_COLUMNS)
    columns = from_arrow_schema(decoding.added_to(STATE))
    return winners.mapInArrow(partial(read_winners, places, decoding.to_item()), columns)


def find_winners(
    session: SparkSession, logs: Sequence[Log], walks: Sequence[Walked], *, tombstones: bool
) -> tuple[DataFrame, list[tuple[SegmentFile, int]]]:
    """Where the records lie that win their keys: ``file`` and ``offset``, sorted by both, each file in one partition.

    And the files by number, each with the number of its log.
    """
    files, items = work_on(logs, walks, new_digest_key(), stable=True)
    records = spread(session, items, scan, SCHEMA, COLUMNS)
    counts = int(Fact.VISIBLE | Fact.HAS_KEY)
    winners = session.sql(_WINNERS, records=records, COUNTS=counts, tombstones=tombstones, **FACTS)
    tasks = max(1, tasks_for(session, [file.size_bytes for file in files]))
    placed = winners.repartitionById(tasks, winners["file"] % tasks).sortWithinPartitions("file", "offset")
    owners = {item["file"]: item["part"] for _, item in items}
    return placed, [(file, owners[number]) for number, file in enumerate(files)]


def _place(file: SegmentFile, name: TopicPartition) -> list[Any]:
    return [name.topic, name.partition, str(file.path), file.base, file.end, file.size_bytes, file.sealed]


def read_winners(
    places: Sequence[list[Any]], decoding: Any, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The records whose file and offset come in, sorted by both; ``places``: topic, partition and segment by file.

    Raises:
        CorruptionError: a segment is not what it was when its winners were found; or more cannot be decoded
            than may be.
    """
    found = chain.from_iterable(_read(places[number], offsets) for number, offsets in by_file(batches))
    yield from decoder_from(decoding).batches(found)


def by_file(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each file's number, once, with all its offsets: of the rows of :func:`find_winners`."""
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


@dataclass(frozen=True, slots=True)
class _Kept(WithChunk):
    chunk: _kernel.Chunk
    keep: NDArray[np.bool_]
    contents: _kernel.Contents


def _read(place: list[Any], wanted: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    topic, partition, *fields = place
    segment = segment_from(fields)

    def damaged(damage: Damage) -> None:
        if segment.sealed or not (damage.cut or damage.zeros):
            raise CorruptionError(damage.reason, where=str(segment.path), position=damage.position)

    def decode(data: NDArray[np.uint8], position: int) -> _Kept:
        chunk = _kernel.decode_chunk(data, position, verify_crc=False, max_unpacked=worker_batch_bytes())
        offset = chunk.records.offset
        at = np.minimum(np.searchsorted(wanted, offset), len(wanted) - 1)
        keep = wanted[at] == offset
        whole = data[: chunk.consumed]
        contents = _kernel.read_contents(whole, position, keep, verify_crc=False, max_unpacked=worker_batch_bytes())
        return _Kept(chunk, keep, contents)

    found = 0
    for _, kept in walk(segment.path, segment.size_bytes, decode, damaged):
        rows = int(kept.keep.sum())
        if rows:
            found += rows
            yield _rows(topic, partition, kept, rows)
    if found != len(wanted):
        raise CorruptionError(
            f"the segment changed while it was read: {found} of {len(wanted)} records are there",
            where=str(segment.path),
            hint="stop the broker, or take the snapshot of a copy",
        )


def _rows(topic: str, partition: int, kept: _Kept, rows: int) -> pa.RecordBatch:
    records, contents = kept.chunk.records, kept.contents
    columns = [
        pa.array([topic], pa.string()).take(pa.array(np.zeros(rows, np.int8))),
        pa.array(np.full(rows, partition, np.int32)),
        pa.array(records.offset[kept.keep]),
        time_column(records.timestamp[kept.keep]),
        bytes_column(pa.binary(), contents.key_offsets, contents.key_data, contents.key_null),
        bytes_column(pa.binary(), contents.value_offsets, contents.value_data, contents.value_null),
        headers_column(pa.list_(_HEADER), contents, none_is_null=False),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=STATE)
