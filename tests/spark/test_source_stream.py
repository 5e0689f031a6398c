"""The stream: every record of closed segments once, in batches as large as was said, whatever is cleaned between."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, ReadMaxRows, ReadMinRows

from cleanerd.errors import ConfigError
from tests.spark.reading import KafkaSegments, schema_of
from tests.support.log_dirs import Partition, make_log_dir, write_segment
from tests.support.logs import Record, encode_batch, encode_marker

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.spark.source.stream import Offsets, SegmentsStream


def segment(base: int, count: int = 10, step: int = 1) -> bytes:
    batches = [encode_batch([Record(b"k", b"%d" % at)], base_offset=at) for at in range(base, base + count, step)]
    return b"".join(batches)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three closed segments of ten records and an active one, in two partitions."""
    segments = {base: segment(base) for base in (0, 10, 20, 30)}
    return make_log_dir(tmp_path / "logs", {"t-0": Partition(segments), "t-1": Partition(segments)})


def stream(path: Path, **options: Any) -> SegmentsStream:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    source = KafkaSegments(CaseInsensitiveDict({"path": str(path), **texts}))
    return source.streamReader(schema_of(["partition", "offset"]))


def batch(reader: SegmentsStream, start: Offsets, end: Offsets) -> list[tuple[int, int]]:
    splits = reader.partitions(start, end)
    rows = [row for split in splits for found in reader.read(split) for row in found.to_pylist()]
    return sorted((row["partition"], row["offset"]) for row in rows)


def grow(path: Path, partition: str, base: int) -> None:
    """The active segment is closed, another one begins; all of it is acknowledged."""
    write_segment(path / partition, base, segment(base))
    checkpoint = path / "replication-offset-checkpoint"
    ends = "".join(f"t {number} {base + 10}\n" for number in (0, 1))
    checkpoint.write_text(f"0\n2\n{ends}")


def test_closed_segments(path: Path) -> None:
    """The active segment waits until it is closed; nothing comes twice."""
    reader = stream(path)
    start = reader.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"t": {"0": 30, "1": 30}}
    assert batch(reader, start, end) == [(number, at) for number in (0, 1) for at in range(30)]
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.partitions(end, end) == []
    grow(path, "t-0", 40)
    after = reader.latestOffset(end, ReadAllAvailable())
    assert after == {"t": {"0": 40, "1": 30}}
    assert batch(reader, end, after) == [(0, at) for at in range(30, 40)]
    assert reader.latestOffset() == after, "Spark 4.1 asks without a start"


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
    ],
)
def test_limits(path: Path, limit: Any, first: dict[str, int]) -> None:
    """A segment of each partition in turn, one at least; all of it together is all there is."""
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


def test_limits_by_option(path: Path) -> None:
    """The words of Spark's own sources."""
    assert stream(path, maxOffsetsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    assert stream(path, maxFilesPerTrigger="7").getDefaultReadLimit() == ReadMaxFiles(7)
    assert stream(path, maxBytesPerTrigger="1k").getDefaultReadLimit() == ReadMaxBytes(1024)
    assert stream(path).getDefaultReadLimit() == ReadAllAvailable()


def test_a_batch_that_is_tried_again_after_a_cleaning(path: Path) -> None:
    """Offsets stay what they are when a cleaning puts segments together and takes records away."""
    reader = stream(path)
    start, end = {"t": {"0": 5, "1": 30}}, {"t": {"0": 25, "1": 30}}
    assert batch(reader, start, end) == [(0, at) for at in range(5, 25)]
    for base in (0, 10, 20):
        for file in (path / "t-0").glob(f"{base:020d}.*"):
            file.unlink()
    write_segment(path / "t-0", 0, segment(0, 30, step=2))
    assert batch(reader, start, end) == [(0, at) for at in range(6, 25, 2)]


def test_open_transactions_hold_it_back(tmp_path: Path) -> None:
    """As a consumer of committed records it waits for the marker."""
    txn: dict[str, Any] = {"transactional": True, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    data = {0: segment(0, 3) + encode_batch([Record(b"t", b"1")], base_offset=3, **txn), 4: segment(4), 14: b""}
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition(data)})
    reader = stream(path)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end == {"t": {"0": 3}}
    write_segment(path / "t-0", 14, encode_marker(14, commit=False, producer_id=7, producer_epoch=0))
    write_segment(path / "t-0", 15, segment(15))
    (path / "replication-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    after = reader.latestOffset(end, ReadAllAvailable())
    assert after == {"t": {"0": 15}}
    assert batch(reader, end, after) == [(0, at) for at in range(4, 14)]


def test_what_is_lost_is_told(path: Path) -> None:
    """Retention took what was not read; ``failOnDataLoss`` as for kafka."""
    start: Offsets = {"t": {"0": 5, "1": 0}}
    (path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 12\n")
    with pytest.raises(ConfigError, match="t-0 begins at 12, and was read up to 5"):
        stream(path).latestOffset(start, ReadAllAvailable())
    reader = stream(path, failOnDataLoss="false")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert batch(reader, start, end) == [*((0, at) for at in range(12, 30)), *((1, at) for at in range(30))]
    with pytest.raises(ConfigError, match="t-7 is gone"):
        stream(path).latestOffset({"t": {"7": 5}}, ReadAllAvailable())


def test_starts(path: Path) -> None:
    """A new partition is read from its beginning; a new query from where it is told."""
    assert stream(path, startingOffsets="latest").initialOffset() == {"t": {"0": 30, "1": 30}}
    assert stream(path, startingOffsets={"t": {"0": 3, "1": -1}}).initialOffset() == {"t": {"0": 3, "1": 30}}
    end = stream(path).latestOffset({"t": {"0": 30}}, ReadAllAvailable())
    assert end == {"t": {"0": 30, "1": 30}}
    assert batch(stream(path), {"t": {"0": 30}}, end) == [(1, at) for at in range(30)]
    for options in ({"endingOffsets": {"t": {"0": 3}}}, {"endingTimestamp": "3"}, {"view": "latest"},
                    {"maxFilesPerTrigger": "1", "maxOffsetsPerTrigger": "1"}):  # fmt: skip
        with pytest.raises(ConfigError, match=r"a stream has no|one limit at most"):
            stream(path, **options)


def test_available_now(path: Path) -> None:
    """What was closed when the query began, and no more."""
    reader = stream(path)
    reader.prepareForTriggerAvailableNow()
    grow(path, "t-0", 40)
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == {"t": {"0": 30, "1": 30}}
    assert stream(path).latestOffset(reader.initialOffset(), ReadAllAvailable()) == {"t": {"0": 40, "1": 30}}


def test_in_spark(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """A query with a checkpoint, run three times: each record once."""

    def run() -> list[tuple[int, int]]:
        frames = spark.readStream.format("kafka-segments").option("maxFilesPerTrigger", "2").load(str(path))
        query = (
            frames.select("partition", "offset").writeStream.format("parquet").trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "table"))
        )  # fmt: skip
        assert query.awaitTermination(120)
        assert len(query.recentProgress) <= 4
        return sorted((row.partition, row.offset) for row in spark.read.parquet(str(tmp_path / "table")).collect())

    first = [(number, at) for number in (0, 1) for at in range(30)]
    assert run() == first
    assert run() == first
    grow(path, "t-1", 40)
    assert run() == sorted([*first, *((1, at) for at in range(30, 40))])
    latest = spark.readStream.format("kafka-segments").option("view", "latest").load(str(path))
    query = latest.writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match="a stream has no latest state"):
        query.awaitTermination(60)
