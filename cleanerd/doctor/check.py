"""All checks of ``cleanerd doctor``, in the order of the output.

This module also checks the mode and the agent of a running broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.broker.agent_jar import build_of_jar
from cleanerd.broker.mode import choose_mode
from cleanerd.doctor.findings import CheckResult, CheckResults
from cleanerd.doctor.host import (
    Process,
    check_client_config,
    check_file_system,
    check_keep_dir,
    check_limits,
    check_map_dir,
    check_settings,
    check_state_directory,
)
from cleanerd.doctor.log_dir import (
    check_broker,
    check_checkpoints,
    check_command_line,
    check_directory,
    check_metadata,
    check_owner,
)
from cleanerd.doctor.partitions import (
    check_directories,
    check_internal_topics,
    check_leftovers,
    check_long_away,
    check_place,
    check_quarantine,
    check_rules,
    check_shared_tombstones,
    check_space,
    check_topics,
    check_transactions,
    read_partitions,
)
from cleanerd.errors import AgentRefusalError, ConfigError
from cleanerd.host.clock import wall_ms
from cleanerd.resolution.kafka_cleaner import kafka_cleaner
from cleanerd.resolution.log_dirs import log_dirs_of
from cleanerd.state.cleaner_checkpoint import StateStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.broker.agent_facts import AgentInfo
    from cleanerd.config.load import Settings
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.segments.log_dir import LogDir

_FIX = (
    "add -javaagent:$(cleanerd agent path) to the broker's KAFKA_OPTS, or run cleanerd agent attach LOG_DIR; without "
    "an agent use cleanerd stage, and cleanerd apply before the broker's next start"
)


def check_mode(
    findings: CheckResults, log_dir: LogDir, others: Sequence[Path], configured: Path | None
) -> AgentInfo | None:
    """Check the mode (live, on-start or offline), and what an agent reports; returns its answer, if any."""
    try:
        choice = choose_mode(log_dir, others, configured)
    except AgentRefusalError as error:
        fix = "see which processes are connected to the agent's socket (ss -xp), and try again"
        findings.warning("mode", error.message, error.where or log_dir.path, fix)
        return None
    described = f"{choice.mode}: {choice.reason}"
    if choice.mode == "on-start":
        findings.note("mode", described, choice.socket or log_dir.path, _FIX)
    else:
        findings.ok("mode", described, choice.socket or log_dir.path)
    if choice.info is not None:
        _check_agent(findings, choice.info, str(choice.socket))
    return choice.info


def check_kafka_cleaner(findings: CheckResults, facts: BrokerFacts, log_dir: LogDir, info: AgentInfo | None) -> bool:
    """OP-13: if Kafka's cleaner is off, no process compacts a topic that cleanerd leaves to Kafka.

    Returns whether it may run.
    """
    found = kafka_cleaner(facts, info)
    if found.note:
        findings.warning("Kafka's cleaner", found.note, log_dir.path, found.fix)
    elif found.runs:
        findings.ok("Kafka's cleaner", found.predicate, log_dir.path)
    return found.runs is not False


def _check_agent(findings: CheckResults, info: AgentInfo, where: str) -> None:
    ours = build_of_jar()
    if info.failed_resumes:
        findings.problem(
            "agent",
            "could not resume Kafka's cleaner for: " + ", ".join(info.failed_resumes[:5]),
            where,
            "restart the broker: until then it neither cleans these partitions nor deletes their old segments",
            exit_code=4,
        )
    if info.errors:
        fix = "see the broker's log around that time"
        findings.warning("agent", f"reported: {info.errors[-1][:200]}", where, fix)
    if ours is not None and ours != info.build:
        fix = "run cleanerd agent attach, or restart the broker with the jar of cleanerd agent path"
        findings.warning("agent", f"is build {info.build}, but this cleanerd has {ours}", where, fix)
    elif not info.failed_resumes and not info.errors:
        findings.ok(
            "agent",
            f"build {info.build} in {info.kafka}, reached by {info.connection_text}, {info.swaps} swaps so far",
            where,
        )
    if info.self_test == "passed":
        findings.ok("agent", f"self-test: {info.self_test_text}", where)
    elif info.capable and info.self_test:
        fix = "give the broker's JVM a java.io.tmpdir outside of its log directories that it can write to"
        findings.warning("agent", f"self-test: {info.self_test_text}", where, fix)


def check_host(log_dirs: Sequence[Path], config_paths: Sequence[Path], assignments: Sequence[str]) -> list[CheckResult]:
    """All checks for ``log_dirs``; if empty, for those in the settings. Changes nothing.

    ``config_paths`` and ``assignments`` are the values of ``--config`` and ``--set``. Unreadable files are findings
    instead of errors.
    """
    findings = CheckResults()
    settings = check_settings(findings, config_paths, assignments)
    if settings is None:
        findings.note("log directory", "not checked: correct the settings first", ", ".join(map(str, log_dirs)))
    else:
        check_state_directory(findings, settings.daemon.cleanerd_state_dir)
        check_client_config(findings, settings.daemon.cleanerd_command_config)
        check_limits(findings, settings.daemon.log_cleaner_threads)
        store = StateStore(settings.daemon.cleanerd_state_dir, keeps_damaged=True)
        paths = log_dirs or _of_settings(findings, settings)
        check_map_dir(findings, settings.daemon.cleanerd_map_dir, paths)
        for path in paths:
            _check_log_dir(findings, settings, path, paths, store)
    return findings.each_once()


def _of_settings(findings: CheckResults, settings: Settings) -> tuple[Path, ...]:
    try:
        return log_dirs_of(settings)
    except ConfigError as error:
        findings.failed("log directory", error, error.hint or "name the broker's log directories")
        return ()


def _check_log_dir(
    findings: CheckResults, settings: Settings, path: Path, paths: Sequence[Path], store: StateStore
) -> None:
    log_dir = check_directory(findings, path)
    if log_dir is None:
        return
    check_file_system(findings, path)
    check_keep_dir(findings, settings.daemon.cleanerd_keep_replaced_dir, path)
    logs = read_partitions(findings, log_dir)
    others = [other for other in paths if other != path]
    running = check_broker(findings, log_dir, logs, others, settings)
    check_checkpoints(findings, log_dir, running=running)
    check_owner(findings, path, logs, Process.current())
    info = check_mode(findings, log_dir, others, settings.daemon.cleanerd_agent_socket)
    check_command_line(findings, settings, path)
    facts = check_metadata(findings, settings, log_dir, others)
    check_directories(findings, log_dir, facts)
    compacted = [] if facts is None else check_topics(findings, facts, log_dir, logs)
    if facts is not None:
        if check_kafka_cleaner(findings, facts, log_dir, info):
            check_shared_tombstones(findings, facts, log_dir, compacted)
        check_internal_topics(findings, settings.daemon, compacted)
        check_space(findings, facts, log_dir, compacted)
        check_long_away(findings, log_dir, facts, now_ms=wall_ms(), running=running)
    check_leftovers(findings, logs, running=running)
    check_place(findings, log_dir, store)
    check_quarantine(findings, log_dir, logs, store)
    check_rules(findings, log_dir, compacted, store)
    check_transactions(findings, compacted, now_ms=wall_ms(), may_be_torn=running or not log_dir.clean_shutdown)
