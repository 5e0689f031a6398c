"""A replica is added while a less clean replica leads: does a deleted key come back (U-79)?

Broker 1 is the controller and is cleaned, broker 2 is never cleaned, broker 3 is added. Broker 3 gets the key ``k`` and
the aborted record ``a`` from broker 2, and continues from broker 1. No broker is away at any time.
"""

from __future__ import annotations

import random
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import ElectionType, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from cleanerd_lab.demo.broker import Broker, beside
from cleanerd_lab.demo.ports import free_port
from tests.brokers.node import aged, cleanerd, wait_until
from tests.daemon.process import Daemon
from tests.daemon.service import assignments
from tests.kafka.judge import fetch_jars
from tests.live.load import topic_config
from tests.live.returning_replica import AGE_MS, RETENTION_MS, OnDisk, consume, kept
from tests.live.rounds import with_agent
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.kafka.judge import KafkaJars

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

TOPICS: Final = ("kafka", "alone", "peers")
"""By the cleaner on broker 1: Kafka's cleaner, cleanerd, and cleanerd with ``cleanerd.cluster.peers``."""

PROPERTIES: Final = {
    "log.cleaner.backoff.ms": "300",
    "broker.session.timeout.ms": "30000",
    "metadata.log.max.snapshot.interval.ms": "0",
    # A throttled replica fetches a few times, then not for minutes.
    "replica.fetch.max.bytes": "1024",
    "replication.quota.window.size.seconds": "60",
}


@dataclass
class Results:
    """By topic: disks before broker 3 is added and once it is in the ISR; ``consumed`` with broker 3 as leader.

    ``after``: broker 1's disk of the topic ``peers``, when all replicas are equally clean.
    """

    cleaned: dict[str, OnDisk] = field(default_factory=dict)
    stopped: dict[str, OnDisk] = field(default_factory=dict)
    added: dict[str, OnDisk] = field(default_factory=dict)
    consumed: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    after: OnDisk | None = None


class Scenario:
    """The brokers and the steps of the scenario; ``play`` runs them all."""

    def __init__(self, jars: KafkaJars, work_dir: Path, stack: ExitStack) -> None:
        uncleaned = {**PROPERTIES, "log.cleaner.enable": "false"}
        shared: dict[str, Any] = {"version": jars.version, "jvm_args": with_agent()}
        first = Broker(jars.libs, work_dir / "1", properties=PROPERTIES, **shared)
        others = [beside(first, node, work_dir / str(node), properties=uncleaned, **shared) for node in (2, 3)]
        self.brokers = (first, *others)
        for broker in self.brokers:
            stack.callback(broker.kill)
            broker.start()
        self.stack, self.work_dir, self.port = stack, work_dir, free_port()
        self.admin = AdminClient({"bootstrap.servers": first.bootstrap})
        self.assigning = KafkaAdminClient(bootstrap_servers=first.bootstrap)
        stack.callback(self.assigning.close)
        self.dice = random.Random(1)
        self.results = Results()

    def play(self) -> Results:
        """Run all steps."""
        first, second, third = self.brokers
        self._create()
        self._write_and_delete()
        self._observe()
        wait_until("the tombstone expires", self._is_cleaned)
        self.results.cleaned = {topic: kept(first, topic) for topic in TOPICS}
        self._lead(2, [2, 1])
        self._throttle("10")
        self._assign([1, 2, 3])
        wait_until("broker 3 begins to fetch", lambda: all(self._has_begun(topic) for topic in TOPICS))
        self.results.stopped = {topic: kept(third, topic) for topic in TOPICS}
        self._lead(1, [1, 2, 3])
        self._throttle(None)
        wait_until("broker 3 is in the ISR", lambda: all(len(self._state(topic).isrs) == 3 for topic in TOPICS))
        self._clean(first, ("peers",))
        self.results.added = {topic: kept(third, topic) for topic in TOPICS}
        self._lead(3, [3, 1, 2])
        self.results.consumed = {topic: consume(third, topic) for topic in TOPICS}
        for broker in (second, third):
            self._clean(broker, ("peers",))
        wait_until("the tombstone expires with peers", lambda: self._clean(first, ("peers",)) and self._is_gone())
        self.results.after = kept(first, "peers")
        return self.results

    # ---- what is written

    def _create(self) -> None:
        topics = []
        for topic in TOPICS:
            config = topic_config(self.brokers[0], 2000, delete_retention_ms=str(RETENTION_MS))
            if topic == "kafka":
                config["min.cleanable.dirty.ratio"] = "0.01"
            topics.append(NewTopic(topic, 1, replica_assignment=[[1, 2]], config=config))
        for future in self.admin.create_topics(topics).values():
            future.result()
        self.plain = Producer({"bootstrap.servers": self.brokers[0].bootstrap, "acks": "all"})

    def _write_and_delete(self) -> None:
        transactional = Producer(
            {"bootstrap.servers": self.brokers[0].bootstrap, "transactional.id": "one", "acks": "all"}
        )
        transactional.init_transactions(PATIENCE_SECONDS)
        self._write(b"k", b"v")
        transactional.begin_transaction()
        self._write(b"a", b"aborted", transactional)
        for _ in range(3):  # more than broker 3 may fetch
            self._fill()
        self._write(b"k", None)
        transactional.abort_transaction(PATIENCE_SECONDS)
        transactional.begin_transaction()
        self._write(b"b", b"committed", transactional)
        transactional.commit_transaction(PATIENCE_SECONDS)
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

    def _is_cleaned(self) -> bool:
        """Whether tombstone and marker are removed where allowed; ``peers`` is cleaned as often."""
        self._fill(("kafka",))  # Kafka's cleaner skips idle logs
        self._clean(self.brokers[0], ("alone", "peers"))
        found = [kept(self.brokers[0], topic) for topic in TOPICS[:2]]
        return not any(each.tombstone or each.marker for each in found)

    def _is_gone(self) -> bool:
        found = kept(self.brokers[0], "peers")
        return not (found.tombstone or found.marker)

    def _clean(self, broker: Broker, topics: Sequence[str]) -> bool:
        """Clean live; only ``peers`` with the settings of that name. Returns True."""
        for topic in topics:
            named = f"cleanerd.cluster.peers=2=127.0.0.1:{self.port},3=127.0.0.1:{self.port}"
            options = ["--live", "--force", "--from-start", "--yes", "--partition", topic]
            options += ["--set", named] if topic == "peers" and broker is self.brokers[0] else []
            run = cleanerd("clean", broker.log_dirs, self.work_dir / "state", *options, program=aged(AGE_MS))
            assert run.exit_code == 0, run.stderr
        return True

    def _observe(self) -> None:
        """A daemon in observe mode reports the checkpoints of brokers 2 and 3."""
        base = self.work_dir / "observer"
        base.mkdir()
        settings = assignments(
            *(path for broker in self.brokers[1:] for path in broker.log_dirs),
            cleanerd_mode="observe",
            cleanerd_state_dir=str(self.work_dir / "state"),
            cleanerd_control_socket=str(base / "control.sock"),
            cleanerd_http_listen=f"127.0.0.1:{self.port}",
        )
        daemon = self.stack.enter_context(Daemon(settings, base))
        daemon.until("it has scanned", lambda view: bool(view["ready"]))

    # ---- the cluster

    def _state(self, topic: str) -> Any:
        return self.admin.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic].partitions[0]

    def _assign(self, order: list[int]) -> None:
        self.assigning.alter_partition_reassignments({TopicPartition(topic, 0): order for topic in TOPICS})

    def _lead(self, broker: int, order: list[int]) -> None:
        self._assign(order)

        def leads() -> bool:
            with suppress(KafkaException):
                places = [Place(topic, 0) for topic in TOPICS]
                self.admin.elect_leaders(ElectionType.PREFERRED, places).result(PATIENCE_SECONDS)
            return all(self._state(topic).leader == broker for topic in TOPICS)

        wait_until(f"broker {broker} leads", leads)

    def _throttle(self, rate: str | None) -> None:
        """Limit broker 3 to this fetch rate in bytes per second; None removes the limit."""
        operation = AlterConfigOpType.DELETE if rate is None else AlterConfigOpType.SET
        places: list[tuple[Any, str, str, str]] = [
            *((ResourceType.TOPIC, topic, "follower.replication.throttled.replicas", "0:3") for topic in TOPICS),
            (ResourceType.BROKER, "3", "follower.replication.throttled.rate", rate or ""),
        ]
        for kind, name, key, value in places:
            entry = ConfigEntry(key, value, incremental_operation=operation)
            change = ConfigResource(kind, name, incremental_configs=[entry])
            for future in self.admin.incremental_alter_configs([change]).values():
                future.result()

    def _has_begun(self, topic: str) -> bool:
        directory = self.brokers[2].log_dirs[0] / f"{topic}-0"
        return directory.is_dir() and kept(self.brokers[2], topic).aborted


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """The results, made once for all topics."""
    with ExitStack() as stack:
        yield Scenario(fetch_jars("4.3"), tmp_path_factory.mktemp("scene"), stack).play()


@pytest.mark.parametrize("topic", ["kafka", "alone"])
def test_the_deleted_key_comes_back(results: Results, topic: str) -> None:
    """Why U-79 exists: broker 3 never gets the tombstone and the marker."""
    assert results.cleaned[topic] == OnDisk(value=False, tombstone=False, aborted=False, marker=False)
    assert results.stopped[topic] == OnDisk(value=True, tombstone=False, aborted=True, marker=False)
    assert results.added[topic] == OnDisk(value=True, tombstone=False, aborted=True, marker=False)
    assert results.consumed[topic] == {b"k": b"v", b"a": b"aborted", b"b": b"committed"}


def test_the_tombstone_waits_for_less_clean_replicas(results: Results) -> None:
    """U-79: with peers, tombstone and ABORT marker stay until all replicas are as clean."""
    assert results.cleaned["peers"] == OnDisk(value=False, tombstone=True, aborted=False, marker=True)
    assert results.stopped["peers"] == OnDisk(value=True, tombstone=False, aborted=True, marker=False)
    assert results.added["peers"] == OnDisk(value=True, tombstone=True, aborted=True, marker=True)
    assert results.consumed["peers"] == {b"b": b"committed"}
    assert results.after == OnDisk(value=False, tombstone=False, aborted=False, marker=False)
