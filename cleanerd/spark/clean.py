"""A partition cleaned by Spark's executors up to staged files: the driver.

::

    scan      splits of all segments  -> evidence; keys by shard     spark/scan.py
    choose    a shard of the keys     -> winners by segment          spark/winners.py
    settle    a segment               -> its decision                spark/settle.py
    (prove    expired tombstones, under a versioned strategy (U-1)   spark/proof.py)
    (decide   segments with transactions or such tombstones          spark/settle.py)
    rewrite   a group                 -> staged files                spark/rewrite.py

The driver holds the plan, and of each segment a handful of numbers; records and winners never come here. All else is
``stage_partition``: the same survey, plan, grouping, checks and manifest as of ``cleanerd stage``.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleanerd.apply.remember import not_cleaned
from cleanerd.apply.round import stage_partition
from cleanerd.broker.lock_file import broker_runs
from cleanerd.cleaner.cleaner import Cleaning, NoProgress
from cleanerd.cleaner.resources import disk_reserve_bytes
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.log.at_work import Marks
from cleanerd.log.clean_point import StateStore
from cleanerd.log.log_dir import read_log_dir
from cleanerd.scope.broker_facts import broker_facts
from cleanerd.scope.partitions import ByDisk
from cleanerd.spark.cleaning import SparkCleaning
from cleanerd.spark.jobs import Jobs
from cleanerd.spark.launch import is_local
from cleanerd.spark.plan import ALONE_BYTES, ALONE_HERE_BYTES, SPLIT_BYTES
from cleanerd.spark.work import is_claimed, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from cleanerd.cleaner.cleaner import Progress
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.pool import ReaderPool
    from cleanerd.log.topic_config import TopicConfig
    from cleanerd.scope.selection import Selection
    from cleanerd.settings import Settings
    from cleanerd.spark.jobs import RunsJobs


def spark_stage_partition(session: SparkSession, *arguments: Any, **options: Any) -> CleaningResult:
    """:func:`stage_by_jobs` by the executors of ``session``."""
    given = {"alone_bytes": alone_bytes(session), **options}
    return stage_by_jobs(*arguments, jobs_of=functools.partial(Jobs, session), **given)


def alone_bytes(session: SparkSession) -> int:
    """What is smaller the driver of ``session`` cleans by itself."""
    return ALONE_HERE_BYTES if is_local(str(session.sparkContext.master)) else ALONE_BYTES


def stage_log_dir(
    session: SparkSession,
    path: Path,
    others: Sequence[Path],
    settings: Settings,
    wanted: Selection,
    options: CleaningOptions,
    *,
    shards: int | None = None,
) -> list[CleaningResult]:
    """Stage the compacted partitions of a stopped broker's log directory, or those ``wanted``, one after the other.

    ``others``: the other directories, which may be the same broker's.

    Raises:
        RefusedError: a broker runs there: the verb reads its checkpoints twice, with some seconds between.
        CleanerdError: the directory cannot be read.
    """
    if broker_runs(path):
        raise RefusedError(
            "a broker runs on this log directory",
            where=str(path),
            hint="use the verb, cleanerd spark clean, or stop the broker",
        )
    log_dir = read_log_dir(path)
    facts = broker_facts(settings, log_dir, others)
    store = StateStore(settings.daemon.cleanerd_state_dir)
    marks = Marks(store)
    partitions = ByDisk(log_dir, facts)
    results = []
    for target in partitions.targets(wanted):
        try:
            reading = partitions.read(target.name)
        except (CleanerdError, OSError) as error:
            results.append(not_cleaned(store, log_dir, target.name, error))
            continue
        with marks.working(log_dir, target.name):
            results.append(
                spark_stage_partition(
                    session,
                    reading.log_dir,
                    store,
                    facts.resources(),
                    name=target.name,
                    config=reading.config,
                    options=options,
                    progress=NoProgress(),
                    shards=shards,
                )
            )
    return results


def stage_alone(*arguments: Any, **options: Any) -> CleaningResult:
    """:func:`stage_by_jobs` by this process: nobody runs jobs, as there is too little to do."""
    return stage_by_jobs(*arguments, jobs_of=None, **options)


def stage_by_jobs(
    log_dir: LogDir,
    store: StateStore,
    resources: Resources,
    name: TopicPartition,
    config: TopicConfig,
    options: CleaningOptions,
    progress: Progress,
    *,
    jobs_of: Callable[[CleaningPlan, Progress], RunsJobs] | None,
    keep_replaced: Path | None = None,
    shards: int | None = None,
    split_bytes: int = SPLIT_BYTES,
    alone_bytes: int = ALONE_BYTES,
) -> CleaningResult:
    """As ``stage_partition``, by jobs.

    ``jobs_of`` a plan and a progress is who runs them. ``shards``: at least so many. ``split_bytes``: how large the
    parts of segments are at least. Without ``shards`` what is smaller than ``alone_bytes`` is cleaned by this process.
    """
    with contextlib.ExitStack() as stack:

        def cleaning_of(plan: CleaningPlan, pool: ReaderPool, progress: Progress) -> Cleaning:
            is_small = shards is None and sum(source.segment.size_bytes for source in plan.sources) < alone_bytes
            if jobs_of is None or is_small:
                sweep(Path(plan.path), alone=is_claimed(plan.path))
                return Cleaning(plan, pool, progress)
            jobs = jobs_of(plan, progress)
            reserve_bytes = disk_reserve_bytes(resources, config, plan.path)
            cleaning = SparkCleaning(plan, pool, progress, jobs, reserve_bytes, shards=shards, split_bytes=split_bytes)
            return stack.enter_context(cleaning)

        return stage_partition(
            log_dir,
            store,
            resources,
            name,
            config,
            options,
            progress,
            keep_replaced=keep_replaced,
            cleaning_of=cleaning_of,
        )
