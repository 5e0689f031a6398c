"""Brokers in ZooKeeper mode: the broker reports its topics' configuration, which is stored for when it is stopped."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd.cli.main import run
from cleanerd.config.load import load_settings
from cleanerd.format.names import TopicPartition
from cleanerd.policy.legacy import converts
from cleanerd.resolution.broker_facts import broker_facts
from cleanerd.resolution.targets import topic_id_of
from cleanerd.resolution.zk_config_cache import ORIGIN, UNQUERIED_MS
from cleanerd.segments.log_dir import read_log_dir
from tests.kafka.judge import fetch_jars
from tests.support.log_dirs import HIGH_WATERMARKS
from tests.support.patience import PATIENCE_SECONDS
from tests.support.zookeeper import ZooKeeperBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.resolution.broker_facts import BrokerFacts

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

CONFIG = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.9"}


@pytest.fixture(scope="module")
def broker() -> Iterator[ZooKeeperBroker]:
    """Kafka 3.8 with ZooKeeper, one topic that is compacted and one that is not."""
    jars = fetch_jars("3.8")
    work_dir = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    made = ZooKeeperBroker(jars.libs, work_dir, version=jars.version)
    try:
        made.start()
        assert f"Kafka version: {jars.version}" in made.log_text()
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        topics = [NewTopic("orders", 1, 1, config=CONFIG), NewTopic("events", 1, 1)]
        for done in admin.create_topics(topics).values():
            done.result(PATIENCE_SECONDS)
        yield made
    finally:
        made.end()
        shutil.rmtree(work_dir)


def fill(broker: ZooKeeperBroker) -> dict[bytes, bytes]:
    """Three keys again and again, in several segments; returns the latest value by key."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    latest = {}
    for row in range(60):
        key, value = b"k%d" % (row % 3), b"%d" % row
        producer.produce("orders", value, key, timestamp=1_700_000_000_000 + row * 1000)
        producer.flush(PATIENCE_SECONDS)
        latest[key] = value
    return latest


def read(broker: ZooKeeperBroker) -> list[tuple[bytes, bytes]]:
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
        "enable.partition.eof": True, "enable.auto.commit": False,
    })  # fmt: skip
    found = []
    try:
        consumer.subscribe(["orders"])
        while True:
            message = consumer.poll(PATIENCE_SECONDS)
            assert message is not None, "nothing came"
            if message.error():
                return found  # the end
            found.append((message.key(), message.value()))
    finally:
        consumer.close()


def facts(directory: Path, state: Path, *servers: str, running: bool) -> BrokerFacts:
    settings = load_settings(
        (), [f"cleanerd.state.dir={state}", *(f"bootstrap.servers={each}" for each in servers)], {}
    )
    return broker_facts(settings, read_log_dir(directory), [], running=running)


def set_queried(file: Path, queried_ms: int) -> None:
    """Set the time of a broker's last report, and that of its topics."""
    memory = json.loads(file.read_text())
    (broker,) = memory["brokers"]
    for report in (broker, *broker["topics"].values()):
        report["queried_ms"] = queried_ms
    file.write_text(json.dumps(memory))


def test_queried_while_it_runs_and_stored_for_when_it_does_not(
    broker: ZooKeeperBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """U-40, U-24, U-18: without the broker's report no topic of ZooKeeper mode is known to be compacted."""
    (directory,), state = broker.log_dirs, tmp_path / "state"
    latest = fill(broker)
    assert not facts(directory, state, running=True).topic_config("orders").policy_known
    requested = facts(directory, state, broker.bootstrap, running=True)
    assert requested.zookeeper
    assert requested.warnings == ()
    config = requested.topic_config("orders")
    assert (config.is_compacted, config.min_cleanable_dirty_ratio) == (True, 0.9)
    assert config.origins["cleanup.policy"] == ORIGIN
    assert not requested.topic_config("events").is_compacted
    broker.stop()

    down = facts(directory, state, running=False)
    # Without the address, messages do not name it.
    assert replace(down.topic_config("orders"), connect=config.connect) == config
    assert down.topic_id("orders") == topic_id_of(read_log_dir(directory), TopicPartition("orders", 0)) is not None
    convert, why = down.resources().convert_legacy, down.resources().profile_origin
    assert (convert, "ZooKeeper mode" in why) == (False, True)
    # The broker may have a newer configuration than the one that it reported long before it stopped.
    now = os.stat(directory / HIGH_WATERMARKS).st_mtime_ns // 1_000_000
    for ago_ms, expected in ((UNQUERIED_MS - 60_000, True), (UNQUERIED_MS + 60_000, False)):
        set_queried(state / "topics.json", now - ago_ms)
        old = facts(directory, state, running=False)
        assert old.topic_config("orders").policy_known is expected
        assert bool(old.warnings) is not expected

    set_queried(state / "topics.json", now)
    command = ["clean", str(directory), "--force", "--yes", "--set", f"cleanerd.state.dir={state}"]
    assert run(command) == 0, capsys.readouterr()
    assert "orders-0" in capsys.readouterr().out
    broker.start()
    left = read(broker)
    assert dict(left) == latest
    assert len(left) < 60


def test_another_cluster_is_not_trusted(broker: ZooKeeperBroker, tmp_path: Path) -> None:
    """U-40: the log directory of one cluster and the address of another: none of its answer is stored."""
    copied = tmp_path / "copy"
    copied.mkdir()
    text = (broker.log_dirs[0] / "meta.properties").read_text()
    cluster = next(line for line in text.splitlines() if line.startswith("cluster.id="))
    (copied / "meta.properties").write_text(text.replace(cluster, "cluster.id=another"))
    (copied / "orders-0").mkdir()
    found = facts(copied, tmp_path / "state", broker.bootstrap, running=True)
    assert not found.topic_config("orders").policy_known
    assert "the log directory belongs to cluster another" in found.warnings[0]
    assert not (tmp_path / "state" / "topics.json").exists()


class SecondBroker(ZooKeeperBroker):
    """Another one of the cluster, with settings of its own."""

    def __init__(self, first: ZooKeeperBroker, work_dir: Path) -> None:
        super().__init__(first.libs_dir, work_dir, version=first.version)
        self._zookeeper_port, self._zookeeper = first._zookeeper_port, first._zookeeper

    def properties(self) -> dict[str, str]:
        return {**super().properties(), "broker.id": "2", "log.cleaner.min.compaction.lag.ms": "86400000"}


def test_the_broker_itself_is_queried(broker: ZooKeeperBroker, tmp_path: Path) -> None:
    """U-40, U-24: any broker answers, each by its own server.properties, whichever is configured as server.

    It comes last: for a while the cluster still lists the second broker, which is stopped.
    """
    if not broker.running:
        broker.start()
    second = SecondBroker(broker, tmp_path / "second")
    second.start()
    try:
        for number in range(4):
            for requested, lag_ms in ((broker, 0), (second, 86_400_000)):
                copy = tmp_path / f"{requested is broker}-{number}"
                copy.mkdir()
                shutil.copy(requested.log_dirs[0] / "meta.properties", copy)
                (copy / "orders-0").mkdir()
                for servers in (broker.bootstrap, second.bootstrap):
                    found = facts(copy, tmp_path / f"state-{number}-{servers[-5:]}", servers, running=True)
                    assert found.warnings == ()
                    assert found.topic_config("orders").min_compaction_lag_ms == lag_ms
        (copy / "meta.properties").write_text(
            (copy / "meta.properties").read_text().replace("broker.id=2", "broker.id=3")
        )
        (warning,) = facts(copy, tmp_path / "none", broker.bootstrap, running=True).warnings
        assert "does not know broker 3 now" in warning
    finally:
        second.kill()


def test_zookeeper_mode_keeps_old_formats() -> None:
    """U-18: no release after 3.9 has ZooKeeper, whatever else is unknown; the operator's setting overrides it."""
    assert converts(None, None, None, zookeeper=True)[0] is False
    assert converts(None, None, None)[0] is True
    assert converts((4, 0), None, None, zookeeper=True)[0] is True
