"""cleanerd.daemon.work.run_job: the job's own last reading of its partition serves as the next scan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.broker.partition_snapshot import PartitionSnapshot
from cleanerd.daemon.directory_snapshot import DirectorySnapshot, files_in
from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.partition_scan import PartitionScan
from cleanerd.daemon.work import run_job
from cleanerd.daemon.work.job import JobDone, ScanAfterJob
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state.last_time import read_clock
from cleanerd.state.quarantine import quarantined
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
from tests.daemon.service import assignments, broker, scan_context, serve, until
from tests.support.log_dirs import make_log_dir, write_segment
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.offline_round import batch, two_groups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.service import Service

SEEN = DirectorySnapshot(1, 2, None, "live/live", settled=True, again_ms=NOW, active=(0, 0))


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "good"


def ended(registry: PartitionRegistry, before: PartitionScan, after: PartitionScan) -> bool:
    """A job that has scanned the partition itself; returns whether that scan is used."""
    done = JobDone(job_on(before), NOW, result=result(), after=ScanAfterJob(after, SEEN))
    registry.begun(KEY, "ratio")
    registry.finished(done)
    return KEY not in registry.stale


def test_a_job_that_scanned_itself_needs_no_other_scan() -> None:
    """The partition waits for no other scan; a later one is used."""
    registry = registry_with(partition_scan())
    assert ended(registry, partition_scan(), partition_scan(**CLEAN, first_dirty_offset=20))
    assert triggers(registry) == []
    found = entry_of(registry).scan
    assert found is not None
    assert found.first_dirty_offset == 20
    registry.merge(dir_scan(partition_scan(first_dirty_offset=20, first_uncleanable_offset=30)), NOW)
    assert triggers(registry) == ["ratio"], "new records"
    registry.merge(dir_scan(partition_scan(**CLEAN, first_dirty_offset=30)), NOW)
    assert triggers(registry) == []


def test_a_topic_created_again_is_scanned() -> None:
    """The topic was created again while the job ran: the job's scan is about another topic."""
    registry = registry_with(partition_scan())
    assert not ended(registry, partition_scan(), partition_scan(**CLEAN, topic_id=object()))
    assert triggers(registry) == []
    gone = registry_with(partition_scan())
    gone.begun(KEY, "ratio")
    gone.merge(replace(dir_scan(), present=frozenset()), NOW)
    gone.finished(JobDone(job_on(partition_scan()), NOW, after=ScanAfterJob(partition_scan(**CLEAN), SEEN)))
    assert not gone.partitions


def test_the_scan_of_a_job_equals_a_full_scan(root: Path) -> None:
    """After a cleaning only the job has queried the broker for the partition, and its scan shows the current state."""
    seen: list[JobDone] = []

    def noted(*arguments: Any) -> JobDone:
        seen.append(run_job.run(*arguments))
        return seen[-1]

    # The file system reports the swap too; the scan a second later also covers the other job's partition.
    limits = DaemonLimits(debounce_seconds=PATIENCE_SECONDS)
    with broker(root, 2) as agent:

        async def story(service: Service) -> None:
            await until("all are clean", lambda: len(service.view().history) == 2)
            assert not service.registry.stale

        serve([*assignments(root), "log.cleaner.backoff.ms=3600000"], story, limits=limits, run_job=noted)
        requested = len(agent.requested("log"))
        known = scan_context(root)
        first = LogDirScanner(root).scan(known)
    cleanings = [done for done in seen if done.job.kind == "live"]
    assert len(cleanings) == 2
    assert requested == 2 + 2 * 2, "the first scan, then a job's queries before and after"
    scans = {each.name: each for each in first.scans if isinstance(each, PartitionScan)}
    for done in cleanings:
        assert done.after is not None
        other = scans[done.job.name]
        now = {"scanned_ms": 0, "log_dir": None, "config": None}
        assert replace(done.after.scan, **now) == replace(other, **now)  # type: ignore[arg-type]
        assert done.after.scan.log_dir.cleaner_offsets == other.log_dir.cleaner_offsets
        path = str(root / str(done.job.name))
        assert done.after.seen.files == files_in(path)
        assert done.after.seen.settled


def test_a_segment_created_since_is_scanned(root: Path) -> None:
    """The directory is listed after the log was read: files that are not in both are unknown."""
    make_log_dir(root, {"orders-0": two_groups()})
    known = scan_context(root)
    (first,) = LogDirScanner(root).scan(known).scans
    assert isinstance(first, PartitionScan)
    job = replace(
        job_on(first), path=root, name=first.name, store=known.store, clock=read_clock(root.parent / "state", [])
    )
    reading = PartitionSnapshot(first.log_dir, read_partition(first.log_dir, first.name), first.config)
    assert run_job._job_result(job, []) is None
    assert run_job._job_result(job, [reading]) is not None
    write_segment(root / "orders-0", 100, batch(100, ("k", "1")))
    assert run_job._job_result(job, [reading]) is None


def test_the_scan_of_a_job_is_used(root: Path) -> None:
    """A partition that a worker scanned is not scanned again until something changes there."""
    make_log_dir(root, {"orders-0": two_groups()})
    known, scanner = scan_context(root), LogDirScanner(root)
    (first,) = scanner.scan(known).scans
    name, path = first.name, root / "orders-0"
    assert scanner.scan(known).scans == ()
    seen = scanner._seen[name]
    write_segment(path, 100, batch(100, ("k", "1")))
    noted = replace(seen, mtime_ns=path.stat().st_mtime_ns, files=files_in(str(path)))
    scanner.note(name, replace(noted))
    assert scanner.scan(known).scans == (), "a scan has seen it"
    write_segment(path, 200, batch(200, ("k", "1")))
    scanner.note(name, replace(noted))
    assert [each.name for each in scanner.scan(known).scans] == [name], "another scan came since"
    scanner.note(name, replace(noted, settled=False))
    assert [each.name for each in scanner.scan(known).scans] == [name]


def test_a_job_with_the_settings_from_before_a_reload(root: Path) -> None:
    """Its last scan is repeated: its strategy, or its ratio, applied for ten minutes more."""
    make_log_dir(root, {"orders-0": two_groups()})
    before, scanner = scan_context(root), LogDirScanner(root)
    scanner.scan(before)
    known = replace(before, settings=scan_context(root).settings)
    (first,) = scanner.scan(known).scans
    seen = scanner._seen[first.name]
    scanner.note(first.name, replace(seen, settings=known.settings))
    assert scanner.scan(known).scans == ()
    scanner.note(first.name, replace(seen, settings=before.settings))
    assert [each.name for each in scanner.scan(known).scans] == [first.name]
    assert scanner.scan(known).scans == ()


def test_records_written_since_a_job_survive_a_dropped_scan(root: Path) -> None:
    """A scan requested before a job ended skips its partition, so that the next one finds changes since the job.

    If a dropped scan had surveyed them, they would have waited for ten minutes.
    """
    make_log_dir(root, {"orders-0": two_groups()})
    known, scanner = scan_context(root), LogDirScanner(root)
    (first,) = scanner.scan(known).scans
    scanner.note(first.name, replace(scanner._seen[first.name]))
    (root / "orders-0" / ".kstage" / "20260101t000000-0000abcd").mkdir(parents=True)
    for only in (None, {first.name}):
        assert scanner.scan(replace(known, outdated={first.name}), only).scans == ()
    (last,) = scanner.scan(known).scans
    assert isinstance(last, PartitionScan)
    assert last.leftover
    assert scanner.scan(known).scans == (), "that scan is used"


def test_a_quarantine_is_cleared_once_by_a_scan_that_is_used(root: Path) -> None:
    """OP-10: the scan after the request removes it from the state directory; a later failure is kept."""
    make_log_dir(root, {"orders-0": two_groups()})
    known, scanner = scan_context(root), LogDirScanner(root)

    def quarantine() -> PartitionScan:
        log_dir = read_log_dir(root)
        log = read_partition(log_dir, NAME)
        known.store.save(log_dir, log, quarantined("corrupt", None, log, known.store.load(log_dir, log)))
        return scanned()

    def scanned(**context: Any) -> PartitionScan:
        (found,) = scanner.scan(replace(known, **context), {NAME}).scans
        assert isinstance(found, PartitionScan)
        return found

    scanner.scan(known)
    assert quarantine().quarantine == "corrupt"
    scanner.clear_quarantine(NAME)
    assert scanner.scan(replace(known, outdated={NAME}), {NAME}).scans == ()
    assert scanned().quarantine is None
    assert quarantine().quarantine == "corrupt", "a later failure"
