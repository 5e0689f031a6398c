"""The view before a cleaning equals any reader's state after it (R280-14), from files and over brokers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.client.broker_topic import BrokerTopic
from cleanerd.client.flag_topic import FlagTopic
from cleanerd.client.kafka_flag import FLAG_RULES, FlagConsumer, FlagProducer
from cleanerd.client.latest_state import LatestState
from cleanerd.client.log_dir_topic import LogDirTopic
from cleanerd.client.producer import Producer
from cleanerd.client.rules import KEYS, TopicRules
from cleanerd_lab.demo.reading import read_with_confluent
from tests.brokers.node import cleanerd, segment_bases, wait_until
from tests.cleaner import driver
from tests.client.broker_topics import config, records_on_disk, stock, topic
from tests.client.histories import WRITES, Write, batch_of, left_of, rules_of
from tests.support.log_dirs import Partition, make_log_dir, read_segments
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from cleanerd.client.rules import Strategy, TombstoneMode
    from cleanerd_lab.demo.broker import Broker

NOW_MS = 1_000_000
DELEGATED = {"min_cleanable_dirty_ratio": "1.0", "max_compaction_lag_ms": str(2**63 - 1)}
"""U-8: Kafka's cleaner skips the topic."""


@pytest.mark.long
@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.lists(WRITES, min_size=1, max_size=4), min_size=1, max_size=6),
    st.sampled_from(("offset", "timestamp", "header")),
    st.sampled_from(("null", "flag", "header")),
    st.data(),
)
def test_any_history(
    batches: list[list[Write]], strategy: Strategy, tombstones: TombstoneMode, data: st.DataObject
) -> None:
    """R280-4..6, R87-2..4: through the compiled kernel and the real cleaner; no tombstone has expired (U-4)."""
    segments: dict[int, bytes] = {}
    end, base = 0, 0
    for batch in batches:
        if data.draw(st.booleans()):
            base = end
        segments[base] = segments.get(base, b"") + batch_of(batch, end, 0, tombstones)
        end += len(batch)
    rules = rules_of(strategy, tombstones)
    values = {key: getattr(rules, field) for field, key in KEYS.items()}
    with driver.scratch() as scratch:
        log_dir = make_log_dir(scratch / "d", {driver.NAME: Partition({**segments, end: b""})})
        state = LatestState(LogDirTopic([log_dir], "orders", rules))
        state.update()
        before = {record.offset: (record.key, record.value, record.headers) for record in state.winners()}
        driver.clean_all(log_dir, NOW_MS, driver.config(**DELEGATED, **values))
        after = {
            record.offset: (
                record.key,
                record.value,
                tuple((name.decode(), value) for name, value in record.headers),
            )
            for found in read_segments(log_dir / driver.NAME).values()
            for batch in found
            for record in batch.records
        }
        state.update()
    assert after == before
    assert {record.offset for record in state.winners()} == set(after)
    writes = dict(enumerate(write for batch in batches for write in batch))
    assert {offset for offset, _ in left_of(writes, strategy, tombstones).values()} == set(after)


def roll(broker: Broker, name: str) -> None:
    """Let the active segment end: the next record begins a new one."""
    entry = ConfigEntry("segment.ms", "1", incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient(config(broker))
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SECONDS)
    directory = Path(broker.log_dirs[0]) / f"{name}-0"

    def rolled() -> bool:
        with stock(broker) as plain:
            plain.produce(name, b"roll", b"roll", headers=[("version", time.time_ns().to_bytes(8, "big"))])
        return len(segment_bases(directory)) > 1

    wait_until("a new active segment", rolled)


def clean_as_a_user(broker: Broker, name: str, rules: TopicRules, state_dir: Path) -> None:
    broker.stop()
    try:
        topic_keys = {key: getattr(rules, field) for field, key in KEYS.items() if getattr(rules, field)}
        options = [word for key, value in topic_keys.items() for word in ("--set", f"topics.{name}.{key}={value}")]
        done = cleanerd("clean", broker.log_dirs, state_dir, "--yes", "--force", "--partition", f"{name}-0", *options)
        assert done.exit_code == 0, (done.stderr, done.document)
    finally:
        broker.start()


@pytest.mark.kafka
@pytest.mark.broker
def test_a_plain_consumer_after_the_cleaning(broker: Broker, tmp_path: Path) -> None:
    """R280-14, R280-10: before, a plain consumer has the wrong map; after, it has that of the earlier view."""
    rules = TopicRules("header", "version", "long", "header", "deleted")
    name = topic(broker, **DELEGATED)
    with Producer(config(broker), rules) as producer:
        for number in range(300):
            version = number * 7919 % 300  # a permutation: most late writes are old
            key = b"k%d" % (version % 20)
            deletes = version % 60 == 0 or version > 295
            producer.produce(name, key, b"v%d" % version, version=version, tombstone=deletes or None)
    roll(broker, name)
    with LatestState(BrokerTopic(config(broker), name, rules)) as state:
        state.update()
        before = {record.key: record.value for record in state.winners()}
        live = {key: record.value for key, record in state.items()}
    assert plain_map(broker, name) != before, "U-26"
    assert 0 < len(live) < len(before), "U-26"
    clean_as_a_user(broker, name, rules, tmp_path)
    assert plain_map(broker, name) == before
    with LatestState(BrokerTopic(config(broker), name, rules)) as state:
        state.update()
        assert {key: record.value for key, record in state.items()} == live


def plain_map(broker: Broker, name: str) -> dict[bytes | None, bytes | None]:
    return {key: value for _, (key, value) in sorted(read_with_confluent(broker.bootstrap, name).records.items())}


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.broker
def test_flags_are_cleaned_by(broker: Broker, tmp_path: Path) -> None:
    """U-25, R87-3, R87-5, R87-6: written by the helper, cleaned by, kept with value and bit, read back."""
    name = topic(broker, **DELEGATED)
    with FlagProducer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(name, b"a", b"a1")
        producer.send(name, b"a", b"who and why", tombstone=True)
        producer.send(name, b"b", b"b1")
        producer.send(name, b"b", None)
        producer.send(name, b"c", b"c1")
    with stock(broker) as plain:
        plain.produce(name, None, b"c")  # no flag: put(key, null)
    roll(broker, name)
    with LatestState(FlagTopic(name, bootstrap_servers=broker.bootstrap)) as state:
        state.update()
        before = [(r.offset, r.value, r.is_tombstone()) for r in state.winners() if r.key != b"roll"]
    assert before == [(1, b"who and why", True), (3, None, True), (5, None, False)]
    clean_as_a_user(broker, name, FLAG_RULES, tmp_path)
    stored = [record for record in records_on_disk(broker, name) if record.key != b"roll"]
    assert [(record.offset, record.attributes) for record in stored] == [(1, 0x20), (3, 0x20), (5, 0)]
    with FlagConsumer(name, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        found = iter(consumer)
        after = [next(found) for _ in range(3)]
    assert [(record.offset, record.value, record.is_tombstone()) for record in after] == before
