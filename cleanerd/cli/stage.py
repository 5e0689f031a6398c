"""``cleanerd stage``: prepare a cleaning, also beside a running broker, so that a restart needs renames only."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from cleanerd.apply.ahead import stage_partition
from cleanerd.apply.keep import require_keepable
from cleanerd.apply.lock import is_held
from cleanerd.apply.trash import Trash
from cleanerd.cleaner.result import CleaningResult
from cleanerd.cli.clean import Bars, tell, total_exit_code
from cleanerd.cli.each_dir import collected, read_each
from cleanerd.cli.options import Common, common_options
from cleanerd.cli.scope import parse_partitions, tell_warnings
from cleanerd.cli.wishes import cleaning_options, wishes_from
from cleanerd.log.clean_point import StateStore
from cleanerd.log.log_dir import LogDir, read_log_dir
from cleanerd.log.settled import highest_segments, lower_of
from cleanerd.scope.broker_facts import METADATA_AGE_MS, broker_facts
from cleanerd.scope.targets import compacted_partitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.apply.session import Means
    from cleanerd.cleaner.cleaner import Progress
    from cleanerd.cleaner.survey import Wishes
    from cleanerd.cli.output import Output
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.topic_config import TopicConfig
    from cleanerd.settings import Settings

SETTLE_SECONDS = 10.0
"""S-03: two intervals of ``replica.high.watermark.checkpoint.interval.ms``."""


class Stager(Protocol):
    """Who stages a partition: this process (``apply/ahead.py``), or Spark."""

    def __call__(
        self,
        log_dir: LogDir,
        store: StateStore,
        means: Means,
        name: TopicPartition,
        config: TopicConfig,
        wishes: Wishes,
        progress: Progress,
        *,
        keep_replaced: Path | None = None,
    ) -> CleaningResult:
        """As ``stage_partition``."""


@click.command("stage")
@common_options
@click.argument("log_dirs", nargs=-1, required=True, metavar="LOG_DIR...", type=click.Path(path_type=Path))
@cleaning_options
def stage(common: Common, log_dirs: tuple[Path, ...], *, kept: Path | None, **options: Any) -> int:
    """Write the new segments of the compacted partitions beside the old ones, for cleanerd apply.

    The broker may run: nothing of the log is changed. Stop the broker, run cleanerd apply, start the broker. A plan is
    good for cleanerd.plan.max.age.ms and as long as the broker does not itself clean or delete what it rests on. With
    --keep-replaced it is apply that keeps the segments that it replaces.
    """
    return stage_all(common, log_dirs, stage_partition, kept=kept, **options)


def stage_all(common: Common, log_dirs: tuple[Path, ...], stager: Stager, *, kept: Path | None, **options: Any) -> int:
    """Stage with ``stager`` what the cleaning options ask for, and tell; returns the exit code."""
    settings = common.load_settings()
    wanted = parse_partitions(options.pop("partitions"))
    wishes = wishes_from(options)
    if kept is not None:
        require_keepable(kept, log_dirs)
        Trash(settings.daemon.cleanerd_state_dir).require_writable(kept.stat())
    results: list[CleaningResult] = []
    readable, failures = read_each(common.output, log_dirs, wanted)
    store = StateStore(settings.daemon.cleanerd_state_dir)
    for log_dir in readable:
        with collected(failures, common.output):
            others = [other for other in log_dirs if other != log_dir.path]
            results += _stage_dir(common.output, settings, log_dir, others, wanted, wishes, store, kept, stager)
    for warning in store.warnings:
        common.output.warning(warning)
    tell(common.output, results)
    return total_exit_code(results, failures)


def _stage_dir(
    output: Output,
    settings: Settings,
    log_dir: LogDir,
    others: Sequence[Path],
    wanted: Sequence[TopicPartition],
    wishes: Wishes,
    store: StateStore,
    kept: Path | None,
    stager: Stager,
) -> list[CleaningResult]:
    only_before_ms = None
    if is_held(log_dir.path):
        log_dir = _settled(output, log_dir)
        # Its marker is gone while it runs, and its tail may be torn: only what lies below the recovery point counts.
        wishes = replace(wishes, unclean=True)
        only_before_ms = time.time_ns() // 1_000_000 - METADATA_AGE_MS
    facts = broker_facts(settings, log_dir, others, only_before_ms=only_before_ms)
    means = replace(facts.means(), workers=settings.daemon.log_cleaner_threads)
    results = []
    targets = compacted_partitions(facts, log_dir, wanted)
    tell_warnings(output, targets)
    for target in targets:
        if target.config is None:
            error = target.error
            results.append(CleaningResult(target.name, str(log_dir.path), "skipped", str(error), error=error))
        else:
            with Bars(output, str(target.name)) as bars:
                results.append(
                    stager(log_dir, store, means, target.name, target.config, wishes, bars, keep_replaced=kept)
                )
        for note in results[-1].notes:
            output.note(f"{target.name}: {note}")
        if results[-1].error is not None:
            output.warning(f"{target.name}: {results[-1].reason}")
    return results


def _settled(output: Output, first: LogDir) -> LogDir:
    """S-03: the lower of two readings."""
    output.note(f"{first.path}: a broker runs on it; its checkpoints are read twice, {SETTLE_SECONDS:.0f} s apart")
    before = highest_segments(first)
    time.sleep(SETTLE_SECONDS)
    second = read_log_dir(first.path)
    return lower_of(first, second, before, highest_segments(second))
