"""A registry of one partition without a broker: the test makes the scans, jobs and results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cleanerd.broker.mode import ModeChoice
from cleanerd.cleaner.result import CleaningResult
from cleanerd.daemon.discovery.log_dir_scan import DirMode, LogDirScan, Work
from cleanerd.daemon.partition_scan import FailedScan, PartitionScan
from cleanerd.daemon.registry.partition_registry import PartitionRegistry, RegistrySettings
from cleanerd.daemon.registry.schedule import Candidate
from cleanerd.daemon.work.job import Backoff, CleaningJob, JobDone, JobReclaimable, Kind
from cleanerd.format.names import TopicPartition
from tests.cleaner.driver import config

if TYPE_CHECKING:
    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.view import Trigger

NAME = TopicPartition("orders", 0)
PATH = Path("/logs")
KEY = (str(PATH), NAME)
NOW = 1_700_000_000_000
DAY_MS = 86_400_000


def partition_scan(**values: Any) -> PartitionScan:
    """The scan of a partition that is dirty enough to be cleaned."""
    base = PartitionScan(
        name=NAME, log_dir=None, config=config(), topic_id=None, scanned_ms=NOW, eligible=True, refused=False,  # type: ignore[arg-type]
        forceable=True, rule="", reason="", changes="", strategy="offset", fingerprint="f", fingerprint_changed=False,
        delegated=None, first_dirty_offset=10, first_uncleanable_offset=20, log_end_offset=25, size_bytes=300,
    clean_bytes=100,
        dirty_bytes=200, dirty_ratio=0.67, overdue_ms=0, overdue_at_ms=None, settled=True, again_ms=None,
        next_purge_ms=None, removal_known=False, has_clean_part=True, quarantine=None, retry=None,
        staged=None, leftover=False,
    )  # fmt: skip
    return replace(base, **values)


SAVING = JobReclaimable(300, 250, first_dirty_offset=10, first_uncleanable_offset=20, clean_bytes=100, dirty_bytes=200)
CLEAN = {"eligible": False, "reason": "clean enough", "dirty_bytes": 0}


def dir_scan(*scans: PartitionScan | FailedScan, work: Work | None = "live", free: int = 900) -> LogDirScan:
    return LogDirScan(
        PATH, online=True, error="", mode=DirMode("live", "test", work), choice=ModeChoice("live", "test"),
        facts=SimpleNamespace(server_properties=None),  # type: ignore[arg-type]
        total_bytes=1000, free_bytes=free, scans=scans, present=frozenset({NAME}),
    )  # fmt: skip


def registry_with(
    *scans: PartitionScan | FailedScan,
    work: Work | None = "live",
    free: int = 900,
    cleared: list[TopicPartition] | None = None,
) -> PartitionRegistry:
    """``cleared``: receives the partitions whose quarantine is to be removed from the state directory."""

    def clear_quarantine(_path: Path, name: TopicPartition) -> None:
        if cleared is not None:
            cleared.append(name)

    settings = RegistrySettings(Backoff(1000, 8000), 7 * DAY_MS, 100)
    made = PartitionRegistry(settings, clear_quarantine=clear_quarantine)
    for each in scans or (partition_scan(),):
        made.merge(dir_scan(each, work=work, free=free), NOW)
    return made


def triggers(registry: PartitionRegistry, now_ms: int = NOW) -> list[str]:
    return [each.trigger for each in registry.candidates(now_ms)]


def entry_of(registry: PartitionRegistry) -> PartitionEntry:
    return registry.partitions[KEY]


def job_on(found: PartitionScan, kind: Kind = "live", trigger: Trigger = "ratio", now_ms: int = NOW) -> CleaningJob:
    """A job that started after that scan."""
    return CleaningJob(
        name=NAME,
        path=PATH,
        kind=kind,
        trigger=trigger,
        scan=found,
        facts=None,
        socket=None,
        store=None,
        progress=None,
        started_ms=now_ms,
        threads=1,
        before=None,
        backoff=Backoff(1000, 8000),
        clock=None,
    )  # type: ignore[arg-type]


def done(registry: PartitionRegistry, now_ms: int = NOW, kind: Kind = "live", **values: Any) -> JobDone:
    found = entry_of(registry).scan
    assert found is not None
    job = job_on(found, kind=kind, now_ms=now_ms)
    registry.begun(KEY, "ratio")
    ended = JobDone(job, now_ms, **values)
    registry.finished(ended)
    nothing_new(registry)
    return ended


def nothing_new(registry: PartitionRegistry) -> None:
    """The next scan finds the same as the last one."""
    found, known = entry_of(registry).scan, registry.dirs[str(PATH)]
    assert found is not None
    registry.merge(replace(known, scans=(found,)), NOW)


def result(outcome: str = "cleaned", **values: Any) -> CleaningResult:
    return CleaningResult(NAME, str(PATH), outcome, **values)  # type: ignore[arg-type]


def candidate(number: int = 0, trigger: str = "ratio", **values: object) -> Candidate:
    made = Candidate(TopicPartition("orders", number), "/a", "ratio", 50, 100)
    return replace(made, trigger=trigger, **values)  # type: ignore[arg-type]
