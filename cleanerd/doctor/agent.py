"""Checks of ``cleanerd doctor`` for a running broker: the mode, and the agent for live cleaning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.broker.agent_jar import build_of_jar
from cleanerd.broker.mode import choose_mode
from cleanerd.errors import AgentRefusalError
from cleanerd.resolution.kafka_cleaner import kafka_cleaner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.broker.agent_facts import AgentInfo
    from cleanerd.doctor.findings import CheckResults
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.segments.log_dir import LogDir

_FIX = (
    "add -javaagent:$(cleanerd agent path) to the broker's KAFKA_OPTS, or run cleanerd agent attach LOG_DIR; without "
    "an agent use cleanerd stage, and cleanerd apply before the broker's next start"
)


def check_mode(findings: CheckResults, log_dir: LogDir, others: Sequence[Path], configured: Path | None) -> None:
    """Live, on-start or offline, and the reports of an agent."""
    try:
        choice = choose_mode(log_dir, others, configured)
    except AgentRefusalError as error:
        fix = "see who else is connected to the agent's socket (ss -xp), and try again"
        findings.warning("mode", error.message, error.where or log_dir.path, fix)
        return
    described = f"{choice.mode}: {choice.reason}"
    if choice.mode == "on-start":
        findings.note("mode", described, choice.socket or log_dir.path, _FIX)
    else:
        findings.ok("mode", described, choice.socket or log_dir.path)
    if choice.info is not None:
        _check_agent(findings, choice.info, str(choice.socket))


def check_kafka_cleaner(
    findings: CheckResults, facts: BrokerFacts, log_dir: LogDir, others: Sequence[Path], configured: Path | None
) -> None:
    """OP-13: if Kafka's cleaner is off, no process compacts a topic that cleanerd leaves to Kafka."""
    found = kafka_cleaner(facts, choose_mode(log_dir, others, configured).info)
    if found.note:
        findings.warning("Kafka's cleaner", found.note, log_dir.path, found.fix)
    elif found.runs:
        findings.ok("Kafka's cleaner", found.predicate, log_dir.path)


def _check_agent(findings: CheckResults, info: AgentInfo, where: str) -> None:
    ours = build_of_jar()
    if info.failed_resumes:
        findings.problem(
            "agent",
            "could not resume the broker's cleaner for: " + ", ".join(info.failed_resumes[:5]),
            where,
            "restart the broker: until then it neither cleans these partitions nor deletes their old segments",
            exit_code=4,
        )
    if info.errors:
        fix = "see the broker's log around that time"
        findings.warning("agent", f"reported: {info.errors[-1][:200]}", where, fix)
    if ours is not None and ours != info.build:
        fix = "run cleanerd agent attach, or restart the broker with the jar of cleanerd agent path"
        findings.warning("agent", f"is build {info.build}, this cleanerd brings {ours}", where, fix)
    elif not info.failed_resumes and not info.errors:
        findings.ok(
            "agent",
            f"build {info.build} in {info.kafka}, reached by {info.connection_text}, {info.swaps} swaps so far",
            where,
        )
    if info.self_test == "passed":
        findings.ok("agent", f"a trial in a log of its own {info.trial}", where)
    elif info.capable and info.self_test:
        fix = "give the broker's JVM a java.io.tmpdir outside of its log directories that it can write to"
        findings.warning("agent", f"a trial in a log of its own {info.trial}", where, fix)
