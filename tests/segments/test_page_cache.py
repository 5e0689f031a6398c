"""A cleaning leaves the page cache unchanged: files that were not cached are dropped, cached ones stay."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from cleanerd.segments.page_cache import KEPT_BYTES, WORTH_DROPPING_BYTES, DropBehind, cold_segments, drop
from cleanerd.segments.reading import SegmentReader
from cleanerd.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sized
    from pathlib import Path

SIZE = 2 * WORTH_DROPPING_BYTES


@dataclass(frozen=True, slots=True)
class Read:
    """A chunk that used all bytes."""

    consumed: int
    needed: int = 0


def whole(data: Sized, _position: int) -> Read:
    return Read(len(data))


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


@pytest.mark.parametrize(("kept_bytes", "cold"), [(0, [True, False]), (SIZE, [False, False])])
def test_what_was_read_of_a_cold_segment_is_dropped(tmp_path: Path, kept_bytes: int, cold: list[bool]) -> None:
    """While it is read, from ``kept_bytes`` on; a segment that was cached before stays."""
    segments = [segment(tmp_path, base, SIZE) for base in (0, 5)]
    evict(tmp_path, segments[0])
    if cold_segments(tmp_path, segments) != segments[:1]:
        pytest.skip("this file system does not report it, or is in memory")
    for _ in range(10):  # as above
        evict(tmp_path, segments[0])
        (tmp_path / f"{5:020d}.log").read_bytes()
        behind = DropBehind(kept_bytes)
        for each in segments:
            with (tmp_path / f"{each.base:020d}.log").open("rb", buffering=0) as file:
                for start in range(0, SIZE, 1_000_001):
                    data = file.read(1_000_001)
                    behind.passed(file.fileno(), each, start, start + len(data))
        seen = [each in cold_segments(tmp_path, segments) for each in segments]
        if seen == cold:
            break
    assert seen == cold


@pytest.mark.slow
def test_a_reader_drops_what_it_has_read_of_a_large_cold_segment(tmp_path: Path) -> None:
    """All but the first part stays uncached."""
    file = tmp_path / f"{0:020d}.log"
    with file.open("wb") as out:
        for _ in range(3):
            out.write(bytes(KEPT_BYTES))
        os.fsync(out.fileno())
    found = Segment.from_stat(0, file.stat(), frozenset())
    evict(tmp_path, found)
    if cold_segments(tmp_path, [found]) != [found]:
        pytest.skip("this file system does not report it, or is in memory")
    with SegmentReader.open(str(tmp_path)) as reader:
        assert sum(chunk.consumed for chunk in reader.chunks(found, whole)) == found.size_bytes
    assert cold_segments(tmp_path, [found]) == [found]


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
