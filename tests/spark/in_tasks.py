"""Reads of a store by Spark's Python workers, inside of jobs: the same rows as from a disk."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cleanerd.spark import register
from cleanerd.spark.api import ReadableLogs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession


@contextlib.contextmanager
def sent_to_workers(spark: SparkSession, message: Mapping[str, str]) -> Iterator[None]:
    """During the block, Python workers have these variables, too: the store's address, and our credentials there.

    The worker that plans for the driver has Java's variables, as they were when the source was registered.
    """
    environment = spark.sparkContext.environment
    environment.update(message)
    register(spark)
    try:
        yield
    finally:
        for key in message:
            del environment[key]
        register(spark)


def check_read_in_tasks(spark: SparkSession, url: str, log_dir: Path) -> None:
    """The rows of the source, in several splits, and the counts of jobs."""
    there, locally = (ReadableLogs(spark, place) for place in (url, log_dir))
    rows = [
        sorted(map(tuple, logs.read(splitBytes=3000).drop("segment").collect()), key=repr) for logs in (there, locally)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) > 5
    assert there.profile() == locally.profile()
