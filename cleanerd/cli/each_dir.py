"""The log directories of a command: each is opened once, and an unusable one does not stop the others."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Self

from cleanerd.broker.lock_file import broker_runs
from cleanerd.errors import CleanerdError, as_cleanerd_error
from cleanerd.resolution.broker_facts import BrokerFacts, broker_facts
from cleanerd.resolution.checkpoint_pair import FirstReadings
from cleanerd.segments.log_dir import LogDir, LogDirMemory, read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.cli.options import Common
    from cleanerd.cli.output import Output
    from cleanerd.config.load import Settings
    from cleanerd.resolution.selection import PartitionSelection


@dataclass(frozen=True)
class LogDirSession:
    """One log directory of a command, as it was when the command began.

    ``others``: the other log directories, which may belong to the same broker. The cleaning itself reads the directory
    a second time: under the lock, or beside the broker. ``memory`` is what the readings of this directory found.
    """

    settings: Settings
    log_dir: LogDir
    others: Sequence[Path]
    memory: LogDirMemory

    @property
    def path(self) -> Path:
        return self.log_dir.path

    @cached_property
    def running(self) -> bool:
        return broker_runs(self.path)

    @cached_property
    def facts(self) -> BrokerFacts:
        """The facts about its broker. Raises CleanerdError."""
        return broker_facts(self.settings, self.log_dir, self.others, running=self.running)

    def refresh(self) -> LogDir:
        """The log directory, read again. Raises CleanerdError."""
        return read_log_dir(self.path, self.memory)


@dataclass(frozen=True)
class CleaningRequest:
    """The targets of a command that cleans or stages, the same for all its log directories ``paths``.

    ``wanted``: only these partitions, if it names any. ``kept``: where replaced segments are kept.
    """

    output: Output
    settings: Settings
    paths: Sequence[Path]
    wanted: PartitionSelection
    options: CleaningOptions
    store: StateStore
    kept: Path | None = None
    first: FirstReadings = field(default_factory=FirstReadings)

    @classmethod
    def of(
        cls,
        common: Common,
        settings: Settings,
        paths: Sequence[Path],
        wanted: PartitionSelection,
        options: CleaningOptions,
        kept: Path | None,
    ) -> Self:
        """The request, with the memory from the settings."""
        store = StateStore(settings.daemon.cleanerd_state_dir)
        return cls(common.output, settings, paths, wanted, options, store, kept)

    @cached_property
    def opened(self) -> tuple[list[LogDirSession], list[CleanerdError]]:
        """The readable log directories, and the errors of the others, which are also printed."""
        sessions: list[LogDirSession] = []
        failures: list[CleanerdError] = []
        for path in self.paths:
            with collected(failures, self.output):
                memory = LogDirMemory()
                others = [other for other in self.paths if other != path]
                sessions.append(LogDirSession(self.settings, read_log_dir(path, memory), others, memory))
        return sessions, failures

    def each(
        self,
        work: Callable[[CleaningRequest, LogDirSession], list[CleaningResult]],
        *,
        first: Callable[[], None] = lambda: None,
    ) -> tuple[list[CleaningResult], list[CleanerdError]]:
        """Results of ``work`` for each directory, and errors of the others, which are also printed.

        ``first``: called before the first readable one.
        """
        results: list[CleaningResult] = []
        sessions, failures = self.opened
        if sessions:
            first()
        for session in sessions:
            with collected(failures, self.output):
                results += work(self, session)
        for warning in self.store.warnings:
            self.output.warning(warning)
        return results, failures


@contextlib.contextmanager
def collected(failures: list[CleanerdError], output: Output) -> Iterator[None]:
    """Print and collect an error in the block; then the next directory follows."""
    try:
        yield
    except (CleanerdError, OSError) as caught:
        error = as_cleanerd_error(caught, "")
        output.warning(str(error))
        failures.append(error.without_frames())
