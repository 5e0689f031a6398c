"""What is remembered of partitions goes with them: the state directory does not grow with every deleted topic."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import structlog

from cleanerd.errors import CleanerdError
from cleanerd.log.log_dir import read_log_dir

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cleanerd.daemon.looking.log_dir_look import LogDirLook
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.clean_point import StateStore

SWEEP_SECONDS: Final = 30.0
"""A cluster that makes and deletes topics all day has each log directory's files looked through this often at most."""

_log = structlog.get_logger()


class Sweeper:
    """Sweeps after the first look at a log directory, and after partitions have left it; only the look thread uses it.

    Not where the daemon observes: there it writes nothing.
    """

    def __init__(self, period_seconds: float = SWEEP_SECONDS) -> None:
        self._period_seconds = period_seconds
        self._present: dict[Path, frozenset[TopicPartition]] = {}
        self._due: set[Path] = set()
        self._not_before: dict[Path, float] = {}

    def after(self, looks: Iterable[LogDirLook], store: StateStore) -> list[LogDirLook]:
        """Of the looks, which are returned as they are."""
        found = list(looks)
        for each in found:
            if each.present is None or each.mode.work == "observe":
                continue
            before = self._present.get(each.path)
            self._present[each.path] = each.present
            if before is None or before - each.present:
                self._due.add(each.path)
            if each.path in self._due and time.monotonic() >= self._not_before.get(each.path, 0.0):
                self._due.discard(each.path)
                self._not_before[each.path] = time.monotonic() + self._period_seconds
                _sweep(each.path, store)
        return found


def _sweep(path: Path, store: StateStore) -> None:
    try:
        removed = store.forget_gone(read_log_dir(path))
    except (CleanerdError, OSError):
        return  # it, or the state directory, went away just now: whoever needs it says so
    if removed:
        _log.info("forgot partitions that are gone", log_dir=str(path), partitions=removed)
