"""A day of every family of releases: load, over a hundred live swaps, kills during swaps, moved replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.live.day import Day, a_day, check, without_checkpoint
from tests.live.two_brokers import move, reassign

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(1500)]

FAMILIES: Final = ("3.3", "3.6", "3.9", "4.4")
"""One release of each family: 3.3-3.4, 3.5-3.7, 3.8-3.9, 4.0-4.4."""
SWAPS: Final = 100
MOVES_SINCE: Final = "3.6"
"""Earlier brokers take the target directory of a move offline if a segment is rolled meanwhile (KAFKA-15391)."""


@pytest.fixture
def day(request: pytest.FixtureRequest) -> Iterator[Day]:
    with a_day(request.param) as day:
        yield day


@pytest.mark.parametrize("day", FAMILIES, indirect=True)
def test_a_day(day: Day) -> None:
    """LT-2, LT-4, LT-5, LT-9 per family: after all kills and moves every acknowledged record exists."""
    first, _ = day.nodes
    with day.load:
        day.clean_until("there is traffic", lambda: day.swaps >= 10)
        day.strike(0, "cleanerd", "idempotent-2")
        day.strike(1, "broker", "transactional-2")
        day.clean_meanwhile(lambda: reassign(day.nodes, "idempotent", 0, 1))
        day.strike(1, "cleanerd", "transactional-0")
        day.strike(0, "broker and cleanerd", "transactional-1")
        if first.version >= MOVES_SINCE:
            day.clean_meanwhile(lambda: move(first, 1, "idempotent", 1))
        day.clean_meanwhile(lambda: reassign(day.nodes, "idempotent", 0, 2))
        day.strike(0, "broker", "transactional-0")
        day.clean_until("a hundred swaps", lambda: day.swaps >= SWAPS and day.load.full_reads >= 2)
        day.clean_until("every replica is cleaned", lambda: without_checkpoint(day) == [])
    check(day)
    assert any(day.load.ledger.aborted.values())
    assert all(day.load.ledger.expected(place) for place in day.load.places)
    print(f"\n{first.version}: {day.swaps} swaps, {day.load.ledger.count} records, {day.struck}")  # noqa: T201
