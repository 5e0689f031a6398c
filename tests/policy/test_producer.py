"""The batches that hold producers' last sequences (C-39.1, R192-1)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.policy.producer import protected


def ask(producers: list[int], last_offsets: list[int], wanted: list[int]) -> list[bool]:
    columns = (np.array(column, dtype=np.int64) for column in (producers, last_offsets, wanted))
    return protected(*columns).tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("producers", "last_offsets", "wanted", "expected"),
    [
        pytest.param([7, 7], [4, 9], [9], [False, True], id="the last offset of the batch"),
        pytest.param([7, 7], [4, 9], [8], [False, False], id="T-07: an offset inside a batch is not its last"),
        pytest.param([-1, 7], [4, 9], [4, 9], [False, True], id="C-39.1: only batches with a producer id"),
        pytest.param([7, 8], [4, 9], [4, 9, 100], [True, True], id="two, and one that lies elsewhere"),
        pytest.param([7, 7], [4, 9], [], [False, False], id="no active producer"),
        pytest.param([], [], [9], [], id="no batch"),
        pytest.param([0], [4], [4], [True], id="0 is a producer id"),
        pytest.param([7], [4], [-1, 4], [True], id="-1: only markers are known"),
    ],
)
def test_protected(producers: list[int], last_offsets: list[int], wanted: list[int], expected: list[bool]) -> None:
    """C-39.1."""
    assert ask(producers, last_offsets, wanted) == expected


@given(
    offsets=st.sets(st.integers(0, 60), min_size=1),
    wanted=st.sets(st.integers(-1, 65)),
    idle=st.sets(st.integers(0, 60)),
)
def test_like_a_set(offsets: set[int], wanted: set[int], idle: set[int]) -> None:
    """C-39.1: whatever the chunk covers, the same as asking batch by batch."""
    last_offsets = sorted(offsets)
    producers = [-1 if offset in idle else 3 for offset in last_offsets]
    expected = [offset in wanted and offset not in idle for offset in last_offsets]
    assert ask(producers, last_offsets, sorted(wanted)) == expected
