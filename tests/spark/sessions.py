"""Spark sessions of the tests: one per process, with up to four attempts at a task, as on a cluster."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from cleanerd.spark.launch import SAME_WORKERS
from cleanerd.spark.session import REQUIRED

if TYPE_CHECKING:
    from collections.abc import Mapping

QUIET = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.ui.showConsoleProgress": "false",
}
SHORT = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For a session of a minute, which would spend half of it in Java's compiler."""
ONE_SORT_OF_WORKERS = {f"spark.executorEnv.{SAME_WORKERS}": "1"}
"""The arguments with which ``cleanerd spark`` starts a session on this machine."""
ON_A_CLUSTER = {
    **SHORT,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
}
"""For a standalone master whose workers have 1 GB each."""


def start_session(master: str, more: Mapping[str, str]) -> SparkSession:
    """A session of this process; its workers use this interpreter unless the environment sets another one."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("cleanerd tests")
    for key, value in {**REQUIRED, **QUIET, **more}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
