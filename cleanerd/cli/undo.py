"""``cleanerd undo``: restore the segments of ``clean --keep-replaced``, the last cleaning of each partition."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from cleanerd.broker.lock_file import is_held
from cleanerd.cli.each_dir import collected
from cleanerd.cli.output import Column, Output
from cleanerd.cli.scope import select_in
from cleanerd.errors import CleanerdError, RefusedError, worst_exit_code
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir
from cleanerd.humanize import counted, human_bytes
from cleanerd.resolution.log_dir_session import LogDirSession
from cleanerd.resolution.log_dirs import require_outside
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.kept_segments import KeptEntry, KeptSegments
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.session import LockedDir
from cleanerd.swap.undo import UndoResult, entries_of, undo_cleaning

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.cli.options import Common
    from cleanerd.config.load import Settings
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.resolution.selection import PartitionSelection

LOCK_WAIT_SECONDS = 2.0

_NAMED: Final = 5
"""How many partitions the question names."""


def undo(
    common: Common,
    log_dirs: tuple[Path, ...],
    *,
    partitions: tuple[str, ...],
    only_list: bool,
    kept: Path | None,
    hide_later: bool,
    yes: bool,
) -> int:
    """Run ``cleanerd undo``; its options are in ``cleaning_commands.py``."""
    log_dirs = common.log_dirs(log_dirs)
    settings = common.load_settings()
    state_dir = settings.daemon.cleanerd_state_dir
    require_outside(state_dir, log_dirs)
    undoable = KeptSegments(state_dir)
    # A partition's backups remain after its deletion.
    wanted = select_in(partitions, log_dirs, also=[entry.name for entry in undoable.entries()] if partitions else ())
    if only_list:
        _list(common.output, undoable, log_dirs, wanted, state_dir)
        return 0
    question = None if yes else _question(undoable, log_dirs, wanted)
    if question is not None and not common.output.confirm(question, yes=yes):
        raise click.Abort
    results: list[UndoResult] = []
    failures: list[CleanerdError] = []
    for path in log_dirs:
        with collected(failures):
            results += _undo_dir(common.output, settings, path, log_dirs, wanted, undoable, kept, hide_later=hide_later)
    for warning in undoable.warnings:
        common.output.warning(warning)
    for newer in undoable.newer.values():
        common.output.warning(str(newer))
        failures.append(newer)
    if kept is not None and not results and not failures:
        _require_described(kept, undoable, state_dir)
    _print_results(common.output, results, failures, state_dir)
    return _exit_code(results, failures)


def _require_described(kept: Path, undoable: KeptSegments, state_dir: Path) -> None:
    """Check that ``kept`` (``PLAN/TOPIC-N/`` below it) has no replaced segments of unknown origin.

    Raises:
        RefusedError: it has some: without an entry in the state directory their place is unknown.
    """
    known = {(entry.plan, str(entry.name)) for entry in undoable.entries()}
    for place in sorted(kept.glob("*/*/")):
        is_known = (place.parent.name, place.name) in known or place.parent.name in undoable.newer
        if parse_topic_partition_dir(place.name) and not is_known:
            raise RefusedError(
                f"has segments that a cleaning of {place.name} replaced, but {state_dir} has no entry for them",
                where=str(place.parent),
                hint="name the state directory of that cleaning: --set cleanerd.state.dir=DIR",
            )


def _question(undoable: KeptSegments, paths: Sequence[Path], wanted: PartitionSelection) -> str | None:
    """For example ``Undo the last cleaning of orders-0, orders-1 (10.6 MiB kept)?``; None if nothing can be undone."""
    found: list[KeptEntry] = []
    for path in paths:
        # Both are reported later.
        if is_held(path):
            continue
        with contextlib.suppress(CleanerdError):
            log_dir = read_log_dir(path)
            newest = _newest(entries_of(undoable, log_dir), wanted)
            found += [entry for name, entry in newest.items() if name in log_dir.partitions]
    if not found:
        return None
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    what = f"{', '.join(str(entry.name) for entry in found[:_NAMED])}{more}"
    return f"Undo the last cleaning of {what} ({human_bytes(sum(entry.kept_bytes for entry in found))} kept)?"


def _undo_dir(
    output: Output,
    settings: Settings,
    path: Path,
    paths: Sequence[Path],
    wanted: PartitionSelection,
    undoable: KeptSegments,
    kept: Path | None,
    *,
    hide_later: bool,
) -> list[UndoResult]:
    store = StateStore(settings.daemon.cleanerd_state_dir)
    # Before the lock: a wrong directory must not get a lock file.
    session = LogDirSession.open(settings, store, path, paths)
    with LogDirLock.acquire(path, wait_seconds=LOCK_WAIT_SECONDS) as lock:
        session = session.refreshed()
        log_dir, facts = session.log_dir, session.facts
        locked = LockedDir(log_dir, lock, store, facts.resources())
        results = []
        entries = entries_of(undoable, log_dir)
        kept_of = Counter(entry.name for entry in entries)
        for name, entry in _newest(entries, wanted).items():
            if name not in log_dir.partitions:
                output.note(f"{name}: is no longer in {path}; its kept segments stay in {entry.kept}")
                continue
            earlier = kept_of[name] - 1
            done = _undo_one(locked, facts, undoable, entry, kept, hide_later=hide_later)
            results.append(replace(done, earlier=earlier))
            if results[-1].error is not None:
                output.warning(f"{name}: {results[-1].reason}")
            elif earlier:
                # A cleaning that planned again counts several times, and its beginning is unknown.
                more = f"{counted(earlier, 'earlier cleaning')} can be undone: run cleanerd undo again"
                output.note(f"{name}: {more} (a cleaning that had to plan again counts as several)")
        for warning in store.warnings:
            output.warning(warning)
        return results


def _undo_one(
    locked: LockedDir,
    facts: BrokerFacts,
    undoable: KeptSegments,
    entry: KeptEntry,
    kept: Path | None,
    *,
    hide_later: bool,
) -> UndoResult:
    """Undo one; a replica that is being moved is refused, because its copied part would stay cleaned."""
    try:
        facts.require_in_place(entry.name)
    except RefusedError as error:
        return UndoResult.refused(locked.log_dir, entry, error)
    return undo_cleaning(locked, undoable, entry, keep_replaced=kept, hide_later=hide_later)


def _newest(entries: Sequence[KeptEntry], wanted: PartitionSelection) -> dict[TopicPartition, KeptEntry]:
    """The first entry of each partition, by partition."""
    newest: dict[TopicPartition, KeptEntry] = {}
    for entry in entries:
        if not wanted or entry.name in wanted:
            newest.setdefault(entry.name, entry)
    return dict(sorted(newest.items()))


def _list(
    output: Output, undoable: KeptSegments, paths: Sequence[Path], wanted: PartitionSelection, state_dir: Path
) -> None:
    entries = [
        entry
        for path in paths
        for entry in entries_of(undoable, read_log_dir(path))
        if not wanted or entry.name in wanted
    ]
    for warning in (*undoable.warnings, *map(str, undoable.newer.values())):
        output.warning(warning)
    if output.as_json:
        output.json({"cleanings": [_json(entry) for entry in entries]})
        return
    if not entries:
        output.line(f"Nothing is kept, according to {state_dir}.")
        return
    columns = [Column("partition"), Column("cleaned"), Column("kept", right=True), Column("where")]
    output.table(columns, [[str(e.name), _time(e.cleaned_ms), human_bytes(e.kept_bytes), e.kept] for e in entries])


def _json(entry: KeptEntry) -> dict[str, Any]:
    return {
        "topic": entry.topic,
        "partition": entry.partition,
        "log_dir": entry.log_dir,
        "plan": entry.plan,
        "cleaned_ms": entry.cleaned_ms,
        "kept_bytes": entry.kept_bytes,
        "kept": entry.kept,
    }


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _print_results(
    output: Output, results: Sequence[UndoResult], failures: Sequence[CleanerdError], state_dir: Path
) -> None:
    if output.as_json:
        rows = [result.to_json() for result in results]
        output.json({"partitions": rows, "errors": [error.to_json() for error in failures]})
        return
    if not results:
        if not failures:  # otherwise nothing was read
            output.line(f"Nothing to undo: no kept segments, according to {state_dir}.")
        return
    columns = [
        Column("partition"),
        Column("outcome"),
        Column("segments", right=True),
        Column("bytes", right=True),
        Column("why"),
    ]
    output.table_of_used(columns, [_row(result) for result in results])


def _row(result: UndoResult) -> list[str]:
    if result.outcome != "undone":
        # The refusal was already printed, as a warning.
        return [str(result.name), result.outcome, "", "", "" if result.error is not None else result.reason]
    return [
        str(result.name),
        result.outcome,
        f"{result.segments_before} -> {result.segments_after}",
        f"{human_bytes(result.bytes_before)} -> {human_bytes(result.bytes_after)}",
        "",
    ]


def _exit_code(results: Sequence[UndoResult], failures: Sequence[CleanerdError]) -> int:
    """The exit code, as for several partitions of ``clean``."""
    errors = [*failures, *(result.error for result in results if result.error is not None)]
    codes = {error.exit_code for error in errors}
    return worst_exit_code(codes, some_done=any(result.error is None for result in results))
