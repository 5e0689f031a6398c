"""A topic of the header strategy, cleaned live while late versions arrive: at every moment every key is right."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from cleanerd.format.names import TopicPartition as Name
from cleanerd.policy.version import encode_version
from cleanerd.verify.partition import VerifyRequest, verify_partition
from tests.live.late_writer import NO_LAG, STRATEGY, TOPIC, LateWriter, read_winners
from tests.live.load import create_topics
from tests.live.rounds import Rounds, with_agent
from tests.live.shared_broker import directory_of
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]


def test_late_writes_while_swaps_run(broker_43: StartBroker, tmp_path: Path) -> None:
    """R280-10, U-2, U-3: the highest version stays at any offset; later offsets with lower versions are removed."""
    broker = broker_43(jvm_args=with_agent())
    create_topics(broker, [TOPIC], segment_bytes=15_000, max_compaction_lag_ms=NO_LAG)
    rounds = Rounds(broker, tmp_path / "state", STRATEGY)
    rounds.note_swaps()
    deadline = time.monotonic() + PATIENCE_SECONDS
    with LateWriter(broker) as writer:
        while len(rounds.dropping) < 12:
            assert time.monotonic() < deadline, [result.reason for result in rounds.results[-3:]]
            rounds.clean()
            expected = writer.winners()
            seen = read_winners(broker, expected)
            assert all(seen[key][0] >= rank for key, (rank, _) in expected.items())
            time.sleep(0.6)
    rounds.clean()
    assert writer.problems == []
    assert [result.reason for result in rounds.results if result.error is not None] == []
    assert read_winners(broker, writer.winners()) == writer.winners()
    assert any(rank[1] < writer.highest[key] for key, (rank, _) in writer.winners().items()), "U-26"
    assert {result.strategy for result in rounds.results} == {"header"}
    assert not (broker.log_dirs[0] / "cleaner-offset-checkpoint").read_text().count(TOPIC), "U-10: not Kafka's rules"


def test_not_delegated(rounds: Rounds) -> None:
    """U-8: decided by the settings that the broker uses; the agent gets no swap request."""
    rounds.assignments = tuple(words.replace(TOPIC, "not-delegated") for words in STRATEGY)
    create_topics(rounds.broker, ["not-delegated"], min_cleanable_dirty_ratio="0.9")
    (result,) = rounds.clean(Name("not-delegated", 0))
    assert result.outcome == "refused"
    assert "cleanerd delegate" in result.reason


def test_delegated_without_settings_and_state(rounds: Rounds) -> None:
    """U-96: only the topic's two values in the cluster show that it is delegated, also when it is forced."""
    create_topics(rounds.broker, ["delegated-in-cluster"], min_cleanable_dirty_ratio="1", max_compaction_lag_ms=NO_LAG)
    (result,) = rounds.clean(Name("delegated-in-cluster", 0))
    assert result.outcome == "refused"
    assert "knows of no delegation; these settings say offset" in result.reason


def test_a_preallocated_active_segment(rounds: Rounds) -> None:
    """U-1, F-1: with `preallocate` the active segment ends in zeros; an expired tombstone is removed nevertheless."""
    topic = "preallocated"
    rounds.assignments = tuple(words.replace(TOPIC, topic) for words in STRATEGY)
    create_topics(rounds.broker, [topic], preallocate="true", delete_retention_ms="0", max_compaction_lag_ms=NO_LAG)
    producer = Producer({"bootstrap.servers": rounds.broker.bootstrap})
    for version, (key, value) in enumerate([("k", b"1"), ("k", None), *((f"f{n}", b"x" * 900) for n in range(50))]):
        headers = [("version", encode_version(version, "long"))]
        producer.produce(topic, key=key.encode(), value=value, partition=0, headers=headers)
        producer.flush(PATIENCE_SECONDS)
    path = directory_of(rounds.broker, topic)
    *_, active = sorted(path.glob("*.log"))
    assert not any(active.read_bytes()[-100:]), "nothing was set aside"
    results = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not results or not results[-1].removed.tombstone:
        assert time.monotonic() < deadline, [(result.reason, result.notes) for result in results]
        results += rounds.clean(Name(topic, 0), tombstone_removal=True)
        time.sleep(0.5)
    assert [result.reason for result in results if result.error is not None] == []
    assert not any("wait" in note or "cannot be read" in note for result in results for note in result.notes)
    assert verify_partition(path, VerifyRequest(time.time_ns() // 1_000_000)).findings.errors == 0
