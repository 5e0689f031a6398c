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

from cleanerd.apply.round import stage_partition
from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.resources import disk_reserve_bytes
from cleanerd.spark.cleaning import SparkCleaning
from cleanerd.spark.jobs import Jobs
from cleanerd.spark.plan import ALONE_BYTES, SPLIT_BYTES
from cleanerd.spark.work import is_claimed, sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from cleanerd.cleaner.cleaner import Progress
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.clean_point import StateStore
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.pool import ReaderPool
    from cleanerd.log.topic_config import TopicConfig
    from cleanerd.spark.jobs import RunsJobs


def spark_stage_partition(session: SparkSession, *arguments: Any, **options: Any) -> CleaningResult:
    """:func:`stage_by_jobs` by the executors of ``session``."""
    return stage_by_jobs(*arguments, jobs_of=functools.partial(Jobs, session), **options)


def stage_by_jobs(
    log_dir: LogDir,
    store: StateStore,
    resources: Resources,
    name: TopicPartition,
    config: TopicConfig,
    options: CleaningOptions,
    progress: Progress,
    *,
    jobs_of: Callable[[str, Progress], RunsJobs],
    keep_replaced: Path | None = None,
    shards: int | None = None,
    split_bytes: int = SPLIT_BYTES,
    alone_bytes: int = ALONE_BYTES,
) -> CleaningResult:
    """As ``stage_partition``, by jobs.

    ``jobs_of`` a plan id and a progress is who runs them. ``shards``: at least so many. ``split_bytes``: how large the
    parts of segments are at least. Without ``shards`` what is smaller than ``alone_bytes`` is cleaned by this process.
    """
    with contextlib.ExitStack() as stack:

        def cleaning_of(plan: CleaningPlan, pool: ReaderPool, progress: Progress) -> Cleaning:
            if shards is None and sum(source.segment.size_bytes for source in plan.sources) < alone_bytes:
                sweep(Path(plan.path), alone=is_claimed(plan.path))
                return Cleaning(plan, pool, progress)
            jobs = jobs_of(plan.plan_id, progress)
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
