"""The stream: every record of closed segments once, in batches of the requested size, whatever is cleaned meanwhile."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from cleanerd.errors import ConfigError
from cleanerd.spark.source.stream import HAS_LIMITS
from tests.spark.reading import offsets
from tests.spark.streaming import batch, grow, run_query, segment, stream, two_partitions
from tests.support.log_dirs import Partition, make_log_dir, write_segment
from tests.support.logs import Record, encode_batch, encode_marker
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.spark.source.stream import Offsets


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return two_partitions(tmp_path)


def test_closed_segments(path: Path) -> None:
    """The active segment waits until it is closed; nothing comes twice."""
    reader = stream(path)
    start = reader.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}}
    end = reader.latestOffset(start)
    assert end == {"t": {"0": 30, "1": 30}}
    assert batch(reader, start, end) == [(number, at) for number in (0, 1) for at in range(30)]
    assert reader.latestOffset(end) == end
    assert reader.partitions(end, end) == []
    grow(path, "t-0", 40)
    after = reader.latestOffset(end)
    assert after == {"t": {"0": 40, "1": 30}}
    assert batch(reader, end, after) == [(0, at) for at in range(30, 40)]
    assert reader.latestOffset() == after, "Spark 4.1 calls it without a start"


def test_a_batch_that_is_tried_again_after_a_cleaning(path: Path) -> None:
    """Offsets are the same when a cleaning merges segments and removes records."""
    reader = stream(path)
    start, end = {"t": {"0": 5, "1": 30}}, {"t": {"0": 25, "1": 30}}
    assert batch(reader, start, end) == [(0, at) for at in range(5, 25)]
    for base in (0, 10, 20):
        for file in (path / "t-0").glob(f"{base:020d}.*"):
            file.unlink()
    write_segment(path / "t-0", 0, segment(0, 30, step=2))
    assert batch(reader, start, end) == [(0, at) for at in range(6, 25, 2)]


def test_an_end_of_any_kind_is_refused(path: Path) -> None:
    """As by ``kafka``: a stream that accepts an end and continues anyway would not do what was requested."""
    ends = {"endingOffsets": "latest", "endingTimestamp": "5", "endingOffsetsByTimestamp": {"t": {"0": 5, "1": 5}}}
    for name, value in ends.items():
        with pytest.raises(ConfigError, match="a stream has no end"):
            stream(path, **{name: value})


def test_how_far_it_could_read(path: Path) -> None:
    """``reportLatestOffset``: the end of the closed segments, whatever the limit of a batch or the query's end."""
    reader = stream(path, maxFilesPerTrigger="1")
    assert reader.reportLatestOffset() is None
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    grow(path, "t-0", 40)
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == {"t": {"0": 10, "1": 0}}
    assert reader.reportLatestOffset() == {"t": {"0": 40, "1": 30}}


@pytest.mark.long
@pytest.mark.skipif(not HAS_LIMITS, reason="Spark 4.1 asks for no limits, and reports no latest offset")
def test_the_lag_in_a_querys_progress(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """Each batch reports its end, and how far the logs are closed."""
    frames = spark.readStream.format("kafka-segments").option("maxFilesPerTrigger", "2").load(str(path))
    query = (
        frames.writeStream.format("noop").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    assert query.awaitTermination(PATIENCE_SECONDS)
    source = query.recentProgress[0]["sources"][0]
    assert json.loads(source["endOffset"]) == {"t": {"0": 10, "1": 10}}
    assert json.loads(source["latestOffset"]) == {"t": {"0": 30, "1": 30}}


def test_open_transactions_limit_it(tmp_path: Path) -> None:
    """Like a read_committed consumer, it waits for the marker."""
    txn: dict[str, Any] = {"transactional": True, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    data = {0: segment(0, 3) + encode_batch([Record(b"t", b"1")], base_offset=3, **txn), 4: segment(4), 14: b""}
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition(data)})
    reader = stream(path)
    end = reader.latestOffset(reader.initialOffset())
    assert end == {"t": {"0": 3}}
    write_segment(path / "t-0", 14, encode_marker(14, commit=False, producer_id=7, producer_epoch=0))
    write_segment(path / "t-0", 15, segment(15))
    (path / "replication-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    after = reader.latestOffset(end)
    assert after == {"t": {"0": 15}}
    assert batch(reader, end, after) == [(0, at) for at in range(4, 14)]


def test_lost_records_are_reported(path: Path) -> None:
    """Retention removed unread records; ``failOnDataLoss`` as for kafka."""
    start: Offsets = {"t": {"0": 5, "1": 0}}
    (path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 12\n")
    with pytest.raises(ConfigError, match="t-0 begins at 12, and was read up to 5"):
        stream(path).latestOffset(start)
    reader = stream(path, failOnDataLoss="false")
    end = reader.latestOffset(start)
    assert batch(reader, start, end) == [*((0, at) for at in range(12, 30)), *((1, at) for at in range(30))]
    with pytest.raises(ConfigError, match="t-7 is gone"):
        stream(path).latestOffset({"t": {"7": 5}})


def test_a_topic_that_was_created_again(path: Path) -> None:
    """All of it up to the old topic's position was skipped silently."""
    start: Offsets = {"t": {"0": 30, "1": 30}}
    assert stream(path).latestOffset(start) == start
    shutil.rmtree(path / "t-0")
    make_log_dir(path, {"t-0": Partition({0: segment(0, 3), 3: segment(3, 3), 6: b""})})
    (path / "replication-offset-checkpoint").write_text("0\n2\nt 0 6\nt 1 30\n")
    for ask in (lambda: stream(path).latestOffset(start), lambda: stream(path).partitions(start, start)):
        with pytest.raises(ConfigError, match="t-0 ends at 6, and was read up to 30: its topic was created again"):
            ask()
    # It stayed at 30 then, and skipped all records of the new topic up to there.
    reader = stream(path, failOnDataLoss="false")
    end: Offsets = {"t": {"0": 6, "1": 30}}
    assert reader.latestOffset(start) == end
    assert batch(reader, start, end) == []
    write_segment(path / "t-0", 6, segment(6, 4))
    write_segment(path / "t-0", 10, b"")
    (path / "replication-offset-checkpoint").write_text("0\n2\nt 0 10\nt 1 30\n")
    after = reader.latestOffset(end)
    assert batch(reader, end, after) == [(0, at) for at in range(6, 10)]


def test_a_batch_that_is_tried_again_after_a_truncation(path: Path) -> None:
    """Its end was never acknowledged here: the rest of it counted as all of it, and later records were missed."""
    start: Offsets = {"t": {"0": 5, "1": 30}}
    planned: Offsets = {"t": {"0": 30, "1": 30}}
    (path / "replication-offset-checkpoint").write_text("0\n2\nt 0 12\nt 1 30\n")
    for base in (20, 30):
        for file in (path / "t-0").glob(f"{base:020d}.*"):
            file.unlink()
    with pytest.raises(ConfigError, match="t-0 ends at 12, and was read up to 30"):
        stream(path).partitions(start, planned)
    assert batch(stream(path, failOnDataLoss="false"), start, planned) == [(0, at) for at in range(5, 10)]
    new: Offsets = {"t": {"0": 5, "1": 30, "2": 10}}
    with pytest.raises(ConfigError, match="t-2 is gone"):
        stream(path).partitions({"t": {"0": 5, "1": 30}}, new)
    (path / "log-start-offset-checkpoint").write_text("0\n1\nt 1 12\n")
    with pytest.raises(ConfigError, match="t-1 begins at 12, and was read up to 10"):
        stream(path).partitions({"t": {"0": 5}}, {"t": {"0": 5, "1": 10}})


def test_starts(path: Path) -> None:
    """A new partition is read from its beginning; a new query from its start option."""
    assert stream(path, startingOffsets="latest").initialOffset() == {"t": {"0": 30, "1": 30}}
    assert stream(path, startingOffsets={"t": {"0": 3, "1": -1}}).initialOffset() == {"t": {"0": 3, "1": 30}}
    end = stream(path).latestOffset({"t": {"0": 30}})
    assert end == {"t": {"0": 30, "1": 30}}
    assert batch(stream(path), {"t": {"0": 30}}, end) == [(1, at) for at in range(30)]
    for options in ({"endingOffsets": {"t": {"0": 3}}}, {"endingTimestamp": "3"}, {"view": "latest"},
                    {"maxFilesPerTrigger": "1", "maxOffsetsPerTrigger": "1"}):  # fmt: skip
        with pytest.raises(ConfigError, match=r"a stream has no|one limit at most"):
            stream(path, **options)


def test_a_partition_that_was_just_created(path: Path) -> None:
    """No checkpoint has it for some seconds: that ended the query. Closed segments have to be known."""
    known: Offsets = {"t": {"0": 30, "1": 30}}
    (path / "t-2").mkdir()
    write_segment(path / "t-2", 0, b"")
    assert stream(path).latestOffset(known) == {"t": {"0": 30, "1": 30, "2": 0}}
    assert offsets(path, partitions="t-2") == []
    write_segment(path / "t-2", 0, segment(0))
    assert stream(path).latestOffset(known) == {"t": {"0": 30, "1": 30, "2": 0}}
    with pytest.raises(ConfigError, match="the high watermark of t-2 is not known"):
        offsets(path, partitions="t-2")
    write_segment(path / "t-2", 10, b"")
    with pytest.raises(ConfigError, match="the high watermark of t-2 is not known"):
        stream(path).latestOffset(known)
    (path / "replication-offset-checkpoint").write_text("0\n3\nt 0 40\nt 1 40\nt 2 10\n")
    reader = stream(path)
    end = reader.latestOffset({"t": {"0": 30, "1": 30, "2": 0}})
    assert batch(reader, {"t": {"0": 30, "1": 30, "2": 0}}, end) == [(2, at) for at in range(10)]


def test_available_now(path: Path) -> None:
    """The segments that were closed when the query began, and no more."""
    reader = stream(path)
    reader.prepareForTriggerAvailableNow()
    grow(path, "t-0", 40)
    assert reader.latestOffset(reader.initialOffset()) == {"t": {"0": 30, "1": 30}}
    assert stream(path).latestOffset(reader.initialOffset()) == {"t": {"0": 40, "1": 30}}


@pytest.mark.long
def test_in_spark(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """A query with a checkpoint, run three times: each record once."""
    first = [(number, at) for number in (0, 1) for at in range(30)]
    assert run_query(spark, path, tmp_path) == first
    assert run_query(spark, path, tmp_path) == first
    grow(path, "t-1", 40)
    assert run_query(spark, path, tmp_path) == sorted([*first, *((1, at) for at in range(30, 40))])
    latest = spark.readStream.format("kafka-segments").option("view", "latest").load(str(path))
    query = latest.writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match="a stream has no latest state"):
        query.awaitTermination(60)
