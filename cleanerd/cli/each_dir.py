"""The log directories of a command, one after the other: an unusable one does not stop the others."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Self

from cleanerd.cli.output import print_error
from cleanerd.errors import CleanerdError, as_cleanerd_error
from cleanerd.resolution.checkpoint_pair import FirstReadings
from cleanerd.resolution.log_dir_session import LogDirSession
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
        """The request, with the state directory from the settings."""
        store = StateStore(settings.daemon.cleanerd_state_dir)
        return cls(common.output, settings, paths, wanted, options, store, kept)

    @cached_property
    def opened(self) -> tuple[list[LogDirSession], list[CleanerdError]]:
        """The readable log directories, and the errors of the others, which are also printed."""
        sessions: list[LogDirSession] = []
        failures: list[CleanerdError] = []
        for path in self.paths:
            with collected(failures):
                sessions.append(LogDirSession.open(self.settings, self.store, path, self.paths))
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
            with collected(failures):
                results += work(self, session)
        for warning in self.store.warnings:
            self.output.warning(warning)
        return results, failures


@contextlib.contextmanager
def collected(failures: list[CleanerdError]) -> Iterator[None]:
    """Print and collect an error in the block; then the next directory follows."""
    try:
        yield
    except (CleanerdError, OSError) as caught:
        error = as_cleanerd_error(caught, "")
        print_error(str(error))
        failures.append(error.without_frames())
