"""Two replicas on two brokers, cleaned at different times, with leader moves and a killed broker (LT-9)."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.brokers.node import errors, wait_until
from tests.kafka.judge import fetch_jars
from tests.live.load import Load, Writing, topic_config
from tests.live.rounds import Rounds
from tests.live.two_brokers import LOST, in_sync, rows, two_brokers, write_lost_records
from tests.support.log_dirs import read_checkpoint
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker


pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

WRITINGS = (Writing("replicated", "idempotent", "lz4"), Writing("transactional", "transactional", "zstd"))
PARTITIONS = 2


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    """The controller with a broker, and a second broker that stops and starts."""
    with two_brokers(fetch_jars("4.3"), tmp_path) as both:
        yield both


def prefer(broker: Broker) -> None:
    """Move leadership back to the preferred replicas."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    places = [TopicPartition(writing.topic, number) for writing in WRITINGS for number in range(PARTITIONS)]
    admin.elect_leaders(ElectionType.PREFERRED, places).result(PATIENCE_SECONDS)


def cleaned_to(rounds: Rounds, name: str) -> int:
    """By the broker's own checkpoint; on a busy machine not every partition has rolled a segment in time."""
    found = read_checkpoint(rounds.broker.log_dirs[0] / "cleaner-offset-checkpoint").get(name)
    if found is None:
        assert not any(result.groups for result in rounds.results if str(result.name) == name)
        return 0
    return found


def groups_of(rounds: Rounds) -> int:
    """Number of segment groups that its cleanings have written."""
    return sum(result.groups for result in rounds.results)


@pytest.mark.parametrize("deaths", [1, pytest.param(3, marks=pytest.mark.long)])
def test_replicas_agree(nodes: tuple[Broker, Broker], tmp_path: Path, deaths: int) -> None:
    """U-4, LT-9: leadership moves; a follower is killed, restarted and truncated; both are cleaned meanwhile.

    No tombstone expires in this test. Above the part that both have cleaned, the replicas are equal; below, each key's
    retained record is the same.
    """
    first, second = nodes
    admin = AdminClient({"bootstrap.servers": first.bootstrap})
    assignment = [[2, 1], [1, 2]]
    topics = [
        NewTopic(w.topic, PARTITIONS, replica_assignment=assignment, config=topic_config(first)) for w in WRITINGS
    ]
    for future in admin.create_topics(topics).values():
        future.result()
    both = [Rounds(node, tmp_path / f"state{number}") for number, node in enumerate(nodes)]
    load = Load(first, WRITINGS, partitions=PARTITIONS, brokers_come_and_go=True)
    wait_until("both replicas are there", lambda: in_sync(first, WRITINGS))
    with load:
        for _ in range(deaths):
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline or not all(groups_of(rounds) >= 4 for rounds in both):
                assert time.monotonic() < deadline + PATIENCE_SECONDS
                for rounds in both:
                    rounds.clean()
                    time.sleep(0.7)
            write_lost_records(nodes, WRITINGS[0].topic)
            both[0].clean()
            second.start()
            wait_until("it has caught up", lambda: in_sync(first, WRITINGS))
            assert re.search(rf"{WRITINGS[0].topic}-0\S* .*[Tt]runcat", second.log_text()), "U-26"
            prefer(first)
    wait_until("both are in sync", lambda: in_sync(first, WRITINGS))
    for rounds in both:
        rounds.clean()
        assert groups_of(rounds) >= 4, [r.reason for r in rounds.results]
        assert {result.outcome for result in rounds.results} <= {"cleaned", "unchanged", "skipped", "refused"}
    load.check()
    for name in (f"{writing.topic}-{number}" for writing in WRITINGS for number in range(PARTITIONS)):
        clean_to = [cleaned_to(rounds, name) for rounds in both]
        one, two = (rows(node, name, max(clean_to)) for node in nodes)
        assert one, "U-26"
        assert one == two, name
        whole = [rows(node, name) for node in nodes]
        assert all(whole[0][offset] == whole[1][offset] for offset in whole[0].keys() & whole[1].keys())
        assert not any(value == LOST for replica in whole for _, value in replica.values())
    for node in nodes:
        assert not errors(node.log_text())
