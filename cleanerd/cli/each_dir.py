"""Several log directories, one after the other: one that cannot be used does not stop the others."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from cleanerd.errors import CleanerdError, as_cleanerd_error
from cleanerd.resolution.checkpoint_pair import FirstReadings
from cleanerd.segments.log_dir import read_log_dir
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
    from cleanerd.segments.log_dir import LogDir


@dataclass(frozen=True, slots=True)
class CleaningRequest:
    """The targets of a command line that cleans or stages, the same for all its log directories, ``paths``.

    ``wanted``: only these partitions, if it names any. ``kept``: where segments that are replaced are to be kept.
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
        """With the memory that the settings name."""
        store = StateStore(settings.daemon.cleanerd_state_dir)
        return cls(common.output, settings, paths, wanted, options, store, kept)

    def others(self, path: Path) -> list[Path]:
        """The other log directories, which may be the same broker's."""
        return [other for other in self.paths if other != path]

    def each(
        self,
        work: Callable[[CleaningRequest, LogDir], list[CleaningResult]],
        *,
        first: Callable[[], None] = lambda: None,
    ) -> tuple[list[CleaningResult], list[CleanerdError]]:
        """Results of ``work`` for each directory, and errors of the others, which are also printed.

        ``first``: called before the first of them, if there is any that can be read.
        """
        results: list[CleaningResult] = []
        readable, failures = read_each(self.output, self.paths)
        if readable:
            first()
        for log_dir in readable:
            with collected(failures, self.output):
                results += work(self, log_dir)
        for warning in self.store.warnings:
            self.output.warning(warning)
        return results, failures


@contextlib.contextmanager
def collected(failures: list[CleanerdError], output: Output) -> Iterator[None]:
    """An error in the block is printed and kept; the next directory gets its turn."""
    try:
        yield
    except (CleanerdError, OSError) as caught:
        error = as_cleanerd_error(caught, "")
        output.warning(str(error))
        failures.append(error.without_frames())


def read_each(output: Output, paths: Sequence[Path]) -> tuple[list[LogDir], list[CleanerdError]]:
    """The readable ones, and the others' errors, which are also printed."""
    readable: list[LogDir] = []
    failures: list[CleanerdError] = []
    for path in paths:
        with collected(failures, output):
            readable.append(read_log_dir(path))
    return readable, failures
