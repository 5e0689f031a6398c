"""A partition cleaned by Spark's executors up to staged files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.errors import RefusedError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.apply.session import Means
    from cleanerd.cleaner.cleaner import Progress
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import Wishes
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.clean_point import StateStore
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.topic_config import TopicConfig


def spark_stage_partition(
    session: SparkSession,
    log_dir: LogDir,
    store: StateStore,
    means: Means,
    name: TopicPartition,
    config: TopicConfig,
    wishes: Wishes,
    progress: Progress,
    *,
    keep_replaced: Path | None = None,
    shards: int | None = None,
) -> CleaningResult:
    """As ``stage_partition``, by the executors of ``session``."""
    raise RefusedError(f"{name} cannot be cleaned by Spark yet")
