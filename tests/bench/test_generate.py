"""The generated logs have the announced properties; otherwise the measurements would be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd import _kernel
from cleanerd.format.index import read_offset_index, read_time_index
from cleanerd.format.record import records_of
from cleanerd.segments.log_dir import read_log_dir
from cleanerd_lab.bench.generate import SHAPES, VERSION_HEADER, LogShape, MadeLog, make_log
from cleanerd_lab.bench.yardstick import segments

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 4 * 1024 * 1024


@pytest.fixture(params=SHAPES, ids=lambda shape: shape.name)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> MadeLog:
    shape: LogShape = request.param
    return make_log(tmp_path / "log", shape, unpacked_bytes=SIZE, segment_bytes=SIZE // 4)


def _chunks(log: MadeLog) -> list[_kernel.Chunk]:
    return [
        _kernel.decode_chunk(np.fromfile(path, np.uint8), 0, hash_key=bytes(16))
        for path in segments(log.partition_dir)[:-1]
    ]


@pytest.mark.long
def test_shape_is_as_announced(log: MadeLog) -> None:
    """The kernel checks CRCs and records; this test checks counts, offsets, and the share of superseded records."""
    chunks = _chunks(log)
    offsets = np.concatenate([chunk.records.offset for chunk in chunks])
    assert np.array_equal(offsets, np.arange(log.records))
    keys = np.concatenate([chunk.records.key_hash for chunk in chunks]).reshape(-1, 2)
    superseded = 1 - len(np.unique(keys, axis=0)) / log.records
    assert superseded == pytest.approx(log.shape.superseded, abs=0.02)
    for chunk in chunks:
        assert set(np.diff(chunk.batches.first_record)) == {log.shape.batch_records}
        assert set(chunk.batches.attributes & 7) == {log.shape.codec}
    flags = np.concatenate([chunk.records.flags for chunk in chunks])
    tombstones = np.count_nonzero((flags & _kernel.FLAG_HAS_VALUE) == 0) / log.records
    assert tombstones == pytest.approx(0.01, abs=0.005)


@pytest.mark.long
def test_bytes_are_as_announced(log: MadeLog) -> None:
    sizes = [path.stat().st_size for path in segments(log.partition_dir)]
    assert sum(sizes[:-1]) == log.log_bytes
    assert all(size <= log.segment_bytes for size in sizes)
    if log.shape.codec == 0:
        assert log.log_bytes == pytest.approx(SIZE, rel=0.01)
    else:
        assert SIZE * 0.3 < log.log_bytes < SIZE * 0.8


@pytest.mark.long
def test_records_read_back_with_the_other_decoder(log: MadeLog) -> None:
    """format/record.py is independent of the kernel's decoder."""
    path = segments(log.partition_dir)[0]
    data = np.fromfile(path, np.uint8)
    size = int(_kernel.scan_headers(data, 0).size[0])
    records = records_of(data[:size].tobytes(), limit_bytes=SIZE)
    assert len(records) == log.shape.batch_records
    for record in records:
        assert record.key is not None
        assert record.key.startswith(b"key-")
        assert len(record.key) == 20
        assert (record.value is None) == bool(record.headers)


def test_indexes_point_at_batches(log: MadeLog) -> None:
    for path in segments(log.partition_dir)[:-1]:
        batches = _kernel.scan_headers(np.fromfile(path, np.uint8), 0)
        base = int(path.stem)
        entries = read_offset_index(path.with_suffix(".index").read_bytes(), "index")
        assert len(entries) >= path.stat().st_size // 16_384
        rows = np.searchsorted(batches.position, entries["position"])
        assert np.array_equal(batches.last_offset[rows], base + entries["relative_offset"])
        times = read_time_index(path.with_suffix(".timeindex").read_bytes(), "timeindex")
        assert int(times["timestamp"][-1]) == int(batches.max_timestamp.max())


@pytest.mark.long
def test_the_same_arguments_give_the_same_bytes(log: MadeLog, tmp_path: Path) -> None:
    again = make_log(tmp_path / "again", log.shape, unpacked_bytes=SIZE, segment_bytes=SIZE // 4)
    for one, other in zip(segments(log.partition_dir), segments(again.partition_dir), strict=True):
        assert one.name == other.name
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.long
def test_it_is_a_log_directory(log: MadeLog) -> None:
    found = read_log_dir(log.log_dir)
    assert found.clean_shutdown
    assert set(found.high_watermarks.values()) == {log.end_offset}


def test_versions(tmp_path: Path) -> None:
    """All but the tombstones have one, each its own; otherwise the shape is the same as without versions."""
    plain = SHAPES[0]
    shape = LogShape(plain.name, plain.label, plain.record_bytes, plain.batch_records, plain.superseded, versions=True)
    log = make_log(tmp_path / "log", shape, unpacked_bytes=SIZE, segment_bytes=SIZE // 4)
    test_bytes_are_as_announced(log)
    for path in segments(log.partition_dir)[:-1]:
        data = np.fromfile(path, np.uint8)
        records = _kernel.decode_chunk(data, 0, version_header=VERSION_HEADER.encode()).records
        has_value = (records.flags & _kernel.FLAG_HAS_VALUE) != 0
        assert ((records.flags & _kernel.FLAG_HAS_VERSION != 0) == has_value).all()
        assert not (records.flags & _kernel.FLAG_BAD_VERSION).any()
        assert len(np.unique(records.version[has_value])) == np.count_nonzero(has_value)
