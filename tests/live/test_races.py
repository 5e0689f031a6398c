"""What else a broker does to its logs while they are cleaned (live-agent.md section 8)."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from cleanerd.apply.agent_client import SOCKET, AgentClient
from cleanerd.apply.agent_facts import ask_info
from cleanerd.format.names import TopicPartition as Name
from cleanerd.policy.version import encode_version
from tests.brokers.node import complaints, wait_until
from tests.live.load import WRITINGS, Load, create_topics
from tests.live.rounds import Rounds, with_agent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.apply.agent_facts import AgentInfo
    from cleanerd.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

NO_LAG = str(2**63 - 1)
KEYS = 20


@pytest.fixture
def rounds(broker_43: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    rounds = Rounds(
        broker_43(jvm_args=with_agent(), properties={"log.segment.delete.delay.ms": "1000"}), tmp_path / "state"
    )
    rounds.note_swaps(monkeypatch)
    return rounds


def write(broker: Broker, topic: str, count: int = 600) -> dict[bytes, bytes]:
    """``count`` records of few keys; the last value of each."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 3000})
    last = {}
    for number in range(count):
        key, value = b"k%d" % (number % KEYS), b"%d:" % number + os.urandom(40).hex().encode()
        headers = [("version", encode_version(number, "long"))]
        producer.produce(topic, key=key, value=value, partition=0, headers=headers)
        last[key] = value
    assert producer.flush(30) == 0
    return last


def info(broker: Broker) -> AgentInfo:
    with AgentClient.connect(broker.log_dirs[0] / SOCKET) as client:
        return ask_info(client)


def once(action: Callable[[], None]) -> Callable[[dict[str, Any]], None]:
    """At the first swap request only."""
    waiting = [action]
    return lambda _request: waiting.pop()() if waiting else None


def check_broker(broker: Broker) -> None:
    """It holds on to nothing and complains about nothing."""
    assert info(broker).pauses == []
    assert info(broker).failed_resumes == []
    assert not [kind for kind in complaints(broker.log_text()) if kind.startswith(("ERROR", "FATAL"))]
    assert not [str(path) for path in broker.log_dirs[0].rglob("*") if path.name.endswith((".cleaned", ".swap"))]


def ask(broker: Broker, what: str, *arguments: Any) -> None:
    """An admin request, and its answers."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in getattr(client, what)(*arguments).values():
        future.result(30)


def test_the_brokers_own_cleaner_at_work(rounds: Rounds) -> None:
    """LT-7: both clean the same logs, some requests are refused, nobody loses anything."""
    broker = rounds.broker
    create_topics(broker, [w.topic for w in WRITINGS], min_cleanable_dirty_ratio="0.01", segment_bytes=10_000)
    load = Load(broker)
    deadline = time.monotonic() + 20
    with load:
        while time.monotonic() < deadline and not load.ledger.problems:
            rounds.clean()
    load.check()
    assert rounds.swaps, "U-26"
    checkpoint = (broker.log_dirs[0] / "cleaner-offset-checkpoint").read_text()
    assert all(writing.topic in checkpoint for writing in WRITINGS), "U-26: it did work"
    assert {result.outcome for result in rounds.results} <= {"cleaned", "unchanged", "skipped"}, [
        result.reason for result in rounds.results if result.outcome == "quarantined"
    ]
    check_broker(broker)


def test_the_topic_is_deleted(rounds: Rounds) -> None:
    """Refused; the directory goes with what was staged in it; a topic of the same name is cleaned as usual."""
    broker = rounds.broker
    create_topics(broker, ["t"])
    write(broker, "t")

    def delete() -> None:
        ask(broker, "delete_topics", ["t"])
        wait_until("the directory is gone", lambda: not (broker.log_dirs[0] / "t-0").exists())

    rounds.before_swap = once(delete)
    (result,) = rounds.clean(Name("t", 0))
    assert result.outcome == "skipped"
    assert rounds.swaps == []
    rounds.before_swap = lambda _request: None
    wait_until("nothing is left of it", lambda: not list(broker.log_dirs[0].glob("t-0.*-delete")))
    create_topics(broker, ["t"])
    write(broker, "t")
    (result,) = rounds.clean(Name("t", 0))
    assert result.outcome == "cleaned"
    check_broker(broker)


def test_the_log_start_moves_under_a_versioned_plan(rounds: Rounds) -> None:
    """U-2: refused as log_start, and planned again with what is left."""
    broker = rounds.broker
    rounds.assignments = ("topics.t.compaction.strategy=header", "topics.t.compaction.strategy.header=version")
    create_topics(broker, ["t"], max_compaction_lag_ms=NO_LAG, cleanup_policy="compact,delete")
    write(broker, "t")
    rounds.before_swap = once(lambda: ask(broker, "delete_records", [TopicPartition("t", 0, 5)]))
    (result,) = rounds.clean(Name("t", 0))
    assert (result.outcome, rounds.refused) == ("cleaned", ["log_start"])
    check_broker(broker)


def test_the_log_start_moves_under_offset(rounds: Rounds) -> None:
    """Kafka's own cleaner does not mind either."""
    broker = rounds.broker
    create_topics(broker, ["t"], cleanup_policy="compact,delete")
    write(broker, "t")
    rounds.before_swap = once(lambda: ask(broker, "delete_records", [TopicPartition("t", 0, 5)]))
    (result,) = rounds.clean(Name("t", 0))
    assert (result.outcome, rounds.refused) == ("cleaned", [])
    check_broker(broker)


def test_retention_takes_a_segment(rounds: Rounds) -> None:
    """compact,delete: evidence that is gone is refused, and the rest is planned again."""
    broker = rounds.broker
    create_topics(broker, ["t"], cleanup_policy="compact,delete", segment_bytes=10_000)
    write(broker, "t", 800)
    directory = broker.log_dirs[0] / "t-0"
    second = sorted(int(path.stem) for path in directory.glob("*.log"))[1]

    def expire() -> None:
        ask(broker, "delete_records", [TopicPartition("t", 0, second)])
        wait_until("the first segment is gone", lambda: not (directory / f"{0:020d}.log").exists())

    rounds.before_swap = once(expire)
    (result,) = rounds.clean(Name("t", 0))
    assert result.outcome == "cleaned", result.reason
    assert set(rounds.refused) <= {"source_gone", "source_changed", "evidence_changed"}
    assert rounds.refused
    check_broker(broker)


def test_the_policy_changes(rounds: Rounds) -> None:
    """Not eligible any more, by what the broker goes by then."""
    broker = rounds.broker
    create_topics(broker, ["t"])
    write(broker, "t")

    def change() -> None:
        entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
        ask(broker, "incremental_alter_configs", [resource])
        time.sleep(1)

    rounds.before_swap = once(change)
    (result,) = rounds.clean(Name("t", 0))
    assert result.outcome == "skipped"
    assert "cleanup.policy is 'delete', not compact" in result.reason
    assert rounds.swaps == []
    check_broker(broker)
