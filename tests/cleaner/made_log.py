"""Logs of any sequence of keys, made fast: a block of records of one length is one NumPy array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cleanerd.format.names import SNAPSHOT_SUFFIX, file_name
from cleanerd.format.snapshot import SNAPSHOT_ENTRY, write_snapshot
from cleanerd_lab.bench.generate import PARTITION, _NewSegment, write_broker_files
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_record, seal

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

KEY_BYTES = 8


@dataclass(frozen=True, slots=True)
class Written:
    """A sequence of records. ``keys`` [n] int64; every batch has ``batch_records`` of them.

    ``value_bytes`` [batches]: of each record's value, -1 for tombstones. ``versions`` [n]: what their header ``v``
    says. ``horizons``: tombstones' batches are past their delete horizon.
    """

    keys: NDArray[np.int64]
    batch_records: int
    value_bytes: NDArray[np.int64]
    versions: NDArray[np.int64] | None = None
    horizons: bool = False


def write_log(path: Path, log: Written, *, segments: int = 6) -> Path:
    """A log directory with ``bench-0`` as a broker leaves it after a clean stop; the last batch is the active one."""
    partition = path / str(PARTITION)
    partition.mkdir(parents=True)
    batches = len(log.value_bytes)
    # The active segment has a batch of its own.
    starts = [*np.linspace(0, batches - 1, segments + 1).astype(int).tolist()[:-1], batches - 1]
    for first, end in zip(starts, [*starts[1:], batches], strict=True):
        segment = _NewSegment(partition, first * log.batch_records)
        for number in range(first, end):
            segment.append(memoryview(_batch(log, number)))
        segment.close()
    end_offset = batches * log.batch_records
    for offset in (starts[-1] * log.batch_records, end_offset):
        (partition / file_name(offset, SNAPSHOT_SUFFIX)).write_bytes(write_snapshot(np.zeros(0, SNAPSHOT_ENTRY)))
    write_broker_files(path, {PARTITION: end_offset})
    return path


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
    batch[:8] = np.frombuffer(int(number * log.batch_records).to_bytes(8, "big"), np.uint8)
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
