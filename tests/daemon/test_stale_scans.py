"""Scans and jobs at the same time: a scan from before a job ended starts no other job (`PartitionRegistry.stale`)."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.daemon.directory_snapshot import DirectorySnapshot
from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.partition_scan import FailedScan
from cleanerd.daemon.work.job import CleaningJob, JobDone, ScanAfterJob
from cleanerd.daemon.work.run_job import run
from cleanerd.errors import Cause
from cleanerd.state.cleaner_checkpoint import Retry
from cleanerd.state.in_progress import CrashSuspect
from tests.cleaner.driver import scratch
from tests.daemon.registries import (
    CLEAN,
    KEY,
    NAME,
    NOW,
    dir_scan,
    entry_of,
    job_on,
    partition_scan,
    registry_with,
    result,
    triggers,
)
from tests.daemon.service import assignments, broker, outcomes, serve, until
from tests.support.fake_agent import FakeAgent, HangUp
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.daemon.partition_scan import PartitionScan
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.service import Service
    from cleanerd.format.names import TopicPartition


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "good"


def ended(registry: PartitionRegistry, before: PartitionScan, **values: Any) -> None:
    """A job has ended, and no scan came after it."""
    registry.begun(KEY, "ratio")
    registry.finished(JobDone(job_on(before), NOW, **values))


def test_a_scan_from_before_a_job_ended_starts_nothing() -> None:
    """R534-6, C-11: the last scan shows a log that is still dirty, or the removal that is done.

    Cleaned twice in a row, the partition would count as cleaned without effect.
    """
    due = partition_scan(**CLEAN, removal_known=True, next_purge_ms=NOW)
    for before in (partition_scan(), due):
        registry = registry_with(before)
        ended(registry, before, result=result())
        assert triggers(registry) == [], "not scanned since"
        registry.merge(dir_scan(), NOW)
        assert triggers(registry) == [], "skipped as unchanged since an earlier scan"
        after = partition_scan(**CLEAN, removal_known=True, next_purge_ms=None)
        registry.merge(replace(dir_scan(after), present=None), NOW)
        assert triggers(registry) == []
        registry.merge(dir_scan(partition_scan(first_uncleanable_offset=30)), NOW)
        assert triggers(registry) == ["ratio"], "new records"


def test_remaining_dirty_records_wait_for_a_scan() -> None:
    registry = registry_with(partition_scan(leftover=True, **CLEAN))
    registry.begun(KEY, "tombstone_removal")
    registry.died(KEY, "killed", NOW)
    registry.clear_failures(entry_of(registry))
    assert registry.stale == {KEY}
    assert triggers(registry) == [], "not scanned since its failures were cleared"
    registry.merge(replace(dir_scan(partition_scan(leftover=True, **CLEAN)), present=None), NOW)
    assert triggers(registry) == ["tombstone_removal"]
    assert not registry.stale


def test_a_retried_partition_waits_for_the_scan_that_clears_its_failure() -> None:
    """OP-10: a cleaning that starts before that would have its failure removed. A failed scan removes nothing."""
    cleared: list[TopicPartition] = []
    registry = registry_with(cleared=cleared)
    ended(registry, partition_scan(), failed="corrupt", retry=Retry(NOW, 1, NOW + 9000))
    remembers = partition_scan(quarantine="corrupt", retry=Retry(NOW, 1, NOW + 9000))
    registry.merge(dir_scan(remembers), NOW)
    assert cleared == []
    registry.clear_failures(entry_of(registry))
    assert (cleared, triggers(registry)) == ([NAME], [])
    registry.merge(dir_scan(FailedScan(NAME, "cannot be read", Cause.TRANSIENT)), NOW)
    assert triggers(registry) == []
    registry.merge(dir_scan(partition_scan()), NOW)
    assert (cleared, triggers(registry)) == ([NAME], ["ratio"])


def test_the_result_of_a_job_updates_the_quarantine() -> None:
    """OP-10: failures cleared during a job that then fails; and a success, which clears the state directory too."""
    cleared: list[TopicPartition] = []
    registry = registry_with(partition_scan(quarantine="corrupt", retry=Retry(NOW - 9, 1, NOW - 1)), cleared=cleared)
    registry.begun(KEY, "ratio")
    registry.clear_failures(entry_of(registry))
    registry.finished(JobDone(job_on(partition_scan()), NOW, failed="again", retry=Retry(NOW, 2, NOW)))
    assert cleared == []
    registry.merge(dir_scan(partition_scan()), NOW)
    seen = DirectorySnapshot(1, 2, None, "live/live", settled=True, again_ms=NOW, active=(0, 0))
    ended(
        registry,
        partition_scan(),
        result=result(),
        after=ScanAfterJob(partition_scan(first_uncleanable_offset=30), seen),
    )
    assert cleared == [NAME]
    assert triggers(registry) == [], "the job's own scan is from before the quarantine was removed"
    registry.merge(replace(dir_scan(), present=frozenset()), NOW)
    assert not registry.stale, "nothing is kept of a partition that was deleted"


def test_a_quarantine_ends_when_its_segment_is_replaced() -> None:
    """OP-10: at the first scan after a start, and later; once, also if the state directory cannot be written."""
    outdated = partition_scan(quarantine="corrupt", retry=Retry(NOW, 1, NOW + 9000), quarantine_outdated=True)
    known = replace(outdated, quarantine_outdated=False)
    for scans in ((outdated,), (known, outdated)):
        cleared: list[TopicPartition] = []
        registry = registry_with(*scans, cleared=cleared)
        assert entry_of(registry).quarantine is None
        assert (cleared, triggers(registry)) == ([NAME], [])
        registry.merge(dir_scan(outdated), NOW)
        assert (cleared, triggers(registry)) == ([NAME], ["ratio"])
    assert entry_of(registry_with(known)).quarantine is not None


def test_a_partition_that_kills_is_paused_whatever_its_segments_are() -> None:
    """U-35: a worker's earlier failure may be over, but not that the process was killed there twice."""
    outdated = partition_scan(quarantine="corrupt", retry=Retry(NOW, 1, NOW), quarantine_outdated=True)
    registry = registry_with(partition_scan(**CLEAN))
    registry.merge(replace(dir_scan(), suspects={NAME: CrashSuspect(2, NOW)}), NOW)
    registry.merge(replace(dir_scan(outdated), present=None), NOW)
    found = entry_of(registry).quarantine
    assert found is not None
    assert found.by_death


def test_a_topic_created_again_waits_for_the_job() -> None:
    """A scan did not find the partition, say because of its cleanup.policy; its job still had the files meanwhile."""
    registry = registry_with()
    registry.begun(KEY, "ratio")
    registry.merge(replace(dir_scan(), present=frozenset()), NOW)
    registry.merge(dir_scan(partition_scan()), NOW)
    registry.finished(JobDone(job_on(partition_scan()), NOW, result=result()))
    assert triggers(registry) == []
    registry.merge(replace(dir_scan(), present=frozenset()), NOW)
    assert not registry.stale, "nothing is kept of a partition that was deleted"


@pytest.mark.slow
def test_a_full_scan_surveys_partitions_of_running_jobs(root: Path) -> None:
    """The job has made its last change of its files; a scan sees them, and hangs until the job has ended.

    Nothing changes after that scan. That no scan came after the job is the only sign that one is due.
    """
    worked, say_so, hung, go_on = (threading.Event() for _ in range(4))

    def run_slowly(job: CleaningJob, *more: Any) -> JobDone:
        done = replace(run(job, *more), after=None)  # the job has not scanned it itself
        os.utime(root / "orders-0")
        worked.set()
        assert say_so.wait(PATIENCE_SECONDS)
        return done

    class Hangs(LogDirScanner):
        def _scan_partition(self, *arguments: Any) -> Any:
            found = super()._scan_partition(*arguments)
            if worked.is_set() and not hung.is_set():
                hung.set()
                assert go_on.wait(PATIENCE_SECONDS)
            return found

    with broker(root, 1):

        async def story(service: Service) -> None:
            await until("the job is done, a scan hangs", hung.is_set)
            await until("late", lambda: not service.view().log_dirs[0].online)
            say_so.set()
            await until("the job ended", lambda: bool(service.registry.stale))
            go_on.set()
            await until("scanned", lambda: not service.registry.stale)
            await until("shown", lambda: outcomes(service.view()) == ["cleaned"])
            assert not service.dispatcher.running

        limits = DaemonLimits(scan_seconds=0.3)
        serve(assignments(root), story, limits=limits, run_job=run_slowly, scanner=Hangs)


@pytest.mark.slow
def test_a_scan_of_one_partition_surveys_one_only(root: Path) -> None:
    """After a failed scan, the next scan of one partition reads the whole directory, but surveys only that one."""
    begun: list[str] = []
    go_on, both, fails = threading.Event(), threading.Barrier(2), threading.Event()

    def times_out(_agent: FakeAgent, _request: dict[str, Any]) -> None:
        """Only full scans query the list of partitions."""
        if fails.is_set():
            raise HangUp

    def run_slowly(job: CleaningJob, *more: Any) -> JobDone:
        if job.kind != "live":
            return run(job, *more)
        begun.append(str(job.name))
        cleaned = run(job, *more)
        if len(begun) <= 2:
            assert go_on.wait(PATIENCE_SECONDS)
            both.wait(PATIENCE_SECONDS)
        return cleaned

    with broker(root, 2) as agent:
        agent.fail("logs", *[times_out] * 1000)

        async def story(service: Service) -> None:
            await until("two run", lambda: len(begun) == 2)
            fails.set()
            service.scan_loop.wake()
            await until("a scan failed", lambda: bool(service.registry.dirs[str(root)].error))
            fails.clear()
            go_on.set()
            await until("both ended", lambda: len(service.view().history) == 2)
            await asyncio.sleep(0.5)  # in which a third one would start
            assert sorted(begun) == ["orders-0", "orders-1"]

        more = ["log.cleaner.threads=2", "cleanerd.threads.per.log.dir=2", "log.cleaner.backoff.ms=3600000"]
        serve([*assignments(root), *more], story, run_job=run_slowly)
