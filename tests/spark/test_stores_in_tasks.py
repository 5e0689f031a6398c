"""Executors read Google's and Microsoft's stores themselves, with the settings of their environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.in_tasks import check_read_in_tasks, sent_to_workers
from tests.spark.rich_log import RichLog
from tests.spark.served import serving

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", ["gs", pytest.param("abfs", marks=pytest.mark.long)])
def test_a_read_in_tasks(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Workers get the same rows as from the directory."""
    log_dir = RichLog(3, transactions=True).write(tmp_path / "logs", 2, 20)
    with serving(kind) as store, sent_to_workers(spark, store.environment):
        url = store.put(log_dir, "backup/1/data")
        store.control.clear()
        check_read_in_tasks(spark, url, log_dir)
