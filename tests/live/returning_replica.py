"""A replica returns after ``delete.retention.ms`` and becomes leader: does the deleted key come back (U-70)?

Broker 1 is the controller. Each topic has one partition on brokers 2 and 3, and one way of being cleaned. While broker
3 is stopped, the key ``k`` is deleted and the transaction that wrote ``a`` is aborted.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd.spark.launch import DRIVER_VARIABLE, require_spark
from cleanerd_lab.demo.broker import Broker, beside
from tests.brokers.node import Run, aged, cleanerd, wait_until
from tests.live.kill_checks import now_loaded
from tests.live.load import topic_config
from tests.live.rounds import with_agent
from tests.support.log_dirs import batches_of
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.kafka.judge import KafkaJars
    from tests.support.log_dirs import StoredBatch

AGE_MS: Final = 2000
"""The clock difference that cleanerd allows in this test, and how long it treats the end of the metadata log as
uncommitted.
"""

RETENTION_MS: Final = 1000
WAITING: Final = ("live", "offline", "on-start", "spark")
TOPICS: Final = ("kafka", "ignoring", *WAITING)
"""By cleaner: ``ignoring`` is cleanerd with ``cleanerd.tombstone.replicated=ignore``."""

PROPERTIES: Final = {
    "log.cleaner.backoff.ms": "300",
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "6000",
    # A snapshot of a short ISR has no history, and keeps expired tombstones (tests/cleaner/test_returning_replica.py).
    "metadata.log.max.snapshot.interval.ms": "0",
}


@dataclass(frozen=True, slots=True)
class OnDisk:
    """The records on a replica's disk: ``k``'s value and tombstone, the aborted record and the ABORT marker."""

    value: bool
    tombstone: bool
    aborted: bool
    marker: bool


@dataclass
class Results:
    """The results by topic.

    ``away``: broker 2's disk while broker 3 was stopped. ``returned``: broker 3's disk once it was in the ISR again.
    ``consumed``: the values of k, a and b for a read_committed consumer with broker 3 as leader. ``after``: broker 2's
    disk, cleaned after the return.
    """

    away: dict[str, OnDisk] = field(default_factory=dict)
    returned: dict[str, OnDisk] = field(default_factory=dict)
    consumed: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    after: dict[str, OnDisk] = field(default_factory=dict)


class Scenario:
    """The brokers and the steps of the scenario; ``play`` runs them all."""

    def __init__(self, jars: KafkaJars, work_dir: Path) -> None:
        shared: dict[str, Any] = {"version": jars.version, "properties": PROPERTIES}
        self.controller = Broker(jars.libs, work_dir / "1", **shared)
        self.leader, self.follower = (
            beside(self.controller, node, work_dir / str(node), jvm_args=with_agent(), **shared) for node in (2, 3)
        )
        self.state_dir = work_dir / "state"
        self.state_dir.mkdir(parents=True)
        self.dice = random.Random(1)
        self.seen = Results()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in (self.follower, self.leader, self.controller):
            node.kill()

    def play(self) -> Results:
        """Run all steps, with five broker starts."""
        self._begin()
        self.follower.stop()
        self._wait_for_isr(2)
        self._delete()
        self._clean_while_away()
        self.leader.start()
        self.follower.start()
        self._wait_for_isr(2, 3)
        # The ISR is complete from now on; the metadata log has to show that before a cleaning may use it.
        wait_until("the live cleaning removes the tombstone", self._cleaned_live)
        self.seen.returned = {topic: kept(self.follower, topic) for topic in TOPICS}
        self.leader.stop()
        self._wait_for_isr(3)
        self.seen.consumed = {topic: consume(self.follower, topic) for topic in TOPICS}
        self._clean_stopped(WAITING[1:])
        self.seen.after = {topic: kept(self.leader, topic) for topic in TOPICS}
        return self.seen

    # ---- what is written

    def _begin(self) -> None:
        self.controller.start()
        self.plain = Producer({"bootstrap.servers": self.controller.bootstrap, "acks": "all"})
        self.transactional = Producer(
            {"bootstrap.servers": self.controller.bootstrap, "transactional.id": "one", "acks": "all"}
        )
        self.transactional.init_transactions(PATIENCE_SECONDS)  # the transactions' own topic is created by this, too
        self.leader.start()
        self.follower.start()
        admin = AdminClient({"bootstrap.servers": self.controller.bootstrap})
        topics = []
        for topic in TOPICS:
            config = topic_config(self.leader, 2000, delete_retention_ms=str(RETENTION_MS))
            if topic == "kafka":
                config["min.cleanable.dirty.ratio"] = "0.01"
            topics.append(NewTopic(topic, 1, replica_assignment=[[2, 3]], config=config))
        for future in admin.create_topics(topics).values():
            future.result()
        self._wait_for_isr(2, 3)
        self._write(b"k", b"v")
        self._fill()
        self.transactional.begin_transaction()
        self._write(b"a", b"aborted", self.transactional)

    def _delete(self) -> None:
        self._write(b"k", None)
        self.transactional.abort_transaction(PATIENCE_SECONDS)
        self.transactional.begin_transaction()
        self._write(b"b", b"committed", self.transactional)
        self.transactional.commit_transaction(PATIENCE_SECONDS)
        self._fill()

    def _write(
        self, key: bytes, value: bytes | None, producer: Producer | None = None, topics: Sequence[str] = TOPICS
    ) -> None:
        producer = producer or self.plain
        for topic in topics:
            producer.produce(topic, key=key, value=value, partition=0)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def _fill(self, topics: Sequence[str] = TOPICS) -> None:
        for number in range(8):
            self._write(b"filler%d" % number, self.dice.randbytes(700), topics=topics)

    # ---- how it is cleaned

    def _clean_while_away(self) -> None:
        wait_until("Kafka's cleaner removes the tombstone", self._cleaned_by_kafka)
        for _ in range(3):  # the records, then the marker's horizon, then the marker
            self._clean("--live", topic="live")
            time.sleep(RETENTION_MS / 1000 + 0.2)
        self.leader.stop()
        for _ in range(2):
            self._clean()
            time.sleep(RETENTION_MS / 1000 + 0.2)
        self._clean("--set", "topics.ignoring.cleanerd.tombstone.replicated=ignore", topic="ignoring")
        self._clean_stopped(WAITING[1:])
        self.seen.away = {topic: kept(self.leader, topic) for topic in TOPICS}

    def _clean_stopped(self, topics: Sequence[str]) -> None:
        """Clean each topic in its own way, with the leader stopped."""
        for topic in topics:
            if topic == "offline":
                self._clean(topic=topic)
                continue
            if topic == "on-start":
                run = self._run("stage", self.leader.log_dirs, "--force", "--from-start", "--partition", topic)
                assert run.exit_code == 0, run.stderr
            else:
                self._stage_by_spark(topic)
            run = self._run("apply", self.leader.log_dirs, "--partition", topic)
            assert run.exit_code == 0, run.stderr

    def _stage_by_spark(self, topic: str) -> None:
        """With a Spark driver of its own: the one that ``cleanerd spark clean`` starts does not know ``AGE_MS``."""
        driver = self.state_dir.parent / "driver.py"
        driver.write_text(f"import os\nos.environ[{DRIVER_VARIABLE!r}] = '1'\n{aged(AGE_MS)[1]}\n")
        words = ["spark", "clean", *map(str, self.leader.log_dirs), "--force", "--from-start", "--partition", topic]
        settings = ["--set", f"cleanerd.state.dir={self.state_dir}", "--set", "cleanerd.disk.reserve=16MiB"]
        command = [str(require_spark()), "--master", "local[1]", "--conf", "spark.driver.memory=512m", str(driver)]
        done = subprocess.run(
            [*command, *words, *settings, "--shards", "1"],
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr

    def _cleaned_by_kafka(self) -> bool:
        self._fill(("kafka",))  # Kafka's cleaner skips idle logs
        found = kept(self.leader, "kafka")
        return not (found.tombstone or found.marker)

    def _cleaned_live(self) -> bool:
        self._clean("--live", topic="live")
        return not kept(self.leader, "live").tombstone

    def _clean(self, *options: str, topic: str = "") -> None:
        wanted = (topic,) if topic else ("ignoring", *WAITING[1:])
        words = [word for each in wanted for word in ("--partition", each)]
        run = self._run("clean", self.leader.log_dirs, "--force", "--from-start", "--yes", *words, *options)
        assert run.exit_code == 0, run.stderr

    def _run(self, subcommand: str, places: Sequence[Any], *options: str) -> Run:
        return cleanerd(subcommand, places, self.state_dir, *options, program=aged(AGE_MS))

    # ---- the cluster

    def _wait_for_isr(self, *brokers: int) -> None:
        def is_so() -> bool:
            admin = AdminClient({"bootstrap.servers": self.controller.bootstrap})
            found = admin.list_topics(timeout=PATIENCE_SECONDS).topics
            partitions = [each for topic in TOPICS if topic in found for each in found[topic].partitions.values()]
            in_sync = [each for each in partitions if sorted(each.isrs) == list(brokers) and each.leader in brokers]
            return len(in_sync) == len(TOPICS)

        wait_until(f"the ISR is {brokers}", is_so)


def kept(node: Broker, topic: str) -> OnDisk:
    """The records of the topic's partition that the broker would load now.

    In the middle of a swap, the old segment no longer has its name and the new one does not have it yet.
    """
    loaded = now_loaded(node.log_dirs[0] / f"{topic}-0")
    batches = [batch for files in loaded.values() for batch in batches_of(files["log"])]
    data = {(r.key, r.value) for batch in batches if not batch.header.is_control for r in batch.records}
    return OnDisk((b"k", b"v") in data, (b"k", None) in data, (b"a", b"aborted") in data, any(map(_is_abort, batches)))


def _is_abort(batch: StoredBatch) -> bool:
    return batch.header.is_control and any((r.key or b"")[2:4] == b"\0\0" for r in batch.records)


def consume(node: Broker, topic: str) -> dict[bytes, bytes]:
    """The latest committed values of k, a and b for a consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: dict[bytes, bytes] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while True:
            message = consumer.poll(1)
            assert time.monotonic() < deadline, "the consumer does not reach the end"
            if message is None:
                continue
            error, key = message.error(), message.key()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return found
            if error is None and isinstance(key, bytes) and len(key) == 1:
                value = message.value()
                found.pop(key, None)
                if isinstance(value, bytes):
                    found[key] = value
    finally:
        consumer.close()
