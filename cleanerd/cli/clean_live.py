"""``cleanerd clean --live``: one round beside a running broker, whose agent swaps the segments in."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.apply.agent_jar import build_of_jar
from cleanerd.apply.live import LiveDir, clean_live
from cleanerd.apply.live_broker import LiveBroker
from cleanerd.apply.mode import choose_mode
from cleanerd.cli.clean import Bars
from cleanerd.cli.each_dir import collected, read_each
from cleanerd.cli.scope import tell_links
from cleanerd.errors import RefusedError
from cleanerd.log.clean_point import StateStore
from cleanerd.scope.broker_facts import METADATA_AGE_MS, broker_facts
from cleanerd.scope.targets import live_names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.apply.agent_facts import AgentInfo, LogFacts
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import Wishes
    from cleanerd.cli.output import Output
    from cleanerd.errors import CleanerdError
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.topic_config import TopicConfig
    from cleanerd.settings import Settings


def clean_all_live(
    output: Output,
    settings: Settings,
    paths: Sequence[Path],
    wanted: Sequence[TopicPartition],
    wishes: Wishes,
) -> tuple[list[CleaningResult], list[CleanerdError]]:
    """All directories, one after the other; one that cannot be cleaned live does not stop the others."""
    results: list[CleaningResult] = []
    readable, failures = read_each(output, paths, wanted)
    store = StateStore(settings.daemon.cleanerd_state_dir)
    for log_dir in readable:
        with collected(failures, output):
            results += _clean_dir(output, settings, log_dir, paths, wanted, wishes, store)
    for warning in store.warnings:
        output.warning(warning)
    return results, failures


def _clean_dir(
    output: Output,
    settings: Settings,
    log_dir: LogDir,
    paths: Sequence[Path],
    wanted: Sequence[TopicPartition],
    wishes: Wishes,
    store: StateStore,
) -> list[CleaningResult]:
    tell_links(output, log_dir)
    others = [other for other in paths if other != log_dir.path]
    choice = choose_mode(log_dir, others, settings.daemon.cleanerd_agent_socket)
    if choice.mode == "offline":
        hint = "clean it without --live"
    else:
        hint = "see cleanerd agent attach and cleanerd doctor; cleanerd stage works without an agent"
    if choice.mode != "live" or choice.socket is None or choice.info is None:
        raise RefusedError(f"cannot be cleaned live: {choice.reason}", where=str(log_dir.path), hint=hint)
    warn_of_another_build(output, choice.info)
    facts = broker_facts(settings, log_dir, others, only_before_ms=time.time_ns() // 1_000_000 - METADATA_AGE_MS)
    means = replace(facts.means(), workers=settings.daemon.log_cleaner_threads)
    told: set[str] = set()

    def config_of(topic: str, found: LogFacts) -> TopicConfig:
        config = facts.topic_config(topic, effective=found.settings, segment_bytes=found.segment_size)
        for warning in config.warnings if topic not in told else ():
            output.warning(warning)
        told.add(topic)
        return config

    with LiveBroker(choice.socket) as broker:
        live = LiveDir(log_dir, store, means, broker, config_of)
        return [_clean_one(output, live, name, wishes) for name in live_names(broker, log_dir, wanted)]


def _clean_one(output: Output, live: LiveDir, name: TopicPartition, wishes: Wishes) -> CleaningResult:
    with Bars(output, str(name)) as bars:
        result = clean_live(live, name, wishes, bars)
    for note in result.notes:
        output.note(f"{name}: {note}")
    if result.error is not None:
        output.warning(f"{name}: {result.reason}")
    return result


def warn_of_another_build(output: Output, info: AgentInfo) -> None:
    """A-03: an older copy on the broker's class path wins silently."""
    ours = build_of_jar()
    if ours is not None and ours != info.build:
        output.warning(
            f"the agent in process {info.pid} is build {info.build}, this cleanerd brings {ours}: run cleanerd agent "
            "attach, or restart the broker with the jar of cleanerd agent path; an old copy on its class path wins"
        )
