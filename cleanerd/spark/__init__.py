"""Spark jobs that clean large logs, and readers of logs as DataFrames. Needs the extra ``spark``.

Without PySpark, only this module and :mod:`cleanerd.spark.launch` can be imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cleanerd.spark.notebook import Logs
    from cleanerd.spark.tables.target import Delta, Iceberg
    from cleanerd.spark.values.decode_options import Decode

__all__ = ["Decode", "Delta", "Iceberg", "Logs", "register"]


def register(spark: SparkSession) -> None:
    """Register ``spark.read.format("kafka-segments")`` in a session, with the right Python for its workers.

    Raises:
        ConfigError: Spark's Python workers lack cleanerd; the message names the setting.
    """
    from cleanerd.spark.session import register_source  # noqa: PLC0415 - needs pyspark
    from cleanerd.spark.source.data_source import KafkaSegments  # noqa: PLC0415

    register_source(spark, KafkaSegments)


def __getattr__(name: str) -> Any:
    if name == "Logs":
        from cleanerd.spark.notebook import Logs  # noqa: PLC0415 - needs pyspark

        return Logs
    if name == "Decode":
        from cleanerd.spark.values.decode_options import Decode  # noqa: PLC0415

        return Decode
    if name in ("Delta", "Iceberg"):
        from cleanerd.spark.tables import target  # noqa: PLC0415 - needs pyarrow

        return getattr(target, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
