"""Search by time in the results of cleanerd and of Kafka's own cleaner for the same log."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.brokers.lifecycle import FORCED
from tests.brokers.node import cleanerd, kafka_searches
from tests.kafka.judge import Batch, Record, Round, Segment
from tests.support.log_dirs import read_segments

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

T = 1_700_000_000_000
SMALL = {"segment.bytes": "400"}


def record(offset: int, time_ms: int, key: bytes) -> Batch:
    return Batch((Record(offset, T + time_ms, key, bytes(300)),))


def test_the_end_of_a_group_hides_no_later_record(judge_43: Judge, tmp_path: Path) -> None:
    """Offset 1 was the latest of its segment and is superseded; the first record at 200 or later is offset 2."""
    segments = [
        Segment(0, (record(0, 100, b"stays"), record(1, 500, b"goes"))),
        Segment(2, (record(2, 300, b"goes"),)),
        Segment(3, (record(3, 310, b"active"),)),
    ]
    log_dir = tmp_path / "ours"
    judge_43.make(log_dir / "t-0", segments, now_ms=T + 1000, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    shutil.copytree(log_dir, tmp_path / "theirs")
    whole = Round(now_ms=T + 2000, first_dirty_offset=0, first_uncleanable_offset=3, high_watermark=4)
    judge_43.clean(tmp_path / "theirs" / "t-0", [whole], config=SMALL)
    assert kafka_searches(tmp_path / "theirs" / "t-0", T + 200) == 2

    for name in ("recovery-point", "replication"):
        (log_dir / f"{name}-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=1\n")
    topic = {"cleanup.policy": "compact", **SMALL}
    words = [word for key, value in topic.items() for word in ("--set", f"topics.t.{key}={value}")]
    run = cleanerd("clean", [log_dir], tmp_path / "state", *FORCED, *words)
    assert [entry["removed"]["superseded"] for entry in run.partitions.values()] == [1]
    assert len(read_segments(log_dir / "t-0")) == 3, "U-26: both cleaned segments are still there"
    assert kafka_searches(log_dir / "t-0", T + 200) == 2
