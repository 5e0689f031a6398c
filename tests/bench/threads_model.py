"""Simulation of threads that share one interpreter's lock: a core for each, the lock given in the order of requests.

A thread's program yields its next step: hold the lock for some time, run without it for some time, signal an event, or
wait for one. Nothing else is modelled: no bandwidth of memory or disk, no cost of passing the lock on.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

from cleanerd.segments.pool import AHEAD

Step = tuple[Literal["hold", "free", "wait", "signal"], float]
"""The step, and its seconds; for "wait" and "signal" the number of the event."""


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds of a phase: with the lock; without it, in any thread; without it, in order, one after the other."""

    held: float
    parallel: float
    in_order: float

    @property
    def seconds(self) -> float:
        """Of one thread alone."""
        return self.held + self.parallel + self.in_order


def finished_after(programs: Sequence[Iterator[Step]], *, one_lock: bool = True) -> float:
    """When the last thread ends. Without ``one_lock`` holding it blocks no thread (free-threaded Python)."""
    now = 0.0
    ready = [(0.0, number) for number in range(len(programs))]
    heapq.heapify(ready)
    lock_is_free_at = 0.0
    reported: set[float] = set()
    waiting: defaultdict[float, list[int]] = defaultdict(list)
    while ready:
        now, number = heapq.heappop(ready)
        step = next(programs[number], None)
        if step is None:
            continue
        kind, amount = step
        if kind == "hold" and one_lock:
            lock_is_free_at = max(lock_is_free_at, now) + amount
            heapq.heappush(ready, (lock_is_free_at, number))
        elif kind in ("hold", "free"):
            heapq.heappush(ready, (now + amount, number))
        elif kind == "wait" and amount not in reported:
            waiting[amount].append(number)
        else:
            heapq.heappush(ready, (now, number))
            if kind == "signal":
                reported.add(amount)
                for other in waiting.pop(amount, []):
                    heapq.heappush(ready, (now, other))
    return now


def partitions_at_once(works: Sequence[Work], threads: int, *, pieces: int, one_lock: bool = True) -> float:
    """Speed-up of so many threads on as many partitions, compared with one thread that cleans them in turn."""
    chance = random.Random(20261125)

    def program() -> Iterator[Step]:
        for work in works:
            for _ in range(pieces):
                yield "hold", chance.expovariate(1.0) * work.held / pieces
                yield "free", chance.expovariate(1.0) * (work.parallel + work.in_order) / pieces

    alone = sum(work.seconds for work in works)
    return threads * alone / finished_after([program() for _ in range(threads)], one_lock=one_lock)


def one_partition(works: Sequence[Work], threads: int, *, pieces: int, one_lock: bool = True) -> float:
    """Speed-up of so many threads inside one partition: phase by phase, the pieces of every in order."""
    alone = sum(work.seconds for work in works)
    took = 0.0
    for work in works:
        if not work.parallel:  # none of it is divided
            took += work.seconds
        else:
            pool = _Pool(work, threads, pieces)
            programs = [pool.owner(), *(pool.worker() for _ in range(threads - 1))]
            took += finished_after(programs, one_lock=one_lock)
    return alone / took


class _Pool:
    """A phase of one partition in ``cleanerd.segments.pool``: free workers make pieces, the owner takes them in order.

    The owner makes one too if its next one is not ready. The number of ready pieces is limited. Parts of a log are
    similar: one takes half to one and a half times the average.
    """

    def __init__(self, work: Work, threads: int, pieces: int) -> None:
        self._work = work
        self._pieces = pieces
        self._window = threads + AHEAD
        self._chance = random.Random(20261125)
        self._begun = 0
        self._taken = 0
        self._made: set[int] = set()

    def worker(self) -> Iterator[Step]:
        while self._begun < self._pieces:
            if self._begun < self._taken + self._window:
                yield from self._make()
            else:
                yield "wait", _taken(self._begun - self._window)

    def owner(self) -> Iterator[Step]:
        for number in range(self._pieces):
            while number not in self._made:
                if self._begun < min(self._taken + self._window, self._pieces):
                    yield from self._make()
                else:
                    yield "wait", _made(number)
            yield "free", self._some(self._work.in_order)
            yield "hold", self._some(self._work.held / 2)
            self._taken = number + 1
            yield "signal", _taken(number)

    def _make(self) -> Iterator[Step]:
        number = self._begun
        self._begun += 1
        yield "hold", self._some(self._work.held / 2)
        yield "free", self._some(self._work.parallel)
        self._made.add(number)
        yield "signal", _made(number)

    def _some(self, seconds: float) -> float:
        return self._chance.uniform(0.5, 1.5) * seconds / self._pieces


def _made(number: int) -> int:
    return 2 * number


def _taken(number: int) -> int:
    return 2 * number + 1
