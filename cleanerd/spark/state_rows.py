"""Rows of the latest state: the winners of a segment, read a second time with keys and values.

Arrow columns as the kernel lays them out, without objects per record.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from cleanerd import _kernel
from cleanerd.errors import CorruptionError
from cleanerd.host.memory import worker_batch_bytes
from cleanerd.segments.chunks import ChunkResult
from cleanerd.spark.latest_by_tasks import by_file
from cleanerd.spark.source.rows import bytes_column, headers_column, time_column
from cleanerd.spark.values.decoding import BatchDecoder, Decoding
from cleanerd.verify.walk import Damage, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd.format.names import TopicPartition
    from cleanerd.verify.listing import SegmentFile

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


def read_winners(
    places: Sequence[tuple[TopicPartition, SegmentFile]], decoding: Decoding | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The records with the given file and offset, sorted by both; ``places``: partition and segment by file.

    Raises:
        CorruptionError: a segment has changed since its winners were found; or more is undecodable than allowed.
    """
    found = chain.from_iterable(rows_at(*places[number], offsets) for number, offsets in by_file(batches))
    yield from BatchDecoder(decoding).batches(found)


@dataclass(frozen=True, slots=True)
class _RetainedRows(ChunkResult):
    chunk: _kernel.Chunk
    keep: NDArray[np.bool_]
    contents: _kernel.Contents


def rows_at(name: TopicPartition, segment: SegmentFile, wanted: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """The records at the offsets ``wanted`` [n], ascending, of ``segment``: rows of STATE.

    Raises:
        CorruptionError: it has changed since its winners were found.
        CleanerdError: it cannot be read.
    """

    def damaged(damage: Damage) -> None:
        if segment.sealed or not (damage.cut or damage.zeros):
            raise CorruptionError(damage.reason, where=str(segment.path), position=damage.position)

    def decode(data: NDArray[np.uint8], position: int) -> _RetainedRows:
        chunk = _kernel.decode_chunk(data, position, verify_crc=False, max_unpacked=worker_batch_bytes())
        offset = chunk.records.offset
        at = np.minimum(np.searchsorted(wanted, offset), len(wanted) - 1)
        keep = wanted[at] == offset
        whole = data[: chunk.consumed]
        contents = _kernel.read_contents(whole, position, keep, verify_crc=False, max_unpacked=worker_batch_bytes())
        return _RetainedRows(chunk, keep, contents)

    found = 0
    for _, kept in walk(segment.path, segment.size_bytes, decode, damaged):
        rows = int(kept.keep.sum())
        if rows:
            found += rows
            yield _rows(name, kept, rows)
    if found != len(wanted):
        raise CorruptionError(
            f"the segment changed while it was read: {found} of {len(wanted)} records are there",
            where=str(segment.path),
            hint="stop the broker, or take the snapshot of a copy",
        )


def _rows(name: TopicPartition, kept: _RetainedRows, rows: int) -> pa.RecordBatch:
    records, contents = kept.chunk.records, kept.contents
    columns = [
        pa.array([name.topic], pa.string()).take(pa.array(np.zeros(rows, np.int8))),
        pa.array(np.full(rows, name.partition, np.int32)),
        pa.array(records.offset[kept.keep]),
        time_column(records.timestamp[kept.keep]),
        bytes_column(pa.binary(), contents.key_offsets, contents.key_data, contents.key_null),
        bytes_column(pa.binary(), contents.value_offsets, contents.value_data, contents.value_null),
        headers_column(pa.list_(_HEADER), contents, none_is_null=False),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=STATE)
