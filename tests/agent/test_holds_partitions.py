"""The agent holds no lock of the broker longer if there are more partitions (A-36)."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from cleanerd.broker.agent_client import MAX_ANSWER_BYTES
from cleanerd_lab.demo.broker import Broker
from tests.agent.live import JAR, PROPERTIES, Live
from tests.brokers.node import wait_until
from tests.brokers.traffic import SILENT
from tests.kafka.judge import fetch
from tests.support.log_dirs import CLEANER_CHECKPOINT, read_checkpoint, write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.agent.live import Topic
    from tests.agent.raw_client import Asking

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(900)]

KINDS: Final = ("looks", "logs", "info", "swap", "checkpoint")
FEW: Final = 200
MANY: Final = int(os.environ.get("HOLDS_PARTITIONS", "2000"))
SCANS: Final = 200
TRIES: Final = 5
MOST_TRIES: Final = 20
"""A busy machine gets more tries until each kind of request had one without a long hold."""
MOST_HELD_US: Final = 10_000


def held(agent: Asking, lock: str, before: Mapping[str, Any]) -> tuple[int, int, int]:
    """How often the agent held such locks since ``before``, for how many microseconds, and how often for over 10 ms."""
    now = agent.ask("info")["held"][lock]
    counts = [later - earlier for earlier, later in zip(before[lock]["counts"], now["counts"], strict=True)]
    first = now["bounds_us"].index(MOST_HELD_US) + 1
    return sum(counts), now["sum_us"] - before[lock]["sum_us"], sum(counts[first:])


def measured(agent: Asking, topic: Topic, partitions: int) -> dict[str, list[tuple[int, int, int]]]:
    """Per kind of request, the lock times of several tries.

    Queries of ``SCANS`` partitions; the list of all; ``info``; swaps, with their checkpoint.
    """
    found: dict[str, list[tuple[int, int, int]]] = {kind: [] for kind in KINDS}
    for tries in range(MOST_TRIES):
        if tries >= TRIES and all(min(too_long for _, _, too_long in each) == 0 for each in found.values()):
            break
        before = agent.ask("info")["held"]
        for number in range(0, partitions, partitions // SCANS):
            agent.ask("log", topic="many", partition=number)
        found["looks"].append(held(agent, "log", before))
        before = agent.ask("info")["held"]
        answer = agent.ask("logs")
        found["logs"].append(held(agent, "log", before))
        size = len(json.dumps(answer, separators=(",", ":"))) // len(answer["logs"])
        assert 100_000 * size < MAX_ANSWER_BYTES, "A-42"
        before = agent.ask("info")["held"]
        for _ in range(SCANS):
            agent.ask("info")
        found["info"].append(held(agent, "cleaner", before))
        topic.fill(transactions=False)
        manifest = topic.stage()
        before = agent.ask("info")["held"]
        assert agent.ask("swap", **topic.request(manifest, checkpoint=manifest.bound))["checkpoint"] is True
        found["swap"].append(held(agent, "log", before))
        found["checkpoint"].append(held(agent, "cleaner", before))
    return found


@pytest.fixture(scope="module")
def by_partitions() -> Iterator[dict[int, dict[str, list[tuple[int, int, int]]]]]:
    """Measurements with so many partitions, each with a line in the cleaner's checkpoint."""
    work_dir = Path(tempfile.mkdtemp(prefix="agent-many-"))
    jars = fetch("4.3")
    broker = Broker(
        jars.libs, work_dir, version=jars.version, properties=PROPERTIES, jvm_args=[f"-javaagent:{JAR}", "-Xmx1g"]
    )
    live, found = Live(broker), {}
    try:
        for partitions in (FEW, MANY):
            broker.start()
            admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=SILENT)
            if partitions == FEW:
                settings = {"cleanup.policy": "compact", "segment.index.bytes": "4096"}
                admin.create_topics([NewTopic("many", FEW, 1, config=settings)])["many"].result(60)
                topic = live.topic("swapped", transactions=False)
            else:
                admin.create_partitions([NewPartitions("many", MANY)])["many"].result(120)
            directory = broker.log_dirs[0] / f"many-{partitions - 1}"
            wait_until("all partitions are there", directory.exists, seconds=300)
            broker.stop()
            write_checkpoint(broker.log_dirs[0] / CLEANER_CHECKPOINT, {f"many-{n}": 0 for n in range(partitions)})
            broker.start()
            wait_until("the agent listens", live.socket.exists, seconds=120)
            with live.asking() as agent:
                found[partitions] = measured(agent, topic, partitions)
            print(f"\n{partitions} partitions: {found[partitions]}")  # noqa: T201
            assert len(read_checkpoint(broker.log_dirs[0] / CLEANER_CHECKPOINT)) > partitions
            broker.stop()
        yield found
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


@pytest.mark.parametrize("kind", KINDS)
def test_more_partitions_hold_no_lock_longer(
    by_partitions: dict[int, dict[str, list[tuple[int, int, int]]]], kind: str
) -> None:
    """A-36: each request holds its locks equally often, and for at most 10 ms, in some try.

    Only Kafka's own write of its cleaner's checkpoint, which has a line for each partition, grows with them. Appends do
    not wait for that lock. With 10,000 partitions, that one write takes longer than 10 ms.
    """
    few, many = by_partitions[FEW][kind], by_partitions[MANY][kind]
    writes = int(kind == "checkpoint" and MANY > 2_000)
    assert min(too_long for _, _, too_long in many) <= writes
    assert min(count for count, _, _ in many) <= 2 * min(count for count, _, _ in few)
    if kind != "checkpoint":
        assert min(held_us for _, held_us, _ in many) <= 4 * min(held_us for _, held_us, _ in few) + 2_000
