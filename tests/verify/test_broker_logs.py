"""``verify`` beside a real broker with transactions and its own cleaner, after a stop, and after a kill."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import CLEANER_CHECKPOINT
from cleanerd.verify.finding import Findings
from cleanerd.verify.kinds import FindingKind
from cleanerd.verify.log_dir import partitions_in, read_surroundings, verify_in_surroundings
from cleanerd.verify.partition import VerifyRequest
from tests.brokers.node import segment_bases, wait_until
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.verify.finding import Finding
    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

BROKER = {
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "500",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
TOPIC = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}


def _transactions(broker: Broker, seed: int, count: int, codec: str) -> None:
    """Transactions of two producers at once, a third of them aborted."""
    rng = random.Random(seed)
    producers = []
    for row in range(2):
        settings = {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "compression.type": codec}
        producers.append(Producer({**settings, "transactional.id": f"{seed}-{row}"}))
        producers[-1].init_transactions(PATIENCE_SECONDS)
    for _ in range(count):
        for producer in producers:
            producer.begin_transaction()
            for _ in range(rng.randint(1, 40)):
                value = None if rng.random() < 0.1 else rng.randbytes(1000)
                producer.produce("t", key=f"k{rng.randint(0, 200)}".encode(), value=value, partition=0)
                producer.poll(0)
        for producer in producers:
            if rng.random() < 0.33:
                producer.flush(PATIENCE_SECONDS)
                producer.abort_transaction(PATIENCE_SECONDS)
            else:
                producer.commit_transaction(PATIENCE_SECONDS)


def _cleaned_to(log_dir: Path) -> int:
    return read_surroundings(log_dir, Findings()).of(CLEANER_CHECKPOINT, TopicPartition("t", 0)) or 0


def _idle(log_dir: Path) -> bool:
    """All is clean below the last segment, and no file of a cleaning exists: no other one begins."""
    partition = log_dir / "t-0"
    unfinished = any(path.suffix in {".cleaned", ".swap"} for path in partition.iterdir())
    return _cleaned_to(log_dir) == segment_bases(partition)[-1] and not unfinished


def _reported(log_dir: Path) -> list[Finding]:
    found = Findings()
    around = read_surroundings(log_dir, found)
    question = VerifyRequest(now_ms=time.time_ns() // 1_000_000)
    verdicts = [verify_in_surroundings(path, around, question) for path in partitions_in(log_dir)]
    assert {"t-0", "__transaction_state-0", "__cluster_metadata-0"} <= {path.name for path in partitions_in(log_dir)}
    return [*found.in_order(), *(each for verdict in verdicts for each in verdict.findings.in_order())]


def _errors(log_dir: Path) -> list[str]:
    return [f"{each.rule} {each.file}: {each.what}" for each in _reported(log_dir) if each.severity == "error"]


def _has_snapshot_of_an_earlier_stop(partition: Path) -> bool:
    bases = segment_bases(partition)
    snapshots = {int(path.stem) for path in partition.glob("*.snapshot")}
    return any(offset < bases[-1] for offset in snapshots - set(bases))


def test_real_broker(broker_43: StartBroker) -> None:
    broker = broker_43(properties=BROKER)
    (log_dir,) = broker.log_dirs
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1, config=TOPIC)])["t"].result(PATIENCE_SECONDS)
    _transactions(broker, 1, 60, "none")
    _transactions(broker, 2, 60, "lz4")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while _cleaned_to(log_dir) == 0 and time.monotonic() < deadline:
        time.sleep(0.5)
    assert _cleaned_to(log_dir) > 0, "Kafka's cleaner did nothing"
    wait_until("the running pass has ended", lambda: _errors(log_dir) == [])
    broker.stop()
    assert _errors(log_dir) == []
    assert list((log_dir / "t-0").glob("*.txnindex")), "no aborted transaction is left"
    broker.start()
    _transactions(broker, 3, 40, "zstd")
    wait_until("the broker's cleaner has nothing to do", lambda: _idle(log_dir))  # an interrupted cleaning leaves files
    broker.stop()
    assert _has_snapshot_of_an_earlier_stop(log_dir / "t-0")
    # The files of segments that Kafka's cleaner replaced wait for the next start; there is no other finding.
    assert {each.kind for each in _reported(log_dir)} <= {FindingKind.DELETED_FILE_LEFT}
    broker.start()
    _transactions(broker, 4, 20, "zstd")
    broker.kill()
    assert _errors(log_dir) == []
