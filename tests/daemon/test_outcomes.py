"""OP-12: an operator who requested a cleaning learns its outcome, and cleanings before a failure count."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import structlog
from structlog.testing import LogCapture

from cleanerd.broker.agent_pool import AgentPool
from cleanerd.cleaner.reclaimable import Reclaimable
from cleanerd.cli.status import headline, partition_row
from cleanerd.daemon.registry.partition_entry import HOLD_BACKOFF
from cleanerd.daemon.status import publisher
from cleanerd.daemon.status.counters import Counters
from cleanerd.daemon.status.view_parts import partition_view
from cleanerd.daemon.work.job import JobDone, JobReclaimable
from cleanerd.daemon.work.throttle import Rates, Throttle
from cleanerd.daemon.workers import WorkerPool
from cleanerd.errors import NoSpaceError, RefusedError
from cleanerd.host.clock import Clock
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.daemon.registries import (
    CLEAN,
    KEY,
    NOW,
    dir_scan,
    entry_of,
    job_on,
    nothing_new,
    partition_scan,
    registry_with,
    result,
)
from tests.daemon.service import assignments, broker, control_requests, is_clean, rounds, serve, until
from tests.daemon.service import partition as partition_of
from tests.daemon.views import NOW_MS, partition, view

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.service import Service
    from cleanerd.daemon.view import CleaningView, Trigger

FULL = result("failed", reason="not enough free space", error=NoSpaceError("not enough free space"))


def ended(registry: PartitionRegistry, came: CleaningResult, trigger: Trigger = "manual") -> CleaningView | None:
    """A cleaning that ``trigger`` started has ended, and the next scan finds the log unchanged."""
    found = entry_of(registry).scan
    assert found is not None
    registry.begun(KEY, trigger)
    clean = registry.finished(JobDone(job_on(found, trigger=trigger), NOW, result=came))
    nothing_new(registry)
    return clean


def reason(registry: PartitionRegistry) -> str:
    return partition_view(registry, entry_of(registry)).reason


def test_a_failed_request_is_shown_until_a_cleaning_succeeds() -> None:
    """The partition is clean enough: the next scan removed the reason, and status showed the dirty ratio."""
    registry = registry_with(partition_scan(**CLEAN))
    ended(registry, FULL)
    assert reason(registry) == "the requested cleaning failed: not enough free space"
    registry.merge(dir_scan(partition_scan(**CLEAN, first_uncleanable_offset=21)), NOW)
    assert "not enough free space" in reason(registry)
    ended(registry, result("cleaned"), "ratio")
    assert reason(registry) == "clean enough"


def test_a_refused_request_is_in_the_history() -> None:
    refused = result("skipped", reason="v0 messages", error=RefusedError("v0 messages"))
    registry = registry_with(partition_scan(**CLEAN))
    clean = ended(registry, refused)
    assert clean is not None
    assert clean.result["reason"] == "v0 messages"
    assert ended(registry_with(), refused, "ratio") is None, "this is tried again and again"


def test_a_partial_cleaning_is_continued_at_once() -> None:
    """D-11: it does not count as a cleaning without effect, although the log has no new records."""
    registry = registry_with(partition_scan(first_uncleanable_offset=20))
    for clean_to in (12, 16):
        ended(registry, result(end_offset=clean_to, is_partial=True), "ratio")
        (found,) = registry.candidates(NOW)
        assert found.had_part
    ended(registry, result(end_offset=20), "ratio")
    assert not entry_of(registry).had_part


def test_a_request_is_answered_when_its_last_part_is_cleaned() -> None:
    """D-11: until then ``trigger --wait`` waits, and the partition stays before those that are only dirty."""
    registry = registry_with(partition_scan(**CLEAN))
    entry_of(registry).requested = True
    ended(registry, result(end_offset=12, is_partial=True))
    assert entry_of(registry).answered is None
    assert [each.trigger for each in registry.candidates(NOW)] == ["manual"]
    sizes = {"bytes_before": 3 << 20, "bytes_after": 1 << 10, "segments_before": 2, "segments_after": 1}
    ended(registry, result(end_offset=20, **sizes))
    answered = entry_of(registry).answered
    assert answered is not None
    assert (answered.outcome, answered.reason) == (
        "cleaned",
        "3.0 MiB -> 1.0 KiB, 0 records removed, 2 -> 1 segment below the active one",
    )
    assert not registry.candidates(NOW)


def test_a_partition_with_too_many_passes_to_observe_is_observed_once() -> None:
    """D-11: only an estimate is known of it, until there are new records."""
    saving = JobReclaimable(100, 50, 10, 20, 0, 100, Reclaimable(50, 0, 100, "sample"))
    registry = registry_with(partition_scan(first_uncleanable_offset=20), work="observe")
    assert registry.candidates(NOW)
    registry.begun(KEY, "ratio")
    registry.finished(JobDone(job_on(partition_scan(first_uncleanable_offset=20), kind="observe"), NOW, saving=saving))
    nothing_new(registry)
    assert not registry.candidates(NOW)


def test_groups_that_were_swapped_before_a_failure_count(tmp_path: Path) -> None:
    counters = Counters(StateStore(tmp_path), Clock(), Throttle(Rates()), WorkerPool(0, "test"), AgentPool())
    registry = registry_with()
    registry.begun(KEY, "ratio")
    full = result("failed", reason="full", error=NoSpaceError("full"), groups=2, bytes_before=500, bytes_after=100)
    done = JobDone(job_on(partition_scan()), NOW, result=full)
    counters.add(done, registry.finished(done))
    totals = counters.totals()
    assert (totals.bytes_before, totals.bytes_after, totals.swaps) == (500, 100, 2)


def test_an_overdue_partition_is_shown_as_overdue_in_text() -> None:
    late = partition(overdue_at_ms=NOW_MS - 1).to_json()
    assert partition_row(late, NOW_MS)[1] == "idle, overdue"
    assert partition_row({**late, "state": "excluded"}, NOW_MS)[1] == "excluded"
    assert partition_row({**late, "overdue_at_ms": NOW_MS + 1}, NOW_MS)[1] == "idle"
    shown = view(partitions=(partition(overdue_at_ms=NOW_MS - 1), partition(number=1))).to_json()
    assert "1 overdue by max.compaction.lag.ms" in headline(shown)


def test_trigger_waits_for_the_outcome(root: Path) -> None:
    """Its exit code is that of the cleaning. A daemon that only says "cleaned next" proves nothing."""
    command = [sys.executable, "-m", "cleanerd", "trigger", "orders-0", "--wait", "--json", "--no-config"]
    command += ["--set", f"cleanerd.control.socket={root.parent / 'control.sock'}"]
    control = control_requests(root)

    async def triggered() -> tuple[int, dict[str, Any]]:
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=False)
        (outcome,) = json.loads(ran.stdout)["outcomes"]
        return ran.returncode, outcome

    async def full(service: Service) -> None:
        await until("ready", lambda: service.view().ready)
        code, outcome = await triggered()
        assert (code, outcome["outcome"], outcome["code"]) == (1, "failed", 1)
        assert "not enough free space" in outcome["reason"]
        await rounds(service)
        assert partition_of(service.view()).reason.startswith("the requested cleaning failed: ")
        reported = await control("retry", partitions=["orders-0"])
        assert reported["retried"] == ["orders-0"]
        assert "dirty ratio" in reported["not_due"]["orders-0"]

    async def well(service: Service) -> None:
        await until("ready", lambda: service.view().ready)
        code, outcome = await triggered()
        assert (code, outcome["outcome"], outcome["code"]) == (0, "cleaned", 0)
        await until("it is shown", lambda: is_clean(service.view(), 8))

    with broker(root) as agent:
        agent.settings["min.cleanable.dirty.ratio"] = "1"
        serve(assignments(root, cleanerd_disk_reserve=str(1 << 60)), full)
        serve(assignments(root), well)


def test_retry_outside_of_the_windows_does_not_report_a_try(root: Path) -> None:
    """OP-12: the failure does not count any more, but nothing starts before the window opens."""
    now = datetime.now().astimezone()
    closed = f"{now + timedelta(hours=3):%H}:00-{now + timedelta(hours=4):%H}:00"
    control = control_requests(root)

    async def story(service: Service) -> None:
        await until("ready", lambda: service.view().ready)
        (found,) = service.registry.named("orders-0")
        found.hold = found.hold.extended("not enough free space", found.scan.scanned_ms, HOLD_BACKOFF)  # type: ignore[union-attr]
        answer = await control("retry", partitions=["orders-0"])
        assert answer["retried"] == ["orders-0"]
        assert "cleanerd.windows" in answer["not_due"]["orders-0"]

    with broker(root, 1):
        serve(assignments(root, cleanerd_windows=closed), story)


def test_a_keep_directory_that_is_missing_is_a_warning(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """21 partitions were skipped, and neither the log nor the warnings reported it."""
    late = root.parent / "late"
    heard = LogCapture()
    own = structlog.wrap_logger(structlog.PrintLogger(), processors=[heard], wrapper_class=structlog.BoundLogger)
    monkeypatch.setattr(publisher, "_log", own)  # loggers are made when modules are imported

    async def story(service: Service) -> None:
        await until("it is said", lambda: any("cannot be kept" in each for each in service.view().warnings))
        (reported,) = [each for each in service.view().warnings if "cannot be kept" in each]
        assert f"cleanerd.keep.replaced.dir={late}: does not exist" in reported
        assert [reported] == [line["reason"] for line in heard.entries if "cannot be kept" in line["reason"]], (
            "logged once"
        )

    with broker(root, 2):
        serve(assignments(root, cleanerd_keep_replaced_dir=str(late)), story)
