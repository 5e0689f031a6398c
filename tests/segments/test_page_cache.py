"""A cleaning leaves the page cache unchanged: files that were not cached are dropped, cached ones stay (U-97)."""

from __future__ import annotations

import ctypes
import errno
import itertools
import mmap
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from cleanerd.segments import blocks
from cleanerd.segments.page_cache import cold_segments, drop
from cleanerd.segments.reading import WORTH_READING_AHEAD_BYTES, SegmentReader
from cleanerd.segments.segment import Segment
from tests.support.thread_limits import no_background_threads

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

SIZE = 4 * WORTH_READING_AHEAD_BYTES
NEAR = 0.2  # the kernel reads ahead


@dataclass(frozen=True, slots=True)
class Read:
    """A chunk that used all bytes."""

    consumed: int
    needed: int = 0


def segment(path: Path, base: int, size: int = 1 << 20) -> Segment:
    file = path / f"{base:020d}.log"
    with file.open("wb") as out:
        out.write(os.urandom(size))
        os.fsync(out.fileno())
    return Segment.from_stat(base, file.stat(), frozenset())


def evict(path: Path, found: Segment) -> None:
    descriptor = os.open(path / f"{found.base:020d}.log", os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def cached_share(path: Path, found: Segment) -> float:
    """Of the file's pages. The question itself loads none."""
    with (path / f"{found.base:020d}.log").open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    pages = ctypes.create_string_buffer(-(-len(memory) // mmap.PAGESIZE))
    start = ctypes.c_char.from_buffer(memory)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(memory)), pages) == 0
    return sum(page & 1 for page in pages.raw) / len(pages)


def test_cold_ones_are_dropped_and_warm_ones_stay(tmp_path: Path) -> None:
    """Page-cache friendly."""
    cold, warm = segment(tmp_path, 0), segment(tmp_path, 5)
    evict(tmp_path, cold)
    found = cold_segments(tmp_path, [cold, warm])
    if found != [cold]:
        pytest.skip("this file system does not report it, or is in memory")
    # A kernel short of memory, or a page in use, sometimes gives another answer.
    right = {"all are read": [], "dropped": [cold]}
    seen = {}
    for _ in range(10):
        for each in (cold, warm):
            (tmp_path / f"{each.base:020d}.log").read_bytes()
        seen = {"all are read": cold_segments(tmp_path, [cold, warm])}
        drop(tmp_path, found)
        seen["dropped"] = cold_segments(tmp_path, [cold, warm])
        if seen == right:
            break
    assert seen == right


@pytest.mark.slow
@pytest.mark.parametrize("cached_bytes", [0, SIZE // 2, SIZE])
def test_a_reader_leaves_a_cold_segment_uncached(tmp_path: Path, cached_bytes: int) -> None:
    """U-97: except for the bytes that it may read through the page cache; it reads the same bytes either way."""
    found = segment(tmp_path, 0, SIZE)
    evict(tmp_path, found)
    if cold_segments(tmp_path, [found]) != [found]:
        pytest.skip("this file system does not report it, or is in memory")
    content = zlib.crc32((tmp_path / f"{0:020d}.log").read_bytes())
    read = 0

    def checksum(data: NDArray[np.uint8], _position: int) -> Read:
        nonlocal read
        read = zlib.crc32(data, read)
        return Read(len(data))

    for _ in range(10):  # as above
        evict(tmp_path, found)
        read = 0
        with SegmentReader.open(str(tmp_path), chunk_bytes=1_000_001, cached_bytes=cached_bytes) as reader:
            assert sum(chunk.consumed for chunk in reader.chunks(found, checksum)) == SIZE
        assert read == content
        cached = cached_share(tmp_path, found)
        if abs(cached - cached_bytes / SIZE) < NEAR:
            break
    assert abs(cached - cached_bytes / SIZE) < NEAR


@pytest.mark.parametrize("lacks", ["threads", "memory"])
def test_a_reader_that_cannot_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    """At a limit of threads or memory it reads all bytes without a thread."""
    found = segment(tmp_path, 0, WORTH_READING_AHEAD_BYTES + 1)
    evict(tmp_path, found)
    if lacks == "threads":
        no_background_threads(monkeypatch)
    else:
        real, calls = mmap.mmap, itertools.count()

        def no_memory(descriptor: int, size: int) -> mmap.mmap:
            if next(calls) == 1:
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            return real(descriptor, size)

        monkeypatch.setattr(blocks.mmap, "mmap", no_memory)  # a machine's memory does not end on demand
    read = bytearray()

    def collect(data: NDArray[np.uint8], _position: int) -> Read:
        read.extend(data.data)
        return Read(len(data))

    with SegmentReader.open(str(tmp_path), cached_bytes=0) as reader:
        list(reader.chunks(found, collect))
    assert read == (tmp_path / f"{0:020d}.log").read_bytes()


def test_a_small_log_is_not_queried(tmp_path: Path) -> None:
    """Two opened files and their queries cost more than four pages are worth; from 16 KiB on it is done."""
    below = [segment(tmp_path, 0, 8192), segment(tmp_path, 5, 8191)]
    assert cold_segments(tmp_path, below, lambda *_: True) == []
    at_it = [below[0], segment(tmp_path, 7, 8192)]
    assert cold_segments(tmp_path, at_it, lambda *_: True) == at_it


def test_removed_or_changed_files_are_ignored(tmp_path: Path) -> None:
    removed, other = segment(tmp_path, 0), segment(tmp_path, 5)
    (tmp_path / f"{0:020d}.log").unlink()
    (tmp_path / f"{5:020d}.log").rename(tmp_path / "kept")
    segment(tmp_path, 5)
    drop(tmp_path, [removed, other])
    assert cold_segments(tmp_path, [removed]) == []
