"""``cleanerd stage``: prepares a cleaning, also beside a running broker, so that a restart only needs renames."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from cleanerd.broker.lock_file import broker_runs
from cleanerd.cleaner.result import CleaningResult, exit_code
from cleanerd.cli.bars import Bars
from cleanerd.cli.change_cost import print_costs
from cleanerd.cli.cleaning_options import options_from, save_time
from cleanerd.cli.crash_aware_order import CrashAwareOrder
from cleanerd.cli.each_dir import CleaningRequest
from cleanerd.cli.results import print_notes, print_results
from cleanerd.cli.scope import note_young_topics, print_config_warnings, select_in, warn_start_obstacles
from cleanerd.errors import CleanerdError
from cleanerd.humanize import counted, human_ms
from cleanerd.resolution.log_dirs import require_outside
from cleanerd.swap.backup import require_keepable
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.swap.record_outcome import not_cleaned
from cleanerd.swap.round import stage_partition
from cleanerd.swap.side_by_side import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cleanerd.cleaner.cleaner import Progress
    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.cli.options import Common
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.log_dir_session import LogDirSession
    from cleanerd.resolution.targets import TargetPartition
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.state.cleaner_checkpoint import StateStore


class Stager(Protocol):
    """Stages a partition: this process (``swap/round.py``), or Spark."""

    def __call__(
        self,
        log_dir: LogDir,
        store: StateStore,
        resources: Resources,
        name: TopicPartition,
        config: TopicConfig,
        options: CleaningOptions,
        progress: Progress,
        *,
        keep_replaced: Path | None = None,
    ) -> CleaningResult:
        """Stage one partition, as ``swap/round.py: stage_partition`` does."""


@runtime_checkable
class Stagers(Stager, Protocol):
    """Stages several partitions in parallel."""

    @property
    def at_once(self) -> int:
        """Number of partitions at the same time."""

    def cancel(self) -> None:
        """Cancel the stagings that run elsewhere, such as Spark jobs."""


StagerOf: TypeAlias = "Callable[[Sequence[Path]], Stager | Stagers]"
"""Makes the stager for the partitions in these directories."""


def one_by_one(stager: Stager) -> StagerOf:
    """Use ``stager`` for all partitions."""
    return lambda _places: stager


def stage(common: Common, log_dirs: tuple[Path, ...], *, kept: Path | None, **given: Any) -> int:
    """Run ``cleanerd stage``; its options are in ``cleaning_commands.py``."""
    log_dirs = common.log_dirs(log_dirs)
    return stage_all(common, log_dirs, one_by_one(stage_partition), kept=kept, is_here=True, **given)


def stage_all(
    common: Common,
    log_dirs: tuple[Path, ...],
    stager_of: StagerOf,
    *,
    kept: Path | None,
    is_here: bool = False,
    **given: Any,
) -> int:
    """Stage the selected partitions, and report; returns the exit code. ``is_here``: in this process."""
    settings = common.load_settings()
    wanted = select_in(given.pop("partitions"), log_dirs)
    options = options_from(given, common.output, settings)
    require_outside(settings.daemon.cleanerd_state_dir, log_dirs)
    if kept is not None:
        require_keepable(kept, log_dirs)
        KeptSegments(settings.daemon.cleanerd_state_dir).require_writable(kept.stat())
    request = CleaningRequest.of(common, settings, log_dirs, wanted, options, kept)
    if is_here:  # Spark's partitions are too large to be read here
        print_costs(request)
    results, failures = request.each(partial(_stage_dir, stager_of))
    save_time(settings)
    print_results(common.output, results, failures)
    staged = sum(result.outcome == "staged" for result in results)
    if staged and not common.output.as_json:
        common.output.note(
            f"{counted(staged, 'partition')} staged. Stop the broker, run cleanerd apply with the same log directories "
            f"and settings, start it: within {human_ms(settings.daemon.cleanerd_plan_max_age_ms)}"
        )
    return exit_code(results, failures, must_do_some=not is_here)


def _stage_dir(stager_of: StagerOf, request: CleaningRequest, session: LogDirSession) -> list[CleaningResult]:
    output, store = request.output, request.store
    running = broker_runs(session.path)
    session = session.settled(output.note, request.first) if running else session.refreshed()
    log_dir, facts = session.log_dir, session.facts
    warn_start_obstacles(output, log_dir, facts)
    partitions = session.on_disk
    resources = replace(facts.resources(), workers=request.settings.daemon.log_cleaner_threads)
    targets = partitions.targets(request.wanted)
    if running and not request.wanted:
        note_young_topics(output, partitions, targets)
    print_config_warnings(output, [target.config for target in targets])
    turns = CrashAwareOrder(store, log_dir, request.wanted, output)
    stager = stager_of([log_dir.path / str(target.name) for target in targets])
    reads = threading.Lock()

    def staged(target: TargetPartition, progress: Progress) -> CleaningResult:
        name = target.name
        try:
            with reads:
                reading = partitions.read(name)
        except (CleanerdError, OSError) as error:
            return not_cleaned(store, log_dir, name, error)
        work = partial(
            stager,
            reading.log_dir,
            store,
            resources,
            name=name,
            config=reading.config,
            options=replace(request.options, unclean=request.options.unclean or reading.running),
            progress=progress,
            keep_replaced=request.kept,
        )
        return turns.do(name, work)

    first, last = turns.last(targets, lambda target: target.name)
    results = []
    if isinstance(stager, Stagers) and min(stager.at_once, len(first)) > 1:
        with output.progress(f"{log_dir.path}: partitions", len(first)) as advance:
            results = side_by_side(first, staged, at_once=stager.at_once, done=advance, cancel=stager.cancel)
        for result in results:
            print_notes(output, result)
        first = []
    for target in (*first, *last):
        with Bars(output, str(target.name)) as bars:
            results.append(staged(target, bars))
        print_notes(output, results[-1])
    return results
