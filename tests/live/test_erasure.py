"""The tombstone that erases a key from a real broker, for each strategy (U-88)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd.client.erasure import KeyEraser
from cleanerd.client.errors import ClientError
from cleanerd.client.kafka_flag import FlagProducer
from cleanerd.client.rules import TopicRules
from cleanerd.policy.version import encode_version

if TYPE_CHECKING:
    from cleanerd_lab.demo.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

KEY = "customer-4711"


def create(node: Broker, topic: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    made = admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact", **settings})])
    made[topic].result(30)


def produce(node: Broker, topic: str, *records: tuple[str, str | None], **options: Any) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for key, value in records:
        producer.produce(topic, key=key, value=value, **options)
    assert producer.flush(30) == 0


RULES = {
    "offset": TopicRules(),
    "timestamp": TopicRules(strategy="timestamp"),
    "header": TopicRules(strategy="header", version_header="v"),
    "tombstone-header": TopicRules(strategy="timestamp", tombstone_mode="header", tombstone_header="gone"),
    "flag": TopicRules(tombstone_mode="flag"),
}


@pytest.mark.parametrize("name", RULES)
def test_the_tombstone_deletes_the_key(shared: Broker, name: str) -> None:
    """With every strategy, also over a version in the future; a second request writes no second tombstone."""
    rules, topic = RULES[name], f"topic-{name}"
    create(shared, topic)
    future_ms = int(time.time() * 1000) + 60_000
    headers = [("v", encode_version(2**40, "long"))] if rules.strategy == "header" else []
    produce(shared, topic, (KEY, "1"), ("other", "1"), timestamp=future_ms, headers=headers)
    produce(shared, topic, (KEY, "2"))
    with KeyEraser(
        topic,
        KEY.encode(),
        rules,
        confluent={"bootstrap.servers": shared.bootstrap},
        kafka_python={"bootstrap_servers": [shared.bootstrap]},
    ) as eraser:
        eraser.read()
        assert (eraser.to_write, eraser.records) == ([0], 2)
        eraser.write(int(time.time() * 1000))
        assert eraser.to_write == []
        winner = eraser.winners[0]
        assert (winner.offset, winner.is_tombstone(), winner.flagged) == (3, True, name == "flag")
        assert winner.value is None


def test_a_tombstone_flag_that_the_broker_clears(shared: Broker) -> None:
    """A topic that recompresses: the written record does not delete the key, and the command reports that."""
    create(shared, "recompressed", **{"compression.type": "zstd"})
    with FlagProducer(bootstrap_servers=[shared.bootstrap]) as producer:
        producer.send("recompressed", KEY.encode(), b"1")
    with KeyEraser(
        "recompressed",
        KEY.encode(),
        RULES["flag"],
        confluent={},
        kafka_python={"bootstrap_servers": [shared.bootstrap]},
    ) as eraser:
        eraser.read()
        with pytest.raises(ClientError, match="a value still wins in partition 0"):
            eraser.write(int(time.time() * 1000))
