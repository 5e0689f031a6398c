"""Blocks read ahead of their use (U-97)."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import SegmentChangedError
from cleanerd.segments.blocks import DIRECT_ALIGNMENT, ReadAhead, set_direct
from tests.support.patience import PATIENCE_SECONDS
from tests.support.system_calls import system_call

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
            ahead.read_on()
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
            ahead.read_on()
            for block in range(9):
                assert len(ahead.read(block * BLOCK, BLOCK)) == BLOCK
            with pytest.raises(SegmentChangedError, match=f"it ends at {SIZE}"):
                ahead.read(9 * BLOCK, BLOCK)
    finally:
        os.close(descriptor)


def test_closing_waits_for_the_thread(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that is under way ends before: its descriptor, which another file would get next, is closed after it."""
    read, running, ended = os.preadv, threading.Event(), threading.Event()

    def slow(descriptor: int, buffers: list[memoryview], position: int) -> int:
        running.set()
        time.sleep(0.2)
        count = read(descriptor, buffers, position)
        ended.set()
        return count

    system_call(monkeypatch, "preadv", slow)
    descriptor = os.open(file, os.O_RDONLY)
    ahead = ReadAhead(descriptor, "file", 0, SIZE, BLOCK)
    ahead.read_on()
    assert running.wait(PATIENCE_SECONDS)
    ahead.close()
    assert ended.is_set()
    os.close(descriptor)


def test_an_error_of_an_unused_block_is_dropped(file: Path) -> None:
    """A reader may end before it gets there."""
    descriptor = os.open(file, os.O_RDONLY)
    ahead = ReadAhead(descriptor, "file", 0, SIZE + 1, SIZE)
    ahead.read_on()
    ahead.close()
    os.close(descriptor)
