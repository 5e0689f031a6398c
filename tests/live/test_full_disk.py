"""The disk is full when a cleaning needs space: the log does not change, and a later cleaning succeeds."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from cleanerd.format.names import TopicPartition as Name
from cleanerd_lab.demo.broker import Broker
from tests.live.load import create_topics
from tests.live.moments import happens_once
from tests.live.rounds import Rounds, with_agent
from tests.live.shared_broker import check_broker, directory_of, read, write
from tests.support.log_dirs import read_segments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

LEFT_BYTES = 12_288
# The broker's periodic writes would take its log directory offline, which is not the subject of this test.
QUIET = {
    "replica.high.watermark.checkpoint.interval.ms": "600000",
    "log.flush.offset.checkpoint.interval.ms": "600000",
    "log.flush.start.offset.checkpoint.interval.ms": "600000",
    "log.cleaner.enable": "false",
}


@pytest.fixture
def on_small_disk(broker_43: StartBroker, tmp_path: Path) -> Iterator[Broker]:
    """A broker whose log directory is a file system of 32 MiB, and its agent."""
    # With less space for its metadata a controller stops at once.
    own = {**QUIET, "metadata.log.dir": str(tmp_path / "metadata")}
    broker = Broker(
        broker_43.jars.libs, tmp_path, version=broker_43.jars.version, properties=own, jvm_args=with_agent()
    )
    place = broker.log_dirs[0]
    place.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", place], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here; test_the_reserve shows the same without")
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        subprocess.run(["umount", place], check=True)


def fill(place: Path) -> None:
    """Fill the disk except for a few pages."""
    status = os.statvfs(place)
    (place / "ballast").write_bytes(bytes(status.f_bavail * status.f_frsize - LEFT_BYTES))


def have_offsets_topic(broker: Broker, topic: str) -> None:
    """A consumer's first request makes the broker create this topic; on a full disk that can stop the broker."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "first", "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    finally:
        consumer.close()


def content(directory: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    batches = (batch for found in read_segments(directory).values() for batch in found)
    return [(record.offset, record.key, record.value) for batch in batches for record in batch.records]


@pytest.mark.parametrize("moment", ["index", "decide", "swap"])
def test_the_disk_is_full(on_small_disk: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Staging fails, or the swap, which needs no space, is done; the broker keeps serving; later the log is cleaned."""
    broker = on_small_disk
    rounds = Rounds(broker, tmp_path / "state")
    rounds.note_swaps()
    create_topics(broker, ["full"], segment_bytes=100_000)
    write(broker, "full", 5_000, keys=1_000)
    latest = write(broker, "full", 2_000, keys=1_000)
    have_offsets_topic(broker, "full")
    directory = directory_of(broker, "full")
    before = content(directory)
    place = broker.log_dirs[0]
    happens_once(monkeypatch, rounds, moment, lambda: fill(place))
    (result,) = rounds.clean(Name("full", 0))
    assert (place / "ballast").exists(), "U-26"
    if moment == "swap" and result.outcome == "cleaned":
        assert rounds.swaps
    else:
        assert result.outcome == "failed", "nothing is wrong with the log, so it is not quarantined"
        assert "No space left" in result.reason or "not enough free" in result.reason
    if not rounds.swaps:
        assert content(directory) == before
    assert not list(directory.glob(".kstage*"))
    assert read(broker, "full") == latest
    (place / "ballast").unlink()
    latest |= write(broker, "full", 1_000, keys=1_000)
    assert rounds.clean(Name("full", 0))[0].outcome == "cleaned"
    assert read(broker, "full") == latest
    check_broker(broker)


def test_the_reserve(rounds: Rounds) -> None:
    """U-16: a staged group never uses the disk reserve, and the agent gets no request."""
    broker = rounds.broker
    create_topics(broker, ["reserve"])
    latest = write(broker, "reserve")
    before = content(directory_of(broker, "reserve"))
    rounds.assignments = (f"cleanerd.disk.reserve={2**60}",)
    (result,) = rounds.clean(Name("reserve", 0))
    assert result.outcome != "cleaned"
    assert "free" in result.reason
    assert (rounds.swaps, rounds.refused) == ([], [])
    assert content(directory_of(broker, "reserve")) == before
    rounds.assignments = ()
    assert rounds.clean(Name("reserve", 0))[0].outcome == "cleaned"
    assert read(broker, "reserve") == latest
    check_broker(broker)
