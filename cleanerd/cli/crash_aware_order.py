"""The order of partitions in a command: those that a killed process was cleaning come last, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from cleanerd.errors import UnsupportedLogError
from cleanerd.state.in_progress import InFlightMarkers
from cleanerd.swap.record_outcome import not_cleaned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cli.output import Output
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.selection import PartitionSelection
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.state.cleaner_checkpoint import StateStore

T = TypeVar("T")


class CrashAwareOrder:
    """The crash markers of one log directory (U-35). Partitions that ``wanted`` names are tried in any case."""

    def __init__(self, store: StateStore, log_dir: LogDir, wanted: PartitionSelection, output: Output) -> None:
        self._store = store
        self._log_dir = log_dir
        self._named = wanted.named
        self._in_flight = InFlightMarkers(store)
        self._suspects = self._in_flight.suspects(log_dir)
        for name, suspect in self._suspects.items():
            if not suspect.is_too_much:
                output.warning(f"{name}: {suspect.reason}")

    def last(self, items: Iterable[T], name_of: Callable[[T], TopicPartition]) -> tuple[list[T], list[T]]:
        """The partitions that may run in parallel, and those that follow, one by one."""
        first: list[T] = []
        alone: list[T] = []
        for item in items:
            (alone if name_of(item) in self._suspects else first).append(item)
        return first, alone

    def do(self, name: TopicPartition, work: Callable[[], CleaningResult]) -> CleaningResult:
        """Run ``work`` with a marker; not for a partition that has killed more than one process."""
        suspect = self._suspects.get(name)
        if suspect is not None and suspect.is_too_much and name not in self._named:
            return not_cleaned(self._store, self._log_dir, name, UnsupportedLogError(suspect.reason, where=str(name)))
        with self._in_flight.working(self._log_dir, name):
            return work()
