"""Chunks of whole batches from a segment file (C-57, C-58, C-60)."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd import _kernel
from cleanerd.errors import CleanerdError, CorruptionError, SegmentChangedError
from cleanerd.segments import blocks
from cleanerd.segments.reading import SegmentReader
from cleanerd.segments.segment import Segment
from tests.support.logs import keyed_batch
from tests.support.now_open import open_descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np

NAME = f"{0:020d}.log"
SMALL = keyed_batch(0, [("a", "1")])
LARGE = keyed_batch(1, [("b", "x" * 5000)])
LAST = keyed_batch(2, [("c", "3")])
WHOLE = SMALL + LARGE + LAST


def segment(path: Path, data: bytes) -> Segment:
    (path / NAME).write_bytes(data)
    return Segment.from_stat(0, (path / NAME).stat(), frozenset())


@pytest.fixture(autouse=True, params=[1, blocks.DIRECT_ALIGNMENT], ids=["bytes", "blocks"])
def alignment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Reading begins at a block's start; blocks of one byte give every chunk size and edge."""
    monkeypatch.setattr(blocks, "DIRECT_ALIGNMENT", request.param)  # a constant of disks, which no caller may choose
    return int(request.param)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[SegmentReader]:
    with SegmentReader.open(str(tmp_path), chunk_bytes=100) as opened:
        yield opened


def offsets(reader: SegmentReader, found: Segment, *, start: int = 0) -> list[int]:
    return [int(offset) for batches in reader.headers(found, start=start) for offset in batches.last_offset]


@pytest.mark.parametrize("chunk_bytes", [1, 16, 61, 100, len(SMALL), len(SMALL) + 1, 4096, 1 << 20])
def test_every_chunk_size(tmp_path: Path, chunk_bytes: int) -> None:
    """C-60: the buffer grows to the batch, whatever it was; each batch comes once, with its file position."""
    found = segment(tmp_path, WHOLE)
    with SegmentReader.open(str(tmp_path), chunk_bytes=chunk_bytes) as reader:
        positions = [int(at) for batches in reader.headers(found) for at in batches.position]
        assert positions == [0, len(SMALL), len(SMALL) + len(LARGE)]
        assert offsets(reader, found) == [0, 1, 2]


def test_start(tmp_path: Path, reader: SegmentReader) -> None:
    """From a position in an index."""
    assert offsets(reader, segment(tmp_path, WHOLE), start=len(SMALL)) == [1, 2]
    assert offsets(reader, segment(tmp_path, WHOLE), start=len(WHOLE)) == []


def test_buffer_returns_to_its_size(tmp_path: Path, reader: SegmentReader, alignment: int) -> None:
    """C-60: after a segment with a large batch the next one is read in chunks of the usual size again."""
    assert offsets(reader, segment(tmp_path, WHOLE)) == [0, 1, 2]
    sizes: list[int] = []

    def call(data: np.ndarray, position: int) -> _kernel.Batches:
        sizes.append(len(data))
        return _kernel.scan_headers(data, position)

    list(reader.chunks(segment(tmp_path, SMALL * 200), call))
    assert max(sizes) <= max(100, alignment) < len(LARGE)


def test_an_empty_file(tmp_path: Path, reader: SegmentReader) -> None:
    """D-03: a segment of 0 bytes."""
    assert offsets(reader, segment(tmp_path, b"")) == []


def test_a_zero_byte_behind_the_last_batch_is_named_as_zeros(tmp_path: Path, reader: SegmentReader) -> None:
    """C-57: one byte of a batch that begins with a zero byte cannot be distinguished from preallocated space."""
    with pytest.raises(CorruptionError, match="1 zero bytes to the end of a closed segment") as raised:
        offsets(reader, segment(tmp_path, SMALL + LARGE + LAST[:1]))
    assert raised.value.where == str(tmp_path / NAME)
    assert raised.value.position == len(SMALL) + len(LARGE)


@pytest.mark.parametrize("cut", [11, 12, 16, 17, 60, len(LAST) - 1])
def test_ends_inside_a_batch(tmp_path: Path, reader: SegmentReader, cut: int) -> None:
    """C-57: however little is left of the last batch; the position is where it begins."""
    with pytest.raises(CorruptionError, match="ends inside a batch") as raised:
        offsets(reader, segment(tmp_path, SMALL + LARGE + LAST[:cut]))
    assert raised.value.where == str(tmp_path / NAME)
    assert raised.value.position == len(SMALL) + len(LARGE)
    assert f"{cut} bytes are left" in str(raised.value)


def test_size_beyond_the_file(tmp_path: Path, reader: SegmentReader) -> None:
    """C-60: a declared size beyond the file is damage, and allocates no memory."""
    wrong = bytearray(LAST)
    wrong[8:12] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(CorruptionError) as raised:
        offsets(reader, segment(tmp_path, SMALL + bytes(wrong) + SMALL))
    assert raised.value.position == len(SMALL)


def test_damage_is_reported_with_its_place(tmp_path: Path, reader: SegmentReader) -> None:
    """C-56, C-57: file, byte position, offset of the batch."""
    wrong = bytearray(WHOLE)
    wrong[-1] ^= 1
    found = segment(tmp_path, bytes(wrong))
    call = lambda data, position: _kernel.scan_headers(data, position, verify_crc=True)  # noqa: E731
    with pytest.raises(CorruptionError) as raised:
        list(reader.chunks(found, call))
    assert (raised.value.where, raised.value.position) == (str(tmp_path / NAME), len(SMALL) + len(LARGE))
    assert "offset 2" in str(raised.value)


@pytest.mark.parametrize("chunk_bytes", [20, 100, 1 << 20])
@pytest.mark.parametrize("tail", [b"", b"\x00" * 300, b"\xff" * 70, LAST[:30]], ids=["none", "zeros", "garbage", "cut"])
def test_until_damage(tmp_path: Path, chunk_bytes: int, tail: bytes) -> None:
    """S-27: the batches before the damage, each once, also in the chunk with the damage."""
    found = segment(tmp_path, SMALL + LARGE + tail + LAST)
    with SegmentReader.open(str(tmp_path), chunk_bytes=chunk_bytes) as reader:
        got = [int(offset) for batches in reader.headers_until_damage(found) for offset in batches.last_offset]
        assert got == ([0, 1] if tail else [0, 1, 2])
        got = [
            int(at) for batches in reader.headers_until_damage(found, start=len(SMALL)) for at in batches.last_offset
        ]
        assert got == ([1] if tail else [1, 2])


def test_only_the_listed_bytes_are_read(tmp_path: Path, reader: SegmentReader) -> None:
    """Data appended after the listing is not read, least of all half a batch."""
    found = segment(tmp_path, SMALL)
    with (tmp_path / NAME).open("ab") as file:
        file.write(LARGE[:50])
    assert offsets(reader, found) == [0]


def test_became_shorter(tmp_path: Path, reader: SegmentReader) -> None:
    """A file truncated after the listing is a reportable error, not an endless loop."""
    found = segment(tmp_path, WHOLE)
    os.truncate(tmp_path / NAME, len(SMALL) + 5)
    with pytest.raises(CleanerdError, match=f"became shorter.*ends at {len(SMALL) + 5}"):
        offsets(reader, found)


def test_a_segment_removed_after_the_listing(tmp_path: Path, reader: SegmentReader) -> None:
    """A segment that was removed after the listing."""
    found = segment(tmp_path, WHOLE)
    (tmp_path / NAME).unlink()
    with pytest.raises(SegmentChangedError, match="it is gone") as raised:
        offsets(reader, found)
    assert raised.value.where == str(tmp_path / NAME)


def test_no_directory(tmp_path: Path) -> None:
    """The same for the partition."""
    with pytest.raises(CleanerdError, match="cannot be opened"):
        SegmentReader.open(str(tmp_path / "nowhere"))


def test_beside(tmp_path: Path, reader: SegmentReader) -> None:
    """A reader of another directory has a descriptor of its own and may be closed first."""
    other = tmp_path / "other"
    other.mkdir()
    found = segment(other, LAST)
    directory = os.open(other, os.O_RDONLY)
    with reader.for_directory(str(other), directory) as second:
        os.close(directory)
        assert offsets(second, found) == [2]
    assert offsets(reader, segment(tmp_path, WHOLE)) == [0, 1, 2]


def test_descriptors_are_closed(tmp_path: Path, reader: SegmentReader) -> None:
    """Also if reading stops half way or fails."""
    before = open_descriptors()
    found = segment(tmp_path, WHOLE)
    for _ in range(5):
        next(reader.headers(found))
        with pytest.raises(CorruptionError):
            offsets(reader, replace(found, size_bytes=found.size_bytes - 1))
    assert open_descriptors() <= before


@pytest.mark.parametrize("chunk_bytes", [1, 5000, 1 << 20])
def test_reads_past_the_page_cache(tmp_path: Path, chunk_bytes: int) -> None:
    """``beside`` reads from the disk, whatever the alignment of batches and of the file's end."""
    batches = [keyed_batch(base, [("k", "x" * (base * 37 % 3000))]) for base in range(60)]
    found = segment(tmp_path, b"".join(batches))
    with (
        SegmentReader.open(str(tmp_path), chunk_bytes=chunk_bytes) as first,
        first.for_directory(str(tmp_path), first.directory) as direct,
    ):
        assert offsets(direct, found) == list(range(60))
        assert offsets(direct, found, start=len(batches[0])) == list(range(1, 60))
        os.truncate(tmp_path / NAME, found.size_bytes - 10)
        with pytest.raises(CleanerdError, match="became shorter"):
            offsets(direct, found)
