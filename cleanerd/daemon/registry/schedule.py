"""Which partitions are cleaned next. Pure: candidates in, an ordered choice out.

The order (C-12 is Kafka's: the highest dirty ratio; ours differs on purpose):

1. what an operator requested; 2. what is overdue: ``max.compaction.lag.ms`` is a promise, so the longest overdue first.
A partition that has waited for
   ``STARVED_MS`` is overdue from then on, so that a flood of overdue partitions starves no other;
3. everything else by bytes reclaimed per byte moved, plus a bonus for waiting: after ``AGEING_MS`` it outweighs any
   saving, so that a partition with little to win gets its turn.

All that have waited as long since then come before a partition whose last cleaning ended early (D-11). Later ones do
not delay it (D-12).

A partition is cleaned by one worker at a time, a log directory by no more than its cap, and outside of the windows only
requested or overdue cleanings begin. A partition with a killed process comes last and alone: if it kills this one too,
the others are done, and it is the only suspect.

Time in closed windows (``cleanerd.windows``) does not count as waiting.

Otherwise every partition that waited through a day would be overdue in the evening, and those with an exceeded
``max.compaction.lag.ms`` would lose their priority.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from cleanerd.daemon.partition_scan import Key
    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.view import Trigger
    from cleanerd.format.names import TopicPartition


AGEING_MS: Final = 3_600_000
"""Waiting this long weighs as much as a cleaning that frees every byte that it moves."""

STARVED_MS: Final = 6 * 3_600_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition that may be cleaned now.

    ``reclaimable_bytes``: what a cleaning is expected to save; ``moved_bytes``: what it has to read and write.
    ``overdue_ms``: how long it has been overdue by ``max.compaction.lag.ms``, 0 if it is not. ``waiting_ms``: how long
    it has been a candidate. ``is_suspect``: a process was killed while it cleaned it. ``had_part``: its last cleaning
    ended early, and this one would continue it.
    """

    name: TopicPartition
    log_dir: str
    trigger: Trigger
    reclaimable_bytes: int
    moved_bytes: int
    overdue_ms: int = 0
    waiting_ms: int = 0
    is_suspect: bool = False
    had_part: bool = False

    @property
    def efficiency(self) -> float:
        """Bytes reclaimed per byte moved, 0 to 1."""
        return min(1.0, max(0, self.reclaimable_bytes) / max(1, self.moved_bytes))


@dataclass(frozen=True, slots=True)
class ScheduleLimits:
    """How many cleanings at once, in total and per log directory.

    ``window_open``: any may begin, else only urgent ones.
    """

    threads: int
    per_log_dir: int
    window_open: bool = True


def ordered(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates in order; equal ones by name, so that the result is deterministic."""
    ranked = sorted(candidates, key=_rank)
    parts = sorted((each.waiting_ms, place) for place, each in enumerate(ranked) if each.had_part)
    if not parts:
        return ranked
    waited = [waiting_ms for waiting_ms, _ in parts]
    foremost = list(accumulate((place for _, place in parts), min))

    def turn(place: int) -> tuple[int, int, int]:
        each = ranked[place]
        # The number of parts that have waited no longer than it; it comes before all of them.
        behind = bisect_left(waited, each.waiting_ms) if each.had_part else bisect_right(waited, each.waiting_ms)
        before = foremost[behind - 1] if behind else place
        if before < place:
            return before, int(each.had_part), -each.waiting_ms if each.had_part else place
        return place, 2, 0

    return [ranked[place] for place in sorted(range(len(ranked)), key=turn)]


def choose(
    candidates: Collection[Candidate], running: Collection[tuple[str, TopicPartition]], limits: ScheduleLimits
) -> list[Candidate]:
    """The ones that begin now, beside the ``running`` ones (log directory and partition), which have no suspect."""
    suspects = ordered(each for each in candidates if each.is_suspect and _may_begin(each, limits))
    if turn := next((each for each in suspects if each.trigger == "manual" or each.waiting_ms > STARVED_MS), None):
        return [] if running else [turn]
    chosen = _compatible_jobs([each for each in candidates if not each.is_suspect], running, limits)
    return chosen if chosen or running else suspects[:1]


def is_urgent(candidate: Candidate) -> bool:
    """Whether it waits for no window."""
    return candidate.trigger in {"manual", "erasure", "overdue"}


def _may_begin(candidate: Candidate, limits: ScheduleLimits) -> bool:
    return limits.threads > 0 and (limits.window_open or is_urgent(candidate))


def _compatible_jobs(
    candidates: Iterable[Candidate], running: Collection[tuple[str, TopicPartition]], limits: ScheduleLimits
) -> list[Candidate]:
    per_dir = Counter(log_dir for log_dir, _ in running)
    busy = {name for _, name in running}
    chosen: list[Candidate] = []
    for candidate in ordered(candidates):
        if len(running) + len(chosen) >= limits.threads:
            break
        if candidate.name in busy or per_dir[candidate.log_dir] >= limits.per_log_dir:
            continue
        if not _may_begin(candidate, limits):
            continue
        chosen.append(candidate)
        busy.add(candidate.name)
        per_dir[candidate.log_dir] += 1
    return chosen


def _rank(candidate: Candidate) -> tuple[int, float, str, int, str]:
    late_ms = max(candidate.overdue_ms, candidate.waiting_ms - STARVED_MS)
    if candidate.trigger == "manual":
        tier, worth = 0, float(candidate.waiting_ms)
    elif late_ms > 0 or candidate.trigger == "erasure":
        tier, worth = 1, float(late_ms)
    else:
        tier, worth = 2, candidate.efficiency + candidate.waiting_ms / AGEING_MS
    return tier, -worth, candidate.name.topic, candidate.name.partition, candidate.log_dir


class ClosedWindows:
    """Excludes the time without an open cleaning window from how long partitions wait; has no clock of its own."""

    def __init__(self) -> None:
        self._closed_ms: int | None = None

    def exclude_closed_time(
        self,
        candidates: Iterable[Candidate],
        partitions: Mapping[Key, PartitionEntry],
        now_ms: int,
        *,
        window_open: bool,
    ) -> None:
        """Called in each pass: if the window was closed in the last one, the time since then does not count.

        ``candidates``: the ``partitions`` that would be cleaned.
        """
        before, self._closed_ms = self._closed_ms, None if window_open else now_ms
        if before is None:
            return
        for candidate in candidates:
            entry = partitions[candidate.log_dir, candidate.name]
            if not is_urgent(candidate) and entry.waiting_since_ms is not None:
                entry.waiting_since_ms = min(now_ms, entry.waiting_since_ms + max(0, now_ms - before))
