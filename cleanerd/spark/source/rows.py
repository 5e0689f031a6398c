"""Converts the kernel's columns to Arrow, without objects per record and with few copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from cleanerd import _kernel
from cleanerd.format.batch import TIMESTAMP_TYPE, TRANSACTIONAL
from cleanerd.host.memory import worker_batch_bytes
from cleanerd.humanize import as_utf8
from cleanerd.segments.chunks import ChunkResult
from cleanerd.spark.source.columns import HEADERS
from cleanerd.spark.source.visible import control_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from cleanerd.spark.source.plan import LogRange
    from cleanerd.verify.listing import SegmentFile

_LATEST_MS: Final = (2**63 - 1) // 1000
"""Spark counts microseconds."""
_MAX_INT32: Final = 2**31 - 1
_OF_CONTENTS: Final = frozenset({"key", "value", HEADERS})


@dataclass(frozen=True, slots=True)
class DecodedBatches(ChunkResult):
    """Whole batches with their records. ``data``: their bytes, valid until the reader's next step."""

    chunk: _kernel.Chunk
    data: NDArray[np.uint8]
    position: int


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The selected records of a chunk: ``keep`` [n]. ``hidden`` [b]: uncommitted batches, None: none."""

    decoded: DecodedBatches
    keep: NDArray[np.bool_]
    hidden: NDArray[np.bool_] | None
    reach: LogRange
    segment: SegmentFile

    @property
    def is_all(self) -> bool:
        """Whether every record is selected."""
        return bool(self.keep.all())

    def of_records(self, column: NDArray[Any]) -> NDArray[Any]:
        """[kept] of a column [n]."""
        return column if self.is_all else column[self.keep]

    def of_batches(self, column: NDArray[Any]) -> NDArray[Any]:
        """[kept] of a column [b]."""
        return self.of_records(by_record(self.decoded.chunk.batches, column))

    def is_old(self) -> NDArray[np.bool_]:
        """[n]: the record has format v0 or v1."""
        return by_record(self.decoded.chunk.batches, self.decoded.chunk.batches.magic < 2)


def by_record(batches: _kernel.Batches, column: NDArray[Any]) -> NDArray[Any]:
    """[n] of a column [b]."""
    first = batches.first_record.astype(np.int64)
    return np.repeat(column, first[1:] - first[:-1])


def to_arrow(rows: SourceRows, schema: pa.Schema) -> pa.RecordBatch:
    """The rows as a batch of ``schema``, whose names are those of ``columns.py``."""
    count = int(rows.keep.sum())
    contents = _contents(rows) if _OF_CONTENTS & set(schema.names) else {}
    arrays = []
    for field in schema:
        if field.name in contents:
            arrays.append(contents[field.name](field.type))
        else:
            found = _COLUMNS[field.name](rows)
            is_array = isinstance(found, (pa.Array, np.ndarray))
            found = found if is_array else pa.repeat(pa.scalar(found, field.type), count)
            arrays.append(found if isinstance(found, pa.Array) else pa.array(found, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def damage_row(schema: pa.Schema, reach: LogRange, segment: SegmentFile, position: int, reason: str) -> pa.RecordBatch:
    """The row for unreadable bytes; all record columns are null."""
    known = {
        "topic": reach.name.topic, "partition": reach.name.partition, "segment": as_utf8(str(segment.path)),
        "position": position, "damaged": reason,
    }  # fmt: skip
    return pa.RecordBatch.from_arrays(
        [pa.array([known.get(field.name)], field.type) for field in schema], schema=schema
    )


def _contents(rows: SourceRows) -> dict[str, Callable[[pa.DataType], pa.Array]]:
    found = _kernel.read_contents(
        rows.decoded.data, rows.decoded.position, rows.keep, verify_crc=False, max_unpacked=worker_batch_bytes()
    )
    return {
        "key": lambda kind: bytes_column(kind, found.key_offsets, found.key_data, found.key_null),
        "value": lambda kind: bytes_column(kind, found.value_offsets, found.value_data, found.value_null),
        HEADERS: lambda kind: headers_column(kind, found),
    }


def headers_column(kind: pa.DataType, found: _kernel.Contents, *, none_is_null: bool = True) -> pa.Array:
    """Lists of name and value; without headers null, as in Spark's own source, or an empty list."""
    names = bytes_column(pa.string(), found.header_name_offsets, found.header_name_data, None)
    values = bytes_column(pa.binary(), found.header_value_offsets, found.header_value_data, found.header_value_null)
    pairs = pa.StructArray.from_arrays([_valid(names), values], fields=list(kind.value_type))
    first = found.first_header
    null = first[1:] == first[:-1] if none_is_null else None
    buffers = [_validity(null), pa.py_buffer(first)]
    return pa.Array.from_buffers(kind, len(first) - 1, buffers, children=[pairs])


def bytes_column(
    kind: pa.DataType, offsets: NDArray[np.int32], data: NDArray[np.uint8], null: NDArray[np.bool_] | None
) -> pa.Array:
    """The kernel's column as Arrow's; only the nulls are copied."""
    return pa.Array.from_buffers(kind, len(offsets) - 1, [_validity(null), pa.py_buffer(offsets), pa.py_buffer(data)])


def _validity(null: NDArray[np.bool_] | None) -> pa.Buffer | None:
    if null is None or not null.any():
        return None
    return pa.py_buffer(np.packbits(~null, bitorder="little"))


def _valid(names: pa.Array) -> pa.Array:
    """Header names; invalid UTF-8 becomes U+FFFD, as in Kafka's clients."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = names.view(pa.binary())
        return pa.array([name.decode("utf-8", "replace") for name in raw.to_pylist()], pa.string())
    return names


def time_column(timestamp_ms: NDArray[np.int64]) -> pa.Array:
    """Spark's timestamps; null if a record has none (-1), or one outside of Spark's range."""
    known = (timestamp_ms >= 0) & (timestamp_ms <= _LATEST_MS)
    kind = pa.timestamp("us", tz="UTC")
    if known.all():
        return pa.array(timestamp_ms * 1000).view(kind)
    return pa.array(np.where(known, timestamp_ms, 0) * 1000, mask=~known).view(kind)


def _timestamp_type(rows: SourceRows) -> object:
    batches = rows.decoded.chunk.batches
    kinds = np.where(batches.magic == 0, -1, ((batches.attributes & TIMESTAMP_TYPE) != 0).astype(np.int32))
    return int(kinds[0]) if (kinds == kinds[0]).all() else rows.of_batches(kinds.astype(np.int32))


def _sequence(rows: SourceRows) -> NDArray[np.int32]:
    """As in Kafka: the batch's sequence plus the index, wrapping after 2^31-1 to 0."""
    batches, records = rows.decoded.chunk.batches, rows.decoded.chunk.records
    base = rows.of_batches(batches.base_sequence).astype(np.int64)
    delta = rows.of_records(records.offset) - rows.of_batches(batches.base_offset)
    return np.where(base < 0, -1, (base + delta) & _MAX_INT32).astype(np.int32)


def _is_tombstone(rows: SourceRows) -> NDArray[np.bool_]:
    return rows.of_records(rows.reach.rules.tombstones(rows.decoded.chunk.records.flags, rows.is_old()))


def _version(rows: SourceRows) -> pa.Array:
    version, present = rows.reach.rules.versions(rows.decoded.chunk.records)
    return pa.array(rows.of_records(version), mask=~rows.of_records(present))


def is_visible(rows: SourceRows) -> NDArray[np.bool_]:
    """[kept]: a consumer of committed records gets it."""
    batches = rows.decoded.chunk.batches
    seen = ~control_batches(batches)
    if rows.hidden is not None:
        seen &= ~rows.hidden
    offset = rows.of_records(rows.decoded.chunk.records.offset)
    end = min(rows.reach.stable, rows.reach.acknowledged)
    visible: NDArray[np.bool_] = (offset >= rows.reach.log_start) & (offset < end) & rows.of_batches(seen)
    return visible


def _batch(name: str, kind: type[np.generic]) -> Callable[[SourceRows], object]:
    return lambda rows: rows.of_batches(getattr(rows.decoded.chunk.batches, name)).astype(kind)


_COLUMNS: Final[dict[str, Callable[[SourceRows], object]]] = {
    "topic": lambda rows: rows.reach.name.topic,
    "partition": lambda rows: rows.reach.name.partition,
    "offset": lambda rows: rows.of_records(rows.decoded.chunk.records.offset),
    "timestamp": lambda rows: time_column(rows.of_records(rows.decoded.chunk.records.timestamp)),
    "timestampType": _timestamp_type,
    "leader_epoch": _batch("leader_epoch", np.int32),
    "producer_id": _batch("producer_id", np.int64),
    "producer_epoch": _batch("producer_epoch", np.int32),
    "sequence": _sequence,
    "transactional": lambda rows: rows.of_batches(
        (rows.decoded.chunk.batches.magic == 2) & ((rows.decoded.chunk.batches.attributes & TRANSACTIONAL) != 0)
    ),
    "control": lambda rows: rows.of_batches(control_batches(rows.decoded.chunk.batches)),
    "is_tombstone": _is_tombstone,
    "version": _version,
    "batch_offset": _batch("base_offset", np.int64),
    "segment": lambda rows: as_utf8(str(rows.segment.path)),
    "position": _batch("position", np.int64),
    "visible": is_visible,
    "in_clean_part": lambda rows: (
        None
        if rows.reach.clean_end is None
        else rows.of_records(rows.decoded.chunk.records.offset) < rows.reach.clean_end
    ),
    "damaged": lambda _rows: None,
}
"""By column: an array [kept], or a value for all rows."""


def without_null_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace null headers by empty lists."""
    at = batch.schema.get_field_index("headers")
    headers = batch.column(at)
    return batch.set_column(at, batch.schema.field(at), pa.ListArray.from_arrays(headers.offsets, headers.values))
