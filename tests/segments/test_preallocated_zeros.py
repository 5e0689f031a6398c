"""Preallocated space: after the last batch (``preallocate=true``, F-1), and after the entries of an index."""

from __future__ import annotations

import errno
import os
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd import _kernel
from cleanerd.errors import CorruptionError
from cleanerd.format.names import TopicPartition
from cleanerd.segments import reading
from cleanerd.segments.cleanable_range import log_end_offset
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.message_format import glance
from cleanerd.segments.partition import read_partition
from cleanerd.segments.preallocated import only_zeros
from cleanerd.segments.producers import read_producers
from cleanerd.segments.reading import SegmentReader, gathered
from cleanerd.segments.segment import Segment
from tests.segments.metadata_logs import golden, release
from tests.segments.metadata_logs import read as read_metadata
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import encode_batch, keyed_batch
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from pathlib import Path

NAME = f"{0:020d}.log"
BATCHES = tuple(keyed_batch(base, [("a", "x" * 40), ("b", None)]) for base in range(0, 20, 2))
"""each ends with a zero byte: the last record's number of headers"""
WHOLE = b"".join(BATCHES)
OFFSETS = list(range(1, 21, 2))


def segment(path: Path, data: bytes, room_bytes: int = 0, *, is_active: bool = True) -> Segment:
    """A segment with a hole after its data."""
    (path / NAME).write_bytes(data)
    os.truncate(path / NAME, len(data) + room_bytes)
    return Segment.from_stat(0, (path / NAME).stat(), frozenset(), is_active=is_active)


def headers(path: Path, found: Segment, chunk_bytes: int, start: int = 0) -> list[int]:
    with SegmentReader.open(str(path), chunk_bytes=chunk_bytes) as reader:
        return [int(last) for batches in reader.headers(found, start=start) for last in batches.last_offset]


def records(path: Path, found: Segment, chunk_bytes: int) -> list[int]:
    reading = gathered(_kernel.ChunkDecoder, chunk_bytes=chunk_bytes)
    # a reader's pieces are no larger than its chunks
    with SegmentReader.open(str(path), chunk_bytes=max(chunk_bytes // 3, 1)) as reader:
        return [int(offset) for chunk in reading(reader, found, 0) for offset in chunk.records.offset]


@pytest.mark.parametrize("chunk_bytes", [1, 61, 100, len(WHOLE), len(WHOLE) + 1, 1 << 20])
@pytest.mark.parametrize("room_bytes", [1, 11, 16, 17, 60, 4096, 3 << 20])
def test_preallocated_space(tmp_path: Path, chunk_bytes: int, room_bytes: int) -> None:
    """F-1: every batch once, however much space there is, and wherever a chunk or piece of it ends."""
    found = segment(tmp_path, WHOLE, room_bytes)
    assert headers(tmp_path, found, chunk_bytes) == OFFSETS
    assert headers(tmp_path, found, chunk_bytes, start=len(WHOLE) - len(BATCHES[-1])) == OFFSETS[-1:]
    assert headers(tmp_path, found, chunk_bytes, start=len(WHOLE)) == []
    assert records(tmp_path, found, chunk_bytes) == list(range(20))


def test_only_preallocated_space(tmp_path: Path) -> None:
    """A segment that was just rolled."""
    assert headers(tmp_path, segment(tmp_path, b"", 1 << 20), 4096) == []


@pytest.mark.parametrize("room_bytes", [1, 16, 4096])
def test_a_closed_segment_has_no_preallocated_space(tmp_path: Path, room_bytes: int) -> None:
    """F-1: a broker truncates the space when it rolls; zeros there are damage, as for Kafka's recovery."""
    with pytest.raises(CorruptionError) as raised:
        headers(tmp_path, segment(tmp_path, WHOLE, room_bytes, is_active=False), 100)
    assert raised.value.position == len(WHOLE)


@pytest.mark.parametrize("behind", [b"\x01", BATCHES[-1]])
def test_zeros_between_batches(tmp_path: Path, behind: bytes) -> None:
    """Data after zeros shows that data was lost: damage, reported at its beginning."""
    found = segment(tmp_path, WHOLE + b"\x00" * 5000 + behind, 100)
    with pytest.raises(CorruptionError) as raised:
        headers(tmp_path, found, 1 << 20)
    assert raised.value.position == len(WHOLE)


def test_the_broker_appends_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros at the time of reading are batches by the time of the check: not damage, and not the end."""
    found = segment(tmp_path, BATCHES[0], len(WHOLE))
    scans = []

    def late(descriptor: int, start: int, end: int) -> bool:
        if len(scans) < 3:
            with (tmp_path / NAME).open("r+b") as file:
                file.seek(start)
                file.write(BATCHES[len(scans) + 1])
        scans.append(start)
        return only_zeros(descriptor, start, end)

    monkeypatch.setattr(reading, "only_zeros", late)  # the broker appends at this very moment
    assert headers(tmp_path, found, 1 << 20) == OFFSETS[:4]
    assert len(scans) == 4


@pytest.mark.parametrize("knows_holes", [True, False])
def test_only_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows_holes: bool) -> None:
    """Whatever the file system reports about holes."""
    if not knows_holes:

        def seek(_descriptor: int, _position: int, _how: int) -> int:
            raise OSError(errno.EINVAL, "not here")

        system_call(monkeypatch, "lseek", seek)
    path = tmp_path / "file"
    with path.open("w+b") as file:
        file.write(b"x" + b"\x00" * 10_000)
        file.truncate(3 << 20)
        file.flush()
        assert only_zeros(file.fileno(), 1, 3 << 20)
        assert only_zeros(file.fileno(), 1, 9 << 20), "nothing is behind the end"
        assert only_zeros(file.fileno(), 1, 1)
        assert not only_zeros(file.fileno(), 0, 3 << 20)
        file.seek((3 << 20) - 1)
        file.write(b"\x01")
        file.flush()
        assert not only_zeros(file.fileno(), 1, 3 << 20)
        assert only_zeros(file.fileno(), 1, (3 << 20) - 1)


def test_preallocated_space_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment of 1 GiB is preallocated at once: a scan of 2,000 partitions must not read it."""
    found = segment(tmp_path, WHOLE, 1 << 30)
    read_bytes = []
    preadv, pread = os.preadv, os.pread

    def counted(descriptor: int, buffers: list[memoryview], position: int) -> int:
        read_bytes.append(preadv(descriptor, buffers, position))
        return read_bytes[-1]

    def counted_too(descriptor: int, size: int, position: int) -> bytes:
        data = pread(descriptor, size, position)
        read_bytes.append(len(data))
        return data

    system_call(monkeypatch, "preadv", counted)
    system_call(monkeypatch, "pread", counted_too)
    assert headers(tmp_path, found, 1 << 18) == OFFSETS
    assert sum(read_bytes) < 1 << 20


def test_all_readers_of_the_end(tmp_path: Path) -> None:
    """F-1: log end offset, producers, message formats; with and without a clean shutdown."""
    closed = keyed_batch(0, [("a", "1")])
    last = encode_batch([], base_offset=1, producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
    partition = Partition({0: closed, 1: last})
    make_log_dir(tmp_path / "logs", {"orders-0": partition})
    active = tmp_path / "logs" / "orders-0" / f"{1:020d}.log"
    os.truncate(active, 1 << 20)
    log = read_partition(read_log_dir(tmp_path / "logs"), TopicPartition("orders", 0))
    assert [each.is_active for each in log.segments] == [False, True]
    with SegmentReader.open(str(log.path), chunk_bytes=1 << 18) as reader:
        assert glance(log, reader).highest == 2
        for may_be_torn in (False, True):
            assert log_end_offset(log, reader, may_be_torn=may_be_torn) == 2
            found = read_producers(log, reader, torn_from=0 if may_be_torn else None)
            assert (found.end_offset, found.first_open_offset()) == (2, 1)
        closed_too = replace(
            log, segments=(replace(log.segments[0], is_active=False), replace(log.active, is_active=False))
        )
        with pytest.raises(CorruptionError):
            log_end_offset(closed_too, reader)


@release
def test_a_preallocated_index(release: str, tmp_path: Path) -> None:
    """A running broker's index is 10 MiB, nearly all zeros; after an hour, each scan reads it.

    The first producer snapshot causes that. Found by a soak of two hours: 40 MiB more from then on.
    """
    copy = golden(release, tmp_path)
    expected = read_metadata(copy)
    os.truncate(copy / "00000000000000000000.index", 10 << 20)
    tracemalloc.start()
    found = read_metadata(copy)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == expected
    assert taken < 2 << 20
