"""``cleanerd explain``: why this partition is or is not cleaned now, and where each setting came from."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleanerd.apply.lock import is_held
from cleanerd.cleaner.survey import Survey, survey
from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import Column, human_bytes
from cleanerd.cli.scope import parse_partitions, require_found
from cleanerd.cli.wishes import wishes_from
from cleanerd.daemon.sources import staged_in_words, staged_json
from cleanerd.errors import NotCompactedError
from cleanerd.log.clean_point import PartitionState, StateStore
from cleanerd.log.log_dir import read_log_dir
from cleanerd.scope.broker_facts import broker_facts
from cleanerd.scope.explanation import (
    POLICY_CHANGES,
    POLICY_RULE,
    explanation,
    explanation_of_policy,
    formats_of,
    settings_of,
)
from cleanerd.scope.targets import compacted_partitions

if TYPE_CHECKING:
    from cleanerd.cli.output import Output
    from cleanerd.format.names import TopicPartition


@click.command("explain")
@common_options
@click.argument("partition", metavar="TOPIC-N")
@click.argument("log_dir", metavar="LOG_DIR", type=click.Path(path_type=Path))
@click.option("--now-ms", type=click.IntRange(min=0), metavar="MS", help="As if it were that time. Default: the clock.")
def explain(common: Common, partition: str, log_dir: Path, now_ms: int | None) -> None:
    """Say why TOPIC-N is or is not cleaned now: the first rule that decides, its numbers, and when that changes."""
    settings = common.load_settings()
    wanted = parse_partitions([partition], said_as="TOPIC-N")
    directory = read_log_dir(log_dir)
    require_found(wanted, [directory])
    facts = broker_facts(settings, directory, [])
    (target,) = compacted_partitions(facts, directory, wanted)
    running = is_held(log_dir)
    try:
        config = target.require_config()
    except NotCompactedError as reason:
        if common.output.as_json:
            common.output.json(explanation_of_policy(target.name, reason, running=running))
        else:
            _tell_reason(common.output, target.name, POLICY_RULE, reason.message, POLICY_CHANGES)
            common.output.note(str(reason.hint))
        return
    store = StateStore(settings.daemon.cleanerd_state_dir)
    wishes = wishes_from({
        "now_ms": now_ms, "force": False, "first_dirty": None, "from_start": False, "up_to": None, "unclean": running,
    })  # fmt: skip
    found = survey(directory, target.name, config, store, wishes)
    formats, told = formats_of(found)
    found = replace(found, notes=(*found.notes, *told))
    state = store.load(directory, found.log)
    if common.output.as_json:
        common.output.json(explanation(found, formats, state, running=running, staged=staged_json(found.log.path)))
    else:
        _tell(common.output, found, state, running=running)
    for warning in (*config.warnings, *facts.warnings, *store.warnings):
        common.output.warning(warning)


def _tell_reason(output: Output, name: TopicPartition, rule: str, reason: str, changes: str) -> None:
    output.line(f"{name} is not cleaned now.")
    output.line(f"  rule:    {rule}")
    output.line(f"  reason:  {reason}")
    output.line(f"  changes: {changes}")


def _tell(output: Output, found: Survey, state: PartitionState | None, *, running: bool) -> None:
    bounds = found.bounds
    if found.verdict is None:
        output.line(f"{found.log.name} is cleaned at the next run of cleanerd clean.")
    else:
        _tell_reason(output, found.log.name, found.verdict.rule, found.verdict.reason, found.verdict.changes)
    if staged := staged_in_words(found.log.path):
        output.line(f"  {staged[0].upper()}{staged[1:]}.")
    if running:
        output.line("  A broker runs on this directory: offline cleaning waits until it is stopped.")
    if state is not None and state.quarantine is not None:
        output.line(f"  The last attempt failed: {state.quarantine}")
    if state is not None and state.retry is not None:
        output.line(f"  {state.retry.failures} failures in a row; the daemon tries again at {_utc(state.retry.at_ms)}.")
    if state is not None and state.next_purge_ms is not None and state.purge_as_of == bounds.first_dirty_offset:
        output.line(f"  Its next tombstones or markers may go at {_utc(state.next_purge_ms)}, written to or not.")
    output.line()
    output.line(f"Dirty from offset {bounds.first_dirty_offset}, says {found.first_dirty_origin}.")
    output.line(f"May be cleaned up to offset {bounds.bound.offset}: the lowest of these, rounded down to a segment.")
    limits = sorted(bounds.bound.limits.items(), key=lambda item: item[1])
    output.table([Column("limit"), Column("offset", right=True)], [[name, str(offset)] for name, offset in limits])
    output.line()
    output.line(
        f"{human_bytes(bounds.dirtiness.clean_bytes)} clean, "
        f"{human_bytes(bounds.dirtiness.cleanable_bytes)} cleanable: dirty ratio {bounds.dirtiness.ratio:.3f}."
    )
    output.line()
    columns = [Column("setting"), Column("value", right=True), Column("comes from")]
    output.table(columns, [[key, str(value), origin] for key, value, origin in settings_of(found)])
    for note in found.notes:
        output.note(note)


def _utc(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
