"""``cleanerd clean --live``: one round beside a running broker, whose agent swaps the segments in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.broker.mode import choose_mode
from cleanerd.cli.agent_build import warn_of_another_build
from cleanerd.cli.bars import Bars
from cleanerd.cli.crash_aware_order import CrashAwareOrder
from cleanerd.cli.results import print_notes
from cleanerd.cli.scope import note_skipped_links, print_config_warnings, warn_start_obstacles
from cleanerd.config.topic_config import INTERNAL_TOPICS
from cleanerd.errors import RefusedError
from cleanerd.resolution.broker_facts import broker_facts
from cleanerd.resolution.log_dirs import configured_log_dirs
from cleanerd.resolution.partitions import LivePartitions
from cleanerd.swap.backup import BackupPlace
from cleanerd.swap.live_swap import LiveDir
from cleanerd.swap.round import clean_live
from cleanerd.swap.swapping_broker import SwappingBroker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.broker.partition_snapshot import PartitionSnapshot
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.cli.each_dir import CleaningRequest
    from cleanerd.cli.output import Output
    from cleanerd.format.names import TopicPartition
    from cleanerd.segments.log_dir import LogDir


def clean_dir_live(
    request: CleaningRequest, log_dir: LogDir, connect: Callable[[Path], SwappingBroker] | None = None
) -> list[CleaningResult]:
    """Clean the partitions of a log directory that a broker runs on. ``connect``: makes the connection to it.

    Raises:
        RefusedError: no broker runs on it, or none with an agent that can.
        CleanerdError: the broker's configuration cannot be read.
    """
    output, settings = request.output, request.settings
    note_skipped_links(output, log_dir)
    others = request.others(log_dir.path)
    choice = choose_mode(log_dir, [*others, *configured_log_dirs(settings)], settings.daemon.cleanerd_agent_socket)
    if choice.mode == "offline":
        hint = "clean it without --live"
    else:
        hint = "see cleanerd agent attach and cleanerd doctor; cleanerd stage works without an agent"
    if choice.mode != "live" or choice.socket is None or choice.info is None:
        raise RefusedError(f"cannot be cleaned live: {choice.reason}", where=str(log_dir.path), hint=hint)
    warn_of_another_build(output, choice.info)
    facts = broker_facts(settings, log_dir, others, running=True)
    warn_start_obstacles(output, log_dir, facts)
    resources = replace(facts.resources(), workers=settings.daemon.log_cleaner_threads)
    reported: set[str] = set()
    with (connect or SwappingBroker)(choice.socket) as broker:
        partitions = LivePartitions(log_dir, facts, broker, INTERNAL_TOPICS)

        def read(name: TopicPartition) -> PartitionSnapshot:
            reading = partitions.read(name)
            if name.topic not in reported:
                print_config_warnings(output, [reading.config])
            reported.add(name.topic)
            return reading

        keep = None if request.kept is None else BackupPlace(request.kept)
        live = LiveDir(log_dir, request.store, resources, broker, read, keep)
        turns = CrashAwareOrder(request.store, log_dir, request.wanted, output)
        first, last = turns.last(partitions.targets(request.wanted), lambda target: target.name)
        return [_clean_one(output, live, target.name, request.options, turns) for target in (*first, *last)]


def _clean_one(
    output: Output, live: LiveDir, name: TopicPartition, options: CleaningOptions, turns: CrashAwareOrder
) -> CleaningResult:
    with Bars(output, str(name)) as bars:
        result = turns.do(name, lambda: clean_live(live, name, options, bars))
    print_notes(output, result)
    return result
