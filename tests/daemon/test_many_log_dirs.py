"""A daemon with 32 threads and a real broker with 24 log directories (A-37)."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer

from tests.brokers.ledger import Partition
from tests.brokers.readers import read_with_librdkafka
from tests.daemon.process import Daemon
from tests.daemon.site import NO_CAPABILITIES
from tests.live.load import create_topics
from tests.live.rounds import with_agent
from tests.live.shared_broker import info
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(600)]

DIRECTORIES: Final = 24
THREADS: Final = 32
PARTITIONS: Final = 96
ROUNDS: Final = 6
RECORDS: Final = 300
PROPERTIES: Final = {
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "200",
}


def write(broker: Broker) -> dict[int, dict[bytes, bytes]]:
    """Write ``RECORDS`` records of few keys to each partition; returns by partition the last value per key."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 3000})
    last: dict[int, dict[bytes, bytes]] = {partition: {} for partition in range(PARTITIONS)}
    for partition, values in last.items():
        for number in range(RECORDS):
            key, value = b"k%d" % (number % 20), os.urandom(40).hex().encode()
            producer.produce("many", key=key, value=value, partition=partition)
            values[key] = value
        producer.poll(0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    return last


def test_24_directories_and_32_threads_beside_a_broker(broker_43: StartBroker, tmp_path: Path) -> None:
    """A-37: every directory is live all the time, nothing is staged, and no record is lost."""
    broker = broker_43(log_dirs=DIRECTORIES, properties=PROPERTIES, jvm_args=with_agent())
    # A cleaning waits until the files of the last one are deleted (D-10); here each is made at once.
    create_topics(broker, ["many"], partitions=PARTITIONS, file_delete_delay_ms="0")
    settings = [
        f"cleanerd.broker.properties={broker.properties_file}",
        f"cleanerd.state.dir={tmp_path / 'state'}",
        f"cleanerd.control.socket={tmp_path / 'control.sock'}",
        "cleanerd.mode=auto",
        "cleanerd.topics.include=many",
        "cleanerd.disk.reserve=0",
        "log.cleaner.backoff.ms=200",
        f"log.cleaner.threads={THREADS}",
        "topics.*.min.cleanable.dirty.ratio=0.1",
    ]
    modes: list[str] = []
    scans: set[int] = set()
    with Daemon(settings, tmp_path, prefix=NO_CAPABILITIES) as daemon:
        view = daemon.until("it is ready", lambda view: view["ready"])
        began, last = time.monotonic(), {}
        for _ in range(ROUNDS):
            last = write(broker)
            modes += [found["mode"] for found in daemon.ask("status")["log_dirs"]]
        written_ms = time.time() * 1000

        def is_clean(view: dict[str, object]) -> bool:
            found = list(view["partitions"])  # type: ignore[call-overload]
            modes.extend(each["mode"] for each in view["log_dirs"])  # type: ignore[attr-defined]
            if view["last_scan_ms"] > written_ms:  # type: ignore[operator]
                scans.add(view["last_scan_ms"])  # type: ignore[arg-type]
            # The second of them began when all was written.
            return (
                len(scans) >= 2
                and len(found) == PARTITIONS
                and all(each["state"] == "idle" and each["dirty_bytes"] == 0 for each in found)
            )

        view = daemon.until("all is clean", is_clean, seconds=240)
        took = time.monotonic() - began
        agent = info(broker)
    read = read_with_librdkafka(broker.bootstrap, [Partition("many", number) for number in range(PARTITIONS)])
    for partition, found in read.partitions.items():
        values = {record.key: record.value for record in found.records}
        assert values == last[partition.number]
    totals = view["totals"]
    print(  # noqa: T201
        f"\n{took:.1f} s, {len(modes)} samples, cleanings {json.dumps(totals['cleanings'])}, swaps {totals['swaps']}, "
        f"longest log hold {agent.held['log'].longest_us} us"
    )
    assert set(modes) == {"live"}
    assert set(totals["cleanings"]) == {"cleaned"}
    assert totals["cleanings"]["cleaned"] >= PARTITIONS
    assert not [path for log_dir in broker.log_dirs for path in log_dir.glob("*/.kstage")]
