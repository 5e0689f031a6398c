"""Offsets that are far apart, at the end of their range, or anywhere in a word of a bitmap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from tests.cleaner.driver import NAME, clean, clean_all, scratch
from tests.cleaner.keyed_log import NOW, batch, keys
from tests.cleaner.model import Rules, check_cleaned
from tests.support.log_dirs import Partition, make_log_dir, read_segments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def test_deep_gaps(root: Path) -> None:
    """U-20: offsets with gaps of 2^40 cost nothing in the map, and far sources are not merged (C-63)."""
    bases = [number * 2**40 for number in range(6)]
    make_log_dir(
        root, {NAME: Partition({**{base: batch(base, ("a", "1"), (f"k{base}", "1")) for base in bases}, 2**43: b""})}
    )
    result = clean_all(root, NOW)
    assert result.passes == 1
    found = keys(root)
    assert list(found) == [*bases, 2**43]
    assert [len(found[base]) for base in bases] == [1, 1, 1, 1, 1, 2]


def test_largest_offsets(root: Path) -> None:
    """The end of the offset range itself."""
    base = 2**63 - 100
    make_log_dir(root, {NAME: Partition({base: batch(base, ("a", "1"), ("a", "2")), base + 2: b""})})
    clean_all(root, NOW)
    assert keys(root)[base] == [(base + 1, "a")]


@pytest.mark.long
@pytest.mark.parametrize("first_dirty", [1, 63, 64, 65, 127, 128, 129, 200])
@pytest.mark.parametrize("length", [64, 70, 191])
def test_ranges_over_words(root: Path, first_dirty: int, length: int) -> None:
    """U-20: a first dirty offset anywhere in a segment of several bitmap words, with a clean segment before it."""
    entries = [
        (f"k{number * 7 % 40}" if number % 9 else None, None if number % 5 == 0 else "v") for number in range(250)
    ]
    logs = {
        0: batch(0, *entries[:20]),
        20: b"".join(batch(20 + 10 * row, *entries[10 * row :][:10]) for row in range(25)),
    }
    make_log_dir(root, {NAME: Partition({**logs, 270: b""})})
    before = read_segments(root / NAME)
    end = min(20 + first_dirty + length, 270)
    result = clean(root, CleaningOptions(now_ms=NOW, force=True, first_dirty_offset=20 + first_dirty, up_to_offset=end))
    assert (result.error, result.outcome) == (None, "cleaned")
    check_cleaned(before, read_segments(root / NAME), Rules(20 + first_dirty, end, 270, NOW, 86_400_000, ()))
