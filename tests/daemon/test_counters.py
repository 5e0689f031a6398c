"""The daemon's counters only grow, whatever the clock does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.broker.agent_pool import AgentPool
from cleanerd.cleaner.result import RemovedRecords
from cleanerd.cli.status import headline
from cleanerd.daemon.http.metrics import Exposition
from cleanerd.daemon.status.counters import Counters
from cleanerd.daemon.status.trend import TrendRing
from cleanerd.daemon.work.job import JobDone
from cleanerd.daemon.work.throttle import Rates, Throttle
from cleanerd.daemon.workers import WorkerPool
from cleanerd.host.clock import Clock
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.daemon.registries import KEY, NOW, job_on, partition_scan, registry_with, result
from tests.daemon.views import partition, view

if TYPE_CHECKING:
    from pathlib import Path


def test_a_clock_that_is_set_back_in_the_middle_of_a_cleaning(tmp_path: Path) -> None:
    """A sum that falls looks like a reset counter, and all of it counts again. A cleaning took minus an hour."""
    counters = Counters(StateStore(tmp_path), Clock(), Throttle(Rates()), WorkerPool(0, "test"), AgentPool())
    registry = registry_with()
    for ended_ms in (NOW + 5_000, NOW - 3_600_000):
        registry.begun(KEY, "ratio")
        done = JobDone(job_on(partition_scan()), ended_ms, result=result())
        counters.add(done, registry.finished(done))
    totals = counters.totals()
    assert (totals.durations.sum, sum(totals.durations.counts)) == (5.0, 2)
    assert [(each.ended_ms - each.started_ms) for each in counters.history] == [0, 5_000]
    last = view(history=counters.history[:1])
    body, _ = Exposition(lambda: last).render()
    assert b"kafka_log_logcleaner_max_clean_time_secs 0.0" in body


def test_a_staged_cleaning_has_saved_nothing_yet(tmp_path: Path) -> None:
    """OP-11: "0 cleaned, 2.0 MiB saved". The disk stays as full until the plan is applied."""
    counters = Counters(StateStore(tmp_path), Clock(), Throttle(Rates()), WorkerPool(0, "test"), AgentPool())
    registry = registry_with()
    ended = result("staged", bytes_before=5_000, bytes_after=1_000, removed=RemovedRecords(superseded=7))
    registry.begun(KEY, "ratio")
    done = JobDone(job_on(partition_scan(), kind="stage"), NOW, result=ended)
    counters.add(done, registry.finished(done))
    totals = counters.totals()
    assert (totals.bytes_before, totals.bytes_after) == (0, 0)
    assert not sum(totals.removed_records.values())
    staged = partition(phase="staged", last_cleaning=counters.history[0])
    totals = replace(totals, staged_bytes=4_000)
    reported = headline(view(totals=totals, partitions=(staged,)).to_json())
    assert "0 cleaned, 0 B saved" in reported
    assert "1 staged, which saves 3.9 KiB at the broker's next start" in reported


def test_a_skipped_cleaning_is_not_counted_as_a_cleaning(tmp_path: Path) -> None:
    """OP-11: "Cleans 85" included skipped ones. The tile, the command and the chart of the day leave them out."""
    counters = Counters(StateStore(tmp_path), Clock(), Throttle(Rates()), WorkerPool(0, "test"), AgentPool())
    registry = registry_with()
    for outcome in ("cleaned", "skipped", "skipped", "failed", "cleaned", "skipped"):
        registry.begun(KEY, "ratio")
        done = JobDone(job_on(partition_scan()), NOW, result=result(outcome))
        counters.add(done, registry.finished(done))
    totals = counters.totals()
    assert totals.cleanings == {"cleaned": 2, "skipped": 3, "failed": 1}
    assert "2 cleaned, 0 B saved" in headline(view(totals=totals).to_json())
    assert TrendRing(tmp_path).observe(NOW, totals, 0.0, lambda: 0).cleanings[-1] == 2
