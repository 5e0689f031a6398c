"""Two or more brokers of one release with cleanerd's agent; the first one is the controller as well."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import ElectionType, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, PartitionMetadata
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import NoError

from cleanerd_lab.demo.broker import Broker, beside
from tests.brokers.node import wait_until
from tests.daemon.process import Daemon
from tests.daemon.service import assignments
from tests.live.rounds import with_agent
from tests.support.log_dirs import read_segments
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.kafka.judge import KafkaJars
    from tests.live.load import Writing

LOST: Final = b"acknowledged by one broker, which died"


@contextmanager
def some_brokers(
    count: int,
    jars: KafkaJars,
    work_dir: Path,
    *,
    log_dirs: int = 1,
    properties: Mapping[str, str] | None = None,
    jvm_args: Sequence[Sequence[str]] = (),
) -> Iterator[tuple[Broker, ...]]:
    """Start all brokers, and stop them at the end; each may be restarted in between.

    ``jvm_args``: to load another agent.
    """
    shared: dict[str, Any] = {"version": jars.version, "log_dirs": log_dirs}
    one, *others = jvm_args or [with_agent() for _ in range(count)]
    given = dict(properties or {})
    first = Broker(jars.libs, work_dir / "1", properties=given, jvm_args=one, **shared)
    nodes = [first]
    for number, arguments in enumerate(others, 2):
        nodes.append(beside(first, number, work_dir / str(number), properties=given, jvm_args=arguments, **shared))
    try:
        for node in nodes:
            node.start()
        yield tuple(nodes)
    finally:
        for node in reversed(nodes):
            node.kill()


@contextmanager
def two_brokers(jars: KafkaJars, work_dir: Path, **more: Any) -> Iterator[tuple[Broker, Broker]]:
    """As `some_brokers`."""
    with some_brokers(2, jars, work_dir, **more) as (first, second):
        yield first, second


def replicas(broker: Broker, topic: str, partition: int) -> list[int]:
    """The nodes that have the partition, by ``broker``'s metadata; empty if it does not answer."""
    found = _described(broker, topic, partition)
    return [] if found is None else sorted(found.replicas)


def reassign(nodes: tuple[Broker, Broker], topic: str, partition: int, target: int) -> None:
    """Move a partition with one replica to the broker ``target``, and wait until only that broker has it."""
    admin = KafkaAdminClient(bootstrap_servers=nodes[0].bootstrap)
    try:
        admin.alter_partition_reassignments({TopicPartition(topic, partition): [target]})
    finally:
        admin.close()
    name = f"{topic}-{partition}"
    wait_until("the partition is assigned", lambda: replicas(nodes[0], topic, partition) == [target])
    wait_until("the old replica is deleted", lambda: not any((d / name).is_dir() for d in nodes[2 - target].log_dirs))
    assert any((log_dir / name).is_dir() for log_dir in nodes[target - 1].log_dirs)


def leader(broker: Broker, topic: str, partition: int) -> int:
    """The node that leads the partition, by ``broker``'s metadata; -1: none, or no answer."""
    found = _described(broker, topic, partition)
    return -1 if found is None else found.leader


def _described(broker: Broker, topic: str, partition: int) -> PartitionMetadata | None:
    try:
        found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(topic, timeout=PATIENCE_SECONDS)
        return found.topics[topic].partitions[partition]
    except (KafkaException, KeyError):
        return None


def lead(nodes: tuple[Broker, Broker], topic: str, partition: int, target: int) -> None:
    """Make the broker ``target`` the leader of a partition that both have, and wait until it is.

    A controlled election: a new order of the replicas, which moves no data, then a preferred election.
    """
    admin = KafkaAdminClient(bootstrap_servers=nodes[0].bootstrap)
    electing = AdminClient({"bootstrap.servers": nodes[0].bootstrap})

    def leads() -> bool:
        # A busy or starting controller refuses; the request is repeated once.
        with suppress(KafkaException):
            electing.elect_leaders(ElectionType.PREFERRED, [Place(topic, partition)]).result(PATIENCE_SECONDS)
        return leader(nodes[0], topic, partition) == target

    try:
        admin.alter_partition_reassignments({TopicPartition(topic, partition): [target, 3 - target]})
        wait_until("it leads", leads)
    finally:
        admin.close()


def daemon_beside(node: Broker, base: Path, agent_socket: Path, **more: str) -> Daemon:
    """``cleanerd run`` for one broker, with its own state below ``base``; not started yet."""
    base.mkdir()
    settings = assignments(
        *node.log_dirs,
        cleanerd_state_dir=str(base / "state"),
        cleanerd_control_socket=str(base / "control.sock"),
        cleanerd_agent_socket=str(agent_socket),
        cleanerd_broker_properties=str(node.properties_file),
        log_cleaner_backoff_ms="200",
    )
    return Daemon([*settings, *(f"{key.replace('_', '.')}={value}" for key, value in more.items())], base)


def move(broker: Broker, node_id: int, topic: str, partition: int) -> None:
    """Move to the broker's other log directory, and wait until the partition is only there.

    A broker that has just started may refuse at first; the client returns that and does not raise.
    """
    name = f"{topic}-{partition}"
    (target,) = (log_dir for log_dir in broker.log_dirs if not (log_dir / name).is_dir())
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)

    def accepted() -> bool:
        errors = admin.alter_replica_log_dirs({(topic, partition, node_id): str(target)}).values()
        return all(error is NoError for error in errors)

    try:
        wait_until(f"broker {node_id} accepts the move of {name}", accepted)
    finally:
        admin.close()
    wait_until(
        f"{name} of broker {node_id} is in {target}",
        lambda: [d for d in broker.log_dirs if list(d.glob(f"{name}*"))] == [target],
    )


def in_sync(broker: Broker, writings: Sequence[Writing]) -> bool:
    """Whether both replicas of every partition of these topics are in sync."""
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_SECONDS).topics
    found = [topics[each.topic].partitions for each in writings if each.topic in topics]
    return len(found) == len(writings) and all(
        partitions and all(len(each.isrs) == 2 for each in partitions.values()) for partitions in found
    )


def rows(broker: Broker, name: str, above: int = 0) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Records of a replica by offset, from its disk."""
    (directory,) = (log_dir / name for log_dir in broker.log_dirs if (log_dir / name).is_dir())
    batches = (batch for found in read_segments(directory).values() for batch in found)
    return {r.offset: (r.key, r.value) for batch in batches for r in batch.records if r.offset >= above}


def write_lost_records(nodes: tuple[Broker, Broker], topic: str) -> None:
    """Records of partition 0 that only the second broker gets and acknowledges before it is killed with them.

    It has to lead the partition. When it returns as a follower, it has to truncate its log (A-14, the second kind of
    K-4).
    """
    first, second = nodes
    producer = Producer({"bootstrap.servers": second.bootstrap, "acks": 1})
    producer.produce(topic, key=b"stray", value=b"kept", partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    os.kill(first.pid, signal.SIGSTOP)
    try:
        # A fetch of the stopped broker may wait for records. This one answers it; afterwards none waits.
        producer.produce(topic, key=b"stray", value=b"answers the last fetch", partition=0)
        assert producer.flush(60) == 0
        time.sleep(1)
        for _ in range(20):
            producer.produce(topic, key=b"stray", value=LOST, partition=0)
        assert producer.flush(60) == 0
        second.kill()
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert LOST in (value for _, value in rows(second, f"{topic}-0").values()), "U-26"
