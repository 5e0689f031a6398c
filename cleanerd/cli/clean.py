"""``cleanerd clean``: make the log directories of a stopped broker small again."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from cleanerd.apply.keep import require_keepable
from cleanerd.apply.lock import LogDirLock
from cleanerd.apply.offline import clean_partition
from cleanerd.apply.session import LockedDir
from cleanerd.apply.trash import Trash
from cleanerd.cleaner.cleaner import Progress, Stopped
from cleanerd.cleaner.result import CleaningResult, Dropped, exit_code
from cleanerd.cli.each_dir import collected, read_each
from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import Column, human_bytes, human_count, human_ms
from cleanerd.cli.plan import preview
from cleanerd.cli.scope import (
    parse_partitions,
    tell_links,
    tell_of_server_properties,
    tell_warnings,
    tell_what_is_missing,
)
from cleanerd.cli.wishes import cleaning_options, wishes_from
from cleanerd.log.clean_point import StateStore
from cleanerd.log.log_dir import read_log_dir
from cleanerd.scope.broker_facts import broker_facts
from cleanerd.scope.log_dirs import require_outside
from cleanerd.scope.targets import Target, compacted_partitions
from cleanerd.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cleanerd.cleaner.survey import Wishes
    from cleanerd.cli.output import Output
    from cleanerd.errors import CleanerdError
    from cleanerd.format.names import TopicPartition
    from cleanerd.settings import Settings

LOCK_WAIT_SECONDS = 2.0

_COLUMNS = (
    Column("partition"),
    Column("outcome"),
    Column("before", right=True),
    Column("after", right=True),
    Column("kept", right=True),
    Column("superseded", right=True),
    Column("tombstones", right=True),
    Column("keyless", right=True),
    Column("time", right=True),
)


@click.command("clean")
@common_options
@click.argument(
    "log_dirs", nargs=-1, required=True, metavar="LOG_DIR...", type=click.Path(path_type=Path, readable=False)
)
@cleaning_options
@click.option("--dry-run", is_flag=True, help="Decide, say what would happen, write nothing: plan --exact.")
@click.option("--live", is_flag=True, help="Beside a running broker, whose agent swaps the segments (cleanerd agent).")
@click.option("--yes", is_flag=True, help="Do not ask.")
def clean(
    common: Common,
    log_dirs: tuple[Path, ...],
    *,
    dry_run: bool,
    kept: Path | None,
    live: bool,
    yes: bool,
    **options: Any,
) -> int:
    """Clean the compacted partitions of a stopped broker's log directories.

    The broker must be down: cleanerd takes the directory's lock, as a broker would. Every partition is read, cleaned
    into new segments beside the old ones, verified, and swapped in group by group; a crash at any moment leaves old
    or new. With --live the broker runs and swaps each group itself.
    """
    settings = common.load_settings()
    wanted = parse_partitions(options.pop("partitions"))
    wishes = wishes_from(options)
    if dry_run:
        return preview(common, settings, log_dirs, wanted, wishes, exact=True, kept=kept)
    if live and (kept is not None or wishes.unclean):
        raise click.UsageError("--live goes with neither --keep-replaced nor --unclean: the broker has the files")
    if kept is not None:
        require_keepable(kept, log_dirs)
        Trash(settings.daemon.cleanerd_state_dir).require_writable(kept.stat())
    require_outside(settings.daemon.cleanerd_state_dir, log_dirs)
    question = f"Clean {', '.join(str(path) for path in log_dirs)}?"
    if not common.output.confirm(question, yes=yes):
        raise click.Abort
    if live:
        from cleanerd.cli.clean_live import clean_all_live  # noqa: PLC0415 - which builds on this module

        results, failures = clean_all_live(common.output, settings, log_dirs, wanted, wishes)
    else:
        results, failures = _clean_all(common.output, settings, log_dirs, wanted, wishes, kept)
    # What could not be looked into is not known to have nothing.
    if results or not failures or common.output.as_json:
        tell(common.output, results)
    return total_exit_code(results, failures)


def _clean_all(
    output: Output,
    settings: Settings,
    paths: Sequence[Path],
    wanted: Sequence[TopicPartition],
    wishes: Wishes,
    kept: Path | None,
) -> tuple[list[CleaningResult], list[CleanerdError]]:
    """All directories, one after the other; a directory that cannot be used does not stop the others."""
    results: list[CleaningResult] = []
    readable, failures = read_each(output, paths, wanted)
    if readable:
        tell_of_server_properties(output, settings)
    store = StateStore(settings.daemon.cleanerd_state_dir)
    for log_dir in readable:
        with collected(failures, output):
            results += _clean_dir(output, settings, log_dir.path, paths, wanted, wishes, store, kept)
    for warning in store.warnings:
        output.warning(warning)
    return results, failures


def _clean_dir(
    output: Output,
    settings: Settings,
    path: Path,
    paths: Sequence[Path],
    wanted: Sequence[TopicPartition],
    wishes: Wishes,
    store: StateStore,
    kept: Path | None,
) -> list[CleaningResult]:
    with LogDirLock.acquire(path, wait_seconds=LOCK_WAIT_SECONDS) as lock:
        # Read again: only what is found under the lock counts.
        log_dir = read_log_dir(path)
        tell_links(output, log_dir)
        facts = broker_facts(settings, log_dir, [other for other in paths if other != path])
        tell_what_is_missing(output, facts, path)
        locked = LockedDir(log_dir, lock, store, facts.means(), keep_replaced=kept)
        targets = compacted_partitions(facts, log_dir, wanted)
        tell_warnings(output, targets)
        results = _clean_targets(output, locked, targets, wishes, settings.daemon.log_cleaner_threads)
        for result in results:
            for note in result.notes:
                output.note(f"{result.name}: {note}")
            if result.error is not None:
                output.warning(f"{result.name}: {result.reason}")
        return results


def _clean_targets(
    output: Output, locked: LockedDir, targets: Sequence[Target], wishes: Wishes, threads: int
) -> list[CleaningResult]:
    """One after the other, or several at once; results in the order of the targets."""
    at_once = min(threads, len(targets))
    if at_once <= 1:
        alone = replace(locked, means=replace(locked.means, workers=threads))
        results = []
        for target in targets:
            with Bars(output, str(target.name)) as bars:
                results.append(_clean_one(alone, target, wishes, bars))
        return results
    # log.cleaner.dedupe.buffer.size is the total of all threads, as in Kafka.
    means = replace(locked.means, workers=threads // at_once, map_bytes=locked.means.map_bytes // at_once)
    shared = replace(locked, means=means)
    stop = _Stop()
    with ThreadPoolExecutor(at_once, "cleanerd-cleaner") as executor:
        try:
            with output.progress(f"{locked.log_dir.path}: partitions", len(targets)) as advance:
                waiting = [executor.submit(_clean_one, shared, target, wishes, stop) for target in targets]
                for future in as_completed(waiting):
                    future.result()
                    advance(1)
        except BaseException:
            stop.wanted = True
            executor.shutdown(cancel_futures=True)
            raise
    return [future.result() for future in waiting]


def _clean_one(locked: LockedDir, target: Target, wishes: Wishes, progress: Progress) -> CleaningResult:
    if target.config is None:
        error = target.error
        return CleaningResult(target.name, str(locked.log_dir.path), "skipped", str(error), error=error)
    return clean_partition(locked, target.name, target.config, wishes, progress)


class _Stop:
    """Progress of a cleaning in a thread of its own: shows nothing, but ends it when the command is stopped."""

    def __init__(self) -> None:
        self.wanted = False

    def phase(self, name: str, total_bytes: int) -> None:
        """Nothing is shown: bars of several partitions would dance."""

    def advance(self, done_bytes: int) -> None:  # noqa: ARG002
        """Between two chunks is a good place to end."""
        if self.wanted:
            raise Stopped

    def wrote(self, done_bytes: int) -> None:
        """Nothing is shown."""


class Bars:
    """A progress bar for each phase of a cleaning."""

    def __init__(self, output: Output, name: str) -> None:
        self._output = output
        self._name = name
        self._stack = contextlib.ExitStack()
        self._advance: Callable[[int], None] = lambda _bytes: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def phase(self, name: str, total_bytes: int) -> None:
        """Begin the bar of the next phase."""
        self._stack.close()
        self._advance = self._stack.enter_context(self._output.progress(f"{self._name}: {name}", total_bytes))

    def advance(self, done_bytes: int) -> None:
        """So many bytes more."""
        self._advance(done_bytes)

    def wrote(self, done_bytes: int) -> None:
        """The bar is about what was read."""


def tell(output: Output, results: Sequence[CleaningResult]) -> None:
    """Results as JSON or as a table."""
    if output.as_json:
        output.json({"partitions": [result.to_json() for result in results]})
        return
    if not results:
        output.line("No compacted partition found.")
        return
    output.table(_COLUMNS, [_row(result) for result in results])
    cleaned = [result for result in results if result.outcome == "cleaned"]
    before, after = sum(r.bytes_before for r in cleaned), sum(r.bytes_after for r in cleaned)
    if cleaned:
        dropped = sum((result.dropped.total for result in cleaned), 0)
        output.line()
        output.line(
            f"{len(cleaned)} of {len(results)} partitions cleaned: {human_bytes(before)} -> {human_bytes(after)}, "
            f"{counted(dropped, 'record')} dropped."
        )
    for result in results:
        # An error has been told already, as a warning.
        if result.outcome == "skipped" and result.error is None:
            output.note(f"{result.name}: {result.reason}")


def _row(result: CleaningResult) -> list[str]:
    if result.outcome in ("skipped", "quarantined"):
        return [str(result.name), result.outcome, *[""] * (len(_COLUMNS) - 2)]
    dropped: Dropped = result.dropped
    return [
        str(result.name),
        result.outcome,
        human_bytes(result.bytes_before),
        human_bytes(result.bytes_after),
        human_count(result.records_kept),
        human_count(dropped.superseded),
        human_count(dropped.tombstone),
        human_count(dropped.keyless),
        human_ms(1000 * sum(result.seconds.values())),
    ]


def total_exit_code(results: list[CleaningResult], failures: Sequence[CleanerdError]) -> int:
    """Directories that failed count like partitions that failed (formats.md section 5)."""
    if not failures:
        return exit_code(results)
    failed = [result.error for result in results if result.error is not None]
    if any(result.outcome in ("cleaned", "staged", "unchanged") for result in results):
        return 6
    codes = {error.exit_code for error in [*failed, *failures]}
    return next(code for code in (3, 4, 5, 1) if code in codes)
