"""What is read of a store by Spark's Python workers, inside of jobs, as the same bytes on a disk are."""

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
    """In the block Python workers have these variables, too: where the store is, and who we are there.

    The worker that plans for the driver has Java's variables, and those of the moment in which a source is registered.
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
    """The rows of the source, in several splits, and what jobs count."""
    there, here = (ReadableLogs(spark, place) for place in (url, log_dir))
    rows = [
        sorted(map(tuple, logs.read(splitBytes=3000).drop("segment").collect()), key=repr) for logs in (there, here)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) > 5
    assert there.profile() == here.profile()
