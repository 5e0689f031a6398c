"""Helpers for tests with several readers: the log's size, and ways to read it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd import _kernel
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.segments.pool import ReaderPool, SegmentRange, index_entries
from cleanerd.segments.reading import by_chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.segments.segment import Segment

CHUNK_BYTES: Final = 65536
BATCHES: Final = 3000


def listed(path: str) -> Segment:
    """The first segment as it is now."""
    found = read_log_dir(Path(path).parent)
    return read_partition(found, found.partitions[0]).segments[0]


def decode_all(pool: ReaderPool, segment: Segment, seen: list[int]) -> None:
    """Read all of it; ``seen`` gets the offsets, also of batches before damage."""
    for chunk in pool.chunks(
        segment, pool.parts(segment, CHUNK_BYTES), lambda _: by_chunk(_kernel.decode_chunk), guessed=True
    ):
        seen += [int(offset) for offset in chunk.batches.base_offset]


def in_stretches(
    pool: ReaderPool, segments: list[Segment], requested: list[int]
) -> Iterator[SegmentRange[_kernel.Batches]]:
    """Segment by segment; ``asked`` gets the base of every when it is requested."""
    for segment in segments:
        requested.append(segment.base)
        yield SegmentRange(
            segment, pool.parts(segment, CHUNK_BYTES), lambda _: by_chunk(_kernel.scan_headers), guessed=True
        )


def borders(path: str, segment: Segment) -> list[int]:
    """Positions of the batches that have index entries."""
    return [int(position) for position in index_entries(path, segment)["position"]]
