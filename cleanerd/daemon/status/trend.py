"""A day of figures, one point per ten minutes, which the page draws; stored over a restart in ``trend.json``.

A file of limited size in the state directory, written when a point is complete and when the daemon ends. If it is
damaged or unwritable, that is reported, and the day begins again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from cleanerd.daemon.view import DaemonTotals, Trend
from cleanerd.state.document import Document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[[Callable[[], str], Callable[[str], None]], None]

EVERY_MS: Final = 10 * 60_000
POINTS: Final = 144
"""Number of points, ten minutes each: a day."""

SUM_EVERY_MS: Final = 10_000
"""Dirty bytes are summed over all partitions at most this often."""

FILE_NAME: Final = "trend.json"
_MAX_NUMBER: Final = 2**63 - 1


@dataclass(slots=True)
class _Point:
    """Ten minutes: sums, the dirty bytes at their end, the longest time that a swap held a partition's lock."""

    slot: int
    reclaimed_bytes: int = 0
    cleanings: int = 0
    dirty_bytes: int = 0
    held_us: int = 0


@dataclass(frozen=True, slots=True)
class _TrendFile:
    points: tuple[_Point, ...]


def _check(file: _TrendFile) -> None:
    if any(one.slot >= other.slot for one, other in pairwise(file.points)):
        raise ValueError("its points are not in order")
    numbers = (each for p in file.points for each in (p.slot, p.reclaimed_bytes, p.cleanings, p.dirty_bytes, p.held_us))
    if any(abs(each) > _MAX_NUMBER for each in numbers):
        raise ValueError("a number in it is too large")


_DOCUMENT: Final = Document(FILE_NAME, _TrendFile, check=_check)


class TrendRing:
    """The points of the last day, oldest first; used by the daemon's event loop only.

    ``write`` runs its first argument, a write that a slow disk may delay, in the order of the calls, and passes the
    result to the second, on the event loop. By default it does so at once.
    """

    def __init__(self, state_dir: Path, write: Write | None = None) -> None:
        self._state_dir = state_dir
        self._write = write or _at_once
        self.warnings: list[str] = []
        known = _DOCUMENT.load(state_dir, self.warnings)
        self._points = [] if known is None else list(known.points[-POINTS:])
        self._counted = (0, 0)
        self._summed_ms = -SUM_EVERY_MS
        self._unwritten = False

    def observe(self, now_ms: int, totals: DaemonTotals, held_seconds: float, dirty_bytes: Callable[[], int]) -> Trend:
        """Count the events since the last call, and return the day.

        ``held_seconds``: the longest hold of a lock since then. If the clock goes back, they are added to the last
        point.
        """
        slot = now_ms // EVERY_MS
        self._points = [each for each in self._points if slot - POINTS < each.slot <= slot + POINTS]
        if not self._points or self._points[-1].slot < slot:
            self.save()
            self._points.append(_Point(slot, dirty_bytes=self._points[-1].dirty_bytes if self._points else 0))
            self._summed_ms = now_ms - SUM_EVERY_MS
        point = self._points[-1]
        counted = (totals.bytes_before - totals.bytes_after, totals.cleanings.get("cleaned", 0))
        point.reclaimed_bytes += counted[0] - self._counted[0]
        point.cleanings += counted[1] - self._counted[1]
        self._counted = counted
        point.held_us = max(point.held_us, round(held_seconds * 1_000_000))
        if not 0 <= now_ms - self._summed_ms < SUM_EVERY_MS:
            self._summed_ms = now_ms
            point.dirty_bytes = dirty_bytes()
        return self._day(point.slot)

    def save(self) -> None:
        """Store the points; a failure is reported once."""
        if not self._points:
            return
        points = tuple(replace(point) for point in self._points[-POINTS:])  # the last one still changes
        self._write(partial(_store, self._state_dir, _TrendFile(points)), self._stored)

    def _stored(self, problem: str) -> None:
        if problem and not self._unwritten:
            self.warnings.append(problem)
        self._unwritten = bool(problem)

    def _day(self, last: int) -> Trend:
        known = {point.slot: point for point in self._points}
        points = [known.get(slot) for slot in range(last - POINTS + 1, last + 1)]
        return Trend(
            every_ms=EVERY_MS,
            end_ms=(last + 1) * EVERY_MS,
            reclaimed_bytes=tuple(None if each is None else each.reclaimed_bytes for each in points),
            dirty_bytes=tuple(None if each is None else each.dirty_bytes for each in points),
            cleanings=tuple(None if each is None else each.cleanings for each in points),
            held_us=tuple(None if each is None else each.held_us for each in points),
        )


def _store(state_dir: Path, file: _TrendFile) -> str:
    problem = _DOCUMENT.try_write(state_dir, file)
    return problem and f"{problem}; figures are lost at a restart"


def _at_once(work: Callable[[], str], done: Callable[[str], None]) -> None:
    done(work())
