"""Chooses the next partition to clean without a pass over all partitions each time.

A pass sorts the partitions that may be cleaned. Until the next pass this order is used, and only its first ones are
judged again. So with thousands of partitions an idle worker costs as little as with a hundred; with a hundred, nearly
every choice is a pass.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from cleanerd.daemon.limits import OF_THE_LOOP, pause_seconds
from cleanerd.daemon.registry.schedule import Candidate, ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cleanerd.daemon.partition_scan import Key
    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.work.job import Kind

FIRST: Final = 8
"""Partitions to judge again at once: enough for all threads, unless all their log directories are busy."""


class CleaningQueue:
    """``clock``: monotonic seconds; ``work``: CPU seconds of this thread.

    A pass is measured in CPU time: a machine that was suspended meanwhile would delay the next one for hours.
    """

    def __init__(
        self,
        registry: PartitionRegistry,
        clock: Callable[[], float] = time.monotonic,
        work: Callable[[], float] = time.thread_time,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._work = work
        self._until = clock()
        self._order: deque[Key] = deque()
        self._spare: deque[tuple[Key, Kind]] = deque()
        self.has_suspects = False

    @property
    def is_fresh(self) -> bool:
        """Whether the order of the last pass may still be used. Not with a suspect, which is tried after all others."""
        return self._clock() < self._until and not self.has_suspects

    def pass_over_all(self, now_ms: int) -> list[Candidate]:
        """The partitions that may be cleaned now, in order."""
        began = self._work()
        found = ordered(self._registry.candidates(now_ms))
        self.has_suspects = any(each.is_suspect for each in found)
        self._order = deque((each.log_dir, each.name) for each in found)
        self._spare.clear()
        if not found:  # suspects last: if one kills the process, the others are done before
            spare = sorted(self._registry.spare_work(now_ms), key=lambda each: each[0].suspect is not None)
            self._spare.extend((entry.key, kind) for entry, kind in spare)
        self._until = self._clock() + pause_seconds(self._work() - began, OF_THE_LOOP)
        return found

    def first(self, now_ms: int) -> list[Candidate]:
        """The first candidates of the last pass that may still be cleaned."""
        partitions, found = self._registry.partitions, list[Candidate]()
        while self._order and not found:
            keys = [self._order.popleft() for _ in range(min(FIRST, len(self._order)))]
            found = self._registry.candidates(now_ms, [partitions[key] for key in keys if key in partitions])
            still = {(each.log_dir, each.name) for each in found}
            self._order.extendleft(key for key in reversed(keys) if key in still)
        self.has_suspects = self.has_suspects or any(each.is_suspect for each in found)
        return found

    def spare_work(self, now_ms: int, running: Collection[Key]) -> tuple[PartitionEntry, Kind] | None:
        """Work beside the ``running`` jobs while no partition is to be cleaned; each partition once per pass."""
        while self._spare:
            key, kind = self._spare.popleft()
            entry = self._registry.partitions.get(key)
            if entry is None or key in running or (entry.suspect is not None and running):
                continue
            if self._registry.is_spare_work(entry, kind, now_ms):
                return entry, kind
        return None
