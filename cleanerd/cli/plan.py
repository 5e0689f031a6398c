"""``cleanerd plan``: what cleaning would do per partition, or why it would not. Reads only, also beside a broker."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.reclaimable import Reclaimable, estimate_reclaimable
from cleanerd.cleaner.refusals import refuse_live, refuse_split
from cleanerd.cleaner.resources import Resources, disk_reserve_bytes
from cleanerd.cleaner.stage import require_space
from cleanerd.cleaner.switch import compare
from cleanerd.cli.change_cost import NO_COST, cost_of
from cleanerd.cli.cleaning_options import options_from
from cleanerd.cli.plan_report import ExactReclaimable, PlanRow, SwitchRow, print_plan
from cleanerd.cli.scope import (
    none_compacted,
    note_missing_configs,
    note_server_properties,
    note_skipped_links,
    note_young_topics,
    print_config_warnings,
    select_in,
    warn_start_obstacles,
)
from cleanerd.config.topic_config import INTERNAL_TOPICS
from cleanerd.daemon.control_client import daemon_facts
from cleanerd.errors import CleanerdError, UnsupportedLogError, as_cleanerd_error, worst_exit_code
from cleanerd.resolution.checkpoint_pair import FirstReadings
from cleanerd.resolution.explanation import formats_of, repacked_notes
from cleanerd.resolution.kafka_cleaner import kafka_cleaner
from cleanerd.resolution.log_dir_session import LogDirSession
from cleanerd.resolution.obstacles import refuse_long_deletions, refuse_obstacles
from cleanerd.resolution.shared_keys import SharedKeys
from cleanerd.segments.keep_dir import require_keep_dir
from cleanerd.state.cleaner_checkpoint import StateStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.broker.mode import ModeChoice
    from cleanerd.broker.partition_snapshot import PartitionSnapshot
    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.survey import CleaningOptions, Survey
    from cleanerd.cli.options import Common
    from cleanerd.cli.output import Output
    from cleanerd.config.load import Settings
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.partitions import Partitions
    from cleanerd.resolution.selection import PartitionSelection
    from cleanerd.segments.log_dir import LogDir

WORK_TO_DO = 10

SAMPLE_BYTES: Final = 256 << 20
LEAST_SAMPLE_BYTES: Final = 1 << 20
"""The sample bytes of a log directory in total, and the least per partition: takes seconds, even with many."""


def plan(
    common: Common,
    log_dirs: tuple[Path, ...],
    *,
    exact: bool,
    switch_to: tuple[str, str] | None,
    exit_code_shows_work: bool,
    kept: Path | None,
    by: str | None,
    top: int | None,
    **given: Any,
) -> int:
    """Run ``cleanerd plan``; its options are in ``cleaning_commands.py``."""
    log_dirs = common.log_dirs(log_dirs)
    settings = common.load_settings()
    wanted = select_in(given.pop("partitions"), log_dirs)
    options = options_from(given, common.output, settings)
    return preview(
        common,
        settings,
        log_dirs,
        wanted,
        options,
        exact=exact,
        exit_code_shows_work=exit_code_shows_work,
        switch_to=switch_to,
        kept=kept,
        by=by,
        top=top,
    )


def preview(
    common: Common,
    settings: Settings,
    paths: Sequence[Path],
    wanted: PartitionSelection,
    options: CleaningOptions,
    *,
    exact: bool,
    exit_code_shows_work: bool = False,
    switch_to: tuple[str, str] | None = None,
    kept: Path | None = None,
    by: str | None = None,
    top: int | None = None,
) -> int:
    """Print the plan; returns the exit code.

    Raises:
        CleanerdError: a log directory or the configuration cannot be read, or ``kept`` cannot be used.
    """
    store = StateStore(settings.daemon.cleanerd_state_dir)
    sessions = [LogDirSession.open(settings, store, path, paths) for path in paths]
    if kept is not None:
        require_keep_dir(kept, paths)
    note_server_properties(common.output, settings)
    rows: list[PlanRow] = []
    young_topics = 0
    modes: dict[Path, ModeChoice] = {}
    first, shared_keys = FirstReadings(), SharedKeys()
    for session in sessions:
        note_skipped_links(common.output, session.log_dir)
        modes[session.path] = choice = session.choose_mode()
        with session.partitions(choice, common.output.note, first) as partitions:
            _print_mode_note(common.output, partitions, choice)
            if not partitions.facts.knows_replicas and session is sessions[0]:
                common.output.note(partitions.facts.replicas_note)
            if note := kafka_cleaner(partitions.facts, choice.info).note:
                common.output.note(f"{session.path}: {note}")
            resources = replace(partitions.facts.resources(), workers=settings.daemon.log_cleaner_threads)
            targets = partitions.targets(wanted)
            request = _PlanRequest(
                output=common.output,
                partitions=partitions,
                resources=resources,
                choice=choice,
                store=store,
                shared_keys=shared_keys,
                options=replace(options, indexes_only=not exact),
                exact=exact,
                switch_to=switch_to,
                budget_bytes=min(
                    settings.daemon.cleanerd_estimate_bytes,
                    max(SAMPLE_BYTES // max(len(targets), 1), LEAST_SAMPLE_BYTES),
                ),
            )
            if choice.mode == "on-start" and not wanted:
                young_topics += note_young_topics(common.output, partitions, targets)
            daemon = daemon_facts(settings, session.path)
            rows += [replace(request.row(each.name), daemon=daemon.get(str(each.name))) for each in targets]
    noted = set[str]()  # for people, one partition of a topic is enough: its note names the others
    for at, row in enumerate(rows):
        if (notes := shared_keys.notes(row.name)) and (common.output.as_json or row.name.topic not in noted):
            rows[at] = row.with_notes(notes)
            noted.add(row.name.topic)
    print_config_warnings(common.output, [row.found.config for row in rows if row.found is not None])
    for warning in store.warnings:
        common.output.warning(warning)
    print_plan(common.output, rows, modes, exact=exact, by=by, top=top, none=none_compacted(young_topics))
    errors = [row.error for row in rows if row.error is not None]
    if errors:
        return worst_exit_code({error.exit_code for error in errors}, some_done=len(errors) < len(rows))
    has_work = any(row.found is not None and row.found.to_clean for row in rows)
    return WORK_TO_DO if exit_code_shows_work and has_work else 0


def _print_mode_note(output: Output, partitions: Partitions, choice: ModeChoice) -> None:
    """Name the source of these figures, and say when they are incomplete."""
    path = partitions.log_dir.path
    warn_start_obstacles(output, partitions.log_dir, partitions.facts)
    if choice.mode == "live":
        output.note(f"{path}: {choice.reason}; the figures are the broker's own")
        return
    note_missing_configs(output, partitions.facts, path)
    if choice.mode == "on-start":
        output.note(
            f"{path}: a broker runs on it, so the figures are those of its last checkpoints. Clean it with cleanerd "
            f"stage, for its next start: {choice.reason}"
        )


@dataclass(frozen=True, slots=True)
class _PlanRequest:
    """The command's options, the same for every partition of a log directory."""

    output: Output
    partitions: Partitions
    resources: Resources
    choice: ModeChoice
    store: StateStore
    shared_keys: SharedKeys
    options: CleaningOptions
    exact: bool
    switch_to: tuple[str, str] | None
    budget_bytes: int

    def row(self, name: TopicPartition) -> PlanRow:
        """The row of one partition; a refusal of clean, stage or clean --live is an error here too."""
        log_dir, found, formats, saving, switched = self.partitions.log_dir, None, None, None, None
        estimate = None
        try:
            reading = self.partitions.read(name)
            log_dir = reading.log_dir
            found = reading.survey(self.store, self.options)
            formats, _ = formats_of(found)
            if self.exact or self.budget_bytes:
                found = replace(found, notes=(*found.notes, *repacked_notes(found)))
                self.shared_keys.add(name, found.log.path, found.config)
            if found.to_clean:
                refuse_obstacles(reading, self.resources)
            if found.to_clean and self.exact:
                saving = self._saving(reading, found)
            elif not self.exact:
                estimate = self._estimate(reading, found)
            self._print_cost(log_dir, found)
            if self.switch_to is not None:
                switched = self._switched(reading, found, self.switch_to)
        except (CleanerdError, OSError) as caught:
            error = as_cleanerd_error(caught, str(log_dir.path / str(name)))
            return PlanRow(name, log_dir, found, formats, saving, switched, error)
        return PlanRow(name, log_dir, found, formats, saving, switched, None, estimate=estimate)

    def _print_cost(self, log_dir: LogDir, found: Survey) -> None:
        """The effect of a change of the topic's rules, if there is one; counted with --exact."""
        if found.change is None or not found.change.differs:
            return
        if self.exact or self.options.change_strategy:
            try:
                cost = cost_of(self.output, self.partitions.facts, log_dir, found, self.options)
            except UnsupportedLogError as error:
                cost = f"its compaction settings change; the effect cannot be computed: it {error.message}"
            if cost:
                self.output.warning(f"{found.log.name}: {cost}")
            else:
                self.output.note(f"{found.log.name}: {NO_COST}")
        else:
            self.output.note(f"{found.log.name}: its compaction settings change; plan --exact counts the affected keys")

    def _saving(self, reading: PartitionSnapshot, found: Survey) -> ExactReclaimable:
        """Index, decide and rewrite without storing the output (U-54)."""
        size = sum(segment.size_bytes for segment in found.log.segments[:-1])
        with (
            self.resources.readers(str(found.log.path)) as pool,
            self.output.progress(f"{found.log.name}: index and decide", size) as advance,
        ):
            plan = make_plan(reading.log_dir, found, self.resources, self.options, pool.reader)
            cleaning = Cleaning(plan, pool, _Quiet(advance))
            cleaning.may_grow = found.may_grow(self.options)
            segments = cleaning.decide().segments
            outputs = cleaning.output_sizes()
            cleaning.refuse_growth()
            overflowed = cleaning.overflowed()
            notes = cleaning.notes()
        if self.choice.mode == "live":
            snapshot = reading.broker
            refuse_live(cleaning, proves_by_markers=snapshot is None or snapshot.proves_by_markers)
            refuse_long_deletions(found, cleaning)
        elif self.choice.mode == "on-start":
            refuse_split(cleaning)
        sizes = [after for _, after in outputs]
        reserve = disk_reserve_bytes(self.resources, found.config, str(found.log.path))
        if sizes:
            needed = sum(sizes) if self.choice.mode == "on-start" else max(sizes)
            require_space(os.statvfs(found.log.path), needed, reserve, str(found.log.path))
        return ExactReclaimable(
            records=sum(segment.records for segment in segments),
            kept=sum(segment.kept for segment in segments),
            bytes_before=size,
            bytes_after=size - sum(before - after for before, after in outputs),
            groups=len(outputs),
            peak_bytes=max(sizes, default=0) + reserve,
            stage_bytes=sum(sizes) + reserve,
            reserve_bytes=reserve,
            notes=(*notes, *_split_notes(overflowed)),
            oddities=cleaning.decision.oddities,
        )

    def _estimate(self, reading: PartitionSnapshot, found: Survey) -> Reclaimable | None:
        """The reclaimable bytes; None if unknown, and --exact reports why."""
        if not self.budget_bytes:
            return None
        size = min(self.budget_bytes, sum(segment.size_bytes for segment in found.log.segments[:-1]))
        with (
            self.output.progress(f"{found.log.name}: estimate", size) as advance,
            contextlib.suppress(CleanerdError, OSError),
        ):
            return estimate_reclaimable(
                reading.log_dir, found, self.resources, self.options, budget_bytes=self.budget_bytes, advance=advance
            )
        return None

    def _switched(self, reading: PartitionSnapshot, found: Survey, switch_to: tuple[str, str]) -> SwitchRow | None:
        """What another strategy would retain; None for internal topics, whose strategy is always offset (R280-12)."""
        if found.log.name.topic in INTERNAL_TOPICS:
            return None
        strategy, header = switch_to
        size = 2 * sum(segment.size_bytes for segment in found.log.segments[:-1])
        with (
            self.resources.readers(str(found.log.path)) as pool,
            self.output.progress(f"{found.log.name}: index by two strategies", size) as advance,
        ):
            plan = make_plan(reading.log_dir, found, self.resources, self.options, pool.reader)
            other = replace(plan.rules, strategy=strategy, header=header)
            result = compare(plan, other, pool, advance)
        name = f"{strategy}:{header}" if header else strategy
        return SwitchRow(name, result.keys, result.differing, result.oddities)


def _split_notes(overflowed: Sequence[SegmentDecision]) -> tuple[str, ...]:
    return tuple(
        f"segment {each.source.base} has offsets more than 2^31-1 above its base: clean splits it first, stage refuses"
        for each in overflowed
    )


class _Quiet:
    """A cleaning's progress in a single bar for all phases."""

    def __init__(self, advance: Any) -> None:
        self._advance = advance

    def phase(self, name: str, total_bytes: int) -> None:
        """Ignored: one bar serves all phases."""

    def advance(self, done_bytes: int) -> None:
        self._advance(done_bytes)

    def wrote(self, done_bytes: int) -> None:
        """Ignored: a plan writes nothing."""
