"""Descriptions of our jobs on Spark's pages: the command, the partitions, and a cleaning's phases with their tasks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from cleanerd.format.names import TopicPartition
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.logs import describe_names
from tests.cleaner.driver import config
from tests.spark.both_engines import all_dirty, stage_by_spark
from tests.spark.rich_log import NOW_MS, RichLog

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def descriptions(spark: SparkSession) -> dict[int, str]:
    """Of all jobs that the session remembers, by their ids; empty without a description, as of other tests' jobs."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(at) for at in range(jobs.size())]
    return {job.jobId(): job.description().get() if job.description().isDefined() else "" for job in found}


@pytest.mark.long
def test_jobs_have_descriptions(spark: SparkSession, tmp_path: Path) -> None:
    """Topic, phase and number of splits and shards of a cleaning; command and partitions of a query."""
    path = RichLog(3).write(tmp_path / "logs", 4, 20)
    spark.sparkContext.setJobDescription(None)
    spark.range(3).count()  # a job without a description, as other tests have them
    before = descriptions(spark)
    assert "" in before.values()
    stage_by_spark(
        spark, path, all_dirty(NOW_MS, from_start=True), config(segment_bytes=4000), shards=3, split_bytes=900
    )
    ReadableLogs(spark, path).latest().write_parquet(tmp_path / "out")
    found = {message for job, message in descriptions(spark).items() if job not in before}
    assert any(
        re.fullmatch(r"cleanerd clean orders-0: scan by \d+ tasks, choose by 3 tasks, settle by \d+ tasks", each)
        for each in found
    ), found
    assert any(re.fullmatch(r"cleanerd clean orders-0: rewrite by \d+ tasks?", each) for each in found), found
    assert "cleanerd snapshot: orders-0" in found


def test_names_of_many() -> None:
    """A few by name, more by their topics, many by number."""
    names = [TopicPartition("orders", at) for at in range(10)]
    assert describe_names(names[:2]) == "orders-0, orders-1"
    assert describe_names([*names, TopicPartition("users", 0)]) == "orders, users (11 partitions)"
    assert describe_names(TopicPartition(f"t{at}", 0) for at in range(2000)) == "2,000 topics (2,000 partitions)"
