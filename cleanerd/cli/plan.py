"""``cleanerd plan``: what cleaning would do, partition by partition, and why not. Reads only, also beside a broker."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleanerd.apply.keep import require_keepable
from cleanerd.apply.live_broker import LiveBroker
from cleanerd.apply.mode import LOOK, ModeChoice, choose_mode
from cleanerd.apply.offline import make_plan
from cleanerd.apply.session import disk_reserve_bytes
from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.switch import compare
from cleanerd.cli.options import Common, common_options, parse_strategy
from cleanerd.cli.plan_look import DiskLook, LiveLook, Look
from cleanerd.cli.plan_report import Row, Saving, Switched, tell
from cleanerd.cli.scope import (
    parse_partitions,
    require_found,
    tell_links,
    tell_of_server_properties,
    tell_warnings,
    tell_what_is_missing,
)
from cleanerd.cli.wishes import cleaning_options, wishes_from
from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.log.clean_point import StateStore
from cleanerd.log.log_dir import LogDir, read_log_dir
from cleanerd.log.message_format import Formats, glance
from cleanerd.log.pool import ReaderPool
from cleanerd.log.read import SegmentReader
from cleanerd.log.topic_config import INTERNAL_TOPICS
from cleanerd.scope.broker_facts import BrokerFacts, broker_facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.survey import Survey, Wishes
    from cleanerd.cli.output import Output
    from cleanerd.format.names import TopicPartition
    from cleanerd.scope.targets import Target
    from cleanerd.settings import Settings

WORK_TO_DO = 10
GLANCE_BYTES = 4096


@click.command("plan")
@common_options
@click.argument(
    "log_dirs", nargs=-1, required=True, metavar="LOG_DIR...", type=click.Path(path_type=Path, readable=False)
)
@cleaning_options
@click.option(
    "--exact", is_flag=True, help="Index and decide as a cleaning would, for the exact saving. Writes nothing."
)
@click.option(
    "--strategy",
    "switch_to",
    metavar="STRATEGY",
    help="Count the keys that would have another winner under offset, timestamp or header:NAME. Reads everything.",
)
@click.option("--exit-code", "tell_by_exit", is_flag=True, help="Exit with 10 when there is work to do.")
def plan(
    common: Common,
    log_dirs: tuple[Path, ...],
    *,
    exact: bool,
    switch_to: str | None,
    tell_by_exit: bool,
    kept: Path | None,
    **options: Any,
) -> int:
    """Show per compacted partition how dirty it is, what would be cleaned, and if nothing, why not.

    Reads no records without --exact: damage, and data that clean refuses, show up only with it. Allowed beside a
    running broker. Of --keep-replaced it is only checked that clean could use the directory.
    """
    settings = common.load_settings()
    wanted = parse_partitions(options.pop("partitions"))
    wishes = wishes_from(options)
    other = None if switch_to is None else parse_strategy(switch_to)
    return preview(
        common, settings, log_dirs, wanted, wishes, exact=exact, tell_by_exit=tell_by_exit, switch_to=other, kept=kept
    )


def preview(
    common: Common,
    settings: Settings,
    paths: Sequence[Path],
    wanted: Sequence[TopicPartition],
    wishes: Wishes,
    *,
    exact: bool,
    tell_by_exit: bool = False,
    switch_to: tuple[str, str] | None = None,
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
    modes: dict[Path, ModeChoice] = {}
    for log_dir in log_dirs:
        others = [other for other in paths if other != log_dir.path]
        facts = broker_facts(settings, log_dir, others)
        tell_links(common.output, log_dir)
        modes[log_dir.path] = choice = choose_mode(log_dir, others, settings.daemon.cleanerd_agent_socket)
        with _looking(common.output, facts, log_dir, choice, store, wishes) as look:
            targets = look.targets(wanted)
            tell_warnings(common.output, targets)
            rows += [
                _row(common.output, facts, log_dir, target, look, wishes, exact=exact, switch_to=switch_to)
                for target in targets
            ]
    for warning in store.warnings:
        common.output.warning(warning)
    tell(common.output, rows, modes, exact=exact)
    errors = [row.error for row in rows if row.error is not None]
    if errors:
        return 6 if len(errors) < len(rows) else next(c for c in (3, 4, 5, 1) if c in {e.exit_code for e in errors})
    has_work = any(row.found is not None and row.found.to_clean for row in rows)
    return WORK_TO_DO if tell_by_exit and has_work else 0


@contextlib.contextmanager
def _looking(
    output: Output,
    facts: BrokerFacts,
    log_dir: LogDir,
    choice: ModeChoice,
    store: StateStore,
    wishes: Wishes,
) -> Iterator[Look]:
    """By what the broker says where its agent tells, else by what lies on the disk."""
    if choice.mode == "live" and choice.socket is not None:
        output.note(f"{log_dir.path}: {choice.reason}; these are its own figures")
        with LiveBroker(choice.socket, LOOK) as broker:
            yield LiveLook(broker, facts, log_dir, store, wishes)
        return
    tell_what_is_missing(output, facts, log_dir.path)
    if choice.mode == "on-start":
        output.note(
            f"{log_dir.path}: a broker runs on it; these are the figures of its last checkpoints, and cleaning is for "
            f"its next start (cleanerd stage): {choice.reason}"
        )
        wishes = replace(wishes, unclean=True)
    yield DiskLook(facts, log_dir, store, wishes)


def _row(
    output: Output,
    facts: BrokerFacts,
    log_dir: LogDir,
    target: Target,
    look: Look,
    wishes: Wishes,
    *,
    exact: bool,
    switch_to: tuple[str, str] | None,
) -> Row:
    try:
        found = look.survey(target)
        formats = _formats(found)
        saving = _saving(output, facts, log_dir, found, wishes) if exact and found.to_clean else None
        switched = None if switch_to is None else _switched(output, facts, log_dir, found, wishes, switch_to)
    except CleanerdError as error:
        return Row(target.name, log_dir, None, None, None, None, error)
    return Row(target.name, log_dir, found, formats, saving, switched, None)


def _formats(found: Survey) -> Formats | None:
    """R192-4; None where a segment's beginning is damaged: whoever cleans it tells."""
    try:
        with SegmentReader.open(str(found.log.path), chunk_bytes=GLANCE_BYTES) as reader:
            return glance(found.log, reader)
    except CorruptionError:
        return None


def _saving(output: Output, facts: BrokerFacts, log_dir: LogDir, found: Survey, wishes: Wishes) -> Saving:
    """Index and decide, write nothing."""
    means = facts.means()
    size = sum(segment.size_bytes for segment in found.log.segments[:-1])
    with (
        _pool(facts, found) as pool,
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
        oddities=cleaning.decision.oddities,
    )


def _split_notes(overflowed: Sequence[SegmentDecision]) -> tuple[str, ...]:
    return tuple(
        f"segment {each.source.base} holds offsets more than 2^31-1 above its base: clean splits it first, stage "
        "refuses (C-67)"
        for each in overflowed
    )


def _switched(
    output: Output, facts: BrokerFacts, log_dir: LogDir, found: Survey, wishes: Wishes, switch_to: tuple[str, str]
) -> Switched | None:
    """What another strategy would keep otherwise; None for internal topics, which have none but offset (R280-12)."""
    if found.log.name.topic in INTERNAL_TOPICS:
        return None
    strategy, header = switch_to
    size = 2 * sum(segment.size_bytes for segment in found.log.segments[:-1])
    with (
        _pool(facts, found) as pool,
        output.progress(f"{found.log.name}: index by two strategies", size) as advance,
    ):
        plan = make_plan(log_dir, found, facts.means(), wishes, pool.reader)
        other = replace(plan.rules, strategy=strategy, header=header)
        result = compare(plan, other, pool, advance)
    name = f"{strategy}:{header}" if header else strategy
    return Switched(name, result.keys, result.differing, result.oddities)


def _pool(facts: BrokerFacts, found: Survey) -> ReaderPool:
    daemon = facts.settings.daemon
    return ReaderPool(
        str(found.log.path), workers=daemon.log_cleaner_threads, chunk_bytes=daemon.cleanerd_read_buffer_bytes
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

    def wrote(self, done_bytes: int) -> None:
        """Nothing is written."""
