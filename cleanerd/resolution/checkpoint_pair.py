"""Checkpoints beside a running broker are read twice, and the lower value is used (S-03).

After a truncation the high watermark on disk can be too high for a moment. Two readings two checkpoint intervals apart,
with a log that was not truncated in between, exclude that.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cleanerd.broker.lock_file import broker_runs
from cleanerd.errors import CleanerdError
from cleanerd.segments.log_dir import LogDir, read_log_dir
from cleanerd.segments.partition import read_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cleanerd.format.names import TopicPartition

SETTLE_SECONDS = 10.0
"""Time between two readings: two intervals of ``replica.high.watermark.checkpoint.interval.ms``."""

End = tuple[int, int]
"""Base offset and size in bytes of a log's highest segment."""


@dataclass(frozen=True, slots=True)
class EarlierReading:
    """An earlier reading of a log directory: checkpoints (None: none old enough) and the logs' ends."""

    log_dir: LogDir | None = None
    ends: Mapping[TopicPartition, End] = field(default_factory=dict)

    def knows(self, name: TopicPartition) -> bool:
        """Whether there are two readings of the partition."""
        return self.log_dir is not None and name in self.ends

    def lower_of(self, log_dir: LogDir, name: TopicPartition, end: End) -> LogDir:
        """``log_dir`` with the offsets of one partition: the lower of both readings, 0 while they are uncertain.

        They are uncertain without two readings, or if the log was truncated since; ``end``: its current end.
        """
        earlier = self.log_dir

        def lower(early: Mapping[TopicPartition, int], late: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
            return {name: min(early.get(name, 0), late.get(name, 0))}

        if earlier is None or name not in self.ends or end < self.ends[name]:
            return replace(log_dir, high_watermarks={name: 0}, recovery_points={name: 0})
        return replace(
            log_dir,
            high_watermarks=lower(earlier.high_watermarks, log_dir.high_watermarks),
            recovery_points=lower(earlier.recovery_points, log_dir.recovery_points),
        )


class FirstReadings:
    """The first readings of several log directories, which share one wait."""

    def __init__(self) -> None:
        self._first: dict[Path, tuple[float, EarlierReading]] = {}

    def read_twice(
        self, path: Path, notify: Callable[[str], None], beside: Sequence[Path] = ()
    ) -> tuple[EarlierReading, LogDir]:
        """Read a running broker's log directory twice; reports the wait in between.

        ``beside``: directories that may follow. Those with a broker get their first reading now.

        Raises:
            CleanerdError: the directory cannot be read.
        """
        if path not in self._first:
            self._add(path)
            for other in beside:
                with contextlib.suppress(CleanerdError):  # reported when it is read
                    if other not in self._first and broker_runs(other):
                        self._add(other)
        began, earlier = self._first.pop(path)
        left = began + SETTLE_SECONDS - time.monotonic()
        if left > 0:
            notify(f"{path}: a broker runs on it; its checkpoints are read twice, {SETTLE_SECONDS:.0f} s apart")
            time.sleep(left)
        return earlier, read_log_dir(path)

    def _add(self, path: Path) -> None:
        first = read_log_dir(path)
        ends = highest_segments(first)
        self._first[path] = time.monotonic(), EarlierReading(first, ends)


def highest_segments(log_dir: LogDir) -> dict[TopicPartition, End]:
    """The current end of every log; unreadable partitions are left out."""
    ends = {}
    for name in log_dir.partitions:
        try:
            active = read_partition(log_dir, name).active
        except CleanerdError:
            continue  # the cleaning reports why it cannot be read
        ends[name] = (active.base, active.size_bytes)
    return ends


def is_separate_write(early: float, late: float, settle_seconds: float = SETTLE_SECONDS) -> bool:
    """Whether the broker has written its checkpoints between these times, in seconds."""
    return late - early >= settle_seconds


class CheckpointPairs:
    """The readings of one log directory that is scanned regularly."""

    def __init__(self, settle_seconds: float = SETTLE_SECONDS) -> None:
        self._settle_seconds = settle_seconds
        self._earlier: tuple[float, LogDir] | None = None
        self._latest: tuple[float, LogDir] | None = None

    def add(self, log_dir: LogDir) -> None:
        """Add a reading; one too soon after the previous is ignored."""
        now = time.monotonic()
        if self._latest is not None and self._latest[1].meta != log_dir.meta:
            self._earlier = self._latest = None  # another directory was mounted in its place
        if self._latest is not None and is_separate_write(self._latest[0], now, self._settle_seconds):
            self._earlier = self._latest
        if self._latest is None or self._earlier is self._latest:
            self._latest = (now, log_dir)

    def earlier(self, ends: Mapping[TopicPartition, End]) -> EarlierReading:
        """The last reading that is old enough. ``ends``: the logs' ends at the last scan."""
        return EarlierReading(None if self._earlier is None else self._earlier[1], ends)
