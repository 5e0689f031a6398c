"""Time in closed windows (``cleanerd.windows``) does not count as waiting.

Otherwise every partition that waited through a day would be overdue in the evening, and those with an exceeded
``max.compaction.lag.ms`` would lose their priority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.daemon.registry.schedule import Candidate, is_urgent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cleanerd.daemon.partition_scan import Key
    from cleanerd.daemon.registry.partition_entry import PartitionEntry


class ClosedWindows:
    """Receives each pass over all partitions; has no clock of its own."""

    def __init__(self) -> None:
        self._closed_ms: int | None = None

    def passed(
        self,
        candidates: Iterable[Candidate],
        partitions: Mapping[Key, PartitionEntry],
        now_ms: int,
        *,
        window_open: bool,
    ) -> None:
        """``candidates``: the ``partitions`` that would be cleaned; their wait since the last pass is ignored."""
        before, self._closed_ms = self._closed_ms, None if window_open else now_ms
        if before is None:
            return
        for candidate in candidates:
            tracked = partitions[candidate.log_dir, candidate.name]
            if not is_urgent(candidate) and tracked.waiting_since_ms is not None:
                tracked.waiting_since_ms = min(now_ms, tracked.waiting_since_ms + max(0, now_ms - before))
