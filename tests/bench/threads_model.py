"""Threads that share one interpreter's lock, simulated: a core for each, the lock given in the order of asking.

A thread's program yields what it does next: hold the lock for so long, run without it for so long, or wait until all
work numbered below its own has been put in order. Nothing else is modelled: no bandwidth of memory or disk, no cost of
handing the lock over.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Step = tuple[Literal["hold", "free", "turn", "over"], float]


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds of a phase: with the lock; without it, by anybody; without it, in order, one after the other."""

    held: float
    parallel: float
    in_order: float

    @property
    def seconds(self) -> float:
        """Of one thread alone."""
        return self.held + self.parallel + self.in_order


def finished_after(programs: Sequence[Iterator[Step]], *, one_lock: bool = True) -> float:
    """When the last thread ends. Without ``one_lock`` holding it keeps nobody waiting (free-threaded Python)."""
    now = 0.0
    ready = [(0.0, number) for number in range(len(programs))]
    heapq.heapify(ready)
    lock_is_free_at = 0.0
    next_turn = 0
    waiting: dict[int, int] = {}
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
        elif kind == "turn":
            if int(amount) == next_turn:
                heapq.heappush(ready, (now, number))
            else:
                waiting[int(amount)] = number
        else:
            next_turn = int(amount) + 1
            heapq.heappush(ready, (now, number))
            if next_turn in waiting:
                heapq.heappush(ready, (now, waiting.pop(next_turn)))
    return now


def partitions_at_once(works: Sequence[Work], threads: int, *, pieces: int, one_lock: bool = True) -> float:
    """How much faster so many threads clean as many partitions, against one thread that cleans them in turn."""
    chance = random.Random(20261125)

    def program() -> Iterator[Step]:
        for work in works:
            for _ in range(pieces):
                yield "hold", chance.expovariate(1.0) * work.held / pieces
                yield "free", chance.expovariate(1.0) * (work.parallel + work.in_order) / pieces

    alone = sum(work.seconds for work in works)
    return threads * alone / finished_after([program() for _ in range(threads)], one_lock=one_lock)


def one_partition(works: Sequence[Work], threads: int, *, pieces: int, one_lock: bool = True) -> float:
    """How much faster so many threads are inside one partition: phase after phase, pieces of each in order."""
    chance = random.Random(20261125)
    alone = sum(work.seconds for work in works)
    took = 0.0
    for work in works:
        if not work.parallel:  # nothing of it is shared out
            took += work.seconds
            continue
        queue = deque(range(pieces))

        def program(work: Work = work, queue: deque[int] = queue) -> Iterator[Step]:
            while queue:
                number = queue.popleft()
                yield "hold", chance.expovariate(1.0) * work.held / pieces / 2
                yield "free", chance.expovariate(1.0) * work.parallel / pieces
                yield "turn", number
                yield "free", chance.expovariate(1.0) * work.in_order / pieces
                yield "hold", chance.expovariate(1.0) * work.held / pieces / 2
                yield "over", number

        took += finished_after([program() for _ in range(threads)], one_lock=one_lock)
    return alone / took
