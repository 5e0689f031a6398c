"""Failures of the real daemon with a real broker: it reports them, cleans the others, and recovers by itself."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from cleanerd_lab.demo.broker import Broker
from tests.brokers.node import wait_until
from tests.daemon.failures import DAY_MS, FAILURES, Failure, Value, first_segment
from tests.daemon.promtool import ROOT
from tests.daemon.site import Site, WallClock
from tests.kafka.fixtures import brokers
from tests.live.load import create_topics
from tests.live.rounds import with_agent
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
RULES = ROOT / "config" / "prometheus" / "cleanerd.rules.yml"
PAGE = ROOT / "docs" / "failures.md"
ROUNDS = 4
# The broker's periodic writes would take a full log directory offline, which this test is not about.
QUIET = {
    "replica.high.watermark.checkpoint.interval.ms": "600000",
    "log.flush.offset.checkpoint.interval.ms": "600000",
    "log.flush.start.offset.checkpoint.interval.ms": "600000",
    "log.segment.delete.delay.ms": "500",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Two log directories; the second is a small disk of its own, if the test may create one."""
    for start in brokers("4.3"):
        work_dir = tmp_path_factory.mktemp("failures")
        own = {**QUIET, "metadata.log.dir": str(work_dir / "metadata")}
        made = Broker(
            start.jars.libs, work_dir, version=start.jars.version, log_dirs=2, properties=own, jvm_args=with_agent()
        )
        small = made.log_dirs[1]
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", small], check=False, capture_output=True)
        try:
            made.start()
            yield made
        finally:
            made.kill()
            if small.is_mount():
                subprocess.run(["umount", small], check=True)


def site_of(broker: Broker, base: Path, topic: str, *settings: str, **more: Any) -> Site:
    create_topics(broker, [topic], partitions=2, **more)
    clock = WallClock(base, HERE / "clock_shim.c") if topic.startswith("clock") else None
    return Site(broker, topic, base, settings, clock)


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.broker
@pytest.mark.parametrize(
    "failure",
    [pytest.param(each, marks=[pytest.mark.long] * each.long, id=each.id.replace(" ", "-")) for each in FAILURES],
)
def test_each_failure_is_reported_and_recovered_from(broker: Broker, tmp_path: Path, failure: Failure) -> None:
    """State, metric and message are right; the others are cleaned meanwhile; the same process recovers."""
    if "disk" in failure.id and not broker.log_dirs[1].is_mount():
        pytest.skip("nothing can be mounted here")
    site = site_of(broker, tmp_path, failure.id.replace(" ", "-"), *failure.settings, **failure.topic)
    with site.daemon as daemon:
        site.write(site.hurt, site.other)
        site.cleaned(site.hurt, site.other)
        pid, calm = daemon.process.pid, counters(site, failure)
        check_samples(site, failure, 0)
        with failure.made(site):
            daemon.until(failure.id, lambda view: is_seen(site, failure, view))
            check(site, failure, calm, ROUNDS)
            others_are_cleaned(site, failure)
            check(site, failure, calm, 1)
        site.write(site.hurt)
        site.cleaned(site.hurt, site.other)
        view = daemon.ask("status")
        assert [each["mode"] for each in view["log_dirs"]] == ["live"] * 2
        assert failure.where != "warnings" or not failure.over or not view["warnings"]
        check_samples(site, failure, 0)
        assert site.get("/readyz")[0] == site.get("/healthz")[0] == 200
        assert not failure.over or logged(site, failure.over)
        settled = counters(site, failure)
        site.rounds(2)
        assert counters(site, failure) == settled
        assert daemon.process.pid == pid
        assert not view["totals"]["dead_workers"]


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.broker
def test_a_damaged_segment_that_the_broker_deletes(broker: Broker, tmp_path: Path) -> None:
    """OP-10: the fault is gone, and nothing may be left to clean: the failure ends, long before the next try."""
    waits = ("cleanerd.retry.backoff.ms=1h", "cleanerd.retry.backoff.max.ms=1h")
    site = site_of(broker, tmp_path, "deleted", *waits, **{"cleanup.policy": "compact,delete"})
    with site.daemon as daemon:
        site.write(site.hurt)
        site.cleaned(site.hurt)
        path = first_segment(site)
        sound = path.read_bytes()
        path.write_bytes(sound[:80] + bytes([sound[80] ^ 0xFF]) + sound[81:])
        site.write(site.hurt)
        daemon.until("quarantined", lambda view: site.partition(view, site.hurt)["state"] == "quarantined")
        site.rounds(2)
        assert site.partition(daemon.ask("status"), site.hurt)["quarantine"]["failures"] == 1
        start = TopicPartition(site.topic, site.hurt, site.facts(site.hurt).active.base)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        (moved,) = admin.delete_records([start]).values()
        moved.result(PATIENCE_SECONDS)
        daemon.until("over", lambda view: not site.partition(view, site.hurt)["quarantine"])
        assert not path.exists()
        (state,) = (site.state_dir / "partitions").rglob(f"*-{site.hurt}.json")
        wait_until("it is forgotten", lambda: json.loads(state.read_text())["quarantine"] is None)


def is_seen(site: Site, failure: Failure, view: dict[str, Any]) -> bool:
    """Whether the status shows the failure."""
    hurt = site.partition(view, site.hurt)
    log_dir = site.log_dir(view, 1)
    values = {"partition": hurt["reason"], "directory": log_dir["mode_reason"], "warnings": "\n".join(view["warnings"])}
    found = re.search(filled(site, failure.message), values[failure.where]) is not None
    return found and (hurt["state"], log_dir["mode"]) == (failure.state, failure.mode)


def check(site: Site, failure: Failure, calm: dict[str, float], rounds: int) -> None:
    """Status, metrics and log are as in the table, and the log does not fill up."""
    site.rounds(rounds)
    # A quarantined partition is tried again at intervals.
    site.daemon.until(failure.id, lambda view: is_seen(site, failure, view))
    status, text = site.get("/readyz")
    assert status == 200
    assert text.startswith(failure.readyz.format(other=site.broker.log_dirs[0], hurt=site.broker.log_dirs[1]))
    assert site.get("/healthz") == (200, "ok\n")
    check_samples(site, failure, 1)
    for name, value in counters(site, failure).items():
        assert value > calm[name], name
    lines = logged(site, failure.logged)
    if failure.log_lines is None:
        site.daemon.until("a line for each try", lambda view: 1 <= len(lines) <= attempts(site, view))
    else:
        assert failure.log_lines[0] <= len(lines) <= failure.log_lines[1], lines


def attempts(site: Site, view: dict[str, Any]) -> int:
    """The number of failed tries of the hurt partition; the intervals grow."""
    quarantine = site.partition(view, site.hurt)["quarantine"]
    cleanings = view["totals"]["cleanings"]
    return int(cleanings.get("failed", 0) if quarantine is None else quarantine["failures"])


def others_are_cleaned(site: Site, failure: Failure) -> None:
    """The others are cleaned as usual."""
    others = [getattr(site, name) for name in failure.others]
    if others:
        site.write(*others)
        site.cleaned(*others)


def logged(site: Site, pattern: str) -> list[str]:
    return site.logged(filled(site, pattern))


def filled(site: Site, pattern: str) -> str:
    """The names of the case instead of ``{hurt}`` and the like."""
    names = {
        "{hurt}": site.broker.log_dirs[1],
        "{hurt_dir}": site.directory(site.hurt),
        "{hurt_log}": site.directory(site.hurt) / f"{0:020d}.log",
        "{hurt_name}": f"{site.topic}-{site.hurt}",
        "{state}": site.state_dir,
    }
    for name, value in names.items():
        pattern = pattern.replace(name, re.escape(str(value)))
    return pattern


def counters(site: Site, failure: Failure) -> dict[str, float]:
    return {name: site.metric(name) or 0 for name in failure.counters}


def check_samples(site: Site, failure: Failure, column: int) -> None:
    """Wait until all samples are right at one moment: a quarantined partition is being cleaned at times."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        text = site.get("/metrics")[1]
        wrong = {
            sample: found
            for sample, values in failure.samples.items()
            if not _is(found := site.metric(sample, text), values[column])
        }
        if not wrong:
            return
        assert time.monotonic() < deadline, wrong
        time.sleep(0.05)


def _is(found: float | None, expected: Value) -> bool:
    if callable(expected):
        return found is not None and expected(found)
    return found == expected


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.id.replace(" ", "-"))
def test_an_alert_uses_the_metric_that_changes(failure: Failure) -> None:
    """The rules' own tests show that the alert fires; this test shows that it is about this failure."""
    if not failure.alert:
        assert not failure.counters
        return
    (rule,) = (each for each in RULES.read_text().split("- alert: ")[1:] if each.startswith(failure.alert + "\n"))
    expression = rule.split("expr: ")[1].split("annotations:")[0]
    changed = [name for name, values in failure.samples.items() if values[0] != values[1]] + list(failure.counters)
    named = [name for name in changed if name.split("{")[0] in expression]
    assert named
    assert all(label in expression for name in named for label in re.findall(r'outcome="\w+"', name))


def test_the_page_shows_each() -> None:
    """docs/failures.md: a row for each, with its alert."""
    rows = {line.split("|")[1].strip(): line for line in PAGE.read_text().splitlines() if line.startswith("| ")}
    for failure in FAILURES:
        assert failure.id in rows
        assert f"`{failure.alert}`" in rows[failure.id] or not failure.alert


def tombstones_due_ms(site: Site, name: str) -> int:
    """Write values, delete some, roll, and let it be cleaned; returns when the daemon will remove the tombstones."""
    site.write(name)
    site.write(name, count=50, value=False)
    site.write(name, keys=1)
    site.cleaned(name)
    return int(site.partition(site.daemon.ask("status"), name)["next_purge_ms"])


@pytest.mark.kafka
@pytest.mark.broker
def test_a_clock_that_jumps_deletes_nothing_too_early(broker: Broker, tmp_path: Path) -> None:
    """R534-6, C-48: with the clock a day ahead, no tombstone is removed early by the old or the new time.

    Tombstones whose horizon was set before are removed in time once the clock is back. Those that got it meanwhile stay
    a day longer: if the old time had been wrong, they would otherwise be removed a day early.
    """
    retention_ms = 6_000
    site = site_of(broker, tmp_path, "clock-tombstones", delete_retention_ms=str(retention_ms))
    assert site.clock is not None
    with site.daemon as daemon:
        due_ms = tombstones_due_ms(site, site.hurt)
        assert due_ms - now_ms() <= retention_ms
        site.clock.set(DAY_MS)
        site.rounds(ROUNDS)
        # Those of the other partition come while the clock is ahead.
        before_ms = now_ms()
        ahead_ms = tombstones_due_ms(site, site.other)
        assert before_ms <= ahead_ms - DAY_MS - retention_ms <= now_ms()
        gone = dropped_tombstones(site)
        assert gone == 0 or now_ms() >= due_ms
        began, busy = time.monotonic(), seconds_of_cpu(daemon.process.pid)
        time.sleep(1)
        # Next to other processes, a sleep of a second takes longer, and scans continue meanwhile.
        used = seconds_of_cpu(daemon.process.pid) - busy
        assert used < 0.7 * (time.monotonic() - began)
        site.clock.set(0)
        daemon.until("they are removed", lambda _view: dropped_tombstones(site) == 24)
        assert now_ms() >= due_ms
        site.rounds(ROUNDS)
        assert dropped_tombstones(site) == 24


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.broker
def test_a_clock_that_is_ahead_at_the_start_deletes_nothing_too_early(broker: Broker, tmp_path: Path) -> None:
    """U-42, "clock wrong at the start": a daemon restarted a day ahead continues as if it had not stopped."""
    retention_ms = 5_000
    site = site_of(broker, tmp_path, "clock-start", delete_retention_ms=str(retention_ms))
    assert site.clock is not None
    with site.daemon as daemon:
        due_ms = tombstones_due_ms(site, site.hurt)
        daemon.end(signal.SIGTERM)
        site.clock.set(DAY_MS)
        daemon.start()
        view = daemon.until(
            "it is reported", lambda view: any("jumped ahead by 1 day" in each for each in view["warnings"])
        )
        assert view["totals"]["clock_jumps"] == 1
        site.rounds(ROUNDS)
        gone = dropped_tombstones(site)
        assert gone == 0 or now_ms() >= due_ms
        daemon.until("they are removed", lambda _view: dropped_tombstones(site) == 24)
        assert now_ms() >= due_ms
        daemon.end(signal.SIGTERM)


def dropped_tombstones(site: Site) -> int:
    return int(site.metric('cleanerd_removed_records_total{reason="tombstone"}') or 0)


def now_ms() -> int:
    """The right time."""
    return time.time_ns() // 1_000_000


def seconds_of_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
