"""``cleanerd plan``: what cleaning would do, partition by partition, and why not. Reads only, also beside a broker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleanerd.apply.keep import require_keepable
from cleanerd.apply.lock import is_held
from cleanerd.apply.offline import make_plan
from cleanerd.apply.session import disk_reserve_bytes
from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.survey import Survey, survey
from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import Column, human_bytes, human_count
from cleanerd.cli.scope import (
    BrokerFacts,
    Target,
    broker_facts,
    cleaning_options,
    compacted_partitions,
    parse_partitions,
    require_found,
    tell_links,
    tell_of_server_properties,
    wishes_from,
)
from cleanerd.errors import CleanerdError
from cleanerd.log.clean_point import StateStore
from cleanerd.log.log_dir import LogDir, read_log_dir
from cleanerd.log.pool import ReaderPool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.survey import Wishes
    from cleanerd.cli.output import Output
    from cleanerd.format.names import TopicPartition
    from cleanerd.settings import Settings

WORK_TO_DO = 10


@dataclass(frozen=True, slots=True)
class Saving:
    """What a cleaning would leave, by the decision itself; bytes of rebuilt batches are estimates until written.

    ``bytes_before`` and ``bytes_after`` are those of the log below the active segment, as ``clean`` tells them.
    """

    records: int
    kept: int
    bytes_before: int
    bytes_after: int
    groups: int
    peak_bytes: int
    notes: tuple[str, ...]
    stage_bytes: int


@dataclass(frozen=True, slots=True)
class Row:
    """One partition in the plan; ``error`` instead of the facts when it cannot be read."""

    name: TopicPartition
    log_dir: LogDir
    found: Survey | None
    saving: Saving | None
    error: CleanerdError | None


@click.command("plan")
@common_options
@click.argument(
    "log_dirs", nargs=-1, required=True, metavar="LOG_DIR...", type=click.Path(path_type=Path, readable=False)
)
@cleaning_options
@click.option(
    "--exact", is_flag=True, help="Index and decide as a cleaning would, for the exact saving. Writes nothing."
)
@click.option("--exit-code", "tell_by_exit", is_flag=True, help="Exit with 10 when there is work to do.")
def plan(
    common: Common, log_dirs: tuple[Path, ...], *, exact: bool, tell_by_exit: bool, kept: Path | None, **options: Any
) -> int:
    """Show per compacted partition how dirty it is, what would be cleaned, and if nothing, why not.

    Reads no records without --exact: damage, and data that clean refuses, show up only with it. Allowed beside a
    running broker. Of --keep-replaced it is only checked that clean could use the directory.
    """
    settings = common.load_settings()
    wanted = parse_partitions(options.pop("partitions"))
    wishes = wishes_from(options)
    return preview(common, settings, log_dirs, wanted, wishes, exact=exact, tell_by_exit=tell_by_exit, kept=kept)


def preview(
    common: Common,
    settings: Settings,
    paths: Sequence[Path],
    wanted: Sequence[TopicPartition],
    wishes: Wishes,
    *,
    exact: bool,
    tell_by_exit: bool = False,
    kept: Path | None = None,
) -> int:
    """Print the plan; returns the exit code.

    Raises:
        CleanerdError: a log directory or the configuration cannot be read, or nothing can be ``kept`` there.
    """
    log_dirs = [read_log_dir(path) for path in paths]
    if kept is not None:
        require_keepable(kept, paths, probe=False)
    require_found(wanted, log_dirs)
    tell_of_server_properties(common.output, settings)
    store = StateStore(settings.daemon.cleanerd_state_dir)
    rows: list[Row] = []
    for log_dir in log_dirs:
        facts = broker_facts(settings, log_dir, [other for other in paths if other != log_dir.path])
        facts.tell_what_is_missing(common.output, log_dir.path)
        seen = wishes
        tell_links(common.output, log_dir)
        if is_held(log_dir.path):
            common.output.note(f"{log_dir.path}: a broker runs on it; these are the figures of its last checkpoints")
            seen = replace(wishes, unclean=True)
        rows += [
            _row(common.output, facts, log_dir, target, store, seen, exact=exact)
            for target in compacted_partitions(facts, log_dir, wanted)
        ]
    for warning in store.warnings:
        common.output.warning(warning)
    _tell(common.output, rows, exact=exact)
    errors = [row.error for row in rows if row.error is not None]
    if errors:
        return 6 if len(errors) < len(rows) else next(c for c in (3, 4, 5, 1) if c in {e.exit_code for e in errors})
    has_work = any(row.found is not None and row.found.to_clean for row in rows)
    return WORK_TO_DO if tell_by_exit and has_work else 0


def _row(
    output: Output,
    facts: BrokerFacts,
    log_dir: LogDir,
    target: Target,
    store: StateStore,
    wishes: Wishes,
    *,
    exact: bool,
) -> Row:
    try:
        found = survey(log_dir, target.name, target.require_config(), store, wishes)
        saving = _saving(output, facts, log_dir, found, wishes) if exact and found.to_clean else None
    except CleanerdError as error:
        return Row(target.name, log_dir, None, None, error)
    return Row(target.name, log_dir, found, saving, None)


def _saving(output: Output, facts: BrokerFacts, log_dir: LogDir, found: Survey, wishes: Wishes) -> Saving:
    """Index and decide, write nothing."""
    means = facts.means()
    threads = facts.settings.daemon.log_cleaner_threads
    size = sum(segment.size_bytes for segment in found.log.segments[:-1])
    with (
        ReaderPool(str(found.log.path), workers=threads, chunk_bytes=means.chunk_bytes) as pool,
        output.progress(f"{found.log.name}: index and decide", size) as advance,
    ):
        cleaning = Cleaning(make_plan(log_dir, found, means, wishes, pool.reader), pool, _Quiet(advance))
        groups = cleaning.groups()
        segments = cleaning.decision.segments
        overflowed = cleaning.overflowed()
        notes = cleaning.notes()
    written = {row for rows in groups for row in rows}
    sizes = [sum(segments[row].outcome.output_bytes for row in rows) for rows in groups]
    idle = sum(s.source.segment.size_bytes for row, s in enumerate(segments) if row not in written)
    beyond = size - sum(segment.source.segment.size_bytes for segment in segments)
    reserve = disk_reserve_bytes(means, found.config, str(found.log.path))
    return Saving(
        records=sum(segment.records for segment in segments),
        kept=sum(segment.kept for segment in segments),
        bytes_before=size,
        bytes_after=sum(sizes) + idle + beyond,
        groups=len(groups),
        peak_bytes=max(sizes, default=0) + reserve,
        stage_bytes=sum(sizes) + reserve,
        notes=(*notes, *_split_notes(overflowed)),
    )


def _split_notes(overflowed: Sequence[SegmentDecision]) -> tuple[str, ...]:
    return tuple(
        f"segment {each.source.base} holds offsets more than 2^31-1 above its base: clean splits it first, stage "
        "refuses (C-67)"
        for each in overflowed
    )


class _Quiet:
    """A cleaning's progress as one bar, whatever the phase."""

    def __init__(self, advance: Any) -> None:
        self._advance = advance

    def phase(self, name: str, total_bytes: int) -> None:
        """One bar serves all phases."""

    def advance(self, done_bytes: int) -> None:
        """So many bytes more."""
        self._advance(done_bytes)


def _tell(output: Output, rows: Sequence[Row], *, exact: bool) -> None:
    if output.as_json:
        output.json({"partitions": [_json(row) for row in rows]})
        return
    if not rows:
        output.line("No compacted partition found.")
        return
    columns = [
        Column("partition"),
        Column("dirty", right=True),
        Column("dirty from", right=True),
        Column("clean to", right=True),
        Column("size", right=True),
        Column("cleanable", right=True),
    ]
    if exact:
        columns += [Column("records", right=True), Column("kept", right=True), Column("after", right=True)]
    output.table([*columns, Column("what would happen")], [_cells(row, exact=exact) for row in rows])
    for row in rows:
        for note in row.saving.notes if row.saving is not None else ():
            output.note(f"{row.name}: {note}")
    savings = [row.saving for row in rows if row.saving is not None]
    if savings:
        peak, whole = max(s.peak_bytes for s in savings), max(s.stage_bytes for s in savings)
        output.note(
            f"room for the largest, with what is kept free: {human_bytes(peak)} for clean, which goes group by group, "
            f"{human_bytes(whole)} for stage"
        )


def _cells(row: Row, *, exact: bool) -> list[str]:
    if row.found is None:
        return [str(row.name), *[""] * (8 if exact else 5), f"error: {row.error}"]
    bounds = row.found.bounds
    cells = [
        str(row.name),
        f"{100 * bounds.dirtiness.ratio:.1f} %",
        str(bounds.first_dirty_offset),
        str(row.found.end_offset),
        human_bytes(sum(segment.size_bytes for segment in row.found.log.segments)),
        human_bytes(bounds.dirtiness.cleanable_bytes),
    ]
    if exact:
        saving = row.saving
        cells += (
            ["", "", ""]
            if saving is None
            else [
                human_count(saving.records),
                human_count(saving.kept),
                human_bytes(saving.bytes_after + _active_bytes(row.found)),
            ]
        )
    return [*cells, row.found.refusal or "will be cleaned"]


def _active_bytes(found: Survey) -> int:
    """The active segment stays as it is: ``after`` and ``size`` are about the same files."""
    return found.log.segments[-1].size_bytes


def _json(row: Row) -> dict[str, Any]:
    document: dict[str, Any] = {
        "topic": row.name.topic,
        "partition": row.name.partition,
        "log_dir": str(row.log_dir.path),
    }
    if row.found is None:
        return {**document, "action": "error", "reason": str(row.error)}
    bounds = row.found.bounds
    document |= {
        "action": "clean" if row.found.to_clean else "none",
        "reason": row.found.refusal,
        "strategy": row.found.config.compaction_strategy,
        "dirty_ratio": bounds.dirtiness.ratio,
        "first_dirty_offset": bounds.first_dirty_offset,
        "first_dirty_origin": row.found.first_dirty_origin,
        "end_offset": row.found.end_offset,
        "limited_by": bounds.bound.limited_by,
        "limits": dict(bounds.bound.limits),
        "log_start_offset": row.found.log.log_start_offset,
        "high_watermark": row.found.log.high_watermark,
        "segments": len(row.found.log.segments),
        "bytes": sum(segment.size_bytes for segment in row.found.log.segments),
        "clean_bytes": bounds.dirtiness.clean_bytes,
        "cleanable_bytes": bounds.dirtiness.cleanable_bytes,
        "overdue_ms": bounds.overdue_ms,
        "notes": list(row.found.notes),
        "origins": dict(row.found.config.origins),
    }
    if row.saving is not None:
        document["exact"] = {
            "records": row.saving.records,
            "kept": row.saving.kept,
            "bytes_before": row.saving.bytes_before,
            "bytes_after": row.saving.bytes_after,
            "groups": row.saving.groups,
            "peak_bytes": row.saving.peak_bytes,
            "notes": list(row.saving.notes),
            "stage_bytes": row.saving.stage_bytes,
        }
    return document
