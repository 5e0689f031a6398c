"""The Spark session of a driver, with the settings that our jobs rely on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from cleanerd.spark.launch import is_driver
from cleanerd.spark.spread import ROWS_AN_ARROW_BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

REQUIRED: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_AN_ARROW_BATCH),
    "spark.sql.adaptive.enabled": "false",  # partitions are ours: a shard each, a segment each
    "spark.sql.session.timeZone": "UTC",
}
"""Settings of the session: whoever makes one elsewhere has to give it these."""


@contextlib.contextmanager
def spark_session(name: str) -> Iterator[SparkSession | None]:
    """The driver's session: made here, or the one that is there, which is then left running. None: this is no driver.

    Master and memory come from ``spark-submit``; without it (tests, notebooks) from whoever made the session. A verb
    runs in a process that is no driver when there is so little to do that it needs no Spark (``small.py``).
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
    # After a signal nothing is asked of Java any more: it had the same signal, and would keep us waiting.
    session.stop()
