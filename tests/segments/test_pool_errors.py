"""Several readers of one partition with errors: damage, changes, limits, an early end."""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd import _kernel
from cleanerd.errors import CleanerdError, CorruptionError, KernelError, SegmentChangedError
from cleanerd.format.index import OFFSET_ENTRY
from cleanerd.fsio.plain_file import open_place
from cleanerd.segments.pool import LEAST_HANDED_OVER_BYTES, ReaderPool, SegmentPart, parts_between
from cleanerd.segments.reading import by_chunk
from tests.segments.pool_log import BATCHES, CHUNK_BYTES, borders, decode_all, in_stretches, listed
from tests.support.now_open import open_descriptors
from tests.support.patience import PATIENCE_SECONDS
from tests.support.system_calls import system_call
from tests.support.thread_limits import no_more_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cleanerd.segments.segment import Segment


def _offsets(pool: ReaderPool, segment: Segment, parts: list[SegmentPart], *, guessed: bool = True) -> list[int]:
    chunks = pool.chunks(segment, parts, lambda _: by_chunk(_kernel.scan_headers), guessed=guessed)
    return [int(offset) for batches in chunks for offset in batches.base_offset]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_zeros_between_batches_are_damage(partition: tuple[str, Segment], workers: int) -> None:
    """Preallocated space is after the last batch: a part of the active segment that ends in zeros is not."""
    path, _ = partition
    log = Path(path) / f"{0:020d}.log"
    size = log.stat().st_size
    with open(log, "r+b") as file:
        data = file.read()
        file.write(bytes(100_000) + data)
    index = Path(path) / f"{0:020d}.index"
    entries = np.frombuffer(index.read_bytes(), OFFSET_ENTRY)
    behind = np.array([(entries["relative_offset"][-1] + 1, size + 100_000)], OFFSET_ENTRY)
    index.write_bytes(np.concatenate([entries, behind], dtype=OFFSET_ENTRY).tobytes())
    segment = replace(listed(path), is_active=True)
    seen: list[int] = []
    with ReaderPool(path, workers=workers, chunk_bytes=CHUNK_BYTES) as pool:
        if workers > 1:
            assert size + 100_000 in [part.start for part in pool.parts(segment, CHUNK_BYTES)]
        with pytest.raises(CorruptionError) as caught:
            decode_all(pool, segment, seen)
    assert caught.value.position == size
    assert seen == list(range(len(seen)))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_a_part_is_checked_once_more_at_its_end(partition: tuple[str, Segment], workers: int, chunks: int) -> None:
    """D-06: written while its last chunk was read, whatever the number of chunks."""
    path, segment = partition
    size = segment.size_bytes // BATCHES
    start = next(at for at in borders(path, segment) if at > segment.size_bytes - chunks * CHUNK_BYTES + size)

    def call(data: NDArray[np.uint8], position: int) -> _kernel.Batches:
        batches = _kernel.scan_headers(data, position)
        if position + batches.consumed == segment.size_bytes:
            time.sleep(0.2)  # the reader of the previous part has reached its end
            os.utime(f"{path}/{segment.base:020d}.log", ns=(1, 1))
        return batches

    before = max(at for at in borders(path, segment) if at < start)
    parts = [SegmentPart(before, start), SegmentPart(start, segment.size_bytes)]
    with ReaderPool(path, workers=workers, chunk_bytes=CHUNK_BYTES) as pool, pytest.raises(SegmentChangedError):
        deque(pool.chunks(segment, parts, lambda _: by_chunk(call)), maxlen=0)


def test_staged_files_are_read_after_the_log(partition: tuple[str, Segment]) -> None:
    """An owner that stopped early may have left workers running, whose buffers the staged files need."""
    path, segment = partition
    begun, go_on = threading.Event(), threading.Event()
    torn: list[bool] = []

    def slow(data: NDArray[np.uint8], position: int) -> _kernel.Batches:
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(PATIENCE_SECONDS)
        elif position > first and not begun.is_set():
            begun.set()
            before = bytes(data)
            assert go_on.wait(PATIENCE_SECONDS)
            torn.append(bytes(data) != before)
        return _kernel.scan_headers(data, position)

    def by_workers(data: NDArray[np.uint8], position: int) -> _kernel.Batches:
        if threading.current_thread() is threading.main_thread():
            time.sleep(0.02)
        return _kernel.scan_headers(data, position)

    with ReaderPool(path, workers=4, chunk_bytes=CHUNK_BYTES) as pool:
        parts = pool.parts(segment, CHUNK_BYTES)
        first = parts[1].start
        chunks = pool.chunks(segment, parts[1:], lambda _: by_chunk(slow))
        next(chunks)
        assert begun.wait(PATIENCE_SECONDS)
        chunks.close()  # type: ignore[attr-defined]  # a generator
        held_up = threading.Timer(0.3, go_on.set)
        held_up.start()
        with pool.for_directory(path, pool.reader.directory) as beside:
            small = parts_between(borders(path, segment), segment.size_bytes, LEAST_HANDED_OVER_BYTES)
            for _ in range(4):
                found = beside.chunks(segment, small, lambda _: by_chunk(by_workers))
                assert sum(batches.consumed for batches in found) == segment.size_bytes
        held_up.join()
    assert torn == [False]


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("wrong", [None, 904])
def test_threads_that_cannot_be_started(
    several: tuple[str, list[Segment]], threads: int, wrong: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of processes only costs time; no part is read twice."""
    path, segments = several
    if wrong is not None:
        os.unlink(f"{path}/{wrong:020d}.index")
    no_more_threads(monkeypatch, "cleanerd-reader", after=threads)
    requests: list[int] = []
    with ReaderPool(path, workers=4, chunk_bytes=16_384) as pool:
        found = [
            [int(offset) for batches in chunks for offset in batches.base_offset]
            for chunks in pool.segments(in_stretches(pool, segments, requests))
        ]
    assert [len(offsets) for offsets in found] == [900, 0, 3, 1500, 40, 0, 700, 0]
    assert requests == [segment.base for segment in segments]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_errors_come_in_the_order_of_the_log(partition: tuple[str, Segment], workers: int) -> None:
    """In any thread, also the owner's, and of any kind: an error far behind damage is not reported first."""
    path, segment = partition
    with ReaderPool(path, workers=workers, chunk_bytes=16_384) as pool:
        size = segment.size_bytes
        parts = parts_between(borders(path, segment), size, 40_000)
        first_bad = parts[2].start

        def call(data: NDArray[np.uint8], position: int) -> _kernel.Batches:
            if position >= parts[3].start:
                raise MemoryError
            if position >= first_bad:
                time.sleep(0.2)
                raise _kernel.InvalidCallError("first")
            return _kernel.scan_headers(data, position)

        with pytest.raises(KernelError, match="first"):
            deque(pool.chunks(segment, parts, lambda _: by_chunk(call)), maxlen=0)


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_pool_that_cannot_be_opened_leaves_no_descriptor(
    partition: tuple[str, Segment], left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EMFILE for one of the readers: those opened before are closed."""
    path, _ = partition
    before = open_descriptors()
    with ReaderPool(path, workers=4, chunk_bytes=CHUNK_BYTES) as pool:
        dup, count = os.dup, itertools.count()

        def limited(descriptor: int) -> int:
            if next(count) == left:
                raise OSError(errno.EMFILE, "Too many open files")
            return dup(descriptor)

        # a real descriptor limit could affect any other open
        system_call(monkeypatch, "dup", limited)
        with pytest.raises(OSError, match="Too many"), pool.for_directory(path, pool.reader.directory):
            pass
    places = itertools.count()

    def few(path: str) -> int:
        if next(places) == left:
            raise OSError(errno.EMFILE, "Too many open files")
        return open_place(path)

    monkeypatch.setattr("cleanerd.segments.reading.open_place", few)  # like os.dup above
    with pytest.raises(CleanerdError, match="Too many"):
        ReaderPool(path, workers=4, chunk_bytes=CHUNK_BYTES)
    assert open_descriptors() <= before
