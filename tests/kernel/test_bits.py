"""The bit operations against lists of booleans."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd import _kernel
from tests.kernel.strategies import bitmap

_COUNTS = st.lists(st.one_of(st.integers(0, 3), st.sampled_from([63, 64, 65, 200])), max_size=10)


def _first_record(counts: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.cumsum([0, *counts]).astype(np.uint32)


@settings(deadline=None)
@given(_COUNTS, st.data())
def test_popcount_by_batch(counts: list[int], draw: st.DataObject) -> None:
    """Set bits of every batch; bits after the last record do not count."""
    total = sum(counts)
    bits = draw.draw(st.lists(st.booleans(), min_size=total, max_size=total))
    words = bitmap(bits + [True] * draw.draw(st.integers(0, 70)))
    edges = [0, *np.cumsum(counts).tolist()]
    expected = [sum(bits[start:end]) for start, end in pairwise(edges)]
    counted = _kernel.popcount_by_batch(words, _first_record(counts))
    assert counted.dtype == np.uint32
    assert counted.tolist() == expected


@settings(deadline=None)
@given(_COUNTS, st.data())
def test_fill_by_batch(counts: list[int], draw: st.DataObject) -> None:
    """All bits of the flagged batches, none of the others."""
    flags = draw.draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts)))
    expected = [flag for flag, count in zip(flags, counts, strict=True) for _ in range(count)]
    filled = _kernel.fill_by_batch(np.array(flags, bool), _first_record(counts))
    assert filled.tolist() == bitmap(expected).tolist()


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=200), st.integers(0, 250), st.lists(st.booleans(), max_size=200))
def test_store_bits(before: list[bool], first: int, values: list[bool]) -> None:
    """The range is overwritten, its surroundings stay."""
    words = bitmap(before)
    room = len(words) * 64
    if first + len(values) > room:
        with pytest.raises(ValueError, match="have fewer than"):
            _kernel.store_bits(words, first, np.array(values, bool))
        assert words.tolist() == bitmap(before).tolist()
        return
    expected = before + [False] * (room - len(before))
    expected[first : first + len(values)] = values
    _kernel.store_bits(words, first, np.array(values, bool))
    assert words.tolist() == bitmap(expected).tolist()


def test_store_bits_needs_a_writable_array() -> None:
    """A read-only result of the kernel is not changed."""
    words = np.zeros(2, np.uint64)
    words.flags.writeable = False
    with pytest.raises(TypeError):
        _kernel.store_bits(words, 0, np.ones(3, bool))


def test_callers_mistakes() -> None:
    """Descending tables, and bitmaps that are too short."""
    words = np.zeros(2, np.uint64)
    for first_record, reason in (([0, 5, 4], "is not ascending"), ([], "empty"), ([0, 129], "have fewer than")):
        with pytest.raises(ValueError, match=reason):
            _kernel.popcount_by_batch(words, np.array(first_record, np.uint32))
    with pytest.raises(ValueError, match="flags"):
        _kernel.fill_by_batch(np.ones(2, bool), np.array([0, 1], np.uint32))
    with pytest.raises(ValueError, match="negative"):
        _kernel.store_bits(words, -1, np.ones(1, bool))
