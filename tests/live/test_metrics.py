"""Negative controls of test_load.py: the broker's metrics show when its cleaner is not healthy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import ResourceType

from tests.brokers.node import segment_bases, wait_until
from tests.live.load import create_topics
from tests.live.metrics import JVM_ARG, Jmx
from tests.live.rounds import with_agent
from tests.live.shared_broker import alter, directory_of, write

if TYPE_CHECKING:
    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

_BATCH_HEADER_BYTES = 61


def damage_first_record(broker: Broker, topic: str) -> None:
    """In the first segment, which is closed: a length that is not a varint."""
    directory = directory_of(broker, topic)
    bases = segment_bases(directory)
    assert len(bases) > 1
    with (directory / f"{bases[0]:020d}.log").open("r+b") as log:
        log.seek(_BATCH_HEADER_BYTES)
        log.write(b"\xff" * 10)


@pytest.mark.parametrize("release", ["43", pytest.param("39", marks=pytest.mark.long)])
def test_not_healthy(request: pytest.FixtureRequest, release: str) -> None:
    """A partition that the broker's cleaner cannot clean, then a cleaner that makes no progress."""
    start: StartBroker = request.getfixturevalue(f"broker_{release}")
    broker = start(log_dirs=2, jvm_args=(*with_agent(), JVM_ARG))
    jmx = Jmx(broker)
    create_topics(broker, ["damaged"])
    write(broker, "damaged")
    damage_first_record(broker, "damaged")
    assert jmx.unhealthy() == {}

    alter(broker, ResourceType.TOPIC, "damaged", "min.cleanable.dirty.ratio", "0")
    wait_until("the partition is uncleanable", lambda: any(jmx.read()["uncleanable-partitions-count"].values()))
    found = jmx.unhealthy()
    where = directory_of(broker, "damaged").parent
    assert set(found) == {"uncleanable-partitions-count", "uncleanable-bytes"}
    assert found["uncleanable-partitions-count"] == {str(path): int(path == where) for path in broker.log_dirs}

    alter(broker, ResourceType.BROKER, "1", "log.cleaner.backoff.ms", "3600000")
    wait_until("the metrics report the cleaner", lambda: "time-since-last-run-ms" in jmx.unhealthy())
    assert set(jmx.unhealthy()) == {*found, "time-since-last-run-ms"}
