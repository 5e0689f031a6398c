"""``cleanerd explain``: why this partition is or is not cleaned now, and where each setting came from."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cleanerd.broker.mode import choose_mode
from cleanerd.cleaner.staged_plan import staged_in_words
from cleanerd.cli.cleaning_options import options_from
from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import Column
from cleanerd.cli.scope import parse_partitions, require_found
from cleanerd.errors import NotCompactedError
from cleanerd.log.clean_point import StateStore
from cleanerd.log.log_dir import read_log_dir
from cleanerd.scope.explanation import (
    POLICY_CHANGES,
    POLICY_RULE,
    Explanation,
    explanation_of_policy,
    settings_of,
)
from cleanerd.scope.explanation import explain as explain_reading
from cleanerd.scope.partitions import partitions_of
from cleanerd.words import human_bytes

if TYPE_CHECKING:
    from cleanerd.cli.output import Output
    from cleanerd.format.names import TopicPartition


_VERBS: Final = {"offline": "clean", "on-start": "stage", "live": "clean --live"}


@click.command("explain")
@common_options
@click.argument("partition", metavar="TOPIC-N")
@click.argument("log_dir", metavar="LOG_DIR", type=click.Path(path_type=Path))
@click.option("--now-ms", type=click.IntRange(min=0), metavar="MS", help="As if it were that time. Default: the clock.")
def explain(common: Common, partition: str, log_dir: Path, now_ms: int | None) -> None:
    """Say why TOPIC-N is or is not cleaned now: the first rule that decides, its numbers, and when that changes.

    A running broker with cleanerd's agent is asked for its own figures. Without the agent the broker's checkpoints are
    read twice, which takes ten seconds.
    """
    settings = common.load_settings()
    wanted = parse_partitions([partition], said_as="TOPIC-N")
    directory = read_log_dir(log_dir)
    require_found(wanted, [directory])
    store = StateStore(settings.daemon.cleanerd_state_dir)
    options = options_from({
        "now_ms": now_ms, "force": False, "first_dirty": None, "from_start": False, "up_to": None, "unclean": False,
    })  # fmt: skip
    # The metadata log, the agent's socket, or a replica on its way, may lie in another directory of the broker's.
    others = [path for path in settings.daemon.cleanerd_log_dirs if path != log_dir]
    choice = choose_mode(directory, others, settings.daemon.cleanerd_agent_socket)
    with partitions_of(settings, directory, others, choice, common.output.note) as partitions:
        try:
            answer = explain_reading(partitions.read(wanted[0]), store, options, partitions.facts.resources())
        except NotCompactedError as reason:
            _tell_policy(common.output, wanted[0], reason, running=choice.mode != "offline")
            return
    if common.output.as_json:
        common.output.json(answer.to_json())
    else:
        _tell(common.output, answer, _VERBS[choice.mode])
    for warning in (*answer.found.config.warnings, *partitions.facts.warnings, *store.warnings):
        common.output.warning(warning)


def _tell_policy(output: Output, name: TopicPartition, reason: NotCompactedError, *, running: bool) -> None:
    if output.as_json:
        output.json(explanation_of_policy(name, reason, running=running))
    else:
        _tell_reason(output, name, POLICY_RULE, reason.message, POLICY_CHANGES)
        output.note(str(reason.hint))


def _tell_reason(output: Output, name: TopicPartition, rule: str, reason: str, changes: str) -> None:
    output.line(f"{name} is not cleaned now.")
    output.line(f"  rule:    {rule}")
    output.line(f"  reason:  {reason}")
    output.line(f"  changes: {changes}")


def _tell(output: Output, answer: Explanation, verb: str) -> None:
    found, state = answer.found, answer.state
    bounds = found.bounds
    if found.verdict is None:
        output.line(f"{found.log.name} is cleaned at the next run of cleanerd {verb}.")
    else:
        _tell_reason(output, found.log.name, found.verdict.rule, found.verdict.reason, found.verdict.changes)
    if staged := staged_in_words(found.log.path):
        output.line(f"  {staged[0].upper()}{staged[1:]}.")
    if answer.running:
        output.line("  A broker runs on this directory: offline cleaning waits until it is stopped.")
    if state is not None and state.quarantine is not None:
        output.line(f"  The last attempt failed: {state.quarantine}")
    if state is not None and state.retry is not None:
        output.line(f"  {state.retry.failures} failures in a row; the daemon tries again at {_utc(state.retry.at_ms)}.")
    if state is not None and state.next_purge_ms is not None and state.purge_as_of == bounds.first_dirty_offset:
        output.line(f"  Its next tombstones or markers may go at {_utc(state.next_purge_ms)}, even if nobody writes.")
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
