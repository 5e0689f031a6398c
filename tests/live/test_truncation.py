"""A leader loses its leadership and last records while it is cleaned: unclean elections truncate cleaned segments."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd.errors import NO_EVIDENCE
from cleanerd.format.names import TopicPartition as Name
from cleanerd.swap.swapping_broker import SwapSources
from cleanerd_lab.demo.broker import beside
from tests.brokers.node import wait_until
from tests.live.rounds import Rounds, with_agent
from tests.live.shared_broker import check_broker, directory_of, facts, read, write
from tests.support.log_dirs import read_checkpoint, read_segments
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

TOPIC: Final = "cut"
FENCE: Final = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
CONFIG: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1",
    "file.delete.delay.ms": "500",
    "internal.segment.bytes": "20000",
    "index.interval.bytes": "512",
    "segment.index.bytes": "65536",
    "unclean.leader.election.enable": "true",
}

Rows = dict[int, tuple[bytes | None, bytes | None]]


@pytest.fixture
def nodes(broker_43: StartBroker, tmp_path: Path) -> Iterator[tuple[Broker, Broker, Broker]]:
    """The controller, a broker with the agent, and one that is behind."""
    first = broker_43(properties=FENCE)
    others = [
        beside(
            first,
            number,
            tmp_path / f"node{number}",
            version=first.version,
            properties=FENCE,
            jvm_args=with_agent(),
        )
        for number in (2, 3)
    ]
    try:
        for broker in others:
            broker.start()
        yield first, others[0], others[1]
    finally:
        for broker in others:
            broker.kill()


def rows(broker: Broker) -> Rows:
    """Records of a broker's replica by offset."""
    batches = (batch for found in read_segments(directory_of(broker, TOPIC)).values() for batch in found)
    return {r.offset: (r.key, r.value) for batch in batches for r in batch.records}


@pytest.mark.long
@pytest.mark.parametrize("swapped", [0, 1])
def test_truncated_preconditions_are_refused(
    nodes: tuple[Broker, Broker, Broker], tmp_path: Path, swapped: int
) -> None:
    """U-3, LT-8, H-05: a plan whose preconditions were truncated is refused.

    Truncation inside a merged segment is harmless. The cut comes before the plan's first group is swapped or its
    second, which is requested without sending the preconditions again.

    Then the test appends, swaps again and sends a SIGKILL: the log is as before, and equal to the uncleaned replica.
    """
    first, cleaned, other = nodes
    admin = AdminClient({"bootstrap.servers": first.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[2, 3]], config=CONFIG)]).values():
        future.result()

    def partition() -> tuple[int, list[int]] | None:
        try:
            found = admin.list_topics(TOPIC, timeout=PATIENCE_SECONDS).topics[TOPIC].partitions[0]
        except (KafkaException, KeyError):
            return None  # the request went to the killed broker, or to one that does not know the topic yet
        return found.leader, sorted(found.isrs)

    rounds = Rounds(cleaned, tmp_path / "state")
    rounds.note_swaps()
    wait_until("both are there", lambda: partition() == (2, [2, 3]))
    write(cleaned, TOPIC, 500)
    wait_until("both have it", lambda: facts(other, TOPIC).leo == 500)
    other.kill()
    wait_until("one replica is in sync", lambda: partition() == (2, [2]))
    write(cleaned, TOPIC, 900)
    assert rounds.clean(Name(TOPIC, 0))[0].outcome == "cleaned"
    assert any(swap.is_merge for swap in rounds.swaps)
    bases = [segment.base for segment in facts(cleaned, TOPIC).segments]
    assert 500 not in bases, "U-26: the cut will be inside of a segment"
    write(cleaned, TOPIC, 600)

    def lose() -> None:
        os.kill(cleaned.pid, signal.SIGSTOP)
        try:
            wait_until("the partition has no leader", lambda: (partition() or (0,))[0] == -1)
            other.start()
            wait_until("the replica that is behind leads", lambda: (partition() or (0,))[0] == 3)
        finally:
            os.kill(cleaned.pid, signal.SIGCONT)
        wait_until("the log is truncated", lambda: facts(cleaned, TOPIC).leo == 500)

    waiting = [lose, *[lambda: None] * swapped]
    rounds.before_swap = lambda _request: waiting.pop()() if waiting else None
    before = len(rounds.swaps)
    if swapped:
        rounds.sources = SwapSources(first=2)  # so that there is a second group
    (result,) = rounds.clean(Name(TOPIC, 0))
    assert not waiting, "U-26"
    # The agent replaces a connection that was idle for a minute; the new one has not sent preconditions yet.
    refused = set(rounds.refused) - {NO_EVIDENCE}
    assert refused
    assert refused <= {"source_gone", "source_changed", "evidence_changed", "not_below_bound", "not_sealed"}
    assert result.outcome in {"cleaned", "unchanged", "skipped", "refused"}, result.reason
    assert len(rounds.swaps) == before + swapped
    assert rows(cleaned).items() <= rows(other).items()

    wait_until("it follows", lambda: partition() == (3, [2, 3]))
    latest = write(first, TOPIC, 700, seen_by=cleaned)
    (result,) = rounds.clean(Name(TOPIC, 0))
    assert result.outcome == "cleaned", result.reason
    kept = rows(cleaned)
    cleaned.kill()
    cleaned.start()
    assert rows(cleaned) == kept
    wait_until("it follows", lambda: partition() == (3, [2, 3]))
    whole = rows(other)
    clean_to = read_checkpoint(cleaned.log_dirs[0] / "cleaner-offset-checkpoint")[f"{TOPIC}-0"]
    assert {offset: row for offset, row in kept.items() if offset >= clean_to} == {
        offset: row for offset, row in whole.items() if offset >= clean_to
    }
    assert kept.items() <= whole.items()
    assert len(kept) < len(whole), "U-26"
    assert read(first, TOPIC) == latest
    check_broker(cleaned)
