"""Partitions that were not scanned since their last job.

Scans and jobs run at the same time. A scan requested before a job ended may show the log as before it, or half cleaned,
and may be merged after the job's result: acting on it would clean twice, and treat the partition as cleaned. So scans
carry the number of jobs that had ended when they were requested, and a partition waits for one that surveyed it after
its last job. Mostly that is the job's own, made at its end; an older scan that arrives later is ignored. If a full scan
skips a partition as unchanged, that proves nothing: the earlier scan that it compares with is unknown.

A partition with cleared failures waits in the same way: the scan that it waits for removes the quarantine from the
state directory, to which nothing else writes while no job runs on the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.daemon.partition_scan import Key, PartitionScan

if TYPE_CHECKING:
    from cleanerd.daemon.discovery.log_dir_scan import LogDirScan


class StaleScans:
    """The partitions whose last scan is older than their last job.

    ``jobs_ended``: the number of jobs of all partitions. ``forgiven``: that number when a quarantine was ended, by
    partition.
    """

    def __init__(self) -> None:
        self.jobs_ended = 0
        self._numbers: dict[Key, int] = {}
        self._by_jobs: dict[Key, int] = {}
        self.forgiven: dict[Key, int] = {}

    def __contains__(self, key: Key) -> bool:
        # Usually the set is empty, so avoid hashing the key.
        return bool(self._numbers) and key in self._numbers

    def keys(self) -> frozenset[Key]:
        """All such partitions, which a full scan has to survey."""
        return frozenset(self._numbers)

    def ended(self, key: Key) -> None:
        """Note that a job on it has ended, with any result."""
        self.jobs_ended += 1
        self._numbers[key] = self.jobs_ended

    def clear_failures(self, key: Key) -> None:
        """Note that its quarantine was ended, while no job runs on it."""
        self.ended(key)
        self.forgiven[key] = self.jobs_ended

    def job_scanned(self, key: Key) -> None:
        self._by_jobs[key] = self._numbers.pop(key)

    def is_older(self, key: Key, jobs_ended: int) -> bool:
        """Whether a scan requested after that many jobs is older than the last job's own."""
        return bool(self._by_jobs) and self._by_jobs.get(key, 0) > jobs_ended

    def scanned(self, found: LogDirScan) -> None:
        """Note that it was surveyed after its last job, with or without a result."""
        for scan in found.scans:
            key = (str(found.path), scan.name)
            if key in self._numbers and self._numbers[key] <= found.jobs_ended:
                del self._numbers[key]
            if key in self._by_jobs and self._by_jobs[key] <= found.jobs_ended:
                del self._by_jobs[key]
            if key in self.forgiven and self.forgiven[key] <= found.jobs_ended and isinstance(scan, PartitionScan):
                del self.forgiven[key]

    def forget(self, key: Key) -> None:
        self._numbers.pop(key, None)
        self._by_jobs.pop(key, None)
        self.forgiven.pop(key, None)
