"""Several readers of one partition: order, wrong guesses, damage, and closing."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd import _kernel
from cleanerd.errors import CorruptionError
from cleanerd.format.index import OFFSET_ENTRY
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.segments.pool import ReaderPool, SegmentPart, SegmentRange
from cleanerd.segments.reading import by_chunk, gathered
from tests.segments.pool_log import BATCHES, CHUNK_BYTES, decode_all, in_stretches, listed
from tests.support.now_open import open_descriptors
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cleanerd.segments.segment import Segment


def _offsets(pool: ReaderPool, segment: Segment, parts: list[SegmentPart], *, guessed: bool = True) -> list[int]:
    chunks = pool.chunks(segment, parts, lambda _: by_chunk(_kernel.scan_headers), guessed=guessed)
    return [int(offset) for batches in chunks for offset in batches.base_offset]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_file_order(partition: tuple[str, Segment], workers: int) -> None:
    """Whatever the number of workers, the owner sees the log from its beginning to its end."""
    path, segment = partition
    with ReaderPool(path, workers=workers, chunk_bytes=CHUNK_BYTES) as pool:
        parts = pool.parts(segment, CHUNK_BYTES)
        assert len(parts) == 1 if workers == 1 else len(parts) > 3
        assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]]
        assert _offsets(pool, segment, parts) == list(range(BATCHES))


def test_work_is_done_once_per_part(partition: tuple[str, Segment]) -> None:
    """Work per chunk is not repeated for the few batches by which a part is longer than a chunk."""
    path, segment = partition
    with ReaderPool(path, workers=2, chunk_bytes=CHUNK_BYTES) as pool:
        parts = pool.parts(segment, 2 * CHUNK_BYTES)
        reading = gathered(_kernel.ChunkDecoder, chunk_bytes=2 * CHUNK_BYTES)
        chunks = list(pool.chunks(segment, parts, lambda _: reading, guessed=True))
        assert [chunk.consumed for chunk in chunks] == [part.end - part.start for part in parts]
        small = pool.parts(segment, CHUNK_BYTES)
        headers = list(pool.chunks(segment, small, lambda _: by_chunk(_kernel.scan_headers)))
        assert [batches.consumed for batches in headers] == [part.end - part.start for part in small]


@given(
    steps=st.lists(st.integers(1, 400), max_size=60),
    end=st.integers(0, 8000),
    least=st.integers(1, 500),
    more=st.integers(0, 1500),
    workers=st.integers(2, 5),
    behind=st.sampled_from([0, 0, 700, 100_000]),
)
def test_large_parts_first(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[int],
    end: int,
    least: int,
    more: int,
    workers: int,
    behind: int,
) -> None:
    """Parts are consecutive, begin at allowed places, and are as large as allowed.

    The last ones give all workers work.
    """
    positions = np.cumsum(steps, dtype=np.int64)
    most = least + more
    with ReaderPool(str(tmp_path_factory.getbasetemp()), workers=workers, chunk_bytes=CHUNK_BYTES) as pool:
        parts = pool.shared_out(positions, end, least, most, behind)
    assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == end
    borders = {int(position) for position in positions if position < end}
    for part in parts:
        left = end - part.start + behind
        wanted = min(max(left // workers, least), most)
        assert part.start in borders | {0}
        within = [border for border in borders | {end} if part.start < border <= part.start + wanted]
        beyond = [border for border in borders | {end} if border > part.start + wanted]
        assert part.end == (max(within) if within else min(beyond, default=0))


def test_owner_works_while_it_waits(partition: tuple[str, Segment]) -> None:
    """The first part is delayed until its requester has read another one; the order stays."""
    path, segment = partition
    owner_worked = threading.Event()
    threads = set()

    def call(data: NDArray[np.uint8], position: int) -> _kernel.Batches:
        threads.add(threading.current_thread())
        if threading.current_thread() is threading.main_thread():
            owner_worked.set()
        else:
            assert owner_worked.wait(PATIENCE_SECONDS)
        return _kernel.scan_headers(data, position)

    with ReaderPool(path, workers=2, chunk_bytes=CHUNK_BYTES) as pool:
        chunks = pool.chunks(segment, pool.parts(segment, CHUNK_BYTES), lambda _: by_chunk(call))
        assert [int(offset) for batches in chunks for offset in batches.base_offset] == list(range(BATCHES))
    assert owner_worked.is_set()
    assert len(threads) <= 2, "the requested number of threads"


def test_a_wrong_guess_is_corrected(partition: tuple[str, Segment]) -> None:
    """An index that points into batches costs the workers' help, not the result."""
    path, segment = partition
    with ReaderPool(path, workers=3, chunk_bytes=CHUNK_BYTES) as pool:
        good = pool.parts(segment, CHUNK_BYTES)
        edges = [good[0].end, good[1].end + 5, good[2].end]
        wrong = [
            SegmentPart(start, end)
            for start, end in zip([0, *edges], [*edges, segment.size_bytes], strict=True)
        ]  # fmt: skip
        assert _offsets(pool, segment, wrong) == list(range(BATCHES))
        with pytest.raises(CorruptionError, match=f"at byte {good[1].end}: "):
            _offsets(pool, segment, wrong, guessed=False)


@pytest.mark.parametrize("content", [None, b"", b"\0\0\0\7", b"\xff" * 64])
def test_unusable_index_gives_one_part(partition: tuple[str, Segment], content: bytes | None) -> None:
    """Missing, empty, truncated or invalid: the segment is read as without an index."""
    path, segment = partition
    index = f"{path}/{segment.base:020d}.index"
    os.unlink(index)
    if content is not None:
        with open(index, "wb") as file:
            file.write(content)
    with ReaderPool(path, workers=2, chunk_bytes=CHUNK_BYTES) as pool:
        assert pool.parts(segment, CHUNK_BYTES) == [SegmentPart(0, segment.size_bytes)]


def test_index_beyond_the_segment_is_not_followed(partition: tuple[str, Segment]) -> None:
    """Entries past the listed size belong to later appends."""
    path, segment = partition
    entries = np.array([(1, 2**31 - 1)], dtype=OFFSET_ENTRY)
    with open(f"{path}/{segment.base:020d}.index", "wb") as file:
        file.write(entries.tobytes())
    with ReaderPool(path, workers=2, chunk_bytes=CHUNK_BYTES) as pool:
        assert pool.parts(segment, CHUNK_BYTES) == [SegmentPart(0, segment.size_bytes)]


@pytest.mark.parametrize("workers", [1, 3])
def test_damage_is_reported_the_same_with_workers(partition: tuple[str, Segment], workers: int) -> None:
    """C-57: the same place and reason with and without workers, and the batches before it were returned."""
    path, segment = partition
    with open(f"{path}/{segment.base:020d}.log", "r+b") as file:
        file.seek(300_000)
        file.write(b"\xff" * 8)
    segment = listed(path)
    seen: list[int] = []
    with (
        ReaderPool(path, workers=workers, chunk_bytes=CHUNK_BYTES) as pool,
        pytest.raises(CorruptionError) as caught,
    ):
        decode_all(pool, segment, seen)
    assert abs(caught.value.position - 300_000) < 200
    assert seen == list(range(len(seen)))
    assert len(seen) > BATCHES // 4


def test_a_reader_that_stops_early_leaves_nothing_open(partition: tuple[str, Segment]) -> None:
    """The owner may stop anywhere: descriptors are closed, threads end."""
    path, segment = partition
    before = open_descriptors()
    with ReaderPool(path, workers=3, chunk_bytes=CHUNK_BYTES) as pool:
        chunks = pool.chunks(
            segment, pool.parts(segment, CHUNK_BYTES), lambda _: by_chunk(_kernel.scan_headers), guessed=True
        )
        next(chunks)
        chunks.close()  # type: ignore[attr-defined]  # a generator
    assert open_descriptors() <= before


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("wrong", [None, 0, 900, 904])
def test_segment_after_segment(several: tuple[str, list[Segment]], workers: int, wrong: int | None) -> None:
    """Each segment's chunks are its own, in order; a wrong index affects only its segment."""
    path, segments = several
    if wrong is not None:
        # as many entries as before, and one byte off
        index = Path(path) / f"{wrong:020d}.index"
        entries = np.frombuffer(index.read_bytes(), OFFSET_ENTRY).copy()
        entries["position"] += 1
        index.write_bytes(entries.tobytes())
    requests: list[int] = []
    with ReaderPool(path, workers=workers, chunk_bytes=CHUNK_BYTES) as pool:
        found = [
            [int(offset) for batches in chunks for offset in batches.base_offset]
            for chunks in pool.segments(in_stretches(pool, segments, requests))
        ]
    assert requests == [segment.base for segment in segments]
    ends = [900, 901, 904, 2404, 2444, 2445, 3145, 3146]
    empty = {900, 2444, 3145}
    expected = [
        [] if segment.base in empty else list(range(segment.base, end))
        for segment, end in zip(segments, ends, strict=True)
    ]
    assert found == expected


def test_workers_begin_the_next_segment(several: tuple[str, list[Segment]]) -> None:
    """While the owner has one segment's last chunk, the next segment's first parts are read; not all of it."""
    path, segments = several
    requests: list[int] = []
    with ReaderPool(path, workers=2, chunk_bytes=16_384) as pool:
        stretches = in_stretches(pool, [segments[3]] * 3, requests)
        with contextlib.closing(pool.segments(stretches)) as found:
            for number, chunks in enumerate(found, 1):
                list(chunks)
                assert len(requests) == min(number + 1, 3)


def test_parts_become_small_if_batches_decompress_to_much(several: tuple[str, list[Segment]]) -> None:
    """A part that its worker did not finish is left to the owner; from the next segment on none is left."""
    path, segments = several
    with ReaderPool(path, workers=2, chunk_bytes=16_384) as pool:
        stretches = (
            # Chunks a third as long as the parts, as if they were full.
            SegmentRange(
                each,
                pool.parts(each, 49_152),
                lambda _: gathered(_kernel.ChunkDecoder, chunk_bytes=16_384),
                guessed=True,
            )
            for each in (segments[0], segments[3], segments[3])
        )
        sizes = []
        for stretch in stretches:
            sizes.append(max(part.end - part.start for part in stretch.parts))
            (chunks,) = (list(chunks) for chunks in pool.segments([stretch]))
            assert sum(chunk.consumed for chunk in chunks) == stretch.segment.size_bytes
    assert sizes[0] > 32_768
    assert max(sizes[1:]) <= 16_384


def test_damage_ends_the_walk_over_segments(several: tuple[str, list[Segment]]) -> None:
    """The batches before it were returned, whatever was read ahead; and no file stays open."""
    path, segments = several
    before = open_descriptors()
    with open(f"{path}/{904:020d}.log", "r+b") as file:
        file.seek(100_000)
        file.write(b"\xff" * 8)
    found = read_log_dir(Path(path).parent)
    segments = list(read_partition(found, found.partitions[0]).segments[: len(segments)])
    seen: list[int] = []
    with ReaderPool(path, workers=3, chunk_bytes=CHUNK_BYTES) as pool:
        stretches = (
            SegmentRange(each, pool.parts(each, CHUNK_BYTES), lambda _: by_chunk(_kernel.decode_chunk), guessed=True)
            for each in segments
        )
        chunks = itertools.chain.from_iterable(pool.segments(stretches))
        with pytest.raises(CorruptionError) as caught:
            seen.extend(offset for chunk in chunks for offset in chunk.batches.base_offset.tolist())
    assert abs(caught.value.position - 100_000) < 200
    assert seen == [*range(900), *range(901, 901 + len(seen) - 900)]
    assert 903 < len(seen) < 2000
    assert open_descriptors() <= before
