"""Removes the state of deleted partitions, so that the state directory does not grow with every deleted topic."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

import structlog

from cleanerd.daemon.log_events import LogEvent
from cleanerd.errors import CleanerdError
from cleanerd.segments.log_dir import META_PROPERTIES, read_log_dir
from cleanerd.state.gone_partitions import OtherPlacesOfTopic, SweepResult, delete_gone_state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from cleanerd.daemon.discovery.log_dir_scan import LogDirScan
    from cleanerd.format.names import TopicPartition
    from cleanerd.state.cleaner_checkpoint import StateStore

SWEEP_SECONDS: Final = 30.0
"""Shortest interval of sweeps for a log directory; a cluster may create and delete topics all day."""

KEPT_SECONDS: Final = 600.0
"""Interval of checks of rules that stay because their topic lives on: another file may have them, or the topic be gone.
"""

_log = structlog.get_logger()


class StateSweeper:
    """Sweeps after the first scan of a log directory, and after partitions have left it; only the scan thread uses it.

    Not where the daemon observes: there it writes nothing.
    """

    def __init__(self, period_seconds: float = SWEEP_SECONDS, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._period_seconds = period_seconds
        self._present: dict[Path, frozenset[TopicPartition]] = {}
        self._due: set[Path] = set()
        self._not_before: dict[Path, float] = {}
        self._kept_until: dict[Path, float] = {}

    def after(
        self, look: LogDirScan, store: StateStore, *, all_seen: bool = True, log_dirs: Collection[Path] = ()
    ) -> None:
        """Called after one scan of a log directory. ``all_seen``: all of ``log_dirs`` answer."""
        if look.present is None or look.mode.work == "observe":
            return
        before = self._present.get(look.path)
        self._present[look.path] = look.present
        now = self._clock()
        if before is None or before - look.present or now >= self._kept_until.get(look.path, math.inf):
            self._due.add(look.path)
        if look.path in self._due and now >= self._not_before.get(look.path, 0.0):
            self._due.discard(look.path)
            self._not_before[look.path] = now + self._period_seconds
            swept = _sweep(look, store, log_dirs if all_seen else None)
            self._kept_until[look.path] = now + KEPT_SECONDS if swept.kept else math.inf


def _sweep(look: LogDirScan, store: StateStore, log_dirs: Collection[Path] | None) -> SweepResult:
    """``log_dirs``: None when one of them does not answer."""
    facts = look.facts
    if facts is None:
        return SweepResult()
    others = tuple(path for path in facts.log_dirs if path != look.path)
    try:
        # An unmounted disk's owner and content are unknown: it may have the metadata log.
        all_seen = log_dirs is not None and all((path / META_PROPERTIES).exists() for path in log_dirs)
        # A live daemon needs no metadata log; in ZooKeeper mode the broker is asked for the topics that it has. Without
        # one the topic may be on another broker now.
        elsewhere = OtherPlacesOfTopic(others, facts.topic_id, all_seen and facts.metadata is not None)
        swept = delete_gone_state(store, read_log_dir(look.path), elsewhere)
    except (CleanerdError, OSError):
        return SweepResult()  # it, or the state directory, went away just now: its next use reports that
    if swept.removed:
        _log.info(LogEvent.PARTITIONS_FORGOTTEN, log_dir=str(look.path), partitions=swept.removed)
    return swept
