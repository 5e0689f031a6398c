"""Streams of a small log directory: two partitions, segments of ten records, called as Spark would, and by a query."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import CaseInsensitiveDict

from tests.spark.reading import KafkaSegments, schema_of
from tests.support.log_dirs import Partition, make_log_dir, write_segment
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.spark.source.stream import Offsets, SegmentsStream


def segment(base: int, count: int = 10, step: int = 1) -> bytes:
    batches = [encode_batch([Record(b"k", b"%d" % at)], base_offset=at) for at in range(base, base + count, step)]
    return b"".join(batches)


def two_partitions(tmp_path: Path) -> Path:
    """Three closed segments of ten records and an active one, in two partitions."""
    segments = {base: segment(base) for base in (0, 10, 20, 30)}
    return make_log_dir(tmp_path / "logs", {"t-0": Partition(segments), "t-1": Partition(segments)})


def stream(path: Path, source_of: type[KafkaSegments] = KafkaSegments, **options: Any) -> SegmentsStream:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    source = source_of(CaseInsensitiveDict({"path": str(path), **texts}))
    return source.streamReader(schema_of(["partition", "offset"]))


def batch(reader: SegmentsStream, start: Offsets, end: Offsets) -> list[tuple[int, int]]:
    splits = reader.partitions(start, end)
    rows = [row for split in splits for found in reader.read(split) for row in found.to_pylist()]
    return sorted((row["partition"], row["offset"]) for row in rows)


def grow(path: Path, partition: str, base: int) -> None:
    """Close the active segment and begin another one; all of it is acknowledged."""
    write_segment(path / partition, base, segment(base))
    checkpoint = path / "replication-offset-checkpoint"
    ends = "".join(f"t {number} {base + 10}\n" for number in (0, 1))
    checkpoint.write_text(f"0\n2\n{ends}")


def run_query(spark: SparkSession, path: Path, place: Path, **options: str) -> list[tuple[int, int]]:
    """Partition and offset of all rows that a query with a checkpoint has written into a table since its first run."""
    frames = spark.readStream.format("kafka-segments").options(**options).load(str(path))
    query = (
        frames.select("partition", "offset").writeStream.format("parquet").trigger(availableNow=True)
        .option("checkpointLocation", str(place / "checkpoint")).start(str(place / "table"))
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert len(query.recentProgress) <= 4
    return sorted((row.partition, row.offset) for row in spark.read.parquet(str(place / "table")).collect())
