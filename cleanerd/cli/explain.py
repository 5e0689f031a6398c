"""``cleanerd explain``: why a partition is or is not cleaned now, and the origin of each setting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cleanerd.cleaner.staged_plan import describe_staged
from cleanerd.cleaner.verdict import NotCleanedReason
from cleanerd.cli.cleaning_options import options_from
from cleanerd.cli.output import NONE_COMPACTED, Column, Output
from cleanerd.cli.scope import note_young_topics, print_config_warnings, select_in
from cleanerd.cli.selecting import each_once
from cleanerd.daemon.control_client import daemon_facts
from cleanerd.errors import CleanerdError, NotCompactedError, worst_exit_code
from cleanerd.humanize import counted, human_bytes, human_setting
from cleanerd.resolution.checkpoint_pair import FirstReadings
from cleanerd.resolution.explanation import (
    POLICY_CHANGES,
    POLICY_RULE,
    Explanation,
    explanation_of_policy,
    settings_of,
)
from cleanerd.resolution.explanation import explain as explain_reading
from cleanerd.resolution.kafka_cleaner import kafka_cleaner
from cleanerd.resolution.log_dir_session import LogDirSession
from cleanerd.resolution.shared_keys import SharedKeys
from cleanerd.segments.log_dir import partition_names
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.state.quarantine import cause_and_fixes, is_outdated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.cli.options import Common
    from cleanerd.config.load import Settings
    from cleanerd.format.names import TopicPartition


_QUARANTINE: Final = "quarantine"
_COMMANDS: Final = {"offline": "clean", "on-start": "stage", "live": "clean --live"}


def explain(common: Common, partition: str, log_dirs: tuple[Path, ...], now_ms: int | None) -> int:
    """Run ``cleanerd explain``; its options are in ``cleaning_commands.py``."""
    log_dirs = common.log_dirs(log_dirs)
    request = ExplainRequest(common.output, common.load_settings(), log_dirs, partition, now_ms)
    sessions = [request.open(path) for path in log_dirs]
    holders = [each for each in sessions if request.wanted.names.intersection(partition_names(each.path))]
    for session in holders or sessions:
        request.explain_in(session)
    request.print_answers()
    return worst_exit_code({error.exit_code for error in request.failures}, some_done=bool(request.answers))


class ExplainRequest:
    """One question and its answers, one log directory after the other."""

    def __init__(
        self, output: Output, settings: Settings, paths: Sequence[Path], partition: str, now_ms: int | None
    ) -> None:
        self.output = output
        self.settings = settings
        self.wanted = select_in([partition], paths)
        self.is_one = partition in map(str, self.wanted.named)
        # Another directory of the broker may have the metadata log, the agent's socket, or a replica being moved.
        self.paths = each_once([*paths, *settings.daemon.cleanerd_log_dirs])
        self.store = StateStore(settings.daemon.cleanerd_state_dir)
        given = {
            "now_ms": now_ms, "force": False, "first_dirty": None, "from_start": False, "cleanable_to": None,
            "unclean": False,
        }  # fmt: skip
        self.options = options_from(given, output, settings)
        self.answers: list[Answer] = []
        """Each answer names the command that can clean its log directory now."""
        self.failures: list[CleanerdError] = []
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.first = FirstReadings()
        self.shared_keys = SharedKeys()
        self.kafka_cleans = True
        """Whether the cleaner of the last directory's broker may work (OP-13)."""

    def open(self, path: Path) -> LogDirSession:
        """Read a log directory. Raises CleanerdError."""
        return LogDirSession.open(self.settings, self.store, path, self.paths)

    def explain_in(self, session: LogDirSession) -> None:
        """Explain each of the partitions in a log directory.

        Raises:
            CleanerdError: a partition was named, and it cannot be read.
        """
        choice = session.choose_mode()
        command = _COMMANDS[choice.mode]
        here = partition_names(session.path)
        with session.partitions(choice, self.output.note, self.first) as partitions:
            named = sorted(self.wanted.named.intersection(here))
            for name in named or [target.name for target in partitions.targets(self.wanted)]:
                try:
                    answer = explain_reading(
                        partitions.read(name),
                        self.store,
                        self.options,
                        partitions.facts.resources(),
                        counts_held=self.is_one,
                    )
                    daemon = daemon_facts(self.settings, session.path, name)
                    found = answer.found
                    self.shared_keys.add_topic(name, found.log.path, found.config, self.paths)
                    found = replace(found, notes=found.notes + self.shared_keys.notes(name))
                    self.answers.append(Answer(replace(answer, found=found), command, daemon.get(str(name))))
                except NotCompactedError as reason:
                    self.answers.append(Answer(NotCompacted(name, reason, choice.mode != "offline"), command))
                except CleanerdError as error:
                    # A very new topic looks like one of a directory that was not named.
                    note_young_topics(self.output, partitions, partitions.targets())
                    if self.is_one:
                        raise
                    self.output.warning(str(error))
                    self.failures.append(error)
            self.warnings += partitions.facts.warnings
            cleaner = kafka_cleaner(partitions.facts, choice.info)
            self.kafka_cleans = cleaner.runs is not False
            self.notes.append(cleaner.note)
            if not partitions.facts.knows_replicas:
                self.notes.append(partitions.facts.replicas_note)

    def print_answers(self) -> None:
        """Print the answers, then other observations."""
        _print_all(self.output, self.answers, is_one=self.is_one, failed=bool(self.failures))
        found = [each.what.found.config for each in self.answers if isinstance(each.what, Explanation)]
        print_config_warnings(self.output, found)
        for note in filter(None, dict.fromkeys(self.notes)):
            self.output.note(note)
        for warning in dict.fromkeys((*self.warnings, *self.store.warnings)):
            self.output.warning(warning)


@dataclass(frozen=True, slots=True)
class NotCompacted:
    """The answer for a partition whose topic is not compacted."""

    name: TopicPartition
    reason: NotCompactedError
    running: bool

    def to_json(self) -> dict[str, Any]:
        """The fields that apply to it."""
        return explanation_of_policy(self.name, self.reason, running=self.running)


@dataclass(frozen=True, slots=True)
class Answer:
    """The findings, the command that cleans it, and a running daemon's report about the partition."""

    what: Explanation | NotCompacted
    command: str
    daemon: dict[str, Any] | None = None

    @property
    def quarantine(self) -> NotCleanedReason | None:
        """OP-11: the running daemon's quarantine, which decides before the log does."""
        if self.daemon is None or self.daemon["phase"] != "quarantined" or isinstance(self.what, NotCompacted):
            return None
        state, ends = self.what.state, []
        if state is not None and state.quarantined_segment is not None:
            ends.append("when the segment is replaced")
        if state is not None and state.retry is not None:
            ends.append(f"at {_utc(state.retry.at_ms)} ({counted(state.retry.failures, 'failure')} in a row)")
        return NotCleanedReason(_QUARANTINE, self.daemon["reason"], ", or ".join([*ends, "with cleanerd retry"]))

    def to_json(self) -> dict[str, Any]:
        """The entry of ``explain --json``; ``daemon`` exists if one answered."""
        answer, decides = self.what.to_json(), self.quarantine
        if decides is not None:
            given = {"rule": decides.rule, "reason": decides.reason, "changes": decides.changes}
            answer |= {"cleaned_now": False, **given}
        return answer | ({} if self.daemon is None else {"daemon": self.daemon})


def _print_all(output: Output, answers: Sequence[Answer], *, is_one: bool, failed: bool) -> None:
    """``is_one``: a partition was named, not a topic or a pattern; then the JSON has its fields instead of a list."""
    if output.as_json:
        documents = [each.to_json() for each in answers]
        output.json(documents[0] if is_one else {"partitions": documents})
        return
    for number, each in enumerate(answers):
        answer = each.what
        if number:
            output.line()
        if isinstance(answer, Explanation):
            _print_answer(output, answer, each)
        else:
            _print_reason(output, answer.name, POLICY_RULE, answer.reason.message, POLICY_CHANGES)
            output.note(str(answer.reason.hint))
    if not answers and not failed:
        output.line(NONE_COMPACTED)


def _print_reason(output: Output, name: TopicPartition, rule: str, reason: str, changes: str) -> None:
    cause, fixes = cause_and_fixes(reason) if rule == _QUARANTINE else (reason, [])
    output.line(f"{name} is not cleaned now.")
    output.line(f"  rule:    {rule}")
    output.line(f"  reason:  {cause.removesuffix(f': {changes}')}")
    for fix in fixes:
        output.line(f"           -> {fix}")
    output.line(f"  changes: {changes}")


def _print_answer(output: Output, answer: Explanation, each: Answer) -> None:
    found, state = answer.found, answer.state
    bounds = found.bounds
    _print_verdict(output, answer, each)
    if staged := describe_staged(found.log.path):
        output.line(f"  {staged[0].upper()}{staged[1:]}.")
    if answer.running and found.to_clean and each.daemon is None:
        output.line("  A broker runs on this directory: use clean --live or stage, or stop the broker and use clean.")
    if bounds.overdue_ms > 0 and bounds.overdue_at_ms is not None and bounds.dirtiness.cleanable_bytes:
        output.line(f"  Overdue by max.compaction.lag.ms since {_utc(bounds.overdue_at_ms)}.")
    if state is not None and state.next_purge_ms is not None and state.removal_known_below == bounds.first_dirty_offset:
        at = _utc(state.next_purge_ms)
        when = f"after {at} when every replica has them" if found.expiry.waits else f"at {at}"
        output.line(f"  Its next tombstones or markers can be removed {when}, even without new records.")
    output.line()
    output.line(f"Dirty from offset {bounds.first_dirty_offset}; origin: {found.first_dirty_origin}.")
    output.line(f"May be cleaned up to offset {bounds.bound.offset}: the lowest of these, rounded down to a segment.")
    limits = sorted(bounds.bound.limits.items(), key=lambda item: item[1])
    output.table([Column("limit"), Column("offset", right=True)], [[name, str(offset)] for name, offset in limits])
    output.line()
    output.line(
        f"{human_bytes(bounds.dirtiness.clean_bytes)} clean, "
        f"{human_bytes(bounds.dirtiness.cleanable_bytes)} cleanable: dirty ratio {bounds.dirtiness.ratio:.3f}."
    )
    output.line()
    columns = [Column("setting"), Column("value", right=True), Column("origin")]
    output.table(columns, [[key, human_setting(key, value), origin] for key, value, origin in settings_of(found)])
    for note in found.notes:
        output.note(note)


def _print_verdict(output: Output, answer: Explanation, each: Answer) -> None:
    """Why it is or is not cleaned now: the daemon's quarantine, else the log; then an earlier failure."""
    found, state = answer.found, answer.state
    name, against, quarantine = found.log.name, found.verdict, each.quarantine
    decides = quarantine or against
    if decides is not None:
        _print_reason(output, name, decides.rule, decides.reason, decides.changes)
    else:
        done = "cleaned" if state is None or state.quarantine is None else "tried again"
        output.line(f"{name} is {done} at the next run of cleanerd {each.command}.")
    if quarantine is not None and against is not None:
        output.line(f"  besides: {against.reason}")
    if each.daemon is not None:
        reason = "" if decides is not None and each.daemon["reason"] == decides.reason else each.daemon["reason"]
        output.line(f"  The running daemon: {each.daemon['phase']}, {each.daemon['mode']}{reason and f'. {reason}'}")
    if state is None or state.quarantine is None:
        return
    if quarantine is None:
        output.line(f"  The last attempt failed: {state.quarantine}")
    if is_outdated(state, found.log):
        output.line("  The segment that this is about was replaced or deleted since, so it is tried again.")
    if quarantine is None and state.retry is not None:
        failures = counted(state.retry.failures, "failure")
        output.line(f"  {failures} in a row; the daemon tries again at {_utc(state.retry.at_ms)}.")


def _utc(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
