"""Bounds, sizes, ratio and lags (C-02, C-03, C-05..C-11)."""

from __future__ import annotations

import pytest

from cleanerd.policy.cleanable import (
    Dirtiness,
    dirtiness,
    due_at_ms,
    first_dirty,
    first_uncleanable_offset,
    is_eligible,
    segment_range,
    too_young,
)

HOUR = 3_600_000
NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("checkpoint", "expected", "repaired"),
    [
        pytest.param(None, 10, False, id="C-02: none, so the log start"),
        pytest.param(10, 10, False, id="C-03: the log start itself is valid"),
        pytest.param(90, 90, False, id="C-03: the log end itself is valid"),
        pytest.param(50, 50, False, id="inside"),
        pytest.param(9, 10, True, id="C-03: below the log start"),
        pytest.param(91, 10, True, id="C-03: beyond the end, so the log START and not the end"),
        pytest.param(-1, 10, True, id="a negative one is below too"),
    ],
)
def test_first_dirty(checkpoint: int | None, expected: int, repaired: bool) -> None:
    """C-02, C-03."""
    found = first_dirty(checkpoint, 10, 90)
    assert found.offset == expected
    assert bool(found.repair) == repaired
    if repaired:
        assert str(checkpoint) in found.repair


BASES = [0, 10, 20, 30]


@pytest.mark.parametrize(
    ("limits", "first", "expected", "by"),
    [
        pytest.param({"active": 30, "hw": 99}, 0, 30, "active", id="C-05: never the active segment"),
        pytest.param({"active": 30, "hw": 25}, 0, 20, "hw", id="C-07: rounded down to a segment"),
        pytest.param({"active": 30, "hw": 20}, 0, 20, "hw", id="C-07: on an edge the segment below is whole"),
        pytest.param({"active": 30, "hw": 19}, 0, 10, "hw", id="C-07: one less and it is not"),
        pytest.param({"active": 30, "hw": 0}, 0, 0, "hw", id="C-86: nothing"),
        pytest.param({"active": 30, "hw": -5}, 0, 0, "hw", id="below the log"),
        pytest.param({"active": 30, "hw": 5}, 22, 20, "hw", id="C-06: raised to first dirty, then rounded"),
        pytest.param({"active": 30, "hw": 5}, 35, 30, "hw", id="C-06: first dirty past the active base, no error"),
        pytest.param({"active": 30, "hw": 40, "lag": 10}, 0, 10, "lag", id="C-05: the least of all"),
    ],
)
def test_bound(limits: dict[str, int], first: int, expected: int, by: str) -> None:
    """C-05..C-07."""
    found = first_uncleanable_offset(limits, BASES, first)
    assert (found.offset, found.limited_by) == (expected, by)
    assert found.limits == limits


def test_bound_of_a_single_segment() -> None:
    """C-16: a log with one segment has no offset below its first uncleanable one."""
    assert first_uncleanable_offset({"active": 7, "hw": 100}, [7], 7).offset == 7


@pytest.mark.parametrize(
    ("start", "end", "rows"),
    [
        pytest.param(0, 30, [0, 1, 2], id="all"),
        pytest.param(15, 30, [1, 2], id="from the segment that contains it"),
        pytest.param(20, 30, [2], id="an edge belongs to the segment it starts"),
        pytest.param(15, 15, [], id="equal, even inside a segment"),
        pytest.param(15, 16, [1], id="one offset"),
        pytest.param(0, 10, [0], id="the end is excluded"),
        pytest.param(25, 5, [], id="reversed"),
    ],
)
def test_segment_range(start: int, end: int, rows: list[int]) -> None:
    """``segs(a, b)`` of the specification."""
    assert list(segment_range([0, 10, 20], start, end)) == rows


def test_segment_range_before_the_first_base() -> None:
    """The first segment if none contains the start."""
    assert list(segment_range([10, 20], 3, 20)) == [0]


@pytest.mark.parametrize(
    ("first", "end", "clean", "cleanable"),
    [
        pytest.param(0, 30, 0, 700, id="all dirty"),
        pytest.param(10, 30, 100, 600, id="on an edge: on one side only"),
        pytest.param(15, 30, 300, 600, id="C-08: a segment with first dirty in its middle counts on both sides"),
        pytest.param(15, 20, 300, 200, id="C-09: what is above the bound counts nowhere"),
        pytest.param(15, 15, 300, 0, id="nothing to clean"),
        pytest.param(30, 30, 700, 0, id="all clean"),
        pytest.param(30, 10, 700, 0, id="bound below first dirty"),
    ],
)
def test_dirtiness(first: int, end: int, clean: int, cleanable: int) -> None:
    """C-08, C-09: sizes below the active segment."""
    assert dirtiness([0, 10, 20], [100, 200, 400], first, end) == Dirtiness(clean, cleanable)


def test_ratio() -> None:
    """C-09; an empty log has ratio 0, without a division by it."""
    assert Dirtiness(300, 100).ratio == 0.25
    assert Dirtiness(0, 0).ratio == 0.0


@pytest.mark.parametrize(
    ("dirty", "overdue", "ratio", "expected"),
    [
        pytest.param(Dirtiness(50, 50), 0, 0.5, False, id="C-11: strictly above, so equal is not"),
        pytest.param(Dirtiness(49, 51), 0, 0.5, True, id="above"),
        pytest.param(Dirtiness(0, 100), 0, 1.0, False, id="C-11: 1.0 never with setting 1.0"),
        pytest.param(Dirtiness(100, 0), 0, 0.0, False, id="C-11: 0 never"),
        pytest.param(Dirtiness(99, 1), 1, 0.9, True, id="C-11: overdue, whatever the ratio"),
        pytest.param(Dirtiness(99, 0), 1, 0.9, False, id="C-11: overdue with nothing to clean"),
    ],
)
def test_eligible(dirty: Dirtiness, overdue: int, ratio: float, expected: bool) -> None:
    """C-11."""
    assert is_eligible(dirty, overdue, ratio) is expected


@pytest.mark.parametrize(
    ("ages", "lag", "expected"),
    [
        pytest.param([(0, NOW - HOUR)], HOUR, None, id="C-05: exactly the lag is old enough"),
        pytest.param([(0, NOW - HOUR + 1)], HOUR, (0, NOW - HOUR + 1), id="one millisecond younger is not"),
        pytest.param(
            [(0, NOW - 2 * HOUR), (10, NOW), (20, 0)],
            HOUR,
            (10, NOW),
            id="the FIRST young one, old ones behind it too",
        ),
        pytest.param([(0, NOW + HOUR)], 0, None, id="no lag: not even data from the future limits"),
        pytest.param([], HOUR, None, id="nothing dirty"),
    ],
)
def test_too_young(ages: list[tuple[int, int]], lag: int, expected: tuple[int, int] | None) -> None:
    """C-05: min.compaction.lag.ms."""
    assert too_young(ages, NOW, lag) == expected


@pytest.mark.parametrize(
    ("firsts", "expected"),
    [
        pytest.param([NOW - HOUR], NOW, id="exactly the lag: due now, and so not overdue"),
        pytest.param([NOW - HOUR - 7], NOW - 7, id="7 ms over"),
        pytest.param([NOW, NOW - HOUR - 7], NOW - 7, id="the earliest counts"),
        pytest.param([0, -1, NOW], NOW + HOUR, id="C-10: values <= 0 are ignored"),
        pytest.param([0, -1], None, id="C-10: no value"),
        pytest.param([], None, id="nothing dirty"),
    ],
)
def test_due(firsts: list[int], expected: int | None) -> None:
    """C-10: max.compaction.lag.ms."""
    assert due_at_ms(firsts, HOUR) == expected
