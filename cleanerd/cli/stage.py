"""``cleanerd stage``: prepare a cleaning, also beside a running broker, so that a restart needs renames only."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from cleanerd.apply.keep import require_keepable
from cleanerd.apply.kept_segments import KeptSegments
from cleanerd.apply.remember import not_cleaned
from cleanerd.apply.round import stage_partition
from cleanerd.broker.lock_file import broker_runs
from cleanerd.cleaner.result import CleaningResult, exit_code
from cleanerd.cli.at_work import Turns
from cleanerd.cli.bars import Bars
from cleanerd.cli.change_cost import tell_costs
from cleanerd.cli.cleaning_options import options_from, remember_time
from cleanerd.cli.each_dir import CleaningRequest
from cleanerd.cli.results import tell, tell_notes
from cleanerd.cli.scope import select_in, tell_warnings, tell_young_topics
from cleanerd.errors import CleanerdError
from cleanerd.scope.broker_facts import broker_facts
from cleanerd.scope.partitions import BesideBroker, ByDisk
from cleanerd.scope.settled import read_twice

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.cleaner import Progress
    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.cli.options import Common
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.clean_point import StateStore
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.topic_config import TopicConfig


class Stager(Protocol):
    """Who stages a partition: this process (``apply/round.py``), or Spark."""

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
        """Stage one partition, as ``apply/round.py: stage_partition`` does."""


def stage(common: Common, log_dirs: tuple[Path, ...], *, kept: Path | None, **given: Any) -> int:
    """What ``cleanerd stage`` does; its command line is in ``cleaning_verbs.py``."""
    return stage_all(common, log_dirs, stage_partition, kept=kept, **given)


def stage_all(common: Common, log_dirs: tuple[Path, ...], stager: Stager, *, kept: Path | None, **given: Any) -> int:
    """Stage with ``stager`` what the cleaning options ask for, and tell; returns the exit code."""
    settings = common.load_settings()
    wanted = select_in(given.pop("partitions"), log_dirs)
    options = options_from(given, common.output, settings)
    if kept is not None:
        require_keepable(kept, log_dirs)
        KeptSegments(settings.daemon.cleanerd_state_dir).require_writable(kept.stat())
    if stager is stage_partition:  # what goes to Spark is too large to be read here
        tell_costs(common.output, settings, log_dirs, wanted, options)
    request = CleaningRequest.of(common, settings, log_dirs, wanted, options, kept)
    results, failures = request.each(partial(_stage_dir, stager))
    remember_time(settings)
    tell(common.output, results, failures)
    return exit_code(results, failures)


def _stage_dir(stager: Stager, request: CleaningRequest, log_dir: LogDir) -> list[CleaningResult]:
    output, store = request.output, request.store
    earlier = None
    if broker_runs(log_dir.path):
        earlier, log_dir = read_twice(log_dir.path, output.note)
    running = earlier is not None
    facts = broker_facts(request.settings, log_dir, request.others(log_dir.path), running=running, younger=running)
    partitions = ByDisk(log_dir, facts) if earlier is None else BesideBroker(log_dir, facts, earlier)
    resources = replace(facts.resources(), workers=request.settings.daemon.log_cleaner_threads)
    results = []
    targets = partitions.targets(request.wanted)
    if earlier is not None and not request.wanted:
        tell_young_topics(output, partitions, targets)
    tell_warnings(output, [target.config for target in targets])
    turns = Turns(store, log_dir, request.wanted, output)
    first, last = turns.last(targets, lambda target: target.name)
    for name in (target.name for target in (*first, *last)):
        try:
            reading = partitions.read(name)
        except (CleanerdError, OSError) as error:
            results.append(not_cleaned(store, log_dir, name, error))
        else:
            with Bars(output, str(name)) as bars:
                staged = partial(
                    stager,
                    reading.log_dir,
                    store,
                    resources,
                    name=name,
                    config=reading.config,
                    options=replace(request.options, unclean=request.options.unclean or reading.running),
                    progress=bars,
                    keep_replaced=request.kept,
                )
                results.append(turns.do(name, staged))
        tell_notes(output, results[-1])
    return results
