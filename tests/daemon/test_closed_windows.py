"""The time outside of the maintenance windows does not count as waiting."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cleanerd.daemon.registry.schedule import STARVED_MS, ClosedWindows, ScheduleLimits, choose, ordered
from tests.daemon.registries import KEY, NOW, candidate, registry_with
from tests.daemon.service import assignments, broker, serve, until

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service

HOUR_MS = 3_600_000
CLOSED = ScheduleLimits(4, 4, window_open=False)


def waited(closed_hours: int, open_hours: int) -> int:
    """How long a partition has waited that was dirty enough all the time."""
    registry, windows, now_ms = registry_with(), ClosedWindows(), NOW
    for hours, window_open in ((closed_hours, False), (open_hours, True)):
        for _ in range(240 * hours):
            now_ms += 15_000
            found = registry.candidates(now_ms)
            assert window_open or choose(found, (), CLOSED) == []
            windows.exclude_closed_time(found, registry.partitions, now_ms, window_open=window_open)
    (last,) = registry.candidates(now_ms)
    return last.waiting_ms


def test_only_open_hours_count_as_waiting() -> None:
    """The open hours of all windows together: even with a short window every partition has its turn in the end."""
    assert waited(16, 1) <= HOUR_MS + 15_000
    assert waited(16, 1) >= HOUR_MS - 15_000
    assert waited(0, 2) >= 2 * HOUR_MS - 15_000


def test_overdue_partitions_come_before_those_that_waited_for_the_window() -> None:
    """C-11: after the closed hours all of these counted as late, and overdue partitions came after them."""
    overdue = candidate(1, "overdue", overdue_ms=60_000)
    by_day = candidate(2, waiting_ms=waited(16, 0))
    assert by_day.waiting_ms < STARVED_MS
    assert ordered([by_day, overdue])[0] is overdue


def test_overdue_partitions_do_not_count_as_waiting_for_the_window() -> None:
    registry, windows = registry_with(), ClosedWindows()
    registry.partitions[KEY].requested = True
    for now_ms in (NOW, NOW + HOUR_MS):
        windows.exclude_closed_time(registry.candidates(now_ms), registry.partitions, now_ms, window_open=False)
    (requested,) = registry.candidates(NOW + HOUR_MS)
    assert requested.waiting_ms == HOUR_MS


def test_a_clock_that_goes_back_delays_nothing() -> None:
    registry, windows = registry_with(), ClosedWindows()
    for now_ms in (NOW, NOW - HOUR_MS, NOW - HOUR_MS + 1000):
        windows.exclude_closed_time(registry.candidates(now_ms), registry.partitions, now_ms, window_open=False)
    assert registry.partitions[KEY].waiting_since_ms == NOW - HOUR_MS + 1000


def test_the_daemon_counts_open_hours_only(root: Path) -> None:
    """Its own passes measure the time."""
    with broker(root):

        async def story(service: Service) -> None:
            service.configuration.window_is_open = lambda: False  # type: ignore[method-assign]
            await until("ready", lambda: service.view().ready)
            await until("known", lambda: bool(service.registry.partitions))
            (entry,) = service.registry.partitions.values()
            await until("it is to be cleaned", lambda: entry.queued)
            since = entry.waiting_since_ms
            assert since is not None
            await asyncio.sleep(0.05)
            service.dispatcher.schedule()
            assert entry.waiting_since_ms is not None
            assert entry.waiting_since_ms > since

        serve(assignments(root), story)
