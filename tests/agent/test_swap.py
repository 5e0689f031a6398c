"""LT-11: staged groups, swapped by a running broker; plans repeated, dropped connections, two at once."""

from __future__ import annotations

import os
import threading
import zipfile
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.agent.live import JAR
from tests.agent.raw_client import RefusedError
from tests.brokers.node import error_lines, open_files, wait_until
from tests.brokers.traffic import SILENT
from tests.support.log_dirs import read_segments
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.agent.live import Live, Topic
    from tests.agent.raw_client import Asking

pytestmark = [pytest.mark.kafka, pytest.mark.broker]


@pytest.fixture(scope="module")
def topic(live: Live) -> Topic:
    """A topic for one swap."""
    return live.topic("swapped")


def test_info(live: Live, agent: Asking) -> None:
    """A-03, A-06, A-11: the build is the jar's, the LogManager was found, no member is missing on this release."""
    with zipfile.ZipFile(JAR) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
    info = agent.ask("info")
    assert f"Cleanerd-Agent-Build: {info['build']}" in manifest
    assert (info["capable"], info["missing"], info["version"]) == (True, [], live.broker.version)
    assert (info["loaded"], info["found_via"], info["pid"]) == ("premain", "metrics", live.broker.pid)
    assert info["log_dirs"] == [str(path) for path in live.broker.log_dirs]
    assert info["socket"] == str(live.socket)
    assert (info["node_id"], info["cleaner"], info["pauses"], info["failed_resumes"]) == (1, True, [], [])
    status = os.stat(live.socket)
    assert status.st_mode & 0o777 == 0o600


def test_log_reports_the_files_on_the_disk(topic: Topic, agent: Asking) -> None:
    """Offsets, segments with size, time and inode, and effective settings."""
    topic.wait_until_settled()
    log = agent.ask("log", topic=topic.name, partition=0)
    files = sorted(topic.directory.glob("*.log"))
    stats = [path.stat() for path in files]
    assert log["segments"] == [
        [int(path.stem), stat.st_size, stat.st_mtime_ns // 10**6, stat.st_ino]
        for path, stat in zip(files, stats, strict=True)
    ]
    assert log["dir"] == str(topic.directory)
    assert log["log_start"] == 0
    assert "checkpoint" not in log, "the cleaner manager would read every directory's file for each partition"
    assert log["cleaning"] in {"none", "in_progress"}  # the broker sometimes checks for segments below the log start
    assert log["settings"]["cleanup.policy"] == "compact"
    assert log["settings"]["index.interval.bytes"] == "512"
    assert "min.cleanable.dirty.ratio" in log["topic_level"]
    assert not {"max.compaction.lag.ms", "min.compaction.lag.ms"} & set(log["topic_level"]), "the broker's defaults"
    assert log["segment_size"] == 20_000
    assert "producers" not in log, "a million of them would be copied under the log's lock"
    assert (log["future"], log["remote"], log["deleted"]) == (False, False, False)
    rows = agent.ask("logs", prefix="swapped")["logs"]
    assert rows == [
        {"topic": "swapped", "partition": 0, "topic_id": log["topic_id"], "dir": log["dir"], "policy": "compact"}
    ]


def test_producers_are_found_by_id(topic: Topic, agent: Asking) -> None:
    """A-36, R192-1: active producers among the requested ids, each with its last data offset and epoch."""
    headers = [each.header for batches in read_segments(topic.directory).values() for each in batches]
    before = agent.ask("info")["held"]["log"]
    reported = agent.ask("producers", topic=topic.name, partition=0, ids=list(range(50_000)))["active"]
    assert {producer for producer, _, _ in reported} == {header.producer_id for header in headers}
    assert len(reported) == 3
    last = {(header.producer_id, header.last_offset) for header in headers}
    assert {(producer, offset) for producer, offset, _ in reported if offset is not None} <= last
    assert agent.ask("producers", topic=topic.name, partition=0, ids=[])["active"] == []
    with pytest.raises(RefusedError, match="bad_request"):
        agent.ask("producers", topic=topic.name, partition=0, ids=["1"])
    held = agent.ask("info")["held"]["log"]
    assert sum(held["counts"]) - sum(before["counts"]) > 50_000 / 1000, "the lock is released after every few hundred"


def test_a_swap_under_a_reader(live: Live, topic: Topic, agent: Asking) -> None:
    """A-13..A-22: all groups are swapped, merged ones too; readers always see every key's retained record.

    The same request is answered from memory (A-25), other content under its name is not.
    """
    manifest = topic.stage(output_bytes=6_000)
    assert len(manifest.groups) > 1
    assert any(len(group.sources) > 1 for group in manifest.groups)
    request = topic.request(manifest, checkpoint=manifest.bound)
    reads: list[dict[bytes, bytes]] = []
    stop = threading.Event()

    def read_all() -> None:
        while not stop.is_set():
            reads.append(topic.read())

    reader = threading.Thread(target=read_all)
    reader.start()
    try:
        wait_until("a first read", lambda: bool(reads))
        before = len(reads)
        result = agent.ask("swap", **request)
        wait_until("two more reads", lambda: len(reads) > before + 1)
    finally:
        stop.set()
        reader.join()
    assert all(read == topic.latest for read in reads)
    assert "cleanerd agent: swapped" not in topic.broker.log_text(), "a line for each swap is for debugging"

    bases = [group.base for group in manifest.groups]
    assert result["done"] == bases
    assert result["warnings"] == []
    assert result["checkpoint"] is True
    assert median(result["held_us"]) < 500_000, result["held_us"]
    found = read_segments(topic.directory)
    for group, output in zip(manifest.groups, result["outputs"], strict=True):
        stat = (topic.directory / f"{group.base:020d}.log").stat()
        assert (output["size"], output["ino"]) == (group.files["log"].bytes, stat.st_ino)
        assert stat.st_mtime_ns // 10**6 == output["mtime_ms"]
        assert not {*group.sources[1:]} & {*found}
    assert topic.read() == topic.latest
    assert topic.read("read_uncommitted") == topic.latest
    log = agent.ask("log", topic=topic.name, partition=0)
    assert topic.cleaner_checkpoint == manifest.bound
    assert log["cleaning"] != "paused"
    assert agent.ask("info")["pauses"] == []

    assert agent.ask("swap", **request) == {**result, "repeated": True}
    with pytest.raises(RefusedError) as refused:
        agent.ask("swap", **{**request, "checkpoint": None})
    assert refused.value.code == "bad_plan"
    with pytest.raises(RefusedError) as refused:  # a second plan for removed segments
        agent.ask("swap", **topic.request(replace(manifest, plan="20260101t000000-00000000")))
    assert refused.value.code in {"source_changed", "source_gone"}

    wait_until("the old files are gone", lambda: not list(topic.directory.glob("*.deleted")))
    assert not [name for name in open_files(live.broker.pid) if "swapped-0" in name and "(deleted)" in name]


def test_offsets_for_times_after_the_swap(live: Live, topic: Topic) -> None:
    """A-23.6: the new time index answers like the records."""
    records = [
        record
        for batches in read_segments(topic.directory).values()
        for batch in batches
        if not batch.header.is_control
        for record in batch.records
    ]
    admin = AdminClient({"bootstrap.servers": live.broker.bootstrap}, logger=SILENT)
    for record in records[:: len(records) // 7]:
        requested = {TopicPartition(topic.name, 0): OffsetSpec.for_timestamp(record.timestamp)}
        (future,) = admin.list_offsets(requested).values()
        assert future.result(PATIENCE_SECONDS).timestamp >= record.timestamp


@pytest.mark.long
def test_one_group_per_request(live: Live, agent: Asking) -> None:
    """U-3, U-16: requests of one plan, each with the outputs of the previous ones among its preconditions."""
    topic = live.topic("stepwise")
    manifest = topic.stage(output_bytes=6_000)
    assert len(manifest.groups) > 2
    outputs: dict[int, dict[str, int]] = {}
    swapped: set[int] = set()
    for group in manifest.groups:
        request = topic.request(manifest, (group,))
        if outputs:
            with pytest.raises(RefusedError) as refused:  # as if no group had been swapped
                agent.ask("swap", **request)
            assert refused.value.code == "evidence_changed"
        request["witnesses"] = [
            outputs.get(witness["base"], witness) for witness in request["witnesses"] if witness["base"] not in swapped
        ]
        (outputs[group.base],) = agent.ask("swap", **request)["outputs"]
        swapped |= {*group.sources[1:]}
    log = agent.ask("log", topic=topic.name, partition=0)
    assert agent.ask(
        "checkpoint", topic=topic.name, partition=0, topic_id=log["topic_id"], dir=log["dir"], offset=manifest.bound
    ) == {"offset": manifest.bound}
    assert topic.cleaner_checkpoint == manifest.bound
    assert topic.read() == topic.latest


@pytest.mark.long
def test_the_log_start_moves(live: Live, agent: Asking) -> None:
    """U-2: a plan that depends on the log start is refused after it moved, and another one is not."""
    topic = live.topic("moved", **{"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    manifest = topic.stage(output_bytes=6_000)
    admin = AdminClient({"bootstrap.servers": live.broker.bootstrap}, logger=SILENT)
    request = topic.request(manifest, manifest.groups[1:2], log_start=0)
    before = topic.listing()
    target = TopicPartition(topic.name, 0, 5)
    admin.delete_records([target])[TopicPartition(topic.name, 0)].result(PATIENCE_SECONDS)
    with pytest.raises(RefusedError) as refused:
        agent.ask("swap", **request)
    assert refused.value.code == "log_start"
    assert topic.listing() == before
    assert agent.ask("swap", **{**request, "log_start": 5})["done"] == [manifest.groups[1].base]
    first = topic.request(manifest, manifest.groups[:1])  # the log start is inside of it now
    sources = {source["base"] for source in first["groups"][0]["sources"]}
    first["witnesses"] = [witness for witness in first["witnesses"] if witness["base"] in sources]
    assert agent.ask("swap", **first)["done"] == [0]
    assert agent.ask("log", topic=topic.name, partition=0)["log_start"] == 5


def test_the_active_segment_is_rolled(live: Live, agent: Asking) -> None:
    """A-41: once; neither a closed segment nor an empty one, and not in a topic that was created again."""
    topic = live.topic("rolled", transactions=False)
    topic.wait_until_settled()
    log = agent.ask("log", topic="rolled", partition=0)
    base, end = log["segments"][-1][0], log["leo"]
    request = {"topic": "rolled", "partition": 0, "topic_id": log["topic_id"], "dir": log["dir"], "base": base}
    sealed, other_topic = {"base": log["segments"][0][0]}, {"topic_id": "A" * 22}
    for changes, code in ((sealed, "log_changed"), ({"base": end}, "log_changed"), (other_topic, "topic_id")):
        with pytest.raises(RefusedError) as refused:
            agent.ask("roll", **request | changes)
        assert refused.value.code == code
    assert agent.ask("log", topic="rolled", partition=0)["segments"] == log["segments"]
    assert agent.ask("roll", **request) == {"base": end}
    after = agent.ask("log", topic="rolled", partition=0)["segments"]
    assert [segment[0] for segment in after[-2:]] == [base, end]
    for again, code in ((base, "log_changed"), (end, "not_eligible")):
        with pytest.raises(RefusedError) as refused:
            agent.ask("roll", **request | {"base": again})
        assert refused.value.code == code
    assert topic.read() == topic.latest
    assert error_lines(live.broker.log_text()) == []


def test_after_a_restart_the_memory_is_on_the_disk(live: Live) -> None:
    """A-25, K-5: killed after a swap, the broker starts with the new segments.

    The agent makes a new socket over the old file; the broker logs no error.
    """
    topic = live.topic("killed")
    manifest = topic.stage(output_bytes=60_000)
    with live.asking() as agent:
        outputs = agent.ask("swap", **topic.request(manifest))["outputs"]
    live.broker.kill()
    assert live.socket.is_socket()
    live.broker.start()
    with live.asking() as agent:
        log = agent.ask("log", topic=topic.name, partition=0)
        assert {(o["base"], o["size"], o["ino"]) for o in outputs} <= {(b, s, i) for b, s, _, i in log["segments"]}
        with pytest.raises(RefusedError) as refused:
            agent.ask("swap", **topic.request(manifest))
        assert refused.value.code in {"source_changed", "source_gone"}
    assert topic.read() == topic.latest


@pytest.mark.long
def test_a_clean_stop_removes_the_socket(live: Live) -> None:
    """U-31, U-27: no socket is left, and the broker logged no error."""
    text = live.broker.log_text()
    live.broker.stop()
    assert not live.socket.exists()
    live.broker.start()
    for log in (text, live.broker.log_text()):
        assert "cleanerd agent: build" in log
        assert error_lines(log) == []
