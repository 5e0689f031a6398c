"""Speed of the data source: elapsed time through Spark with two cores, and CPU from files to Arrow.

The log has a header in each record, 128 bytes per record, 64 per batch. Environment: ``BENCH_SPARK_SOURCE_MIB`` (512).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

pytest.importorskip("pyspark")

from cleanerd_lab.bench.generate import LogShape, make_log
from tests.spark.reading import KafkaSegments, schema_of
from tests.spark.sessions import start_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

MIB: Final = 1024 * 1024
SIZE_MIB: Final = int(os.environ.get("BENCH_SPARK_SOURCE_MIB", "512"))
ROUNDS: Final = 4
ALL: Final = "key,value,topic,partition,offset,timestamp,timestampType,headers"
FEW: Final = "offset,timestamp"
LEAST: Final = {ALL: 80, FEW: 200}
"""MiB/s of the log through Spark with two cores."""
LEAST_ARROW: Final = 500
"""MiB per second of CPU, all columns, from files to Arrow."""

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def log() -> Iterator[tuple[Path, int]]:
    """A log directory, and the MiB of its segments."""
    root = Path(tempfile.mkdtemp(prefix="spark-source-"))
    make_log(
        root / "data",
        LogShape("source", "128 B, a header", 128, 64, 0.5, versions=True),
        unpacked_bytes=SIZE_MIB * MIB,
        segment_bytes=128 * MIB,
    )
    yield root / "data", sum(file.stat().st_size for file in root.rglob("*.log")) // MIB
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    session = start_session("local[2]", {"spark.driver.memory": "1g"})
    yield session
    session.stop()


@pytest.mark.parametrize("columns", [ALL, FEW], ids=["all", "few"])
def test_through_spark(session: SparkSession, log: tuple[Path, int], columns: str) -> None:
    """The best of some rounds, the first of which warms up the JIT."""
    path, size_mib = log
    frame = session.read.format("kafka-segments").option("columns", columns).load(str(path))
    found = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        frame.write.format("noop").mode("overwrite").save()
        found.append(size_mib / (time.monotonic() - began))
    sys.stdout.write(f"\nSpark, two cores, {columns}: {' '.join(f'{each:.0f}' for each in found)} MiB/s")
    assert max(found) >= LEAST[columns]


@pytest.mark.parametrize("columns", [ALL, FEW], ids=["all", "few"])
def test_to_arrow(log: tuple[Path, int], columns: str) -> None:
    """Without Spark: the output of a task, one core."""
    path, size_mib = log
    reader = KafkaSegments({"path": str(path)}).reader(schema_of(columns.split(",")))
    found, records = [], 0
    for _ in range(ROUNDS):
        began = time.process_time()
        records = sum(batch.num_rows for split in reader.partitions() for batch in reader.read(split))
        found.append(size_mib / (time.process_time() - began))
    cpu_ns = size_mib / max(found) / records * 1e9
    sys.stdout.write(
        f"\nArrow, {columns}: {' '.join(f'{each:.0f}' for each in found)} MiB/s of CPU, {cpu_ns:.0f} ns each"
    )
    assert max(found) >= LEAST_ARROW
