"""The growing bitmap against a list of booleans."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.cleaner.bits import BitColumn

PIECES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 2**32)), max_size=8)


def values(count: int, seed: int) -> list[bool]:
    return [bool(bit) for bit in np.random.default_rng(seed).integers(0, 2, count)]


def column(pieces: list[tuple[int, int]]) -> tuple[BitColumn, list[bool]]:
    filled, expected = BitColumn(), []
    for count, seed in pieces:
        piece = values(count, seed)
        filled.append(np.array(piece, dtype=np.bool_))
        expected += piece
    return filled, expected


def bits(words: np.ndarray) -> list[bool]:
    return [bool(bit) for bit in np.unpackbits(words.view(np.uint8), bitorder="little")]


@pytest.mark.long
@settings(deadline=None)
@given(pieces=PIECES)
def test_append(pieces: list[tuple[int, int]]) -> None:
    """Pieces of any length, at any bit; past the end nothing is set."""
    filled, expected = column(pieces)
    assert filled.count == len(expected)
    assert len(filled.words()) == (len(expected) + 63) // 64
    padding = [False] * (-len(expected) % 64)
    assert bits(filled.words()) == expected + padding


@pytest.mark.long
@settings(deadline=None)
@given(left=PIECES, right=PIECES)
def test_merge(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    """The union; the shorter one grows; the other stays as it was."""
    (one, ours), (other, theirs) = column(left), column(right)
    one.merge(other)
    length = max(len(ours), len(theirs))
    both = [a or b for a, b in zip(ours + [False] * length, theirs + [False] * length, strict=False)][:length]
    assert one.count == length
    assert bits(one.words())[:length] == both
    assert bits(other.words())[: len(theirs)] == theirs


@pytest.mark.parametrize("count", [64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 300_000])
def test_growth(count: int) -> None:
    """Past the initial size, at once and bit by bit."""
    filled = BitColumn()
    filled.append(np.ones(7, dtype=np.bool_))
    filled.append(np.ones(count, dtype=np.bool_))
    filled.append(np.zeros(3, dtype=np.bool_))
    found = bits(filled.words())
    assert sum(found) == 7 + count
    assert all(found[: 7 + count])


@pytest.mark.parametrize("count", [0, 3])
def test_a_short_column_takes_little(count: int) -> None:
    """U-35: a log may have thousands of segments of a few records, or of none, with several columns each."""
    tracemalloc.start()
    try:
        columns = [BitColumn() for _ in range(1000)]
        for each in columns:
            each.append(np.ones(count, dtype=np.bool_))
        assert tracemalloc.get_traced_memory()[0] < 512 * len(columns)
    finally:
        tracemalloc.stop()
