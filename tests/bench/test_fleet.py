"""What the daemon costs beside a broker with 2,000 compacted partitions in 4 log directories.

A real broker with the agent; every partition has two closed segments and an active one. Measured of one
``cleanerd run``: seconds from its start until it is ready, in observe and in live mode; until all 2,000 were
cleaned; then what it takes when there is nothing to do: share of a core, memory, and how long a scrape takes.

Environment: ``BENCH_PARTITIONS`` (default 2000), ``BENCH_IDLE_SECONDS`` (default 60).
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer

from cleanerd_lab.bench.yardstick import idle_share
from cleanerd_lab.demo.ports import free_port
from tests.bench.test_speed import RESULTS
from tests.daemon.process import Daemon
from tests.live.load import create_topics
from tests.live.rounds import with_agent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

PARTITIONS: Final = int(os.environ.get("BENCH_PARTITIONS", "2000"))
IDLE_SECONDS: Final = float(os.environ.get("BENCH_IDLE_SECONDS", "60"))
PARTITIONS_A_TOPIC: Final = 100
LOG_DIRS: Final = 4
SCRAPES: Final = 20
IDLE_SHARE: Final = 0.9
MOST_READY_SECONDS: Final = 10.0
MOST_IDLE_SHARE: Final = 0.02
MOST_MEMORY_MIB: Final = 250.0
MOST_SCRAPE_MS: Final = 100.0


@dataclass(frozen=True, slots=True)
class Running:
    """A daemon that answers, and how long it took until it was ready."""

    daemon: Daemon
    port: int
    ready_seconds: float


@contextmanager
def running(broker: Broker, base: Path, mode: str) -> Iterator[Running]:
    """``cleanerd run`` until it says that it is ready."""
    port = free_port()
    settings = [
        f"cleanerd.broker.properties={broker.properties_file}",
        f"cleanerd.state.dir={base / mode}",
        f"cleanerd.control.socket={base / 'control.sock'}",
        f"cleanerd.http.listen=127.0.0.1:{port}",
        f"cleanerd.mode={mode}",
        "cleanerd.disk.reserve=0",
        "log.cleaner.threads=2",
        "topics.*.min.cleanable.dirty.ratio=0.3",
    ]
    daemon = Daemon(settings, base)
    started = time.monotonic()
    with daemon:
        while not is_ready(port):
            assert daemon.process.poll() is None, daemon.log.read_text()
            assert time.monotonic() - started < 120, daemon.log.read_text()[-2000:]
            time.sleep(0.02)
        yield Running(daemon, port, time.monotonic() - started)
        assert daemon.end(signal.SIGTERM) == 143


def is_ready(port: int) -> bool:
    """What ``/readyz`` says."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
    except (urllib.error.HTTPError, OSError):
        return False


def scrape(port: int) -> tuple[float, int]:
    """Milliseconds from the request to the last byte, and how many bytes."""
    started = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        size = len(answer.read())
    return (time.monotonic() - started) * 1000, size


def fill(broker: Broker) -> None:
    """2,000 partitions with two closed segments, in which every second record is superseded."""
    topics = [f"fleet{n}" for n in range(PARTITIONS // PARTITIONS_A_TOPIC)]
    for topic in topics:
        create_topics(broker, [topic], partitions=PARTITIONS_A_TOPIC, segment_bytes=600, file_delete_delay_ms="1000")
    writer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "queue.buffering.max.messages": 10**6})
    for round_ in range(3):
        for topic in topics:
            for number in range(PARTITIONS_A_TOPIC):
                for key in range(2):
                    writer.produce(topic, key=b"key-%d" % key, value=b"%d" % round_ * 200, partition=number)
            writer.poll(0)
        assert writer.flush(60) == 0


def spent(pid: int) -> tuple[float, float]:
    """CPU seconds of the process so far, and its resident memory in MiB."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return (int(fields[11]) + int(fields[12])) / ticks, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.bench
@pytest.mark.kafka
@pytest.mark.broker
@pytest.mark.timeout(900)
def test_two_thousand_partitions(broker_43: StartBroker, tmp_path: Path) -> None:
    """Ready within 10 s, idle below 2 % of a core and 250 MB, a scrape within 100 ms."""
    broker = broker_43(log_dirs=LOG_DIRS, jvm_args=("-Xmx1g", *with_agent()))
    fill(broker)
    found: dict[str, float] = {"partitions": PARTITIONS, "cores_share": round(idle_share(2), 2)}
    with running(broker, tmp_path, "observe") as observing:
        found["ready_observe_seconds"] = observing.ready_seconds
    with running(broker, tmp_path, "live") as live:
        found["ready_live_seconds"] = live.ready_seconds
        started = time.monotonic()
        while sum(live.daemon.ask("status")["totals"]["cleans"].values()) < PARTITIONS:
            assert time.monotonic() - started < 600, live.daemon.ask("status")["totals"]
            time.sleep(2)  # who asks more often measures the answers
        found["all_clean_seconds"] = time.monotonic() - started
        found["cpu_all_clean_seconds"] = spent(live.daemon.process.pid)[0]
        time.sleep(15)
        before = spent(live.daemon.process.pid)[0]
        time.sleep(IDLE_SECONDS)
        after, memory = spent(live.daemon.process.pid)
        found |= {"idle_core_share": (after - before) / IDLE_SECONDS, "memory_mib": memory}
        scrapes = [scrape(live.port) for _ in range(SCRAPES)]
        found["scrape_ms"] = statistics.median(each[0] for each in scrapes)
        found["scrape_most_ms"] = max(each[0] for each in scrapes)
        found["scrape_bytes"] = scrapes[0][1]
        assert not live.daemon.ask("status")["warnings"], live.daemon.ask("status")["warnings"]
    found = {name: round(value, 4) for name, value in found.items()}
    sys.stdout.write("\n\n" + "".join(f"{name:24}{value:>12}\n" for name, value in found.items()))
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "fleet.json").write_text(json.dumps(found, indent=1) + "\n")
    assert found["memory_mib"] <= MOST_MEMORY_MIB
    if found["cores_share"] >= IDLE_SHARE:
        assert found["ready_observe_seconds"] <= MOST_READY_SECONDS
        assert found["ready_live_seconds"] <= MOST_READY_SECONDS
        assert found["idle_core_share"] <= MOST_IDLE_SHARE
        assert found["scrape_ms"] <= MOST_SCRAPE_MS
