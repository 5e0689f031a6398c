"""A key is erased from two real brokers, and proved gone (U-85..U-88); the tombstone that each strategy needs."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd.broker.live_broker import find_socket
from cleanerd.cli.main import run
from cleanerd.client.erasure import KeyEraser
from cleanerd.client.errors import ClientError
from cleanerd.client.kafka_flag import FlagProducer
from cleanerd.client.rules import TopicRules
from cleanerd.policy.version import encode_version
from tests.brokers.node import wait_until
from tests.brokers.topics import alter
from tests.kafka.judge import fetch_jars
from tests.live.two_brokers import daemon_beside, two_brokers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

KEY = "customer-4711"
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1",  # nothing is ever dirty enough: only the request has it cleaned
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "1000",
}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    with two_brokers(fetch_jars("4.3"), tmp_path_factory.mktemp("erasure")) as both:
        yield both


def create(node: Broker, topic: str, replicas: int, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    made = admin.create_topics([NewTopic(topic, 1, replicas, config={**SETTINGS, **settings})])
    made[topic].result(30)


def produce(node: Broker, topic: str, *records: tuple[str, str | None], **options: Any) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for key, value in records:
        producer.produce(topic, key=key, value=value, **options)
    assert producer.flush(30) == 0


class Host:
    """One broker's host: its daemon, its state directory, its key."""

    def __init__(self, node: Broker, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.node, self.base, self._capsys = node, base, capsys
        socket = find_socket(None, node.log_dirs)
        assert socket is not None
        self.daemon = daemon_beside(node, base, socket)
        # The metadata log shows a full ISR five minutes late.
        self.daemon.settings = [*self.daemon.settings, "topics.orders.cleanerd.tombstone.replicated=ignore"]
        self.certificate = base / "certificate.json"

    def erase(self, *words: object, code: int = 0) -> str:
        """``cleanerd erase`` with the settings of this host's daemon; its standard output."""
        self._capsys.readouterr()
        settings = [word for each in self.daemon.settings for word in ("--set", each)]
        found = run(["erase", *map(str, words), *settings])
        message = self._capsys.readouterr()
        assert found == code, message.out + message.err
        return message.out

    def certify(self, request: Path, code: int) -> None:
        self.erase(
            "certify", "orders", *self.node.log_dirs, "--key", KEY, "--request", request, "--output", self.certificate,
            code=code,
        )  # fmt: skip


def stages(status: dict[str, Any]) -> list[str]:
    """Of the one open request."""
    return [each["stage"] for found in status["erasures"] for each in found["stages"]]


def test_a_key_is_proved_gone(nodes: tuple[Broker, Broker], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Requested on one host, followed on both; the daemons clean for it, and all replicas' certificates prove it."""
    create(nodes[0], "orders", 2)
    produce(nodes[0], "orders", ("a", "1"), (KEY, "1"), ("b", "1"))
    hosts = [Host(node, tmp_path / f"host{number}", capsys) for number, node in enumerate(nodes, 1)]
    request, trusted = tmp_path / "request.json", tmp_path / "trusted"
    first, second = hosts
    with first.daemon, second.daemon:
        for host in hosts:
            host.daemon.until("it is ready", lambda status: status["ready"])
        bootstrap = ("--bootstrap-server", nodes[0].bootstrap)
        dry = json.loads(first.erase("request", "orders", "--key", KEY, *bootstrap, "--dry-run", "--json"))
        assert (dry["would_write_to"], dry["records"]) == ([0], 1)
        first.erase("request", "orders", "--key", KEY, *bootstrap, "--yes", "--output", request)
        assert KEY not in request.read_text()
        second.erase("requests", "--add", request)
        trusted.write_text("".join(host.erase("keygen") for host in hosts))
        for host in hosts:
            host.daemon.until("it is blocked by the active segment", lambda status: stages(status) == ["blocked"])
            host.certify(request, code=1)
        plan = json.loads(first.erase("plan", "orders", "--key", KEY, *nodes[0].log_dirs, "--json"))
        value, tombstone = plan["partitions"][0]["copies"]
        assert (value["tombstone"], tombstone["tombstone"]) == (False, True)
        assert [step["event"] for step in value["steps"]][:2] == [
            "the daemon has the broker roll the active segment",
            "the daemon cleans the partition for the erasure request",
        ]
        assert plan["partitions"][0]["by_ms"] is not None
        words = ("verify", *(host.certificate for host in hosts), "--request", request, "--trust", trusted)
        assert "NOT complete" in first.erase(*words, *bootstrap, code=1)
        # Nothing is written any more: the daemons have the brokers roll the segment (U-91).
        alter(nodes[0].bootstrap, "orders", "segment.ms", "1000")
        for host in hosts:
            host.daemon.until("the tombstone is gone", lambda status: stages(status) == ["certify"])
        for host in hosts:
            wait_until("no file has the key", partial(_is_absent, host, request), 60)
            host.daemon.until("the request is closed", lambda status: stages(status) == [])
        assert "complete: the key is gone from 2 of 2 replicas of orders" in first.erase(*words, *bootstrap)
        assert "complete: " in first.erase(*words, "--metadata", nodes[0].log_dirs[0])


def _is_absent(host: Host, request: Path) -> bool:
    """The replaced segments wait for file.delete.delay.ms."""
    try:
        host.certify(request, code=0)
    except AssertionError:
        return False
    return True


RULES = {
    "offset": TopicRules(),
    "timestamp": TopicRules(strategy="timestamp"),
    "header": TopicRules(strategy="header", version_header="v"),
    "tombstone-header": TopicRules(strategy="timestamp", tombstone_mode="header", tombstone_header="gone"),
    "flag": TopicRules(tombstone_mode="flag"),
}


@pytest.mark.parametrize("name", RULES)
def test_the_tombstone_wins(nodes: tuple[Broker, Broker], name: str) -> None:
    """Whatever the strategy, also against a version of the future; and a second request needs none."""
    rules, topic = RULES[name], f"topic-{name}"
    create(nodes[0], topic, 1)
    future_ms = int(time.time() * 1000) + 60_000
    headers = [("v", encode_version(2**40, "long"))] if rules.strategy == "header" else []
    produce(nodes[0], topic, (KEY, "1"), ("other", "1"), timestamp=future_ms, headers=headers)
    produce(nodes[0], topic, (KEY, "2"))
    with KeyEraser(
        topic,
        KEY.encode(),
        rules,
        confluent={"bootstrap.servers": nodes[0].bootstrap},
        kafka_python={"bootstrap_servers": [nodes[0].bootstrap]},
    ) as eraser:
        eraser.read()
        assert (eraser.to_write, eraser.records) == ([0], 2)
        eraser.write(int(time.time() * 1000))
        assert eraser.to_write == []
        winner = eraser.winners[0]
        assert (winner.offset, winner.is_tombstone(), winner.flagged) == (3, True, name == "flag")
        assert winner.value is None


def test_a_flag_that_the_broker_clears(nodes: tuple[Broker, Broker]) -> None:
    """A topic that recompresses: what was written does not delete the key, and that is said."""
    create(nodes[0], "recompressed", 1, **{"compression.type": "zstd"})
    with FlagProducer(bootstrap_servers=[nodes[0].bootstrap]) as producer:
        producer.send("recompressed", KEY.encode(), b"1")
    with KeyEraser(
        "recompressed",
        KEY.encode(),
        RULES["flag"],
        confluent={},
        kafka_python={"bootstrap_servers": [nodes[0].bootstrap]},
    ) as eraser:
        eraser.read()
        with pytest.raises(ClientError, match="a value still wins in partition 0"):
            eraser.write(int(time.time() * 1000))
