"""Topics of a real broker for the tests of the client, and the contents of their segments."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import confluent_kafka

from cleanerd_lab.demo.traffic import create_topics
from tests.support.log_dirs import StoredBatch, read_segments
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.format.record import Record
    from cleanerd_lab.demo.broker import Broker

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}


def topic(broker: Broker, **config: str) -> str:
    """A new compacted topic with one partition that Kafka's own cleaner skips."""
    name = f"t-{uuid4().hex[:8]}"
    create_topics(
        broker.bootstrap, [name], {**COMPACT, **{key.replace("_", "."): value for key, value in config.items()}}
    )
    return name


def config(broker: Broker, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, **more}


def on_disk(broker: Broker, name: str, partition: int = 0) -> list[StoredBatch]:
    return [b for found in read_segments(broker.log_dirs[0] / f"{name}-{partition}").values() for b in found]


def records_on_disk(broker: Broker, name: str) -> list[Record]:
    return [record for batch in on_disk(broker, name) if not batch.header.is_control for record in batch.records]


@contextlib.contextmanager
def stock(broker: Broker, **more: Any) -> Iterator[confluent_kafka.Producer]:
    """confluent-kafka's own producer, flushed at the end of the block."""
    producer = confluent_kafka.Producer(config(broker, **more))
    yield producer
    assert producer.flush(PATIENCE_SECONDS) == 0
