"""The daemon with a real broker and agent, under load: clients notice nothing, the backlog stays bounded."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.brokers.node import cleanerd, errors, wait_until
from tests.daemon.process import Daemon
from tests.live.load import WRITINGS, Load, create_topics
from tests.live.rounds import with_agent
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]


def settings_of(broker: Broker, base: Path) -> list[str]:
    """As on a real host: the log directories come from server.properties; the topics' ratio of 1 is ignored (U-9)."""
    return [
        "cleanerd.mode=auto",
        f"cleanerd.broker.properties={broker.properties_file}",
        f"cleanerd.state.dir={base / 'state'}",
        f"cleanerd.control.socket={base / 'control.sock'}",
        "cleanerd.http.listen=off",
        "cleanerd.disk.reserve=0",
        "log.cleaner.backoff.ms=1s",
        "log.cleaner.threads=2",
        "topics.*.min.cleanable.dirty.ratio=0.3",
    ]


def checked(broker: Broker, base: Path) -> None:
    """Check at the end: no leftovers, no errors in the broker's log, and every log is correct."""
    names = [path for log_dir in broker.log_dirs for path in log_dir.glob("*-*/*")]
    assert not [path for path in names if path.name.startswith(".kstage")]
    broker.stop()
    assert not errors(broker.log_text())
    verified = cleanerd("verify", broker.log_dirs, base / "state")
    assert verified.exit_code == 0, (verified.document, verified.stderr)


def run_under_load(
    broker: Broker, base: Path, *, partitions: int, swaps: int, seconds: float, kills: int, least_seconds: float
) -> None:
    """Load, and a daemon that is killed in between; everything it read and left is checked.

    The load lasts at least ``least_seconds``; ``seconds`` is the limit for a busy machine.
    """
    create_topics(broker, [writing.topic for writing in WRITINGS], partitions=partitions)
    load = Load(broker, partitions=partitions)
    began = time.monotonic()
    deadline = began + seconds
    done = 0

    def continues(view: dict[str, Any]) -> bool:
        assert not load.ledger.problems, load.ledger.problems[:5]
        assert time.monotonic() < deadline, (done, view["totals"], load.full_reads, view["warnings"])
        assert not [p for p in view["partitions"] if p["state"] == "quarantined"], view["partitions"]
        return bool(view["totals"]["swaps"] >= swaps // (kills + 1))

    with load:
        for _ in range(kills):
            with Daemon(settings_of(broker, base), base) as daemon:
                done += daemon.until("swaps", continues, seconds)["totals"]["swaps"]
                daemon.end(signal.SIGKILL)
        with Daemon(settings_of(broker, base), base) as daemon:
            view = daemon.until("swaps", continues, seconds)
            before = footprint(daemon.process.pid)
            while load.full_reads < 2 or load.times_requested < 10 or time.monotonic() < began + least_seconds:
                view = daemon.until("going on", continues, seconds)
                time.sleep(0.5)
            ours = [p for p in view["partitions"] if p["state"] != "excluded"]
            assert len(ours) == partitions * len(WRITINGS)
            assert {p["mode"] for p in ours} == {"live"}
            assert not [p for p in ours if p["overdue_at_ms"] is not None and p["overdue_at_ms"] < view["made_ms"]]
            assert view["totals"]["dead_workers"] == 0
            # A running cleaning has its segments open; a leaked descriptor would never be closed.
            daemon.until("descriptors", lambda _view: footprint(daemon.process.pid)[1] <= before[1] + 10)
            assert footprint(daemon.process.pid)[0] <= before[0] + 64 * 1024, "KiB of memory"
            assert daemon.end(signal.SIGTERM) == 143
    load.check()
    # The writers have ended: everything but the active segments gets cleaned.
    with Daemon(settings_of(broker, base), base) as daemon:
        daemon.until("the backlog is empty", lambda view: view["ready"] and all(
            p["dirty_ratio"] <= 0.3 for p in view["partitions"] if p["state"] != "excluded"
        ))  # fmt: skip
        assert daemon.end(signal.SIGTERM) == 143
    load.check()


def footprint(pid: int) -> tuple[int, int]:
    """Resident memory in KiB, and open descriptors."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    return resident, len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize(
    ("partitions", "swaps", "least_seconds"), [(1, 8, 8.0), pytest.param(2, 16, 16.0, marks=pytest.mark.long)]
)
def test_under_load(broker_43: StartBroker, tmp_path: Path, partitions: int, swaps: int, least_seconds: float) -> None:
    """Five or ten partitions in two log directories, all kinds of writers; the daemon is killed once."""
    broker = broker_43(log_dirs=2, jvm_args=with_agent())
    run_under_load(
        broker, tmp_path, partitions=partitions, swaps=swaps, seconds=600, kills=1, least_seconds=least_seconds
    )
    wait_until("deleted", lambda: not [p for d in broker.log_dirs for p in d.glob("*/*.deleted")])
    checked(broker, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_thirty_partitions(broker_43: StartBroker, tmp_path: Path) -> None:
    """The backlog stays bounded, nothing is overdue, no client fails; the daemon is killed three times."""
    broker = broker_43(log_dirs=2, jvm_args=with_agent())
    run_under_load(broker, tmp_path, partitions=6, swaps=300, seconds=900, kills=3, least_seconds=16.0)
    wait_until("deleted", lambda: not [p for d in broker.log_dirs for p in d.glob("*/*.deleted")])
    checked(broker, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_24_directories_and_32_threads(broker_43: StartBroker, tmp_path: Path) -> None:
    """A-37: with a real agent each directory is live all the time, and all is cleaned by swaps."""
    broker = broker_43(log_dirs=24, jvm_args=with_agent())
    create_topics(broker, ["wide"], partitions=48)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 20})
    settings = [each for each in settings_of(broker, tmp_path) if not each.startswith("log.cleaner.threads")]
    modes: set[str] = set()

    def is_clean(view: dict[str, Any]) -> bool:
        modes.update(each["mode"] for each in view["log_dirs"] if view["ready"])
        return view["totals"]["cleanings"].get("cleaned", 0) >= 96

    with Daemon([*settings, "log.cleaner.threads=32"], tmp_path) as daemon:
        for _ in range(2):
            for number in range(48 * 400):
                producer.produce("wide", key=b"%d" % (number % 7), value=b"v" * 200, partition=number % 48)
                producer.poll(0)
            producer.flush(PATIENCE_SECONDS)
            time.sleep(2)
        view = daemon.until("all were cleaned twice", is_clean, 900)
        assert daemon.end(signal.SIGTERM) == 143
    assert modes == {"live"}
    assert "staged" not in view["totals"]["cleanings"]
    checked(broker, tmp_path)
