"""S-40 with a real broker: undo restores live-swapped segments while the broker is stopped; then it goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cleanerd.format.names import TopicPartition as Name
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.session import LockedDir
from cleanerd.swap.undo import entries_of, undo_cleaning
from tests.brokers.ledger import Partition
from tests.brokers.markers import wait_until_ended
from tests.brokers.node import wait_until
from tests.cleaner.driver import resources
from tests.live.load import create_topics
from tests.live.rounds import Rounds, with_agent
from tests.live.shared_broker import check_broker, directory_of, facts
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

TOPIC: Final = "undone"


def write(bootstrap: str, writer: Producer, transactions: range) -> None:
    """Transactions of ten records of few keys; every third is aborted."""
    for number in transactions:
        writer.begin_transaction()
        for record in range(10):
            writer.produce(TOPIC, key=b"k%d" % (record % 4), value=b"%d:%d" % (number, record) * 20, partition=0)
        if number % 3 == 2:
            writer.flush(
                PATIENCE_SECONDS
            )  # otherwise the client drops unsent records, and may end a transaction that did not begin
            writer.abort_transaction(PATIENCE_SECONDS)
        else:
            writer.commit_transaction(PATIENCE_SECONDS)
    wait_until_ended(bootstrap, Partition(TOPIC, 0))


def read(broker: Broker) -> list[tuple[int, bytes | None, bytes | None]]:
    """All committed records."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "undo", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    deadline = time.monotonic() + PATIENCE_SECONDS
    found: list[tuple[int, bytes | None, bytes | None]] = []
    try:
        while time.monotonic() < deadline:
            messages = consumer.consume(500, 1.0)
            found += [(each.offset() or 0, each.key(), each.value()) for each in messages if each.error() is None]
            if any(each.error() is not None for each in messages):  # the end of the partition
                return found
    finally:
        consumer.close()
    pytest.fail("the end of the partition was not reached")


def segments(broker: Broker) -> dict[str, int]:
    """Inode of every file of a closed segment."""
    active = f"{facts(broker, TOPIC).active.base:020d}"
    kinds = {".log", ".index", ".timeindex", ".txnindex"}
    files = (path for path in directory_of(broker, TOPIC).iterdir() if path.suffix in kinds and path.stem != active)
    return {path.name: path.stat().st_ino for path in files}


def test_a_live_cleaning_is_undone(broker_43: StartBroker, tmp_path: Path) -> None:
    """Every earlier record is readable again, aborted ones are not; the same producer continues."""
    broker = broker_43(jvm_args=with_agent())
    create_topics(broker, [TOPIC], segment_bytes=15_000)
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "undo"})
    writer.init_transactions(PATIENCE_SECONDS)
    write(broker.bootstrap, writer, range(40))
    reported = facts(broker, TOPIC)
    wait_until("the closed segments are flushed", lambda: facts(broker, TOPIC).recovery_point >= reported.active.base)
    before, files = read(broker), segments(broker)

    rounds = Rounds(broker, tmp_path / "state", kept=broker.log_dirs[0].parent / "kept")
    assert rounds.kept is not None
    rounds.kept.mkdir()
    (result,) = rounds.clean(Name(TOPIC, 0))
    assert result.outcome == "cleaned", result.reason
    assert segments(broker) != files
    assert len(read(broker)) < len(before)
    write(broker.bootstrap, writer, range(40, 43))
    directory = directory_of(broker, TOPIC)
    wait_until("the broker deleted the replaced segments", lambda: not list(directory.glob("*.deleted")))
    broker.stop()

    kept_segments = KeptSegments(tmp_path / "state")
    with LogDirLock.acquire(broker.log_dirs[0]) as lock:
        log_dir = read_log_dir(broker.log_dirs[0])
        locked = LockedDir(log_dir, lock, StateStore(tmp_path / "state"), resources())
        for entry in entries_of(kept_segments, log_dir):
            done = undo_cleaning(locked, kept_segments, entry)
            assert done.outcome == "undone", done.reason
    assert list(rounds.kept.iterdir()) == []

    broker.start()
    after = segments(broker)
    assert {name: after.get(name) for name in files} == files
    found = read(broker)
    assert found[: len(before)] == before
    assert len(found) == len(before) + 20
    write(broker.bootstrap, writer, range(43, 44))
    assert len(read(broker)) == len(found) + 10
    check_broker(broker)
    rounds.kept = None
    (again,) = rounds.clean(Name(TOPIC, 0))
    assert again.outcome == "cleaned", again.reason
