"""The latest state of topics under their strategies, as Parquet: what a table of ``key -> value`` would hold.

Winners are found by offset alone; keys, values and headers cross into the JVM only for them, as Arrow columns that the
kernel lays out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from cleanerd import _kernel
from cleanerd.errors import CorruptionError
from cleanerd.spark.audit import new_digest_key
from cleanerd.spark.header_walk import walk_headers
from cleanerd.spark.logs import size_of_all, work_on
from cleanerd.spark.record_scan import COLUMNS, FACTS, SCHEMA, Fact, scan, segment_from
from cleanerd.spark.spread import nobody, queries, spread, tasks_for
from cleanerd.verify.segment import MAX_UNPACKED_BYTES
from cleanerd.verify.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.logs import Log
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
    ("timestamp", pa.int64()),
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", pa.list_(_HEADER)),
])  # fmt: skip
STATE_COLUMNS: Final = (
    "topic string, partition int, offset long, timestamp long, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)


@dataclass(frozen=True, slots=True)
class Taken:
    """What was written of a partition: ``keys`` records, as of ``end_offset`` (exclusive)."""

    name: TopicPartition
    strategy: str
    log_start: int
    end_offset: int
    keys: int


def write_snapshot(
    session: SparkSession,
    logs: Sequence[Log],
    target: str,
    *,
    tombstones: bool = False,
    advance: Callable[[int], None] = nobody,
) -> list[Taken]:
    """Write the latest state of ``logs`` to the new directory ``target``, a sub-directory a topic.

    ``tombstones``: deleted keys too, by the record that deletes them.

    Raises:
        CorruptionError: a log has bytes that cannot be read: its state is not known.
        CleanerdError: a file cannot be read.
    """
    with queries(session, size_of_all(logs), advance):
        walks = walk_headers(session, [log.segments for log in logs])
        damaged = [text for walked in walks for text in walked.damaged]
        if damaged:
            raise CorruptionError(damaged[0], where="snapshot", hint=f"{len(damaged)} such places; cleanerd verify")
        state = latest_state(session, logs, [walked.hidden for walked in walks], tombstones=tombstones)
        state.write.mode("error").partitionBy("topic").parquet(target)
        rows = session.read.parquet(target).groupBy("topic", "partition").count().collect()
    counts = {(row["topic"], row["partition"]): row["count"] for row in rows}
    return [
        Taken(
            log.name,
            log.rules.strategy,
            max(log.log_start, log.segments[0].base),
            walked.end_offset,
            counts.get((log.name.topic, log.name.partition), 0),
        )
        for log, walked in zip(logs, walks, strict=True)
    ]


def latest_state(
    session: SparkSession, logs: Sequence[Log], hidden: Sequence[list[list[int]]], *, tombstones: bool = False
) -> DataFrame:
    """The rows of the snapshot; ``hidden`` is what is not committed in each of ``logs``."""
    files, items = work_on(logs, hidden, new_digest_key(), strict=True)
    records = spread(session, items, scan, SCHEMA, COLUMNS)
    counts = int(Fact.VISIBLE | Fact.HAS_KEY)
    winners = session.sql(_WINNERS, records=records, COUNTS=counts, tombstones=tombstones, **FACTS)
    tasks = max(1, tasks_for(session, [file.size_bytes for file in files]))
    names = {item["file"]: logs[item["part"]].name for _, item in items}
    places = [_place(file, names[number]) for number, file in enumerate(files)]
    placed = winners.repartitionById(tasks, winners["file"] % tasks).sortWithinPartitions("file", "offset")
    return placed.mapInArrow(partial(read_winners, places), STATE_COLUMNS)


def _place(file: SegmentFile, name: TopicPartition) -> list[Any]:
    return [name.topic, name.partition, str(file.path), file.base, file.end, file.size_bytes, file.sealed]


def read_winners(places: Sequence[list[Any]], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The records whose file and offset come in, sorted by both; ``places``: topic, partition and segment by file.

    Raises:
        CorruptionError: a segment is not what it was when its winners were found.
    """
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
                    yield from _read(places[number], np.concatenate(parts))
                number, parts = int(files[start]), []
            parts.append(offsets[start:end])
    if parts:
        yield from _read(places[number], np.concatenate(parts))


@dataclass(frozen=True, slots=True)
class _Kept:
    chunk: _kernel.Chunk
    keep: NDArray[np.bool_]
    contents: _kernel.Contents

    @property
    def consumed(self) -> int:
        return self.chunk.consumed

    @property
    def needed(self) -> int:
        return self.chunk.needed


def _read(place: list[Any], wanted: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    topic, partition, *fields = place
    segment = segment_from(fields)

    def damaged(damage: Damage) -> None:
        if segment.sealed or not (damage.cut or damage.zeros):
            raise CorruptionError(damage.reason, where=str(segment.path), position=damage.position)

    def decode(data: NDArray[np.uint8], position: int) -> _Kept:
        chunk = _kernel.decode_chunk(data, position, verify_crc=False, max_unpacked=MAX_UNPACKED_BYTES)
        offset = chunk.records.offset
        at = np.minimum(np.searchsorted(wanted, offset), len(wanted) - 1)
        keep = wanted[at] == offset
        whole = data[: chunk.consumed]
        contents = _kernel.read_contents(whole, position, keep, verify_crc=False, max_unpacked=MAX_UNPACKED_BYTES)
        return _Kept(chunk, keep, contents)

    found = 0
    for _, kept in walk(segment.path, segment.size_bytes, decode, damaged):
        rows = int(kept.keep.sum())
        if rows:
            found += rows
            yield _rows(topic, partition, kept, rows)
    if found != len(wanted):
        raise CorruptionError(
            f"{len(wanted)} records were wanted, {found} are there: it was changed meanwhile",
            where=str(segment.path),
            hint="stop the broker, or take the snapshot of a copy",
        )


def _rows(topic: str, partition: int, kept: _Kept, rows: int) -> pa.RecordBatch:
    records, contents = kept.chunk.records, kept.contents
    names = _column(pa.string(), contents.header_name_offsets, contents.header_name_data, None)
    values = _column(pa.binary(), contents.header_value_offsets, contents.header_value_data, contents.header_value_null)
    headers = pa.StructArray.from_arrays([_valid(names), values], fields=list(_HEADER))
    columns = [
        pa.array([topic], pa.string()).take(pa.array(np.zeros(rows, np.int8))),
        pa.array(np.full(rows, partition, np.int32)),
        pa.array(records.offset[kept.keep]),
        pa.array(records.timestamp[kept.keep]),
        _column(pa.binary(), contents.key_offsets, contents.key_data, contents.key_null),
        _column(pa.binary(), contents.value_offsets, contents.value_data, contents.value_null),
        pa.ListArray.from_arrays(pa.array(contents.first_header), headers),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=STATE)


def _column(
    kind: pa.DataType, offsets: NDArray[np.int32], data: NDArray[np.uint8], null: NDArray[np.bool_] | None
) -> pa.Array:
    """The kernel's column as Arrow's, nothing copied but the nulls."""
    valid = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(offsets) - 1, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def _valid(names: pa.Array) -> pa.Array:
    """Header names; what is no UTF-8 in them becomes U+FFFD, as Kafka's clients read it."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = names.cast(pa.binary()) if names.type == pa.binary() else names.view(pa.binary())
        return pa.array([name.decode("utf-8", "replace") for name in raw.to_pylist()], pa.string())
    return names
