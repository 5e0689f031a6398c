"""Counterexamples shrink: with a mistake planted in cleanerd's cleaner, and with ones that need no Kafka."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd.cleaner import evidence
from tests.differential.history import History, batch, log
from tests.differential.random_history import random_history
from tests.torture.shrink import asserted_at, main, numbers, parsed, parts, play, shrunk, smallest, without

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.judge import Judge


def test_parts_that_do_not_matter_are_removed() -> None:
    """Two of a hundred parts make it fail; only they are left."""
    tried = []

    def fails(dropped: set[int]) -> bool:
        tried.append(dropped)
        return not dropped & {17, 80}

    assert shrunk(100, fails) == set(range(100)) - {17, 80}
    assert len(tried) < 100


def test_a_case_that_always_fails_shrinks_to_nothing() -> None:
    assert shrunk(9, lambda _dropped: True) == set(range(9))


def test_tries_are_counted() -> None:
    assert shrunk(1000, lambda _dropped: False, tries=5) == set()


def test_another_assertion_is_another_failure() -> None:
    """An empty history fails too, because no record of it is removed."""

    def is_low(number: int) -> None:
        assert number < 0

    def is_high(number: int) -> None:
        assert number > 1

    def error(check: Callable[[int], None]) -> AssertionError:
        with pytest.raises(AssertionError) as raised:
            check(1)
        return raised.value

    assert asserted_at(None) == ""
    assert asserted_at(error(is_low)) == asserted_at(error(is_low)) != asserted_at(error(is_high))


def test_numbers_round_trip() -> None:
    for dropped in (set(), {3}, {0, 1, 2, 7, 9, 10}):
        assert parsed(numbers(dropped)) == dropped


def test_parts_of_a_history() -> None:
    """Two batches, then five records: a batch keeps its offsets, and goes with its last record."""
    history = History(log([batch(0, "a=1 b=1 a=2")], [batch(3, "b=2 c=1")]))
    assert parts(history) == 7
    assert without(history, set()) == history
    (first, second, *_) = without(history, {3, 5, 6}).segments
    assert [record.offset for record in first.batches[0].records] == [0, 2]
    assert second.batches == ()
    (first, *_) = without(history, {2, 4}).segments
    assert (first.batches[0].base, first.batches[0].last) == (0, 2)
    assert without(history, {0}).segments[0].batches == ()


@pytest.mark.kafka
@pytest.mark.long
def test_a_planted_mistake(judge_43: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong tombstones: a few records are left of a whole history, and the command repeats them."""
    # the planted mistake
    monkeypatch.setattr(evidence, "tombstones", lambda flags, *_more: np.zeros_like(flags, np.bool_))
    seed = next(each for each in range(50) if play(judge_43, tmp_path, random_history(each)) is not None)
    command = smallest(judge_43, tmp_path, "random_history", seed)
    words = shlex.split(command)[3:]
    left = without(random_history(seed), parsed(words[-1]))
    assert sum(len(each.records) for segment in left.segments for each in segment.batches) <= 5
    assert main(words) == 1
    monkeypatch.undo()
    assert main(words) == 0
