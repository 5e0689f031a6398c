"""Blocks read ahead of their use."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import SegmentChangedError
from cleanerd.segments.blocks import DIRECT_ALIGNMENT, ReadAhead, set_direct
from tests.support.now_open import open_descriptors

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = DIRECT_ALIGNMENT
SIZE = 9 * BLOCK + 123


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("blocks") / "file"
    path.write_bytes(os.urandom(SIZE))
    return path


@given(
    start=st.integers(0, SIZE - 1),
    end_cut=st.integers(0, SIZE),
    pieces=st.lists(st.tuples(st.integers(1, 2 * BLOCK), st.integers(0, BLOCK)), min_size=1),
)
def test_every_piece_is_that_of_the_file(file: Path, start: int, end_cut: int, pieces: list[tuple[int, int]]) -> None:
    """Pieces of any size, of which a part is used: the rest comes again with the next one, across blocks."""
    content = file.read_bytes()
    end = max(start + 1, SIZE - end_cut)
    descriptor = os.open(file, os.O_RDONLY)
    set_direct(descriptor, wanted=True)
    try:
        with ReadAhead(descriptor, "file", start, end, BLOCK) as ahead:
            position = start
            for wanted, left in (pieces * SIZE)[:200]:
                if position == end:
                    break
                data = ahead.read(position, wanted)
                assert data.tobytes() == content[position : min(position + min(wanted, BLOCK), end)]
                position += max(1, len(data) - left)
    finally:
        os.close(descriptor)


def test_a_shorter_file_is_an_error(file: Path) -> None:
    """It is raised where the missing bytes are read, not before."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        with ReadAhead(descriptor, "file", 0, SIZE + 1, BLOCK) as ahead:
            for block in range(9):
                assert len(ahead.read(block * BLOCK, BLOCK)) == BLOCK
            with pytest.raises(SegmentChangedError, match=f"it ends at {SIZE}"):
                ahead.read(9 * BLOCK, BLOCK)
    finally:
        os.close(descriptor)


def test_closing_waits_for_the_thread(file: Path) -> None:
    """After it no read uses the descriptor, which another file may have got, and an unused error is dropped."""
    descriptor = os.open(file, os.O_RDONLY)
    before = open_descriptors()
    ahead = ReadAhead(descriptor, "file", 0, SIZE + 1, SIZE)
    ahead.close()
    ahead.close()
    os.close(descriptor)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(descriptor)
    assert len(before) - len(open_descriptors()) == 1
