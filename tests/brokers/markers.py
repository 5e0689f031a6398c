"""Transactions whose end the coordinator has confirmed, and whose markers it writes afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from tests.brokers.node import wait_until
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.brokers.ledger import Partition


def wait_until_ended(bootstrap: str, partition: Partition) -> None:
    """Wait until no transaction is open in a partition, so that read_committed consumers read up to its end."""
    name = TopicPartition(partition.topic, partition.number)
    consumers = [
        Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": isolation})
        for isolation in ("read_committed", "read_uncommitted")
    ]

    def is_ended() -> bool:
        ends = [each.get_watermark_offsets(name, PATIENCE_SECONDS) for each in consumers]
        return None not in ends and ends[0] == ends[1]

    try:
        wait_until("the markers are there", is_ended)
    finally:
        for each in consumers:
            each.close()
