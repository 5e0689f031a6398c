"""A cluster upgrades Kafka broker by broker under load, with cleanerd beside each broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka.admin import KafkaAdminClient

from tests.brokers.node import wait_until
from tests.kafka.judge import fetch_jars
from tests.live.day import a_day, check
from tests.live.shared_broker import info
from tests.live.two_brokers import in_sync

if TYPE_CHECKING:
    from cleanerd_lab.demo.broker import Broker
    from tests.live.day import Day

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(1500)]

BETWEEN = 15
"""Swaps between one broker's upgrade and the next step."""


def upgrade(day: Day, number: int, release: str) -> None:
    """Stop a broker, clean beside the other one meanwhile, start it with the jars of ``release``."""
    node, other = day.nodes[number], day.both[1 - number]
    wait_until("both replicas are in sync", lambda: in_sync(day.nodes[0], day.load.writings[1:]))
    node.stop()
    other.clean()
    jars = fetch_jars(release)
    node.libs_dir, node.version = jars.libs.resolve(), jars.version
    node.start()
    assert info(node).version == jars.version


def finalize(node: Broker) -> None:
    """Raise the cluster's metadata version to the newest that all brokers know: there is no downgrade after that."""
    admin = KafkaAdminClient(bootstrap_servers=node.bootstrap)
    try:
        _, newest = admin.describe_features()["metadata.version"]["supported"]
        assert admin.update_features({"metadata.version": newest}) == {"metadata.version": "OK"}
        wait_until(
            "the version is raised", lambda: admin.describe_features()["metadata.version"]["finalized"][1] == newest
        )
    finally:
        admin.close()


def test_a_rolling_upgrade() -> None:
    """R-2, LT-9: from 3.9 to 4.4 with swaps before, between and after; the agent adapts to the running release."""
    # Kafka 4 does not start with a topic of smaller segments; time rolls many segments instead.
    with a_day("3.9", segment_bytes=1 << 20, segment_ms="1000") as day:
        swaps = []
        with day.load:
            day.clean_until("there is traffic", lambda: day.swaps >= BETWEEN)
            for number in (0, 1):
                before = day.swaps
                upgrade(day, number, "4.4")
                day.clean_until("swaps go on", lambda before=before: day.swaps >= before + BETWEEN)  # type: ignore[misc]
                swaps.append(day.swaps - before)
            finalize(day.nodes[0])
            before = day.swaps
            day.strike(0, "broker", "transactional-0")
            day.clean_until("swaps by the new metadata", lambda: day.swaps >= before + BETWEEN)
        check(day)
        print(f"\n{swaps} swaps, {day.load.ledger.count} records")  # noqa: T201
