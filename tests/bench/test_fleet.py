"""Cost of 2,000 small compacted partitions in 4 log directories: Kafka's own cleaner, then the daemon with the agent.

Every partition has two closed segments of 600 bytes and an active one. Two real brokers with the same settings, one
after the other, each with a JVM as Kafka's start script starts it. On the first one Kafka's cleaner cleans all of them:
measured are its threads, and the broker's additional CPU. On the second one ``cleanerd run`` does, live: measured are
the daemon from the moment that it is ready, and the broker's additional CPU. Then the daemon's cost until it is ready,
and when idle: share of a core, memory, and duration of a scrape.

Environment: ``BENCH_PARTITIONS`` (default 2000), ``BENCH_IDLE_SECONDS`` (default 60), ``BENCH_KAFKA=0`` leaves Kafka's
own cleaner out.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer

from cleanerd_lab.bench.yardstick import idle_share
from cleanerd_lab.demo.kafka_cleaner import alter, thread_seconds
from tests.bench.daemon_cost import idle, reported, running
from tests.kafka.judge import BROKERS_OWN
from tests.live.load import create_topics
from tests.live.rounds import with_agent
from tests.soak.samples import cpu_seconds
from tests.support.log_dirs import CLEANER_CHECKPOINT, read_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

PARTITIONS: Final = int(os.environ.get("BENCH_PARTITIONS", "2000"))
IDLE_SECONDS: Final = float(os.environ.get("BENCH_IDLE_SECONDS", "60"))
WITH_KAFKA: Final = os.environ.get("BENCH_KAFKA", "1") != "0"
PARTITIONS_A_TOPIC: Final = 100
LOG_DIRS: Final = 4
RATIO: Final = "min.cleanable.dirty.ratio"
CLEANING_RATIO: Final = "0.3"
QUIET_SECONDS: Final = 10.0
IDLE_SHARE: Final = 0.9
MOST_READY_SECONDS: Final = 10.0
MOST_IDLE_SHARE: Final = 0.02
MOST_MEMORY_MIB: Final = 250.0
MOST_SCRAPE_MS: Final = 100.0

JVM: Final = ("-XX:-UseSerialGC", "-XX:TieredStopAtLevel=4", *BROKERS_OWN)


def topics() -> list[str]:
    """With a hundred partitions each."""
    return [f"fleet{n}" for n in range(PARTITIONS // PARTITIONS_A_TOPIC)]


def fill(broker: Broker) -> None:
    """Partitions with two closed segments, in which every second record is superseded. Kafka's cleaner skips them."""
    for topic in topics():
        create_topics(broker, [topic], partitions=PARTITIONS_A_TOPIC, segment_bytes=600, file_delete_delay_ms="1000")
    writer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "queue.buffering.max.messages": 10**6})
    for round_ in range(3):
        for topic in topics():
            for number in range(PARTITIONS_A_TOPIC):
                for key in range(2):
                    writer.produce(topic, key=b"key-%d" % key, value=b"%d" % round_ * 200, partition=number)
            writer.poll(0)
        assert writer.flush(60) == 0


class Spent:
    """The CPU that a broker uses from now on, minus its idle CPU for the same time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        time.sleep(QUIET_SECONDS)  # work that is left from filling it
        before = cpu_seconds(broker.pid)
        time.sleep(QUIET_SECONDS)
        self._since, self._at = cpu_seconds(broker.pid), time.monotonic()
        self.idle_share = (self._since - before) / QUIET_SECONDS

    def so_far(self) -> float:
        """Seconds."""
        return cpu_seconds(self._broker.pid) - self._since - self.idle_share * (time.monotonic() - self._at)


def cleaned(broker: Broker) -> int:
    """Number of cleaned partitions by the broker's checkpoints: queries would cost the daemon CPU."""
    found = 0
    for log_dir in broker.log_dirs:
        checkpoint = log_dir / CLEANER_CHECKPOINT
        offsets = read_checkpoint(checkpoint) if checkpoint.exists() else {}
        found += sum(offset > 0 and name.startswith("fleet") for name, offset in offsets.items())
    return found


def clean_by_kafka(broker: Broker) -> dict[str, float]:
    """Clean all by the broker's own cleaner."""
    assert cleaned(broker) == 0
    thread = thread_seconds(broker)
    spent = Spent(broker)
    started = time.monotonic()
    alter(broker.bootstrap, topics(), {RATIO: CLEANING_RATIO})
    while cleaned(broker) < PARTITIONS:
        assert time.monotonic() - started < 600, cleaned(broker)
        time.sleep(0.5)
    whole = spent.so_far()
    return {
        "kafka_seconds": time.monotonic() - started,
        "kafka_thread_ms_each": (thread_seconds(broker) - thread) / PARTITIONS * 1000,
        "kafka_broker_ms_each": whole / PARTITIONS * 1000,
    }


def settings(broker: Broker) -> list[str]:
    """Settings of a daemon beside it."""
    return [
        f"cleanerd.broker.properties={broker.properties_file}",
        f"topics.*.{RATIO}={CLEANING_RATIO}",
    ]


def clean_by_daemon(broker: Broker, base: Path) -> dict[str, float]:
    """Clean all, live; then the daemon is idle."""
    spent = Spent(broker)
    with running(base, "live", settings(broker)) as live:
        found = {"ready_live_seconds": live.ready_seconds, "ready_live_cpu_seconds": live.ready_cpu_seconds}
        scanned = spent.so_far()
        started = time.monotonic()
        while cleaned(broker) < PARTITIONS:
            assert time.monotonic() - started < 600, live.daemon.ask("status")["totals"]
            time.sleep(0.5)
        daemon_seconds, broker_seconds = live.cpu_seconds - live.ready_cpu_seconds, spent.so_far() - scanned
        found |= {
            "all_clean_seconds": time.monotonic() - started,
            "daemon_ms_each": daemon_seconds / PARTITIONS * 1000,
            "daemons_broker_ms_each": broker_seconds / PARTITIONS * 1000,
            "broker_for_ready_seconds": scanned,
            **idle(live, IDLE_SECONDS),
        }
        assert not live.daemon.ask("status")["warnings"], live.daemon.ask("status")["warnings"]
    return found


@pytest.mark.bench
@pytest.mark.kafka
@pytest.mark.broker
@pytest.mark.timeout(1800)
def test_two_thousand_partitions(broker_43: StartBroker, tmp_path: Path) -> None:
    """Ready within 10 s, idle below 2 % of a core and 250 MB, a scrape within 100 ms; Kafka's own cost beside it."""
    found: dict[str, float] = {"partitions": PARTITIONS, "cores_share": round(idle_share(2), 2)}
    if WITH_KAFKA:
        theirs = broker_43(log_dirs=LOG_DIRS, jvm_args=JVM)
        fill(theirs)
        found |= clean_by_kafka(theirs)
        theirs.stop()
    ours = broker_43(log_dirs=LOG_DIRS, jvm_args=(*JVM, *with_agent()))
    fill(ours)
    with running(tmp_path, "observe", settings(ours)) as observing:
        found["ready_observe_seconds"] = observing.ready_seconds
        found["ready_observe_cpu_seconds"] = observing.ready_cpu_seconds
    found |= clean_by_daemon(ours, tmp_path)
    found = reported(found, "fleet")
    assert found["memory_mib"] <= MOST_MEMORY_MIB
    if found["cores_share"] >= IDLE_SHARE:
        assert found["ready_observe_seconds"] <= MOST_READY_SECONDS
        assert found["ready_live_seconds"] <= MOST_READY_SECONDS
        assert found["idle_core_share"] <= MOST_IDLE_SHARE
        assert found["scrape_ms"] <= MOST_SCRAPE_MS
