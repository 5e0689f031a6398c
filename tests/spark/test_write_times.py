"""Write times of records: spans of time that add up, whatever the timestamps are."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from cleanerd.spark.write_times import LEAST_MS, MOST_SPANS, WriteTimes

DAY_MS = 86_400_000


def counted(timestamps: list[int]) -> WriteTimes:
    times = WriteTimes()
    times.add(np.array(timestamps, np.int64))
    return times


def test_each_in_its_span() -> None:
    """A record without a timestamp is in no span."""
    times = counted([-1, 0, LEAST_MS - 1, LEAST_MS, -(2**63)])
    assert (times.span_ms, times.counts) == (LEAST_MS, Counter({0: 2, 1: 1}))


def test_a_year_is_not_measured_by_the_minute() -> None:
    """At most MOST_SPANS, each a power of two of the least."""
    times = counted(list(range(0, 365 * DAY_MS, DAY_MS // 24)))
    assert MOST_SPANS / 2 < len(times.counts) <= MOST_SPANS
    assert times.span_ms // LEAST_MS == 2 ** ((times.span_ms // LEAST_MS).bit_length() - 1)
    assert times.counts.total() == 365 * 24


def test_one_strange_time_does_not_blur_the_others() -> None:
    """The end of time next to an hour of writes, minute by minute."""
    times = counted([*range(10**12, 10**12 + 3_600_000, LEAST_MS), 2**63 - 1])
    assert (times.span_ms, len(times.counts)) == (LEAST_MS, 61)


@pytest.mark.parametrize("seed", range(20))
def test_parts_add_up(seed: int) -> None:
    """Cut anywhere, sent as JSON and put together in any order: as counted at once."""
    pick = random.Random(seed)
    reach = pick.choice([3_600_000, 400 * DAY_MS, 2**63 - 1])
    timestamps = [pick.randrange(-1, reach) for _ in range(1500)]
    parts = [counted(timestamps[at::7]) for at in range(7)]
    pick.shuffle(parts)
    found = WriteTimes()
    for part in parts:
        found.add_all(part)
    assert found == counted(timestamps)
