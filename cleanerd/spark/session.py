"""The Spark session of a driver, with the settings and the Python that cleanerd's jobs need."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Final

from cleanerd.errors import ConfigError
from cleanerd.spark.launch import is_driver, is_local
from cleanerd.spark.session_info import is_connect
from cleanerd.spark.spark_errors import reason_of, spark_errors
from cleanerd.spark.task_runner import ROWS_AN_ARROW_BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

OTHER_PYTHON: Final = re.compile(r"No module named|PYTHON_VERSION_MISMATCH|Cannot run program|ImportError")
"""Errors that show that a Python worker uses another interpreter than the one with cleanerd."""

REQUIRED: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_AN_ARROW_BATCH),
    "spark.sql.adaptive.enabled": "false",  # cleanerd's partitions have a meaning: one per shard or segment
    "spark.sql.session.timeZone": "UTC",
}
"""Settings that an externally created session needs."""


@contextlib.contextmanager
def spark_session(name: str) -> Iterator[SparkSession | None]:
    """The driver's session: created here, or an existing one, which is left running. None: this is not a driver.

    Master and memory come from ``spark-submit``; without it (tests, notebooks) from the creator of the session. If
    there is little work, a command runs without a driver (``local_threshold.py``).
    """
    if not is_driver():
        yield None
        return
    from pyspark.sql import SparkSession  # noqa: PLC0415

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.appName(name)
    for key, value in REQUIRED.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    except Exception:
        with contextlib.suppress(Exception):
            session.stop()
        raise
    # After a signal Java is not called any more: it got the same signal, and would delay the end.
    session.stop()


def use_own_python(session: SparkSession) -> None:
    """SP-5: on a local master, make this interpreter the one of the Python workers, unless PYSPARK_PYTHON chose one.

    Spark would use the ``python3`` of PATH, which has cleanerd only in an activated environment.
    """
    if is_connect(session) or "PYSPARK_PYTHON" in os.environ or not sys.executable:
        return
    context = session.sparkContext
    chosen = shutil.which(context.pythonExec)
    here = os.path.dirname(sys.executable)
    if is_local(context.master or "") and (chosen is None or os.path.dirname(chosen) != here):
        context.pythonExec = sys.executable


def register_source(session: SparkSession, source: type[DataSource]) -> None:
    """Register ``source``, and make the worker that plans its reading import it.

    Raises:
        ConfigError: that worker is a Python without cleanerd, or of another version.
    """
    use_own_python(session)
    session.dataSource.register(source)
    try:
        # Requests only the schema, so nothing is listed or read. noqa: B018
        session.read.format(source.name()).load("/").schema  # noqa: B018
    except spark_errors() as error:
        if OTHER_PYTHON.search(str(error)) is None:
            raise
        raise ConfigError(
            f"Spark's Python workers cannot import cleanerd: {reason_of(error)}",
            where="register",
            hint=f"before the session starts: export PYSPARK_PYTHON={sys.executable}; see docs/spark-source.md",
        ) from error
