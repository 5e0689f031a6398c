"""``cleanerd explain``: why this partition is or is not cleaned now, and where each setting came from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cleanerd.broker.mode import choose_mode
from cleanerd.cleaner.staged_plan import staged_in_words
from cleanerd.cli.cleaning_options import options_from
from cleanerd.cli.options import Common, common_options, now_option
from cleanerd.cli.output import Column
from cleanerd.cli.scope import select_in, tell_warnings
from cleanerd.cli.selecting import partition_argument
from cleanerd.errors import CleanerdError, NotCompactedError, worst_exit_code
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
from cleanerd.words import human_bytes, human_setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.cli.output import Output
    from cleanerd.format.names import TopicPartition


_VERBS: Final = {"offline": "clean", "on-start": "stage", "live": "clean --live"}


@click.command("explain")
@common_options
@partition_argument
@click.argument("log_dir", metavar="LOG_DIR", type=click.Path(path_type=Path))
@now_option
def explain(common: Common, partition: str, log_dir: Path, now_ms: int | None) -> int:
    """Say why TOPIC-N is or is not cleaned now: the first rule that decides, its numbers, and when that changes.

    A topic or a pattern such as 'orders-*' stands for all its partitions. A running broker with cleanerd's agent is
    asked for its own figures. Without the agent the broker's checkpoints are read twice, which takes ten seconds.
    """
    settings = common.load_settings()
    directory = read_log_dir(log_dir)
    wanted = select_in([partition], [log_dir])
    is_one = partition in map(str, wanted.named)
    store = StateStore(settings.daemon.cleanerd_state_dir)
    options = options_from({
        "now_ms": now_ms, "force": False, "first_dirty": None, "from_start": False, "up_to": None, "unclean": False,
    })  # fmt: skip
    # The metadata log, the agent's socket, or a replica on its way, may lie in another directory of the broker's.
    others = [path for path in settings.daemon.cleanerd_log_dirs if path != log_dir]
    choice = choose_mode(directory, others, settings.daemon.cleanerd_agent_socket)
    answers: list[Explanation | _NotCompacted] = []
    failures: list[CleanerdError] = []
    with partitions_of(settings, directory, others, choice, common.output.note) as partitions:
        for name in sorted(wanted.named) or [target.name for target in partitions.targets(wanted)]:
            try:
                answers.append(explain_reading(partitions.read(name), store, options, partitions.facts.resources()))
            except NotCompactedError as reason:
                answers.append(_NotCompacted(name, reason, choice.mode != "offline"))
            except CleanerdError as error:
                if is_one:
                    raise
                common.output.warning(str(error))
                failures.append(error)
    _tell_all(common.output, answers, _VERBS[choice.mode], is_one=is_one)
    tell_warnings(common.output, [each.found.config for each in answers if isinstance(each, Explanation)])
    for warning in (*partitions.facts.warnings, *store.warnings):
        common.output.warning(warning)
    return worst_exit_code({error.exit_code for error in failures}, some_done=bool(answers))


@dataclass(frozen=True, slots=True)
class _NotCompacted:
    """The answer of a partition whose topic is not compacted."""

    name: TopicPartition
    reason: NotCompactedError
    running: bool

    def to_json(self) -> dict[str, Any]:
        """The fields that mean something then."""
        return explanation_of_policy(self.name, self.reason, running=self.running)


def _tell_all(output: Output, answers: Sequence[Explanation | _NotCompacted], verb: str, *, is_one: bool) -> None:
    """``is_one``: a partition was named, not a topic or a pattern; then the JSON has its fields, not a list."""
    if output.as_json:
        told = [answer.to_json() for answer in answers]
        output.json(told[0] if is_one else {"partitions": told})
        return
    for number, answer in enumerate(answers):
        if number:
            output.line()
        if isinstance(answer, Explanation):
            _tell(output, answer, verb)
        else:
            _tell_reason(output, answer.name, POLICY_RULE, answer.reason.message, POLICY_CHANGES)
            output.note(str(answer.reason.hint))
    if not answers:
        output.line("No compacted partition found.")


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
    output.table(columns, [[key, human_setting(key, value), origin] for key, value, origin in settings_of(found)])
    for note in found.notes:
        output.note(note)


def _utc(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
