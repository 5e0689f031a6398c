"""A deleted key that comes back: two brokers, and a replica that is away for longer than ``delete.retention.ms``.

::

    start              two brokers; one topic for Kafka's cleaner, one for cleanerd; both brokers have the key
    delete_while_down  broker 2 stops, the key is deleted, both cleaners clean broker 1
    return_as_leader   broker 2 returns and leads; a consumer reads the key from it
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cleanerd.broker.agent_jar import jar_path
from cleanerd_lab.demo.broker import Broker, BrokerError, beside
from cleanerd_lab.demo.command import Command
from cleanerd_lab.demo.patience import PATIENCE_SECONDS
from cleanerd_lab.demo.reading import read_with_confluent
from cleanerd_lab.demo.traffic import OFF_LIMITS, SILENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from cleanerd_lab.demo.jars import KafkaRelease

BY_KAFKA: Final = "cleaned-by-kafka"
BY_CLEANERD: Final = "cleaned-by-cleanerd"
TOPICS: Final = (BY_KAFKA, BY_CLEANERD)
RETENTION_MS: Final = 1000
"""``delete.retention.ms``: here a second, by default a day."""

KEY: Final = b"customer-7"
VALUE: Final = b"name and address"
_PROPERTIES: Final = {"log.cleaner.backoff.ms": "300"}
_FILLERS: Final = 8


@dataclass(frozen=True, slots=True)
class Returned:
    """The result of one topic. ``tombstone``: broker 1 still had it when broker 2 returned; ``read``: from broker 2."""

    topic: str
    tombstone: bool
    read: bytes | None

    @property
    def is_deleted(self) -> bool:
        """Whether the key is deleted for a consumer of the new leader."""
        return self.read is None


class ReturningReplica:
    """The scenario, in ``work_dir``. As a context manager it kills both brokers on exit."""

    def __init__(self, release: KafkaRelease, work_dir: Path) -> None:
        shared: dict[str, Any] = {"version": release.version, "properties": _PROPERTIES}
        agent = (f"-javaagent:{jar_path()}",)
        self._first = Broker(release.libs_dir, work_dir / "1", jvm_args=agent, **shared)
        self._second = beside(self._first, 2, work_dir / "2", **shared)
        self._command = Command(self._first, work_dir, "")
        self._tombstones: dict[str, bool] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._second.kill()
        self._first.kill()

    def start(self) -> None:
        """Start both brokers and write the key to both topics.

        Raises:
            BrokerError: a broker did not start or did not acknowledge.
        """
        self._first.start()
        self._second.start()
        self._create_topics()
        self._wait_for_isr(1, 2)
        self._write(KEY, VALUE)
        self._fill(TOPICS)

    def delete_while_down(self) -> None:
        """Stop broker 2, delete the key, and clean broker 1 after ``delete.retention.ms``.

        Raises:
            BrokerError: a broker did not stop, or Kafka's cleaner did not clean.
            CleanerdError: cleanerd did not clean.
        """
        self._second.stop()
        self._wait_for_isr(1)
        self._write(KEY, None)
        self._fill(TOPICS)
        self._wait("Kafka's cleaner does not remove the tombstone", self._cleaned_by_kafka)
        self._clean()
        time.sleep(RETENTION_MS / 1000)
        self._clean()
        self._tombstones = {topic: (KEY, None) in self._read(self._first, topic) for topic in TOPICS}

    def return_as_leader(self) -> list[Returned]:
        """Start broker 2 again, let it lead, and read both topics from it.

        Raises:
            BrokerError: it did not start, or did not become the leader.
        """
        self._second.start()
        self._wait_for_isr(1, 2)
        self._wait("broker 2 does not become the leader", self._second_leads)
        last = {topic: dict(self._read(self._second, topic)) for topic in TOPICS}
        return [Returned(topic, self._tombstones[topic], last[topic].get(KEY)) for topic in TOPICS]

    def _create_topics(self) -> None:
        key = "segment.bytes" if self._first.version.startswith("3.") else "internal.segment.bytes"
        shared = {
            "cleanup.policy": "compact",
            "delete.retention.ms": str(RETENTION_MS),
            "file.delete.delay.ms": "500",
            "segment.index.bytes": "65536",
            key: "2000",
        }
        own = {BY_KAFKA: {"min.cleanable.dirty.ratio": "0.01"}, BY_CLEANERD: OFF_LIMITS}
        # Broker 2 comes first: it is the preferred leader.
        new = [NewTopic(topic, 1, replica_assignment=[[2, 1]], config={**shared, **own[topic]}) for topic in TOPICS]
        admin = self._admin()  # its futures end with it
        for topic, future in admin.create_topics(new).items():
            try:
                future.result(timeout=PATIENCE_SECONDS)
            except KafkaException as error:
                raise BrokerError(f"topic {topic} cannot be created: {error}") from error

    def _write(self, key: bytes, value: bytes | None, topics: Sequence[str] = TOPICS) -> None:
        producer = Producer({"bootstrap.servers": self._first.bootstrap, "acks": "all"}, logger=SILENT)
        for topic in topics:
            producer.produce(topic, key=key, value=value, partition=0)
        if producer.flush(PATIENCE_SECONDS):
            raise BrokerError("a record was not acknowledged", where=str(self._first.log_file))

    def _fill(self, topics: Sequence[str]) -> None:
        """Write other keys until a new segment begins."""
        for number in range(_FILLERS):
            self._write(b"other-%d" % number, bytes(700), topics)

    def _cleaned_by_kafka(self) -> bool:
        self._fill((BY_KAFKA,))  # Kafka's cleaner does not clean an idle log
        return (KEY, None) not in self._read(self._first, BY_KAFKA)

    def _clean(self) -> None:
        options = ("--live", "--force", "--from-start", "--yes", "--partition", f"{BY_CLEANERD}-0")
        self._command.run("clean", *options, str(self._first.log_dirs[0]))

    def _read(self, broker: Broker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
        read = read_with_confluent(broker.bootstrap, topic)
        return [read.records[offset] for offset in sorted(read.records)]

    def _second_leads(self) -> bool:
        admin = self._admin()
        elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0) for topic in TOPICS])
        try:
            elected.result(PATIENCE_SECONDS)
        except KafkaException:
            return False
        return all(each.leader == 2 for each in self._partitions())

    def _wait_for_isr(self, *brokers: int) -> None:
        def is_so() -> bool:
            found = self._partitions()
            return len(found) == len(TOPICS) and all(sorted(each.isrs) == list(brokers) for each in found)

        self._wait(f"the in-sync replicas do not become {', '.join(map(str, brokers))}", is_so)

    def _partitions(self) -> list[Any]:
        try:
            found = self._admin().list_topics(timeout=PATIENCE_SECONDS).topics
        except KafkaException:
            return []
        return [partition for topic in TOPICS if topic in found for partition in found[topic].partitions.values()]

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._first.bootstrap}, logger=SILENT)

    def _wait(self, otherwise: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            if time.monotonic() > deadline or not self._first.running:
                raise BrokerError(otherwise, where=str(self._first.log_file))
            time.sleep(0.2)
