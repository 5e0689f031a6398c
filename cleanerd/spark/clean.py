"""A partition cleaned by Spark's executors up to staged files: the driver.

::

    scan      splits of all segments  -> evidence; keys by shard     spark/scan.py
    choose    a shard of the keys     -> winners by segment          spark/winners.py
    settle    a segment               -> its decision                spark/settle.py
    (prove    expired tombstones, under a versioned strategy (U-1)   spark/proof.py)
    (decide   segments with transactions or such tombstones          spark/settle.py)
    rewrite   a group                 -> staged files                spark/rewrite.py

The driver has the plan and a few numbers per segment, but no records. The other steps are ``stage_partition``: the same
survey, plan, grouping, checks and manifest as of ``cleanerd stage``. This is used if the keys do not fit one map.
Otherwise one task does everything with the local engine (``spark/single_task.py``), and partitions are cleaned in
parallel: each with a thread here and a task on an executor.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from cleanerd.broker.lock_file import broker_runs
from cleanerd.cleaner.cleaner import Cleaning, Progress
from cleanerd.cleaner.resources import Resources, disk_reserve_bytes
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.resolution.log_dir_session import LogDirSession
from cleanerd.spark.jobs import Jobs, in_time
from cleanerd.spark.launch import is_local
from cleanerd.spark.local_threshold import bytes_below
from cleanerd.spark.plan import LOCAL_BYTES, LOCAL_MASTER_BYTES, SINGLE_TASK_BYTES, SPLIT_BYTES
from cleanerd.spark.session_info import cores_of
from cleanerd.spark.single_task import SingleTaskCleaning, fits_one_map
from cleanerd.spark.task_runner import ignore_progress
from cleanerd.spark.work import is_claimed, sweep
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.state.in_progress import InFlightMarkers
from cleanerd.swap.record_outcome import not_cleaned
from cleanerd.swap.round import stage_partition
from cleanerd.swap.side_by_side import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from cleanerd.cleaner.decide import Decision
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.config.load import Settings
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.format.names import TopicPartition
    from cleanerd.policy.grouping import Group
    from cleanerd.resolution.selection import PartitionSelection
    from cleanerd.resolution.targets import TargetPartition
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.pool import ReaderPool

MOST_AT_ONCE: Final = 32
"""Limit of parallel partitions, each with a thread and a reader in the driver."""


def spark_stage_partition(session: SparkSession, *arguments: Any, **options: Any) -> CleaningResult:
    """:func:`stage_by_jobs` on the executors of ``session``."""
    given = {"alone_bytes": local_threshold_bytes(session), "jobs_of": functools.partial(Jobs, session), **options}
    return stage_by_jobs(*arguments, **given)


@dataclass(frozen=True, slots=True)
class SparkStager:
    """Stages a log directory's partitions on the executors of ``session``.

    ``shards``: at least this many, with a shuffle. ``whole_bytes``: up to this size a partition is one task if the keys
    fit one map. ``stage`` stages one partition. ``tag``: marks its own jobs.
    """

    session: SparkSession
    shards: int | None
    whole_bytes: int
    stage: Callable[..., CleaningResult] = spark_stage_partition
    tag: str = field(default_factory=lambda: f"cleanerd-{secrets.token_hex(8)}")

    @classmethod
    def of(
        cls,
        session: SparkSession,
        shards: int | None,
        places: Sequence[Path],
        stage: Callable[..., CleaningResult] = spark_stage_partition,
    ) -> SparkStager:
        """A stager for the partitions in ``places``: a task may have its core's share of all bytes."""
        share = bytes_below(places) // cores_of(session)
        return cls(session, shards, max(SINGLE_TASK_BYTES, share), stage)

    @property
    def at_once(self) -> int:
        """Number of parallel partitions; with a shuffle each uses all cores."""
        return 1 if self.shards is not None else min(cores_of(self.session), MOST_AT_ONCE)

    def __call__(self, *arguments: Any, **options: Any) -> CleaningResult:
        """:func:`stage_by_jobs` of one partition."""
        given = {"shards": self.shards, "whole_bytes": self.whole_bytes, **options}
        context = self.session.sparkContext
        context.addJobTag(self.tag)
        try:
            return self.stage(self.session, *arguments, **given)
        finally:
            context.removeJobTag(self.tag)

    def cancel(self) -> None:
        """Cancel its jobs only: other jobs may run in a notebook's session."""
        in_time(functools.partial(self.session.sparkContext.cancelJobsWithTag, self.tag))


def local_threshold_bytes(session: SparkSession) -> int:
    """Below this size the driver of ``session`` cleans by itself."""
    return LOCAL_MASTER_BYTES if is_local(str(session.sparkContext.master)) else LOCAL_BYTES


def stage_log_dir(
    session: SparkSession,
    path: Path,
    others: Sequence[Path],
    settings: Settings,
    wanted: PartitionSelection,
    options: CleaningOptions,
    *,
    shards: int | None = None,
    stage: Callable[..., CleaningResult] = spark_stage_partition,
) -> list[CleaningResult]:
    """Stage the compacted partitions of a stopped broker's log directory, or those ``wanted``.

    ``others``: the other directories, which may belong to the same broker. ``stage`` stages one partition.

    Raises:
        RefusedError: a broker runs there: the command reads its checkpoints twice, some seconds apart.
        CleanerdError: the directory cannot be read.
    """
    if broker_runs(path):
        raise RefusedError(
            "a broker runs on this log directory",
            where=str(path),
            hint="use the command cleanerd spark clean, or stop the broker",
        )
    store = StateStore(settings.daemon.cleanerd_state_dir)
    opened = LogDirSession.open(settings, store, path, others)
    log_dir, facts, partitions = opened.log_dir, opened.facts, opened.on_disk
    in_flight = InFlightMarkers(store)
    targets = partitions.targets(wanted)
    stager = SparkStager.of(session, shards, [path / str(target.name) for target in targets], stage)
    reads = threading.Lock()

    def staged(target: TargetPartition, progress: Progress) -> CleaningResult:
        try:
            with reads:
                reading = partitions.read(target.name)
        except (CleanerdError, OSError) as error:
            return not_cleaned(store, log_dir, target.name, error)
        with in_flight.working(log_dir, target.name):
            return stager(
                reading.log_dir,
                store,
                facts.resources(),
                name=target.name,
                config=reading.config,
                options=options,
                progress=progress,
            )

    return side_by_side(targets, staged, at_once=stager.at_once, done=ignore_progress, cancel=stager.cancel)


def stage_locally(*arguments: Any, **options: Any) -> CleaningResult:
    """:func:`stage_by_jobs` in this process, without jobs, for small logs."""
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
    jobs_of: Callable[[CleaningPlan, Progress], Jobs] | None,
    keep_replaced: Path | None = None,
    shards: int | None = None,
    split_bytes: int = SPLIT_BYTES,
    alone_bytes: int = LOCAL_BYTES,
    whole_bytes: int = 0,
) -> CleaningResult:
    """As ``stage_partition``, with jobs.

    ``jobs_of`` a plan and a progress runs them. ``shards``: at least that many. ``split_bytes``: the least size of
    parts of segments. Without ``shards`` this process cleans logs smaller than ``alone_bytes``, and one task cleans
    logs up to ``whole_bytes`` if its keys fit one map. This process also cleans topics that keep write times (U-65),
    which need another pass without a job.
    """
    with contextlib.ExitStack() as stack:

        def cleaning_of(plan: CleaningPlan, pool: ReaderPool, progress: Progress) -> Cleaning:
            size_bytes = sum(source.segment.size_bytes for source in plan.sources)
            if jobs_of is None or plan.rules.keeps_write_time or (shards is None and size_bytes < alone_bytes):
                sweep(Path(plan.path), alone=is_claimed(plan.path))
                return _InTurn(plan, pool, progress)
            is_whole = shards is None and size_bytes <= whole_bytes and fits_one_map(plan)
            jobs = jobs_of(plan, progress)
            reserve_bytes = disk_reserve_bytes(resources, config, plan.path)
            cleaning = SingleTaskCleaning(
                plan, pool, progress, jobs, reserve_bytes, shards=shards, split_bytes=split_bytes, is_whole=is_whole
            )
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


class _InTurn(Cleaning):
    """A cleaning in this process. Parallel threads take turns, because each would need a map's memory."""

    _turn: ClassVar = threading.RLock()

    def decide(self) -> Decision:
        """Index and decide, in this partition's turn."""
        with self._turn:
            return super().decide()

    def pending_groups(self) -> Iterator[Group]:
        """The groups; the turn lasts until the last one is staged."""
        with self._turn:
            yield from super().pending_groups()
