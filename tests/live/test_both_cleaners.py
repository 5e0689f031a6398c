"""The broker's cleaner and cleanerd clean the same topics at the same time, under load; the first one wins (D-06).

The broker swaps segments between the phases of a cleaning by cleanerd. A decision about one file must never apply to
another file of the same name. A log that changed meanwhile is an ordinary outcome with a counter of its own.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pytest

from tests.brokers.node import Run, cleanerd, errors, names_ending, wait_until
from tests.daemon.process import Daemon
from tests.daemon.service import assignments
from tests.live.load import WRITINGS, Load, create_topics
from tests.live.rounds import with_agent
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

OUTCOMES = {"cleaned", "unchanged", "skipped", "refused", "busy"}
"""Busy: the daemon and a manual cleaning meet at a partition."""


@dataclass
class ByHand:
    """Runs ``cleanerd clean --live --force`` repeatedly until the block ends."""

    broker: Broker
    state_dir: Path
    runs: list[Run] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _go(self) -> None:
        while not self._stop.is_set():
            self.runs.append(cleanerd("clean", self.broker.log_dirs, self.state_dir, "--live", "--force", "--yes"))


def has_cleaned(daemon: Daemon) -> bool:
    """Whether it swapped in any cleaned segment."""
    totals = daemon.ask("status")["totals"]
    return totals["cleanings"].get("cleaned", 0) > 0 and totals["swaps"] > 0


def at_rest(daemon: Daemon) -> tuple[dict[str, Any], str]:
    """The daemon's status and log of one moment: no line was logged while the status was read."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        message, read_ms = daemon.log.read_text(), time.time_ns() // 1_000_000
        view = daemon.until(
            "nothing runs", lambda view, read_ms=read_ms: view["made_ms"] > read_ms and not view["running"]
        )
        if daemon.log.read_text() == message:
            return view, message
        assert time.monotonic() < deadline, message[-3000:]


def both_clean(start: StartBroker, tmp_path: Path, seconds: float) -> dict[str, Any]:
    """Outcomes by cleaner and result, after all assertions."""
    broker = start(
        jvm_args=with_agent(),
        properties={"log.cleaner.backoff.ms": "300", "log.segment.delete.delay.ms": "500"},
    )
    topics = [writing.topic for writing in WRITINGS]
    create_topics(broker, topics, partitions=2, min_cleanable_dirty_ratio="0.01", segment_bytes=10_000)
    state_dir = tmp_path / "state"
    settings = assignments(
        *broker.log_dirs,
        cleanerd_state_dir=str(state_dir),
        cleanerd_control_socket=str(tmp_path / "control.sock"),
        log_cleaner_backoff_ms="300",
        # Slow cleanings down as in a log of many gigabytes: the broker's cleaner swaps in the middle of every.
        log_cleaner_io_max_bytes_per_second="300000",
        cleanerd_broker_properties=str(broker.properties_file),
    )
    load = Load(broker, partitions=2)
    with Daemon(settings, tmp_path) as daemon:
        daemon.until("it listens", lambda _: True)
        with load, ByHand(broker, tmp_path / "by-hand") as by_hand:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline or not has_cleaned(daemon):
                assert time.monotonic() < deadline + PATIENCE_SECONDS, daemon.log.read_text()[-3000:]
                assert not load.ledger.problems, load.ledger.problems[:5]
                time.sleep(0.5)
        view, message = at_rest(daemon)
    load.check()
    # -- no worker died, no partition is quarantined, no warning is raised ---------------------------------------------
    assert view["totals"]["dead_workers"] == 0, message[-3000:]
    assert "a worker died" not in message
    assert "quarantined" not in message
    assert not [each for each in view["partitions"] if each["phase"] == "quarantined"]
    assert {run.exit_code for run in by_hand.runs} <= {0, 4, 6}, [run.stderr for run in by_hand.runs if run.exit_code]
    assert not [run.stderr for run in by_hand.runs if "report it" in run.stderr]
    assert [run.stderr for run in by_hand.runs if run.document is None] == []
    rounds = [each for run in by_hand.runs for each in run.document["partitions"]]
    assert {each["outcome"] for each in rounds} <= OUTCOMES, [
        each for each in rounds if each["outcome"] not in OUTCOMES
    ]
    # -- every outcome is counted --------------------------------------------------------------------------------------
    history = Counter(each["result"]["outcome"] for each in view["history"])
    cleanings = view["totals"]["cleanings"]
    passes = broker.log_text().count("Beginning cleaning of log")
    moved_on = message.count("event=cleaning_not_done")
    assert set(cleanings) <= OUTCOMES
    if len(view["history"]) < 200:
        counted = history["cleaned"], history["skipped"] + history["refused"] + history["busy"]
        assert counted == (cleanings.get("cleaned", 0), moved_on), (history, cleanings, moved_on)
    verified = cleanerd("verify", broker.log_dirs, state_dir)
    assert verified.exit_code == 0, (verified.document, verified.stderr)
    wait_until("replaced segments are deleted", lambda: not names_ending(broker.log_dirs, ".deleted"))
    assert not errors(broker.log_text())
    return {
        "records acknowledged": load.ledger.count,
        "daemon": cleanings,
        "history": dict(history),
        "moved on": moved_on,
        "passes of the broker's cleaner": passes,
        "swaps": view["totals"]["swaps"],
        "refused swaps": view["totals"]["refused_swaps"],
        "by hand": dict(Counter(each["outcome"] for each in rounds)),
        "manual cleanings": len(by_hand.runs),
        "exit codes": dict(Counter(run.exit_code for run in by_hand.runs)),
        "why by hand": dict(Counter(kind_of(each["reason"]) for each in rounds if each["reason"])),
        "why by the daemon": dict(Counter(map(kind_of, re.findall(r"cleaning_not_done.*reason=(.*)", message)))),
    }


def kind_of(reason: str) -> str:
    """A reason without its variable parts."""
    return re.sub(r"/\S+", "PATH", re.sub(r"\d+", "N", reason))[:90]


@pytest.mark.parametrize(
    ("release", "seconds"),
    [("43", 8), pytest.param("43", 60, marks=pytest.mark.long), pytest.param("39", 60, marks=pytest.mark.long)],
)
def test_both_cleaners(release: str, seconds: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """15: no worker dies, no partition is quarantined, every key has its last acknowledged value.

    A-19a: the cleaner's locks and the log locks never deadlock, or neither cleaner would finish.
    """
    reported = both_clean(request.getfixturevalue(f"broker_{release}"), tmp_path, seconds)
    print(json.dumps(reported))  # noqa: T201 - the figures of the closing note: pytest -s
    assert reported["daemon"].get("cleaned", 0) > 0
    assert reported["swaps"] > 0
