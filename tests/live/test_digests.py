"""Two real brokers, one of which is cleaned: their digests agree until a record of one replica is changed (U-90)."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd.cli.main import run
from cleanerd.policy.state_digest import StateDigest
from cleanerd_lab.demo.ports import free_port
from tests.brokers.node import wait_until
from tests.daemon.process import Daemon
from tests.daemon.service import assignments
from tests.kafka.judge import fetch_jars
from tests.live.load import topic_config
from tests.live.two_brokers import two_brokers
from tests.support.logs import seal
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

TOPIC: Final = "states"
NAME: Final = f"{TOPIC}-0"
LAST: Final = b"the last value"


def write(first: Broker) -> int:
    """Rounds of the same keys, with deletions and an aborted transaction; returns how many keys are left."""
    admin = AdminClient({"bootstrap.servers": first.bootstrap})
    topic = NewTopic(TOPIC, 1, replica_assignment=[[1, 2]], config=topic_config(first, 8000))
    admin.create_topics([topic])[TOPIC].result()
    producer = Producer({"bootstrap.servers": first.bootstrap, "acks": "all"})
    aborting = Producer({"bootstrap.servers": first.bootstrap, "acks": "all", "transactional.id": "aborting"})
    aborting.init_transactions(PATIENCE_SECONDS)
    aborting.begin_transaction()
    for number in range(20):
        aborting.produce(TOPIC, key=b"%d" % number, value=b"aborted")
    aborting.flush(PATIENCE_SECONDS)
    aborting.abort_transaction(PATIENCE_SECONDS)
    for turn in range(20):
        for number in range(40):
            producer.produce(TOPIC, key=b"%d" % number, value=b"%d" % turn * 20)
        producer.flush(PATIENCE_SECONDS)
    producer.produce(TOPIC, key=b"0")
    producer.produce(TOPIC, key=b"1", value=LAST)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return 39


def entry(view: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in view["partitions"] if each["topic"] == TOPIC)


def newest(daemon: Daemon) -> StateDigest:
    """The digest of the highest offset, once there is one."""
    view = daemon.until("it has digests", lambda view: view["ready"] and bool(entry(view)["digests"]))
    return StateDigest.from_json(entry(view)["digests"][-1])


def test_replicas_of_two_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """U-90: with a daemon beside each; the warning, the metric's figure, and the key that differs."""
    with two_brokers(fetch_jars("4.3"), tmp_path) as (first, second):
        keys = write(first)
        ports = free_port(), free_port()
        peers = ",".join(f"{node}=127.0.0.1:{port}" for node, port in enumerate(ports, 1))
        daemons = []
        for number, (broker, port, mode) in enumerate(zip((first, second), ports, ("live", "observe"), strict=True)):
            base = tmp_path / f"daemon{number}"
            base.mkdir()
            settings = assignments(
                *broker.log_dirs,
                cleanerd_state_dir=str(base / "state"),
                cleanerd_control_socket=str(base / "control.sock"),
                cleanerd_broker_properties=str(broker.properties_file),
                cleanerd_http_listen=f"127.0.0.1:{port}",
                cleanerd_cluster_peers=peers,
                topics_states_min_cleanable_dirty_ratio="0.1",
                cleanerd_mode=mode,
            )
            daemons.append(Daemon(settings, base))
        with daemons[0] as one, daemons[1] as other:
            one.until("it was cleaned", lambda view: view["ready"] and entry(view)["last_clean"] is not None)
            one.end(signal.SIGTERM)
            one.start()
            found = newest(one)
            assert found.keys == keys
            assert newest(other) == found
            hosts = [f"127.0.0.1:{port}" for port in ports]
            run(["cluster", "status", *hosts, "--json"])
            assert json.loads(capsys.readouterr().out)["states"] == []

            other.end(signal.SIGTERM)
            second.stop()
            (active, *_) = sorted((second.log_dirs[0] / NAME).glob("*.log"), reverse=True)
            data = active.read_bytes()
            assert data.count(LAST) == 1
            start = _batch_with(data, LAST)
            changed = data[:start] + seal(data[start:].replace(LAST, LAST[::-1]))
            active.write_bytes(changed)
            second.start()
            other.start()
            assert newest(other).digest != found.digest
            view = one.until("it knows", lambda view: view["differing_partitions"] == 1, 2 * PATIENCE_SECONDS)
            assert any(f"{NAME}: the latest state below offset {found.end_offset}" in text for text in view["warnings"])
            assert run(["cluster", "status", *hosts, "--json"]) == 1
            (state,) = json.loads(capsys.readouterr().out)["states"]
            assert state["what"] == f"{NAME} below offset {found.end_offset}"
            wait_until("both are stable", lambda: run(["spark", "divergence", *_places(first, second)]) == 5)
            assert f"{NAME} altered offset" in capsys.readouterr().out


def _batch_with(data: bytes, part: bytes) -> int:
    """The position of the last batch, which holds ``part``."""
    position = 0
    while True:
        following = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if following >= len(data):
            assert part in data[position:]
            return position
        position = following


def _places(first: Broker, second: Broker) -> list[str]:
    return [str(first.log_dirs[0]), str(second.log_dirs[0]), "--partition", NAME]
