"""U-90: grid offsets that replicas have in common, sums in any order, and which states of two replicas are compared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.policy.state_digest import (
    MOST_OFFSETS,
    ReplicaDigests,
    StateDigest,
    digest_sum,
    first_difference,
    grid_offsets,
    grid_start,
    most_aligned,
)

OFFSETS = st.integers(0, 2**62)


def _zeros(number: int) -> int:
    return (number & -number).bit_length() if number else 99


@given(st.integers(0, 5000), st.integers(0, 300))
def test_the_most_aligned_number_of_a_range(low: int, length: int) -> None:
    """U-90: of two in a range with the same power of two, one between them has a higher one."""
    assert most_aligned(low, low + length) == max(range(low, low + length + 1), key=_zeros)


@given(OFFSETS, OFFSETS)
def test_grid_offsets_are_few_and_end_with_the_range(low: int, high: int) -> None:
    """U-90: so a log that is no longer written has one in common with every replica of it."""
    found = grid_offsets(low, high)
    assert found == sorted(set(found))
    assert len(found) <= MOST_OFFSETS
    if max(low, 1) > high:
        assert found == []
    else:
        assert found[0] == most_aligned(max(low, 1), high)
        assert found[-1] == high
        assert all(low <= each for each in found)


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 3000))
def test_the_shorter_range_of_a_log_has_its_coarsest_offset_in_the_longer_one(low: int, more: int, length: int) -> None:
    """U-90: replicas that end alike have a state in common, wherever their active segments begin."""
    high = low + more + length
    assert most_aligned(max(low + more, 1), max(high, 1)) in grid_offsets(low, max(high, 1), most=99)


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_start_leaves_out_a_quarter_at_most(start: int, length: int) -> None:
    """U-90: and nothing if the log begins at 0."""
    begin = grid_start(start, start + length)
    assert start <= begin <= start + length // 4
    assert begin == 0 or start > 0


@given(st.lists(st.integers(0, 2**128 - 1), max_size=20))
def test_the_sum_is_that_of_whole_numbers(numbers: list[int]) -> None:
    """U-90: modulo 2^128, in any order."""
    words = np.array([[each & (2**64 - 1), each >> 64] for each in numbers], np.uint64).reshape(-1)
    assert digest_sum(words) == digest_sum(words.reshape(-1, 2)[::-1].reshape(-1)) == sum(numbers) % 2**128


def answer(first_dirty_offset: int | None, *digests: tuple[int, int, str], rules: str = "r") -> ReplicaDigests:
    """A replica's answer; a digest is (begin, end, text)."""
    return ReplicaDigests(first_dirty_offset, rules, [StateDigest(begin, end, text, 1) for begin, end, text in digests])


@pytest.mark.parametrize(
    ("answers", "end_offset"),
    [
        pytest.param({"1": answer(0, (0, 8, "a")), "2": answer(0, (0, 8, "a"))}, None, id="equal"),
        pytest.param({"1": answer(0, (0, 8, "a")), "2": answer(0, (0, 8, "b"))}, 8, id="different"),
        pytest.param({"1": answer(0, (0, 8, "a")), "2": answer(0, (0, 16, "b"))}, None, id="nothing in common"),
        pytest.param(
            {"1": answer(0, (0, 8, "a"), (0, 9, "c")), "2": answer(0, (0, 8, "b"), (0, 9, "c"))},
            None,
            id="equal at the highest",
        ),
        pytest.param({"1": answer(9, (0, 8, "a")), "2": answer(0, (0, 8, "b"))}, None, id="below a checkpoint"),
        pytest.param({"1": answer(8, (0, 8, "a")), "2": answer(None, (0, 8, "b"))}, 8, id="at a checkpoint"),
        pytest.param(
            {"1": answer(0, (0, 8, "a")), "2": answer(0, (0, 8, "b")), "3": answer(9)}, None, id="below that of a third"
        ),
        pytest.param({"1": answer(0, (0, 8, "a")), "2": answer(0, (0, 8, "b"), rules="s")}, None, id="other rules"),
        pytest.param({"1": answer(0, (0, 8, "a")), "2": answer(0, (4, 8, "b"))}, None, id="another start"),
        pytest.param(
            {"1": answer(0, (0, 8, "a")), "2": answer(0, (0, 8, "a"), (0, 9, "x")), "3": answer(0, (0, 9, "y"))},
            9,
            id="two of three",
        ),
    ],
)
def test_which_states_are_compared(answers: dict[str, ReplicaDigests], end_offset: int | None) -> None:
    """U-90: every pair by the highest state that both have, at or above every replica's checkpoint."""
    found = first_difference(answers)
    assert (None if found is None else found.end_offset) == end_offset
