"""``cleanerd apply``: swaps staged cleanings in between a broker's stop and its start (S-26)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from cleanerd.cleaner.result import CleaningResult, exit_code
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.cli.clean import LOCK_WAIT_SECONDS
from cleanerd.cli.each_dir import collected
from cleanerd.cli.results import print_results
from cleanerd.cli.scope import select_in
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.host.clock import wall_ms
from cleanerd.resolution.log_dir_session import LogDirSession
from cleanerd.resolution.log_dirs import require_outside
from cleanerd.resolution.long_away import long_away
from cleanerd.segments.keep_dir import require_keep_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.apply_staged import KeptPlanError, apply_partition, has_staged_work
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.record_outcome import not_cleaned
from cleanerd.swap.session import LockedDir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.cli.options import Common
    from cleanerd.cli.output import Output
    from cleanerd.config.load import Settings
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.resolution.selection import PartitionSelection
    from cleanerd.segments.log_dir import LogDir


_MOST_NAMED: Final = 20


def apply(
    common: Common,
    log_dirs: tuple[Path, ...],
    *,
    partitions: tuple[str, ...],
    unclean: bool,
    require: bool,
    kept: Path | None,
) -> int:
    """Run ``cleanerd apply``; its options are in ``cleaning_commands.py``."""
    log_dirs = common.log_dirs(log_dirs)
    settings = common.load_settings()
    wanted = select_in(partitions, log_dirs)
    require_outside(settings.daemon.cleanerd_state_dir, log_dirs)
    if kept is not None:
        require_keep_dir(kept, log_dirs)
    results: list[CleaningResult] = []
    failures: list[CleanerdError] = []
    for path in log_dirs:
        with collected(failures):
            results += _apply_dir(common.output, settings, path, log_dirs, wanted, unclean=unclean, kept=kept)
    if results or common.output.as_json:
        print_results(common.output, results, failures)
    elif not failures:  # otherwise nothing was read
        common.output.line("Nothing is staged.")
    stale = [result.error for result in results if result.error is not None and result.moved_on]
    return exit_code(results, [*failures, *stale] if require else failures)


def _apply_dir(
    output: Output,
    settings: Settings,
    path: Path,
    paths: Sequence[Path],
    wanted: PartitionSelection,
    *,
    unclean: bool,
    kept: Path | None,
) -> list[CleaningResult]:
    store = StateStore(settings.daemon.cleanerd_state_dir)
    # Before the lock: a wrong directory must not get a lock file.
    session = LogDirSession.open(settings, store, path, paths)
    with LogDirLock.acquire(path, wait_seconds=LOCK_WAIT_SECONDS) as lock:
        session = session.refreshed()
        log_dir, facts = session.log_dir, session.facts
        locked = LockedDir(log_dir, lock, store, facts.resources(), keep_replaced=kept)
        options = CleaningOptions(time.time_ns() // 1_000_000, force=True, unclean=unclean, indexes_only=True)
        results = []
        for name in log_dir.partitions:
            if (wanted and name not in wanted) or not has_staged_work(log_dir, name):
                continue
            results.append(_apply_one(locked, facts, name, options))
            if results[-1].error is not None:
                output.warning(f"{name}: {results[-1].reason}")
        for warning in store.warnings:
            output.warning(warning)
        _warn_of_long_away(output, log_dir, facts)
        return results


def _warn_of_long_away(output: Output, log_dir: LogDir, facts: BrokerFacts) -> None:
    """U-76: the last moment to prevent that deleted keys come back. It does not stop the broker's start."""
    now_ms = wall_ms()
    found = [each for each in long_away(log_dir, facts, now_ms) if not each.is_held]
    for each in found[:_MOST_NAMED]:
        output.warning(f"{each.name}: {each.describe(now_ms)}: deleted keys or aborted records may come back")
    if len(found) > _MOST_NAMED:
        output.warning(f"{log_dir.path}: the same is true for {len(found) - _MOST_NAMED} more partitions")
    if found:
        output.warning(f"before the broker starts, move these replicas aside: cleanerd move-aside {log_dir.path}")


def _apply_one(locked: LockedDir, facts: BrokerFacts, name: TopicPartition, options: CleaningOptions) -> CleaningResult:
    try:
        facts.require_in_place(name)
    except RefusedError as refused:
        error = KeptPlanError(f"not applied: {refused.message}", where=str(name), hint="the staged cleaning is kept")
        return not_cleaned(locked.store, locked.log_dir, name, error)
    return apply_partition(locked, name, _config(facts, name), options)


def _config(facts: BrokerFacts, name: TopicPartition) -> TopicConfig | None:
    """The topic's configuration; None if it is invalid: then the plan is stale. ``cleanerd plan`` shows the reason."""
    try:
        return facts.topic_config(name.topic)
    except CleanerdError:
        return None
