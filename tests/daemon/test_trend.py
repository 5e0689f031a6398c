"""A day of figures: the point that each value goes to, a restart, and harmless damage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.status.trend import EVERY_MS, FILE_NAME, POINTS, TrendRing
from cleanerd.daemon.view import DaemonTotals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.daemon.view import Trend

BEGIN_MS = 1_800_000_000_000 - 1_800_000_000_000 % EVERY_MS


class Day:
    """A ring that gets values minute by minute."""

    def __init__(self, state_dir: Path) -> None:
        self.ring = TrendRing(state_dir)
        self.totals = DaemonTotals()
        self.dirty = 0
        self.summed = 0

    def at(self, minutes: float, *, saved: int = 0, held: float = 0.0, dirty: int | None = None) -> Trend:
        self.totals = DaemonTotals(
            bytes_before=self.totals.bytes_before + saved,
            cleanings={"cleaned": self.totals.cleanings.get("cleaned", 0) + (saved > 0)},
        )
        self.dirty = self.dirty if dirty is None else dirty
        return self.ring.observe(BEGIN_MS + int(minutes * 60_000), self.totals, held, self._sum)

    def _sum(self) -> int:
        self.summed += 1
        return self.dirty


def test_events_are_in_the_point_of_their_ten_minutes(tmp_path: Path) -> None:
    """Sums of the increase since the last call; the longest hold; the dirty bytes of the end."""
    day = Day(tmp_path)
    day.at(1, saved=100, held=0.002, dirty=7)
    day.at(5, saved=20, held=0.001, dirty=9)
    found = day.at(12, saved=3, dirty=4)
    assert found.end_ms == BEGIN_MS + 2 * EVERY_MS
    assert len(found.cleanings) == POINTS
    assert found.reclaimed_bytes[-2:] == (120, 3)
    assert found.cleanings[-2:] == (2, 1)
    assert found.held_us[-2:] == (2000, 0)
    assert found.dirty_bytes[-2:] == (9, 4)
    assert set(found.cleanings[:-2]) == {None}


def test_a_restart_keeps_the_day_and_continues_to_count(tmp_path: Path) -> None:
    """The new daemon's counters start at zero, and nothing is counted twice or lost; the time between is a gap."""
    first = Day(tmp_path)
    first.at(1, saved=100)
    first.ring.save()
    second = Day(tmp_path)
    assert second.at(2, saved=5).reclaimed_bytes[-1] == 105
    second.ring.save()
    third = Day(tmp_path)
    found = third.at(35, saved=1)
    assert found.reclaimed_bytes[-4:] == (105, None, None, 1)
    assert third.ring.warnings == []


@pytest.mark.slow
def test_a_day_is_all_that_is_kept(tmp_path: Path) -> None:
    day = Day(tmp_path)
    for number in range(POINTS + 40):
        day.at(10 * number, saved=1)
    day.ring.save()
    assert len(json.loads((tmp_path / FILE_NAME).read_bytes())["points"]) == POINTS
    assert (tmp_path / FILE_NAME).stat().st_size < 32_000
    assert None not in day.at(10 * (POINTS + 40)).cleanings


def test_a_point_is_written_when_it_is_complete(tmp_path: Path) -> None:
    """A killed daemon loses at most ten minutes of figures."""
    day = Day(tmp_path)
    day.at(1, saved=100)
    assert not (tmp_path / FILE_NAME).exists()
    day.at(11)
    assert Day(tmp_path).at(12).reclaimed_bytes[-2:] == (100, 0)


def test_writing_does_not_block_the_event_loop(tmp_path: Path) -> None:
    """The event loop hands it over: the call reads and writes nothing, the order stays, and errors are reported."""
    waiting: list[tuple[Callable[[], str], Callable[[str], None]]] = []
    day = Day(tmp_path)
    day.ring = TrendRing(tmp_path, lambda work, done: waiting.append((work, done)))
    day.at(1, saved=100)
    day.at(11, saved=7)
    day.at(21)
    assert not (tmp_path / FILE_NAME).exists()
    for work, done in waiting:
        done(work())
    assert [point["cleanings"] for point in json.loads((tmp_path / FILE_NAME).read_bytes())["points"]] == [1, 1]
    waiting[-1][1]("a warning")
    waiting[-1][1]("a warning")
    assert day.ring.warnings == ["a warning"]


def test_partitions_are_not_summed_at_every_view(tmp_path: Path) -> None:
    """Thousands of partitions, a view per second: a sum every ten seconds, and one for each new point."""
    day = Day(tmp_path)
    for second in range(60):
        day.at(second / 60)
    assert day.summed == 6


def test_a_clock_that_goes_back_adds_to_the_last_point(tmp_path: Path) -> None:
    day = Day(tmp_path)
    day.at(25, saved=1)
    found = day.at(3, saved=1)
    assert found.reclaimed_bytes[-1] == 2
    assert found.end_ms == BEGIN_MS + 3 * EVERY_MS


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"format": 1}', '{"format": 2, "points": []}', '{"format": 1, "points": [5]}',
        '{"format":1,"points":[{"slot":1e400,"reclaimed_bytes":0,"cleanings":0,"dirty_bytes":0,"held_us":0}]}',
        '{"format":1,"points":[{"slot":1,"reclaimed_bytes":0,"cleanings":true,"dirty_bytes":0,"held_us":0}]}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_reported_and_harmless(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    day = Day(tmp_path)
    assert len(day.ring.warnings) == 1
    assert "damaged" in day.ring.warnings[0]
    assert day.at(1, saved=9).reclaimed_bytes[-1] == 9
    day.ring.save()
    assert Day(tmp_path).ring.warnings == []


def test_an_unwritable_state_directory_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    day = Day(tmp_path / "state")
    day.ring.warnings.clear()
    for minutes in (1, 11, 21):
        day.at(minutes, saved=1)
    assert len(day.ring.warnings) == 1
    assert "cannot be written" in day.ring.warnings[0]
