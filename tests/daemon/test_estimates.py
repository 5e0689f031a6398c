"""The daemon's estimates: computed while nothing is dirty, without delaying any cleaning."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.reclaimable import Reclaimable
from cleanerd.cli.status import partition_row
from cleanerd.daemon.estimate_cache import EVERY_SECONDS, FILE_NAME, EstimateCache
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.registry.due import ESTIMATE_INTERVAL_MS
from cleanerd.daemon.registry.partition_entry import Quarantine
from cleanerd.daemon.registry.partition_registry import PartitionRegistry, RegistrySettings
from cleanerd.daemon.status.view_parts import partition_view
from cleanerd.daemon.work.job import Backoff, CleaningJob, JobDone
from cleanerd.daemon.work.run_job import run
from cleanerd.state.cleaner_checkpoint import LastSegment
from cleanerd.state.in_progress import CrashSuspect
from cleanerd_lab.bench.generate import LogShape, make_log
from tests.daemon.registries import KEY, NOW, SAVING, dir_scan, entry_of, partition_scan, registry_with
from tests.daemon.service import COMPACT, assignments, partition, serve, until
from tests.support.log_dirs import make_log_dir
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service
    from cleanerd.daemon.view import PartitionView

ESTIMATED = replace(SAVING, estimate=Reclaimable(60, 40, 80, "sample"))
SELDOM = "topics.bench.min.cleanable.dirty.ratio=1"
BENCH = ["topics.bench.cleanup.policy=compact", SELDOM]


def _registry(**values: Any) -> PartitionRegistry:
    registry = registry_with(partition_scan(eligible=False, **values))
    registry.settings = replace(registry.settings, estimate_bytes=1)
    return registry


def _waits(registry: PartitionRegistry, now_ms: int = NOW) -> bool:
    return bool(registry.unknown_savings(now_ms))


def reclaimable_of(view: PartitionView) -> tuple[int | None, int | None, int | None, str]:
    return (
        view.reclaimable_bytes,
        view.reclaimable_low_bytes,
        view.reclaimable_high_bytes,
        view.reclaimable_method,
    )


def test_an_estimate_is_shown_with_its_error() -> None:
    """U-41: before it there is only a guess, which tables do not show as a number."""
    registry = _registry()
    view = partition_view(registry, entry_of(registry))
    assert reclaimable_of(view) == (100, 0, 300, "guess")
    assert partition_row(view.to_json(), NOW)[5] == ""
    registry.estimated(KEY, None, ESTIMATED, NOW)
    view = partition_view(registry, entry_of(registry))
    assert reclaimable_of(view) == (60, 40, 80, "sample")
    assert partition_row(view.to_json(), NOW)[5] == "~60 B ± 20 B"
    registry.merge(dir_scan(partition_scan(eligible=False, dirty_bytes=220, first_uncleanable_offset=22)), NOW)
    view = partition_view(registry, entry_of(registry))
    assert (view.reclaimable_bytes, view.reclaimable_low_bytes, view.reclaimable_high_bytes) == (66, 40, 100)


def test_once_an_hour_and_when_twice_as_much_is_dirty() -> None:
    """U-41: known estimates are not computed again."""
    registry = _registry()
    assert _waits(registry)
    registry.estimated(KEY, None, ESTIMATED, NOW)
    later = NOW + ESTIMATE_INTERVAL_MS
    assert not _waits(registry, later)
    registry.merge(dir_scan(partition_scan(eligible=False, dirty_bytes=400, first_uncleanable_offset=40)), NOW)
    assert not _waits(registry, later - 1)
    assert _waits(registry, later)
    assert _waits(registry, NOW - 1), "a clock that jumped back"
    registry.merge(
        dir_scan(partition_scan(eligible=False, first_dirty_offset=40, first_uncleanable_offset=50, dirty_bytes=10)),
        NOW,
    )
    assert _waits(registry, later), "it was cleaned"


def test_a_failed_estimate_waits_as_well() -> None:
    """A log with unusable indexes is not read again at once."""
    registry = _registry()
    registry.estimated(KEY, None, None, NOW)
    assert not _waits(registry, NOW + 1)
    assert _waits(registry, NOW + ESTIMATE_INTERVAL_MS)


def test_partitions_that_are_not_cleaned_are_not_estimated() -> None:
    """Nothing dirty, quarantined, paused, a suspect, or excluded; or estimates are turned off."""
    assert not _waits(_registry(dirty_bytes=0))
    for name, value in (
        ("quarantine", Quarantine("broken", NOW, 1, NOW + 1000)), ("paused", True), ("excluded", "left to Kafka"),
        ("suspect", CrashSuspect(1, NOW)), ("trigger", "ratio"),
    ):  # fmt: skip
        registry = _registry()
        setattr(entry_of(registry), name, value)
        assert not _waits(registry), name
    registry = _registry()
    registry.settings = replace(registry.settings, estimate_bytes=0)
    assert not _waits(registry)


def test_an_estimate_does_not_replace_an_observation() -> None:
    """An observation that ended meanwhile is better; and an estimate does not count as an observation."""
    registry = _registry()
    entry_of(registry).saving = SAVING
    registry.estimated(KEY, None, ESTIMATED, NOW)
    assert entry_of(registry).saving == SAVING
    registry = registry_with(work="observe")
    registry.estimated(KEY, None, ESTIMATED, NOW)
    assert [each.trigger for each in registry.candidates(NOW)] == ["ratio"], "to be observed nevertheless"
    registry.estimated(KEY, None, replace(ESTIMATED, estimate=Reclaimable(50, 50, 50, "exact")), NOW)
    assert registry.candidates(NOW) == []


CLOSED = LastSegment(3, 1, 2, 300, 4)


def _kept(state_dir: Path) -> EstimateCache:
    return EstimateCache(state_dir, lambda work, done: done(work()))


def _restarted(state_dir: Path, **values: Any) -> PartitionRegistry:
    """A daemon that starts with the state of the one before it, and finds the log in this condition."""
    registry = PartitionRegistry(RegistrySettings(Backoff(1, 2), 1), recall=_kept(state_dir).recall)
    registry.merge(dir_scan(partition_scan(eligible=False, **{"closed": CLOSED, **values})), NOW)
    return registry


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The state directory of a daemon that had an estimate."""
    registry = _registry(closed=CLOSED)
    registry.estimated(KEY, None, replace(ESTIMATED, closed=CLOSED), NOW)
    _kept(tmp_path).save(registry.partitions.values(), now=True)
    return tmp_path


def test_a_restart_keeps_estimates(left: Path) -> None:
    """U-41: of an unchanged log, with its bounds; the log is not read again."""
    registry = _restarted(left)
    assert entry_of(registry).saving == replace(ESTIMATED, closed=CLOSED)
    registry.settings = replace(registry.settings, estimate_bytes=1)
    assert not _waits(registry)


@pytest.mark.parametrize(
    "changed",
    [
        {"closed": replace(CLOSED, inode=9)}, {"closed": None}, {"first_uncleanable_offset": 21},
        {"first_dirty_offset": 1}, {"dirty_bytes": 201}, {"fingerprint": "other rules"}, {"topic_id": uuid.UUID(int=7)},
    ],
    ids=str,
)  # fmt: skip
def test_a_log_that_changed_meanwhile_gets_no_old_estimate(left: Path, changed: dict[str, Any]) -> None:
    """U-41: however similar it is: truncated and written again, other compaction settings, a new topic."""
    assert entry_of(_restarted(left, **changed)).saving is None


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"format": 2, "savings": []}', '{"format": 1, "savings": [5]}',
        "-1", '"exact"', "1e400", "true", '"guess"',
    ],
)  # fmt: skip
def test_an_invalid_remembered_estimate_counts_as_absent(left: Path, text: str) -> None:
    """Reported once; also with a figure or bounds that are not numbers."""
    file = left / FILE_NAME
    document = json.loads(file.read_text())
    if text[:1] not in "[{":
        old = {'"exact"': '"low": 40', '"guess"': '"sample"'}.get(text, '"dirty_bytes": 200')
        new = {'"exact"': '"low": 70', '"guess"': '"guess"'}.get(text, f'"dirty_bytes": {text}')
        assert old in json.dumps(document)
        text = json.dumps(document).replace(old, new)
    file.write_text(text)
    kept = _kept(left)
    assert len(kept.warnings) == 1
    assert ("written by a newer cleanerd" if '"format": 2' in text else "damaged") in kept.warnings[0]
    assert entry_of(_restarted(left)).saving is None


def test_estimates_are_written_seldom(tmp_path: Path) -> None:
    """Not at every change: for thousands of partitions the file has megabytes."""
    now = 1000.0
    kept = EstimateCache(tmp_path, lambda work, done: done(work()), clock=lambda: now)
    kept.save(())
    assert not (tmp_path / FILE_NAME).exists()
    now += EVERY_SECONDS
    kept.save(())
    assert (tmp_path / FILE_NAME).exists()


def test_a_daemon_starts_with_the_estimates_of_the_one_before_it(root: Path) -> None:
    """U-41: the second daemon reads nothing of the log; if the last closed segment is another file, it reads all."""
    make_log(root, LogShape("", "", 128, 16, 0.5), unpacked_bytes=1 << 20, segment_bytes=1 << 18)
    settings = [*assignments(root), *BENCH]
    requests: list[str] = []

    async def known(service: Service) -> None:
        await until("known", lambda: partition(service.view(), "bench-0").reclaimable_method == "exact")

    serve(settings, known)

    def noted(job: CleaningJob, *more: Any) -> JobDone:
        if job.kind == "estimate":
            requests.append(str(job.name))
        return run(job, *more)

    serve(settings, known, run_job=noted)
    assert requests == []
    os.utime(sorted((root / "bench-0").glob("*.log"))[-2], ns=(1, 1))
    serve(settings, known, run_job=noted)
    assert requests == ["bench-0"]


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "method"), [("64MiB", "exact"), ("256KiB", "sample"), ("0", "guess")])
def test_in_a_daemon(root: Path, budget: str, method: str) -> None:
    """U-41: of a partition that is not to be cleaned yet; of a small one it is exact."""
    make_log(root, LogShape("", "", 128, 16, 0.5), unpacked_bytes=1 << 20, segment_bytes=1 << 18)
    settings = [*assignments(root, cleanerd_estimate_bytes=budget), *BENCH]

    async def story(service: Service) -> None:
        await until("ready", lambda: service.view().ready)
        if method != "guess":
            await until("estimated", lambda: partition(service.view(), "bench-0").reclaimable_method == method)
        found = partition(service.view(), "bench-0")
        assert found.reclaimable_method == method
        assert found.phase == "idle"
        assert (found.reclaimable_low_bytes == found.reclaimable_high_bytes) == (method == "exact")
        assert service.view().history == ()

    serve(settings, story)


def test_cleaning_does_not_wait_for_an_estimate(root: Path) -> None:
    """U-41: with one worker, the estimate stops as soon as a partition is to be cleaned."""
    make_log(root, LogShape("", "", 128, 16, 0.5), unpacked_bytes=1 << 19, segment_bytes=1 << 17)
    begun = threading.Event()
    stopped: list[bool] = []

    def slow(job: CleaningJob, *more: Any) -> JobDone:
        if job.kind != "estimate":
            return run(job, *more)
        begun.set()
        for _ in range(3000):  # otherwise a fault would show only after the timeout
            if job.progress.stopping:
                break
            time.sleep(0.01)
        stopped.append(job.progress.stopping)
        return JobDone(job, NOW, stopped=True)

    settings = [*assignments(root, cleanerd_mode="observe", log_cleaner_threads="1"), *BENCH]

    async def story(service: Service) -> None:
        assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
        service.registry.named("bench-0")[0].requested = True
        service.scan_loop.wake()
        await until("observed", lambda: partition(service.view(), "bench-0").reclaimable_exact)
        assert stopped[0]

    serve(settings, story, run_job=slow)


def test_estimates_take_a_share_of_the_time(root: Path) -> None:
    """U-41: after one estimate there is a break; a worker that dies in one leaves the daemon as it was."""
    make_log_dir(root, {"orders-0": two_groups(), "orders-1": two_groups()})
    settings = [*assignments(root), COMPACT, "topics.orders.min.cleanable.dirty.ratio=1"]
    requests: list[str] = []

    def broken(job: CleaningJob, *more: Any) -> JobDone:
        if job.kind != "estimate":
            return run(job, *more)
        requests.append(str(job.name))
        raise MemoryError

    async def story(service: Service) -> None:
        await until("requested", lambda: bool(requests))
        rounds = service.view().last_scan_ms
        await until("scanned again", lambda: service.view().last_scan_ms != rounds)
        assert len(requests) == 1
        assert {each.reclaimable_method for each in service.view().partitions} == {"guess"}
        assert {each.phase for each in service.view().partitions} == {"idle"}
        assert service.dispatcher.workers.alive == service.dispatcher.workers.size

    serve(settings, story, limits=DaemonLimits(estimate_share=10**12), run_job=broken)
