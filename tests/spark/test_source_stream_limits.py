"""The limits of a stream's batches, which Spark requests since 4.2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, ReadMaxRows, ReadMinRows

from cleanerd.errors import ConfigError
from cleanerd.spark.source.data_source import KafkaSegments
from tests.spark.streaming import batch, grow, run_query, stream, two_partitions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.spark.source.stream import Offsets


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return two_partitions(tmp_path)


@pytest.mark.parametrize(
    ("limit", "first"),
    [
        (ReadMaxFiles(1), {"0": 10, "1": 0}),
        (ReadMaxFiles(3), {"0": 20, "1": 10}),
        (ReadMaxBytes(1), {"0": 10, "1": 0}),
        (ReadMaxRows(4), {"0": 4, "1": 0}),
        (ReadMaxRows(25), {"0": 15, "1": 10}),
        (ReadMinRows(60), {"0": 30, "1": 30}),
        (ReadMinRows(61), {"0": 0, "1": 0}),
        (ReadAllAvailable(), {"0": 30, "1": 30}),
    ],
)
def test_limits(path: Path, limit: Any, first: dict[str, int]) -> None:
    """A segment per partition in turn, at least one; together all records."""
    reader = stream(path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit)
    assert end == {"t": first}
    seen: list[tuple[int, int]] = []
    while end != start:
        seen += batch(reader, start, end)
        start, end = end, reader.latestOffset(end, limit)
    if not isinstance(limit, ReadMinRows):
        assert sorted(seen) == [(number, at) for number in (0, 1) for at in range(30)]
        assert len(seen) == len(set(seen))


def test_a_truncated_log(path: Path) -> None:
    """With ``failOnDataLoss`` false it continues from its end, without using the limits of the others."""
    start: Offsets = {"t": {"0": 0, "1": 35}}
    (path / "replication-offset-checkpoint").write_text("0\n2\nt 0 40\nt 1 30\n")
    reader = stream(path, failOnDataLoss="false")
    assert reader.latestOffset(start, ReadMaxFiles(1)) == {"t": {"0": 10, "1": 30}}
    assert reader.latestOffset(start, ReadMinRows(20)) == {"t": {"0": 30, "1": 30}}
    assert reader.latestOffset({"t": {"0": 30, "1": 35}}, ReadMaxRows(7)) == {"t": {"0": 30, "1": 30}}


def test_limits_by_option(path: Path) -> None:
    """The option names of Spark's own sources."""
    assert stream(path, maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    assert stream(path, maxFilesPerTrigger="7").getDefaultReadLimit() == ReadMaxFiles(7)
    assert stream(path, maxBytesPerTrigger="1k").getDefaultReadLimit() == ReadMaxBytes(1024)
    assert stream(path).getDefaultReadLimit() == ReadAllAvailable()


class OlderSpark(KafkaSegments):
    """As with Spark 4.1."""

    has_limits = False


def test_a_spark_without_limits(path: Path) -> None:
    """Spark 4.1 would never request them, and read all at once: refused, except for options without a limit."""
    for option in ("maxFilesPerTrigger", "maxBytesPerTrigger", "maxOffsetsPerTrigger"):
        with pytest.raises(ConfigError, match=f"{option}.*limits.*Spark 4.2"):
            stream(path, OlderSpark, **{option: "7"})
    assert stream(path, OlderSpark).latestOffset() == {"t": {"0": 30, "1": 30}}


def test_a_start_in_the_active_segment(path: Path) -> None:
    """Spark 4.1 would use the start of that segment as the first batch's end, and continue there, below the start."""
    starting = {"t": {"0": 33, "1": 30}}
    assert stream(path, startingOffsets=starting).initialOffset() == starting
    assert stream(path).latestOffset(starting) == starting
    with pytest.raises(ConfigError, match="offset 33 of t-0 is above 30, where the closed segments end"):
        stream(path, OlderSpark, startingOffsets=starting).initialOffset()
    assert stream(path, OlderSpark, startingOffsets="latest").initialOffset() == {"t": {"0": 30, "1": 30}}


@pytest.mark.long
def test_in_spark(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """A query with a checkpoint and a limit, run three times: each record once, in several batches."""
    first = [(number, at) for number in (0, 1) for at in range(30)]
    assert run_query(spark, path, tmp_path, maxFilesPerTrigger="2") == first
    assert run_query(spark, path, tmp_path, maxFilesPerTrigger="2") == first
    grow(path, "t-1", 40)
    assert run_query(spark, path, tmp_path, maxFilesPerTrigger="2") == sorted(
        [*first, *((1, at) for at in range(30, 40))]
    )
