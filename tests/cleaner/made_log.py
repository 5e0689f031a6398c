"""Logs of any sequence of keys, made fast: a block of records of one length is one NumPy array."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cleanerd.format.batch import TRANSACTIONAL
from cleanerd.format.index import TXN_ENTRY
from cleanerd.format.names import SNAPSHOT_SUFFIX, file_name
from cleanerd_lab.bench.generate import PARTITION, _NewSegment, write_broker_files
from tests.support.log_dirs import Producer, snapshot_bytes
from tests.support.logs import (
    BASE_TIMESTAMP_MS,
    Record,
    encode_batch,
    encode_legacy,
    encode_marker,
    encode_record,
    encode_wrapper,
    seal,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

KEY_BYTES = 8
NOW_MS = 1_800_000_000_000
"""When producers were active last, and the time of the sampling."""


@dataclass(frozen=True, slots=True)
class Written:
    """A sequence of records.

    ``keys`` [n] int64; every batch has ``batch_records`` of them. ``value_bytes`` [batches]: the size of its values, -1
    for tombstones. ``versions`` [n]: the numbers in their header ``v``. ``horizons``: tombstones' batches are past
    their delete horizon. ``aborted`` [batches]: every batch is a transaction, with a marker behind it, and these were
    aborted; of ``producers`` that take turns. ``magic`` 0 and 1: each record is a message of its own, or with a
    ``codec`` each batch a wrapper. ``emptied`` [batches]: only the header is left of it, which an earlier cleaning kept
    for a producer that has expired since.
    """

    keys: NDArray[np.int64]
    batch_records: int
    value_bytes: NDArray[np.int64]
    versions: NDArray[np.int64] | None = None
    horizons: bool = False
    aborted: NDArray[np.bool_] | None = None
    producers: int = 1
    magic: int = 2
    codec: int = 0
    emptied: NDArray[np.bool_] | None = None

    @property
    def offsets_a_batch(self) -> int:
        """The marker has an offset of its own."""
        return self.batch_records + (self.aborted is not None)

    @property
    def end_offset(self) -> int:
        """The log end offset."""
        return len(self.value_bytes) * self.offsets_a_batch


def write_log(path: Path, log: Written, *, segments: int = 6) -> Path:
    """A log directory with ``bench-0`` as a broker leaves it after a clean stop.

    The last batch is in the active segment.
    """
    partition = path / str(PARTITION)
    partition.mkdir(parents=True)
    batches = len(log.value_bytes)
    # The active segment has a batch of its own.
    starts = [*np.linspace(0, batches - 1, segments + 1).astype(int).tolist()[:-1], batches - 1]
    for first, end in zip(starts, [*starts[1:], batches], strict=True):
        segment = _NewSegment(partition, first * log.offsets_a_batch)
        for number in range(first, end):
            segment.append(memoryview(_encoded(log, number)))
        segment.close()
        _write_aborted(partition, log, first, end)
    for batches_before in (starts[-1], batches):
        name = file_name(batches_before * log.offsets_a_batch, SNAPSHOT_SUFFIX)
        (partition / name).write_bytes(snapshot_bytes(_producers(log, batches_before)))
    write_broker_files(path, {PARTITION: log.end_offset})
    return path


def _write_aborted(partition: Path, log: Written, first: int, end: int) -> None:
    """The transaction index of a segment."""
    if log.aborted is None:
        return
    rows = []
    for number in first + np.flatnonzero(log.aborted[first:end]):
        base = int(number) * log.offsets_a_batch
        marker = base + log.batch_records
        rows.append((0, 0, _producer(log, int(number)), base, marker, marker + 1))
    name = file_name(first * log.offsets_a_batch, ".txnindex")
    (partition / name).write_bytes(np.array(rows, dtype=TXN_ENTRY).tobytes())


def _producers(log: Written, batches: int) -> list[Producer]:
    """The producers as a broker knows them after this many batches."""
    if log.aborted is None:
        return []
    last = {_producer(log, number): number for number in range(batches)}
    return [
        Producer(each, number * log.offsets_a_batch + log.batch_records - 1, NOW_MS) for each, number in last.items()
    ]


def _producer(log: Written, number: int) -> int:
    return 1 + number % log.producers


def _encoded(log: Written, number: int) -> bytes:
    """A batch, and its marker if there are transactions."""
    if log.magic < 2:
        return _legacy(log, number)
    if log.emptied is not None and log.emptied[number]:
        return _header(log, number)
    data = _batch(log, number)
    if log.aborted is None:
        return data
    batch = bytearray(data)
    batch[22] |= TRANSACTIONAL
    batch[43:57] = struct.pack(">qhi", _producer(log, number), 0, number * log.batch_records)
    marker = encode_marker(
        number * log.offsets_a_batch + log.batch_records,
        commit=not log.aborted[number],
        producer_id=_producer(log, number),
    )
    return seal(bytes(batch)) + marker


def _header(log: Written, number: int) -> bytes:
    return encode_batch(
        [],
        base_offset=number * log.offsets_a_batch,
        last_offset_delta=log.batch_records - 1,
        producer_id=_producer(log, number),
        producer_epoch=0,
        base_sequence=0,
        max_timestamp=BASE_TIMESTAMP_MS,
    )


def _legacy(log: Written, number: int) -> bytes:
    size = int(log.value_bytes[number])
    first = number * log.batch_records
    keys = log.keys[first : first + log.batch_records].tolist()
    value = None if size < 0 else bytes(size)
    base = 0 if log.codec and log.magic == 1 else first  # inside of a wrapper they are relative
    messages = [
        encode_legacy(base + row, key.to_bytes(KEY_BYTES, "big"), value, magic=log.magic, timestamp=BASE_TIMESTAMP_MS)
        for row, key in enumerate(keys)
    ]
    if not log.codec:
        return b"".join(messages)
    last = first + log.batch_records - 1
    return encode_wrapper(last, b"".join(messages), magic=log.magic, codec=log.codec, timestamp=BASE_TIMESTAMP_MS)


def _batch(log: Written, number: int) -> bytes:
    size = int(log.value_bytes[number])
    rows = slice(number * log.batch_records, (number + 1) * log.batch_records)
    template = _template(log.batch_records, size, versions=log.versions is not None, horizon=log.horizons and size < 0)
    batch = np.frombuffer(template, np.uint8).copy()
    width = (len(batch) - 61) // log.batch_records
    records = batch[61:].reshape(log.batch_records, width)
    at = _key_at(width, size, versions=log.versions is not None)
    records[:, at : at + KEY_BYTES] = log.keys[rows].astype(">i8").view(np.uint8).reshape(-1, KEY_BYTES)
    if log.versions is not None:
        records[:, -8:] = log.versions[rows].astype(">i8").view(np.uint8).reshape(-1, 8)
    batch[:8] = np.frombuffer(int(number * log.offsets_a_batch).to_bytes(8, "big"), np.uint8)
    return seal(batch.tobytes())


_TEMPLATES: dict[tuple[int, int, bool, bool], bytes] = {}


def _template(count: int, size: int, *, versions: bool, horizon: bool) -> bytes:
    known = (count, size, versions, horizon)
    if known not in _TEMPLATES:
        record = _record(size, versions=versions)
        _TEMPLATES[known] = encode_batch([record] * count, delete_horizon=BASE_TIMESTAMP_MS if horizon else None)
    return _TEMPLATES[known]


def _record(size: int, *, versions: bool) -> Record:
    headers = ((b"v", bytes(8)),) if versions else ()
    return Record(b"K" * KEY_BYTES, None if size < 0 else bytes(size), headers=headers)


def _key_at(width: int, size: int, *, versions: bool) -> int:
    record = encode_record(_record(size, versions=versions), offset_delta=0, timestamp_delta=0)
    assert len(record) == width, "a record's length must not depend on its place in the batch"
    return record.index(b"K" * KEY_BYTES)
