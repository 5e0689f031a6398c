"""One Spark session for all tests: starting one takes longer than most of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.spark.sessions import SHORT, start_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """``local[2]``, with tasks tried four times."""
    session = start_session("local[2,4]", {**SHORT, "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"})
    yield session
    session.stop()
