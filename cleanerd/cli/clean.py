"""``cleanerd clean``: cleans the log directories of a stopped broker.

``cleanerd clean --live`` cleans beside a running broker, whose agent swaps the segments in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from cleanerd.broker.mode import NO_BROKER
from cleanerd.cleaner.result import CleaningResult, exit_code
from cleanerd.cli.agent_build import warn_of_another_build
from cleanerd.cli.bars import Bars
from cleanerd.cli.change_cost import print_costs
from cleanerd.cli.clean_question import clean_question
from cleanerd.cli.cleaning_options import options_from, save_time
from cleanerd.cli.crash_aware_order import CrashAwareOrder
from cleanerd.cli.each_dir import CleaningRequest
from cleanerd.cli.plan import preview
from cleanerd.cli.results import print_notes, print_results
from cleanerd.cli.scope import (
    note_missing_configs,
    note_server_properties,
    note_skipped_links,
    print_config_warnings,
    select_in,
    warn_start_obstacles,
)
from cleanerd.config.topic_config import INTERNAL_TOPICS
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.resolution.log_dirs import require_outside
from cleanerd.resolution.partitions import LivePartitions
from cleanerd.swap.backup import BackupPlace, require_keepable
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.swap.live_swap import LiveDir
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.record_outcome import not_cleaned
from cleanerd.swap.round import clean_live, clean_partition
from cleanerd.swap.session import LockedDir
from cleanerd.swap.side_by_side import side_by_side
from cleanerd.swap.swapping_broker import SwappingBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cleanerd.broker.partition_snapshot import PartitionSnapshot
    from cleanerd.cleaner.cleaner import Progress
    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.cli.options import Common
    from cleanerd.cli.output import Output
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.log_dir_session import LogDirSession
    from cleanerd.resolution.targets import TargetPartition


def clean_dir_live(
    request: CleaningRequest, session: LogDirSession, connect: Callable[[Path], SwappingBroker] | None = None
) -> list[CleaningResult]:
    """Clean the partitions of a log directory that a broker runs on. ``connect``: makes the connection to it.

    Raises:
        RefusedError: no broker runs on it, or none with an agent that can.
        CleanerdError: the broker's configuration cannot be read.
    """
    output, session = request.output, session.refreshed(running=True)
    log_dir = session.log_dir
    note_skipped_links(output, log_dir)
    choice = session.choose_mode()
    if choice.mode == "offline":
        hint = "clean it without --live" if choice.reason == NO_BROKER else "without --live only while no broker runs"
    else:
        hint = "see cleanerd agent attach and cleanerd doctor; cleanerd stage works without an agent"
    if choice.mode != "live" or choice.socket is None or choice.info is None:
        raise RefusedError(f"cannot be cleaned live: {choice.reason}", where=str(log_dir.path), hint=hint)
    warn_of_another_build(output, choice.info)
    facts = session.facts
    warn_start_obstacles(output, log_dir, facts)
    resources = replace(facts.resources(), workers=request.settings.daemon.log_cleaner_threads)
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
        return [_clean_one_live(output, live, target.name, request.options, turns) for target in (*first, *last)]


def _clean_one_live(
    output: Output, live: LiveDir, name: TopicPartition, options: CleaningOptions, turns: CrashAwareOrder
) -> CleaningResult:
    with Bars(output, str(name)) as bars:
        result = turns.do(name, lambda: clean_live(live, name, options, bars))
    print_notes(output, result)
    return result


LOCK_WAIT_SECONDS = 2.0


def clean(
    common: Common,
    log_dirs: tuple[Path, ...],
    *,
    dry_run: bool,
    kept: Path | None,
    live: bool,
    yes: bool,
    **given: Any,
) -> int:
    """Run ``cleanerd clean``; its options are in ``cleaning_commands.py``."""
    log_dirs = common.log_dirs(log_dirs)
    settings = common.load_settings()
    wanted = select_in(given.pop("partitions"), log_dirs)
    options = options_from(given, common.output, settings)
    if dry_run:
        return preview(common, settings, log_dirs, wanted, options, exact=True, kept=kept)
    if live and options.unclean:
        raise click.UsageError("--live cannot be combined with --unclean: the broker knows how far its log is flushed")
    require_outside(settings.daemon.cleanerd_state_dir, log_dirs)
    if kept is not None:
        require_keepable(kept, log_dirs)
        KeptSegments(settings.daemon.cleanerd_state_dir).require_writable(kept.stat())
    request = CleaningRequest.of(common, settings, log_dirs, wanted, options, kept)
    print_costs(request)
    if not yes:
        question = clean_question(request, live=live)
        if question is not None and not common.output.confirm(question, yes=yes):
            raise click.Abort
    if live:
        results, failures = request.each(clean_dir_live)
    else:
        results, failures = request.each(_clean_dir, first=lambda: note_server_properties(common.output, settings))
    save_time(settings)
    print_results(common.output, results, failures)
    return exit_code(results, failures)


def _clean_dir(request: CleaningRequest, session: LogDirSession) -> list[CleaningResult]:
    output = request.output
    with LogDirLock.acquire(session.path, wait_seconds=LOCK_WAIT_SECONDS) as lock:
        # Use only the facts that are read under the lock.
        session = session.refreshed()
        log_dir, facts = session.log_dir, session.facts
        note_skipped_links(output, log_dir)
        note_missing_configs(output, facts, session.path)
        warn_start_obstacles(output, log_dir, facts)
        locked = LockedDir(log_dir, lock, request.store, facts.resources(), keep_replaced=request.kept)
        targets = session.on_disk.admitted(request.wanted)
        print_config_warnings(output, [target.config for target in targets])
        turns = CrashAwareOrder(request.store, log_dir, request.wanted, output)
        threads = request.settings.daemon.log_cleaner_threads
        results = _clean_targets(output, locked, targets, request.options, threads, turns)
        for result in results:
            print_notes(output, result)
        return results


def _clean_targets(
    output: Output,
    locked: LockedDir,
    targets: Sequence[TargetPartition],
    options: CleaningOptions,
    threads: int,
    turns: CrashAwareOrder,
) -> list[CleaningResult]:
    """Clean the targets, one by one or several at once; results in the order of the targets."""
    first, last = turns.last(targets, lambda target: target.name)
    results = {}
    if min(threads, len(first)) > 1:
        results = {result.name: result for result in _clean_at_once(output, locked, first, options, threads, turns)}
        first = []
    alone = replace(locked, resources=replace(locked.resources, workers=threads))
    for target in (*first, *last):
        with Bars(output, str(target.name)) as bars:
            results[target.name] = _clean_one(alone, target, options, bars, turns)
    return [results[target.name] for target in targets]


def _clean_at_once(
    output: Output,
    locked: LockedDir,
    targets: Sequence[TargetPartition],
    options: CleaningOptions,
    threads: int,
    turns: CrashAwareOrder,
) -> list[CleaningResult]:
    at_once = min(threads, len(targets))
    # log.cleaner.dedupe.buffer.size is the total of all threads, as in Kafka.
    resources = replace(locked.resources, workers=threads // at_once, map_bytes=locked.resources.map_bytes // at_once)
    shared = replace(locked, resources=resources)
    with output.progress(f"{locked.log_dir.path}: partitions", len(targets)) as advance:
        return side_by_side(
            targets,
            lambda target, progress: _clean_one(shared, target, options, progress, turns),
            at_once=at_once,
            done=advance,
        )


def _clean_one(
    locked: LockedDir, target: TargetPartition, options: CleaningOptions, progress: Progress, turns: CrashAwareOrder
) -> CleaningResult:
    try:
        config = target.require_config()
    except CleanerdError as error:
        return not_cleaned(locked.store, locked.log_dir, target.name, error)
    return turns.do(target.name, lambda: clean_partition(locked, target.name, config, options, progress))
