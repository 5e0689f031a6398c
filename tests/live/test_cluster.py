"""Three real brokers with a daemon beside each: canary, cluster commands, an erasure, and digests, in one scenario."""

from __future__ import annotations

import json
import re
import signal
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd.broker.live_broker import find_socket
from cleanerd.cli.main import run
from cleanerd.config.fingerprint import KAFKAS_FINGERPRINT
from cleanerd.daemon.registry.canary import DOCUMENT, NOTHING_CLEANED, CleanedLog
from cleanerd.format.names import TopicPartition
from cleanerd.policy.state_digest import StateDigest
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state.cleaner_checkpoint import CleanerdCheckpoint, LastSegment, PartitionState, StateStore
from cleanerd_lab.demo.ports import free_port
from tests.brokers.node import wait_until
from tests.brokers.topics import alter
from tests.kafka.judge import fetch_jars
from tests.live.load import topic_config
from tests.live.two_brokers import daemon_beside, some_brokers
from tests.support.logs import seal
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

STATES: Final = "states"
PARTITIONS: Final = 4
KEYS: Final = 40
LAST: Final = b"the last value"
SUSPECT: Final = TopicPartition(STATES, 2)
"""Initial state of the third broker's daemon: a wrong cleaning."""

ERASED: Final = "customer-4711"
ERASING: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1",  # the dirty ratio is never reached: only the request triggers a cleaning
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "1000",
}


class Host:
    """A broker's host: its daemon, and cleanerd's commands with that daemon's settings."""

    def __init__(
        self, node: Broker, base: Path, port: int, capsys: pytest.CaptureFixture[str], **settings: str
    ) -> None:
        self.node, self.base, self.port, self._capsys = node, base, port, capsys
        socket = find_socket(None, node.log_dirs)
        assert socket is not None
        self.daemon = daemon_beside(
            node,
            base,
            socket,
            cleanerd_http_listen=f"127.0.0.1:{port}",
            topics_states_min_cleanable_dirty_ratio="0.1",
            # The metadata log shows a full ISR five minutes late.
            topics_orders_cleanerd_tombstone_replicated="ignore",
            **settings,
        )
        self.certificate = base / "certificate.json"

    def run(self, *words: object, code: int = 0) -> str:
        """Run a command; returns its standard output."""
        self._capsys.readouterr()
        settings = [word for each in self.daemon.settings for word in ("--set", each)]
        found = run([*map(str, words), *settings])
        printed = self._capsys.readouterr()
        assert found == code, printed.out + printed.err
        return printed.out

    def certify(self, request: Path, code: int) -> None:
        words = ("--key", ERASED, "--request", request, "--output", self.certificate)
        self.run("erase", "certify", "orders", *self.node.log_dirs, *words, code=code)

    def has_certified(self, request: Path) -> bool:
        """Whether no file has the key; replaced segments wait for file.delete.delay.ms."""
        try:
            self.certify(request, code=0)
        except AssertionError:
            return False
        return True

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=PATIENCE_SECONDS) as answer:
            return str(answer.read().decode())

    def restart(self) -> None:
        """Restart the daemon and discard the digests of its last run."""
        self.daemon.end(signal.SIGTERM)
        self.daemon.start()


def entries(view: dict[str, Any]) -> list[dict[str, Any]]:
    """The partitions of the topic, in order."""
    found = [each for each in view["partitions"] if each["topic"] == STATES]
    return sorted(found, key=lambda each: int(each["partition"]))


def is_clean(view: dict[str, Any]) -> bool:
    """Whether every partition was cleaned and has nothing left to clean."""
    found = entries(view)
    clean = (each["last_cleaning"] is not None and each["state"] == "idle" for each in found)
    return bool(view["ready"]) and len(found) == PARTITIONS and all(clean)


def newest(host: Host) -> list[StateDigest]:
    """The digests of the highest offsets, once each partition has one."""
    view = host.daemon.until(
        "it has digests",
        lambda view: view["ready"] and bool(entries(view)) and all(each["digests"] for each in entries(view)),
    )
    return [StateDigest.from_json(each["digests"][-1]) for each in entries(view)]


def create_topics(node: Broker) -> None:
    """Create the topics with a replica on every broker."""
    placed = [[1, 2, 3]] * PARTITIONS
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    topics = (
        NewTopic(STATES, PARTITIONS, replica_assignment=placed, config=topic_config(node, 8000)),
        NewTopic("orders", 1, replica_assignment=placed[:1], config=ERASING),
    )
    for made in admin.create_topics(list(topics)).values():
        made.result(PATIENCE_SECONDS)


def write(node: Broker, turns: int) -> None:
    """Write the same keys in turns to each partition, after an aborted transaction."""
    every = {"bootstrap.servers": node.bootstrap, "acks": "all"}
    producer, aborting = Producer(every), Producer({**every, "transactional.id": "aborting"})
    aborting.init_transactions(PATIENCE_SECONDS)
    aborting.begin_transaction()
    for number in range(20):
        aborting.produce(STATES, key=b"%d" % number, value=b"aborted", partition=0)
    aborting.flush(PATIENCE_SECONDS)
    aborting.abort_transaction(PATIENCE_SECONDS)
    for turn in range(turns):
        for number in range(KEYS * PARTITIONS):
            producer.produce(STATES, key=b"%d" % number, value=b"%d" % turn * 20, partition=number % PARTITIONS)
        producer.flush(PATIENCE_SECONDS)
    for number in range(PARTITIONS):
        producer.produce(STATES, key=b"%d" % number, partition=number)
        producer.produce(STATES, key=b"%d" % (PARTITIONS + number), value=LAST, partition=number)
    assert producer.flush(PATIENCE_SECONDS) == 0


def plant_wrong_cleaning(host: Host) -> None:
    """The state of a daemon that cleaned two segments and left each of their keys several times."""
    log_dir = read_log_dir(host.node.log_dirs[0])
    log = read_partition(log_dir, SUSPECT)
    offset = log.segments[2].base
    point = CleanerdCheckpoint(
        offset,
        log.leader_epoch_at(offset - 1),
        KAFKAS_FINGERPRINT,
        LastSegment.of(log.segments[1]),
        unproven_below=0,
    )
    state_dir = host.base / "state"
    StateStore(state_dir).save(log_dir, log, PartitionState(point, None, None))
    size_bytes = sum(each.size_bytes for each in log.segments)
    began_ms = int(time.time() * 1000)
    cleaned = CleanedLog(str(log_dir.path), STATES, SUSPECT.partition, str(log.topic_id), size_bytes, began_ms)
    DOCUMENT.write(state_dir, replace(NOTHING_CLEANED, unverified=(cleaned,)))


def most_unverified(host: Host) -> int:
    """The largest number of ended cleanings that the daemon had not verified."""
    most = now = 0
    for event in re.findall(r"event=(cleaning_ended|cleaning_verified)\b", host.daemon.log.read_text()):
        now += 1 if event == "cleaning_ended" else -1
        most = max(most, now)
    return most


def begin_with_few(hosts: list[Host], stack: ExitStack) -> None:
    """D-18..D-20: without a canary the daemon cleans all; one goes on after each verification, one holds."""
    first, second, third = hosts
    stack.enter_context(first.daemon)
    first.daemon.until("it has cleaned all", is_clean)
    write(first.node, 5)
    stack.enter_context(second.daemon)
    second.daemon.until("it has cleaned all", is_clean)
    view = second.daemon.until("all is verified", lambda view: view["canary"]["unverified"] == 0)
    assert view["canary"]["verified"] >= PARTITIONS
    assert view["canary"]["held_partition"] is None
    assert most_unverified(second) == 2

    plant_wrong_cleaning(third)
    stack.enter_context(third.daemon)
    view = third.daemon.until(
        "the canary holds", lambda view: view["ready"] and view["canary"]["held_partition"] is not None
    )
    assert view["canary"]["held_partition"] == str(SUSPECT)
    assert all(each["last_cleaning"] is None and each["state"] == "paused" for each in entries(view))
    held = f'cleanerd_canary_held{{finding="key-twice",log_dir="{third.node.log_dirs[0]}",partition="{SUSPECT}"}} 1.0'
    assert held in third.page("metrics"), "CleanerdCanaryHeld fires"


def check_views(hosts: list[Host]) -> None:
    """OP-25: the commands and the page show all three brokers; the one that holds has not cleaned yet."""
    found = json.loads(hosts[0].run("cluster", "status", "--json", code=1))
    assert [row["node_ids"] for row in found["rows"]] == [[1], [2], [3]]
    assert [f"the canary holds: {SUSPECT}" in row["remarks"] for row in found["rows"]] == [False, False, True]
    assert str(SUSPECT) in {each["what"] for each in found["first_dirty_offsets"]}
    topics = json.loads(hosts[1].run("cluster", "plan", "--json"))["topics"]
    (saving,) = (each for each in topics if each["topic"] == STATES)
    assert (saving["daemons"], saving["replicas"], saving["unknown"]) == (3, 3 * PARTITIONS, 0)
    assert saving["reclaimable_bytes"] > 0, "by the third one"
    wait_until("the page shows all daemons", lambda: "3 daemons of 3 answered" in hosts[2].page("cluster"))
    page = hosts[2].page("cluster")
    assert all(f"127.0.0.1:{host.port}" in page for host in hosts[:2])
    assert f"the canary holds: {SUSPECT}" in page


def erase(hosts: list[Host], tmp_path: Path) -> None:
    """U-85..U-88, U-91: requested on one host, executed on all; all replicas' certificates prove it."""
    first, node = hosts[0], hosts[0].node
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for each in ("a", ERASED, "b"):
        producer.produce("orders", key=each, value="1")
    assert producer.flush(PATIENCE_SECONDS) == 0
    request, trusted = tmp_path / "request.json", tmp_path / "trusted"
    key, bootstrap = ("orders", "--key", ERASED), ("--bootstrap-server", node.bootstrap)
    dry = json.loads(first.run("erase", "request", *key, *bootstrap, "--dry-run", "--json"))
    assert (dry["would_write_to"], dry["records"]) == ([0], 1)
    first.run("erase", "request", *key, *bootstrap, "--yes", "--output", request)
    assert ERASED not in request.read_text()
    for host in hosts[1:]:
        host.run("erase", "requests", "--add", request)
    trusted.write_text("".join(host.run("erase", "keygen") for host in hosts))
    for host in hosts:
        host.daemon.until("it is blocked by the active segment", lambda status: stages(status) == ["blocked"])
        host.certify(request, code=1)
    (shown,) = json.loads(first.run("cluster", "status", "--json"))["erasures"]
    assert set(shown["by_target"].values()) == {"1 blocked"}
    (planned,) = json.loads(first.run("erase", "plan", *key, *node.log_dirs, "--json"))["partitions"]
    value, tombstone = planned["copies"]
    assert (value["tombstone"], tombstone["tombstone"]) == (False, True)
    assert [step["event"] for step in value["steps"]][:2] == [
        "the daemon has the broker roll the active segment",
        "the daemon cleans the partition for the erasure request",
    ]
    assert planned["by_ms"] is not None
    words = ("erase", "verify", *(host.certificate for host in hosts), "--request", request, "--trust", trusted)
    assert "NOT complete" in first.run(*words, *bootstrap, code=1)
    # With no more writes, the daemons make the brokers roll the segment.
    alter(node.bootstrap, "orders", "segment.ms", "1000")
    for host in hosts:
        host.daemon.until("the tombstone is gone", lambda status: stages(status) == ["certify"])
    for host in hosts:
        wait_until("no file has the key", partial(host.has_certified, request))
        host.daemon.until("the request is closed", lambda status: stages(status) == [])
    assert "complete: the key is gone from 3 of 3 replicas of orders" in first.run(*words, *bootstrap)
    assert "complete: " in first.run(*words, "--metadata", node.log_dirs[0])


def stages(status: dict[str, Any]) -> list[str]:
    """Stages of the one open request."""
    return [each["stage"] for found in status["erasures"] for each in found["stages"]]


def change_last_value(host: Host) -> None:
    """Change the value in partition 0 of a broker, which is stopped for it."""
    host.daemon.end(signal.SIGTERM)
    host.node.stop()
    active = max((host.node.log_dirs[0] / f"{STATES}-0").glob("*.log"))
    data = active.read_bytes()
    start = last_batch(data)
    assert data[start:].count(LAST) == 1
    active.write_bytes(data[:start] + seal(data[start:].replace(LAST, LAST[::-1])))
    host.node.start()
    host.daemon.start()


def last_batch(data: bytes) -> int:
    """Position of the last batch."""
    position = 0
    while (following := position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")) < len(data):
        position = following
    return position


def compare_states(hosts: list[Host], capsys: pytest.CaptureFixture[str]) -> None:
    """U-90: digests are equal after cleanings at different times; a difference gives warning, metric and key."""
    first, _, third = hosts
    for host in hosts:
        host.restart()
    found = newest(first)
    assert [each.keys for each in found] == [KEYS - 1] * PARTITIONS
    assert newest(hosts[1]) == newest(third) == found
    assert json.loads(first.run("cluster", "status", "--json"))["states"] == []

    change_last_value(third)
    assert newest(third)[0].digest != found[0].digest
    first.restart()  # a daemon queries the others once a minute
    view = first.daemon.until("the difference is reported", lambda view: view["differing_partitions"] == 1)
    assert any(f"{STATES}-0: the latest state below offset {found[0].end_offset}" in text for text in view["warnings"])
    assert "cleanerd_differing_partitions 1.0" in first.page("metrics")
    (state,) = json.loads(first.run("cluster", "status", "--json", code=1))["states"]
    assert state["what"] == f"{STATES}-0 below offset {found[0].end_offset}"
    places = [str(host.node.log_dirs[0]) for host in hosts]
    divergence = ["spark", "divergence", *places, "--partition", f"{STATES}-0"]
    wait_until("all are stable", lambda: run(divergence) == 5)
    assert f"{STATES}-0 altered offset" in capsys.readouterr().out


def test_three_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D-18..D-20, OP-25, U-85..U-91: a cluster from its first cleaning to comparing digests."""
    with ExitStack() as stack:
        nodes = stack.enter_context(some_brokers(3, fetch_jars("4.3"), tmp_path))
        create_topics(nodes[0])
        write(nodes[0], 20)
        ports = [free_port() for _ in nodes]
        peers = ",".join(f"{number}=127.0.0.1:{port}" for number, port in enumerate(ports, 1))
        canaries: tuple[dict[str, str], ...] = (
            {},
            {"cleanerd_canary": "2 partitions"},
            {"cleanerd_canary": "1 partition"},
        )
        hosts = [
            Host(node, tmp_path / f"host{number}", port, capsys, cleanerd_cluster_peers=peers, **canary)
            for number, (node, port, canary) in enumerate(zip(nodes, ports, canaries, strict=True), 1)
        ]
        begin_with_few(hosts, stack)
        check_views(hosts)
        assert str(SUSPECT) in hosts[2].run("resume", "--canary")
        hosts[2].daemon.until("it has cleaned all", is_clean)
        erase(hosts, tmp_path)
        compare_states(hosts, capsys)
