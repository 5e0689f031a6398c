"""The clients with real brokers, 3.9 and 4.3: their writes are on the disk, and their reads are the same."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from cleanerd.client.broker_topic import BrokerTopic
from cleanerd.client.consumer import Consumer
from cleanerd.client.errors import ClientError, FlagModeError
from cleanerd.client.flag_topic import FlagTopic
from cleanerd.client.kafka_flag import FLAG_RULES, FlagConsumer, FlagProducer
from cleanerd.client.latest_state import LatestState
from cleanerd.client.log_dir_topic import LogDirTopic
from cleanerd.client.producer import Producer
from cleanerd.client.rules import TopicRules
from cleanerd.errors import ConfigError
from cleanerd.policy.version import encode_version
from tests.client.broker_topics import config, on_disk, records_on_disk, stock, topic
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from cleanerd.client.delivery import Delivery
    from cleanerd.client.record import ConsumedRecord
    from cleanerd_lab.demo.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

RULES = TopicRules("header", "version", "long", "header", "deleted")


def winners(state: LatestState) -> list[tuple[int, bytes | None, bytes | None, bool]]:
    state.update()
    return [(record.offset, record.key, record.value, record.is_tombstone()) for record in state.winners()]


def test_a_versioned_topic(broker: Broker) -> None:
    """R280-5, R280-14, R87-4, R87-7: racing writers; disk, broker and log directory agree on the retained record."""
    name = topic(broker)
    found: list[Delivery] = []
    with Producer(config(broker), {name: RULES}) as producer:
        assert producer.is_idempotent
        for key, value, version, tombstone in [
            (b"a", b"a2", 2, None),
            (b"a", b"a1", 1, None),  # late
            (b"b", b"b1", 1, None),
            (b"b", b"who and why", 3, True),  # a tombstone with a value
            (b"b", b"b2", 2, None),  # late, must not bring it back
            (b"c", b"c1", -5, None),
            (b"d", b"d1", 7, None),
            (b"d", None, 8, None),
        ]:
            producer.produce(name, key, value, version=version, tombstone=tombstone, on_delivery=found.append)
    with stock(broker) as plain:
        plain.produce(name, b"anomalous", b"c")  # R280-6: no version, so it is superseded
    assert all(delivery.error is None for delivery in found), found
    assert [delivery.offset for delivery in found] == list(range(8))
    assert all(delivery.has_timestamp for delivery in found)
    stored = records_on_disk(broker, name)
    assert stored[3].headers == ((b"version", encode_version(3, "long")), (b"deleted", b"true"))
    assert stored[7].value is None
    assert stored[7].headers == ((b"version", encode_version(8, "long")),)
    assert on_disk(broker, name)[0].header.producer_id >= 0
    expected = [
        (0, b"a", b"a2", False),
        (3, b"b", b"who and why", True),
        (5, b"c", b"c1", False),
        (7, b"d", None, True),
    ]
    with LatestState(BrokerTopic(config(broker), name, RULES)) as live:
        assert winners(live) == expected
        assert {key: record.value for key, record in live.items()} == {b"a": b"a2", b"c": b"c1"}
    offline = LatestState(LogDirTopic(broker.log_dirs, name, RULES, whole_log=True))
    assert winners(offline) == expected


def test_the_consumer(broker: Broker) -> None:
    """R87-7: ``is_tombstone()`` by the topic's mode; a group continues where it committed."""
    name = topic(broker)
    with stock(broker) as plain:
        plain.produce(name, b"1", b"k", headers=[("deleted", b"yes")])
        plain.produce(name, b"2", b"k", headers=[("deleted", b"false")], timestamp=1234)
        plain.produce(name, None, b"k")
    group = {"group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    for rules, deletes in ((RULES, [True, False, True]), (TopicRules(), [False, False, True])):
        with Consumer(config(broker, **{**group, "group.id": f"{name}-{rules.tombstone_mode}"}), rules) as consumer:
            consumer.subscribe([name])
            records = take(consumer, 3)
            assert [record.is_tombstone() for record in records] == deletes
            assert records[1].timestamp_ms == 1234
            assert records[1].headers == (("deleted", b"false"),)
            consumer.commit()
            consumer.commit()
    with stock(broker) as plain:
        plain.produce(name, b"4", b"k")
    with Consumer(config(broker, **{**group, "group.id": f"{name}-null"})) as consumer:
        consumer.subscribe([name])
        assert [record.value for record in take(consumer, 1)] == [b"4"]


def take(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    found: list[ConsumedRecord] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, found
        record = consumer.poll(1.0)
        if record is not None:
            found.append(record)
    return found


@pytest.mark.parametrize("mode", ["requested", "required", "off"])
def test_idempotence(broker: Broker, mode: str) -> None:
    """R192-5 on brokers that support it; 3.9 still has ``message.format.version`` and ignores it."""
    name = topic(broker, **({"message_format_version": "0.10.0"} if broker.version.startswith("3.") else {}))
    with Producer(config(broker, **{"enable.idempotence": mode})) as producer:
        producer.produce(name, b"k", b"v")
        producer.flush()
        assert producer.is_idempotent is (mode != "off")
        assert producer.why_not_idempotent == {}
    assert (on_disk(broker, name)[0].header.producer_id >= 0) is (mode != "off")


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_flags(broker: Broker, codec: str | None) -> None:
    """U-25, R87-2: on the disk with bit 5 and otherwise as sent, read back by the helper, read by librdkafka."""
    name = topic(broker)
    # One batch, however long it takes to fill it: it ends with the flush.
    with FlagProducer(bootstrap_servers=broker.bootstrap, compression_type=codec, linger_ms=60_000) as producer:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            futures = [
                producer.send(name, b"a", b"a1" * 50, headers=[("h", b"x")], timestamp_ms=1000),
                producer.send(name, b"a", b"who and why" * 50, tombstone=True, headers=[("h", b"y")], timestamp_ms=900),
                producer.send(name, b"b", b"b1"),
                producer.send(name, b"c", None),  # KIP-87: as before, a null value deletes
            ]
        producer.flush(PATIENCE_SECONDS)
        assert [future.get(PATIENCE_SECONDS).offset for future in futures] == [0, 1, 2, 3]
    stored = records_on_disk(broker, name)
    assert [record.attributes for record in stored] == [0, 0x20, 0, 0x20]
    assert [record.timestamp for record in stored[:2]] == [1000, 900]
    assert [record.value for record in stored] == [b"a1" * 50, b"who and why" * 50, b"b1", None]
    assert stored[1].headers == ((b"h", b"y"),)
    assert [batch.header.codec for batch in on_disk(broker, name)] == [0 if codec is None else 1]
    with stock(broker) as plain:
        plain.produce(name, None, b"b")  # R87-3: no flag, no tombstone

    expected = [(1, b"a", b"who and why" * 50, True), (3, b"c", None, True), (4, b"b", None, False)]
    options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "group_id": None, "auto_offset_reset": "earliest"}
    with FlagConsumer(name, **options) as consumer:
        read = [next(found) for found in [iter(consumer)] for _ in range(5)]
    assert [record.is_tombstone() for record in read] == [False, True, False, True, False]
    assert [record.magic for record in read] == [2] * 5
    with LatestState(FlagTopic(name, bootstrap_servers=broker.bootstrap)) as live:
        assert winners(live) == expected
    assert winners(LatestState(LogDirTopic(broker.log_dirs, name, FLAG_RULES, whole_log=True))) == expected
    with LatestState(BrokerTopic(config(broker), name)) as plain:
        assert [(offset, deletes) for offset, _, _, deletes in winners(plain)] == [(1, False), (3, True), (4, True)]
    for make in (Consumer, lambda *arguments: BrokerTopic(arguments[0], name, arguments[1])):
        with pytest.raises(FlagModeError, match=r"cleanerd\.client"):
            make(config(broker, **{"group.id": "g"}), FLAG_RULES)


def test_flags_and_recompression(broker: Broker) -> None:
    """U-25: a topic with its own codec: a warning, for a good reason: the broker clears the bit."""
    name = topic(broker, compression_type="lz4")
    with FlagProducer(bootstrap_servers=broker.bootstrap) as producer:
        with pytest.warns(UserWarning, match=rf"compression\.type of topic {name} is lz4.*set it to producer"):
            producer.send(name, b"a", b"1", tombstone=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # once a topic
            producer.send(name, b"a", b"2", tombstone=True)
        producer.flush(PATIENCE_SECONDS)
    assert [record.attributes for record in records_on_disk(broker, name)] == [0, 0]


def test_flags_of_a_batch_that_is_split(broker: Broker) -> None:
    """U-25: the broker finds the batch too large; its halves arrive with their flags, in order, once."""
    name = topic(broker, max_message_bytes="600")
    with FlagProducer(bootstrap_servers=broker.bootstrap, linger_ms=60_000) as producer:
        futures = [producer.send(name, b"k%d" % n, b"v" * 100, tombstone=n % 3 == 0 or None) for n in range(12)]
        producer.flush(PATIENCE_SECONDS)
        assert [future.get(PATIENCE_SECONDS).offset for future in futures] == list(range(12))
    batches = on_disk(broker, name)
    assert len(batches) > 2
    stored = [record for batch in batches for record in batch.records]
    assert [record.key for record in stored] == [b"k%d" % n for n in range(12)]
    assert [record.attributes for record in stored] == [0x20 if n % 3 == 0 else 0 for n in range(12)]
    assert len({batch.header.producer_id for batch in batches}) == 1


def test_invalid_arguments_for_kafka_python(broker: Broker) -> None:
    name = topic(broker)
    with FlagProducer(bootstrap_servers=broker.bootstrap) as producer:
        with pytest.raises(ClientError, match="cannot be sent"):
            producer.send(name, b"k", b"v", headers=[("null", None)])
        with pytest.raises(ClientError, match="tombstone=False"):
            producer.send(name, b"k", None, tombstone=False)
    with pytest.raises(ConfigError, match=r"tombstone\.mode is null.*producer\.Producer"):
        FlagProducer(TopicRules(), bootstrap_servers=broker.bootstrap)
    with pytest.raises(ClientError, match="kafka-python cannot produce"):
        FlagProducer(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=500)


def test_while_leadership_moves(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of the moment after a leader change are retried. Any other error is reported at once."""
    name = topic(broker)
    with stock(broker) as plain:
        plain.produce(name, b"1", b"k")
    heard = [KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION), KafkaError(KafkaError.LEADER_NOT_AVAILABLE)]

    class Moving(confluent_kafka.Consumer):
        def get_watermark_offsets(self, *arguments: Any, **more: Any) -> Any:
            if heard:
                raise KafkaException(heard.pop())
            return super().get_watermark_offsets(*arguments, **more)

    # One broker alone cannot have a moving leader.
    monkeypatch.setattr(confluent_kafka, "Consumer", Moving)
    with LatestState(BrokerTopic(config(broker), name)) as state:
        assert winners(state) == [(0, b"k", b"1", False)]
        assert heard == []
        heard.append(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(ClientError, match=f"the ends of {name}-0 are not known.*authorization"):
            winners(state)


SOURCES = ["broker", "flags", "files"]


def source(kind: str, broker: Broker, name: str) -> Any:
    if kind == "broker":
        return BrokerTopic(config(broker), name)
    if kind == "flags":
        return FlagTopic(name, TopicRules(), bootstrap_servers=broker.bootstrap)
    return LogDirTopic(broker.log_dirs, name, whole_log=True)


@pytest.mark.long
@pytest.mark.parametrize("kind", SOURCES)
def test_transactions(broker: Broker, kind: str) -> None:
    """U-2: an open transaction hides later records, an aborted one has no effect; markers at the end do not matter."""
    name = topic(broker)
    longest = {"transaction.timeout.ms": 900_000}  # the broker ends it after a minute, which a slow machine needs
    writer = confluent_kafka.Producer(config(broker, **{"transactional.id": name}, **longest))
    writer.init_transactions()
    with stock(broker) as plain:
        plain.produce(name, b"1", b"k")
    writer.begin_transaction()
    writer.produce(name, b"aborted", b"k")
    writer.flush(PATIENCE_SECONDS)
    with stock(broker) as plain:
        plain.produce(name, b"behind", b"l")
    with LatestState(source(kind, broker, name)) as state:
        assert winners(state) == [(0, b"k", b"1", False)]
        writer.abort_transaction()
        wait_for_marker(broker, name)
        assert winners(state) == [(0, b"k", b"1", False), (2, b"l", b"behind", False)]
        writer.begin_transaction()
        writer.produce(name, b"committed", b"k")
        writer.commit_transaction()
        wait_for_marker(broker, name)
        assert winners(state) == [(2, b"l", b"behind", False), (4, b"k", b"committed", False)]
        assert winners(state) == winners(state)


def wait_for_marker(broker: Broker, name: str) -> None:
    """The coordinator writes markers after it has answered."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    consumer = confluent_kafka.Consumer(config(broker, **{"group.id": "g", "isolation.level": "read_committed"}))
    end = on_disk(broker, name)[-1].header.last_offset + 1
    while True:
        stable = consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=PATIENCE_SECONDS)
        end = on_disk(broker, name)[-1].header.last_offset + 1
        if stable is not None and stable[1] == end and on_disk(broker, name)[-1].header.is_control:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    consumer.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["broker", "flags"])
def test_a_log_start_that_moves(broker: Broker, kind: str) -> None:
    """U-2: records below it are deleted; new partitions are found."""
    name = topic(broker, cleanup_policy="compact,delete")
    admin = AdminClient(config(broker))
    with stock(broker) as plain:
        for number in range(4):
            plain.produce(name, b"%d" % number, b"k%d" % (number % 3), partition=0)
    with LatestState(source(kind, broker, name)) as state:
        assert [offset for offset, *_ in winners(state)] == [1, 2, 3]
        for future in admin.delete_records([TopicPartition(name, 0, 2)]).values():
            future.result(PATIENCE_SECONDS)
        assert [offset for offset, *_ in winners(state)] == [2, 3]
        admin.create_partitions([NewPartitions(name, 2)])[name].result(PATIENCE_SECONDS)
        with stock(broker, **{"topic.metadata.refresh.interval.ms": 200}) as plain:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(plain.list_topics(name).topics[name].partitions) < 2:
                assert time.monotonic() < deadline
            plain.produce(name, b"moved", b"k0", partition=1)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(state.partitions) < 2:
            assert time.monotonic() < deadline
            state.update()
        assert state.partitions[1][b"k0"].value == b"moved"
        assert len(state) == 2


@pytest.mark.parametrize("kind", ["broker", "flags"])
def test_no_such_topic(broker: Broker, kind: str) -> None:
    with pytest.raises(ClientError, match=r"does not exist|cannot be described"):
        LatestState(source(kind, broker, "no.such.topic")).update()


@pytest.mark.long
def test_files_of_a_stopped_broker(broker: Broker) -> None:
    """Checkpoints of a clean stop: the high watermark is the end. Last: the broker is down for a moment."""
    name = topic(broker)
    with stock(broker) as plain:
        for number in range(3):
            plain.produce(name, b"%d" % number, b"k")
    broker.stop()
    try:
        assert winners(LatestState(LogDirTopic([Path(d) for d in broker.log_dirs], name))) == [(2, b"k", b"2", False)]
    finally:
        broker.start()
