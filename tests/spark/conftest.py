"""One Spark session for all tests: starting one takes longer than most of them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from cleanerd.spark.session import REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """``local[2]``, with tasks tried four times."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2,4]").appName("cleanerd tests")
    settings = {
        **REQUIRED,
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "512m",
        "spark.ui.showConsoleProgress": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
