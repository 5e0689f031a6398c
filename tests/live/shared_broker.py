"""One broker that many live tests share, and helpers for it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.admin import KafkaAdminClient

from cleanerd.broker.agent_client import AgentClient
from cleanerd.broker.agent_facts import fetch_info, fetch_log
from cleanerd.broker.agent_transport import SOCKET
from cleanerd.errors import AgentRefusalError
from cleanerd.format.names import TopicPartition as Name
from cleanerd.policy.version import encode_version
from cleanerd.segments.log_dir import cleaner_offset
from cleanerd_lab.demo.broker import Broker
from tests.brokers.node import errors, names_ending, wait_until
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from cleanerd.broker.agent_facts import AgentInfo, LogFacts
    from cleanerd_lab.demo.broker import Broker

NO_LAG: Final = str(2**63 - 1)
KEYS: Final = 20


def write(
    broker: Broker, topic: str, count: int = 600, keys: int = KEYS, seen_by: Broker | None = None
) -> dict[bytes, bytes]:
    """Write ``count`` records of few keys; returns the last value by key.

    ``seen_by``: the broker that flushes, if it is another one.
    """
    # One request at a time: otherwise a retried batch could come after later ones, for example right after a restart.
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 3000, "max.in.flight": 1})
    last = {}
    for number in range(count):
        key, value = b"k%d" % (number % keys), b"%d:" % number + os.urandom(40).hex().encode()
        headers = [("version", encode_version(number, "long"))]
        producer.produce(topic, key=key, value=value, partition=0, headers=headers)
        last[key] = value
    assert producer.flush(PATIENCE_SECONDS) == 0
    # Segments count once they are flushed; the broker does that some time after it rolls them.
    node = seen_by or broker
    wait_until(
        "the closed segments are flushed", lambda: facts(node, topic).recovery_point >= facts(node, topic).active.base
    )
    return last


def cleaner_checkpoint(broker: Broker, topic: str) -> int | None:
    """The line of the topic's partition in the checkpoint of the broker's own cleaner."""
    return cleaner_offset(directory_of(broker, topic).parent, Name(topic, 0))


def read(broker: Broker, topic: str, isolation: str = "read_uncommitted") -> dict[bytes, bytes]:
    """The last value by key from the log start; the client must report no error."""
    problems: list[object] = []
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "races", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "isolation.level": isolation, "error_cb": problems.append,
    })  # fmt: skip
    try:
        place = TopicPartition(topic, 0)
        begin, end = consumer.get_watermark_offsets(place, PATIENCE_SECONDS)
        consumer.assign([TopicPartition(topic, 0, begin)])
        found: dict[bytes, bytes] = {}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while begin < end and consumer.position([place])[0].offset < end:
            assert time.monotonic() < deadline, (consumer.position([place]), end)
            for message in consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                found[message.key() or b""] = message.value() or b""
        assert problems == []
        return found
    finally:
        consumer.close()


def info(broker: Broker) -> AgentInfo:
    with AgentClient.connect(broker.log_dirs[0] / SOCKET) as client:
        return fetch_info(client)


def facts(broker: Broker, topic: str) -> LogFacts:
    with AgentClient.connect(broker.log_dirs[0] / SOCKET) as client:
        return fetch_log(client, Name(topic, 0))


def check_broker(broker: Broker) -> None:
    """The broker has no open files of deleted segments and logs no errors."""
    assert info(broker).pauses == []
    assert info(broker).failed_resumes == []
    # Kafka logs this at some moves: the controller's response arrives after the log has changed.
    reported = [kind for kind in errors(broker.log_text()) if "AssignmentsManager" not in kind]
    assert not reported, "\n".join(reported)
    left = names_ending(broker.log_dirs, ".cleaned", ".swap", ".kstage")
    assert not left, left


def admin_request(broker: Broker, what: str, *arguments: Any) -> None:
    """Send an admin request and return its responses."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in getattr(client, what)(*arguments).values():
        future.result(PATIENCE_SECONDS)


def alter(broker: Broker, kind: ResourceType, name: str, key: str, value: str | None) -> None:
    """Set one dynamic setting; None removes it."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(key, value or "", incremental_operation=operation)
    admin_request(broker, "incremental_alter_configs", [ConfigResource(kind, name, incremental_configs=[entry])])


def set_topic(broker: Broker, topic: str, key: str, value: str) -> None:
    """Set a topic setting, and wait until the broker uses it."""
    alter(broker, ResourceType.TOPIC, topic, key, value)
    wait_until("the broker uses the setting", lambda: facts(broker, topic).settings.get(key) == value)


def directory_of(broker: Broker, topic: str) -> Path:
    """The directory of partition 0."""
    (found,) = (path for log_dir in broker.log_dirs if (path := log_dir / f"{topic}-0").is_dir())
    return found


def other_dir(broker: Broker, topic: str) -> str:
    (other,) = {str(path) for path in broker.log_dirs} - {str(Path(facts(broker, topic).dir).parent)}
    return other


def begin_move(broker: Broker, topic: str) -> str:
    """Start the move to the other log directory, which is returned."""
    target = other_dir(broker, topic)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.alter_replica_log_dirs({(topic, 0, 1): target})
    finally:
        admin.close()
    return target


def delete(broker: Broker, topic: str) -> None:
    admin_request(broker, "delete_topics", [topic])
    wait_until("the directory is gone", lambda: not any((path / f"{topic}-0").is_dir() for path in broker.log_dirs))


def move(broker: Broker, topic: str) -> None:
    target = begin_move(broker, topic)

    def is_there() -> bool:
        try:
            return facts(broker, topic).dir == f"{target}/{topic}-0"
        except AgentRefusalError as error:
            if not error.moved_on:  # the old log is being renamed
                raise
            return False

    wait_until("the partition is in the other directory", is_there)
