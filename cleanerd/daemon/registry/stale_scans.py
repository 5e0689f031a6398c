"""Partitions whose last job nobody has looked at since.

Looks and jobs run at the same time. A look that was asked for before a job ended may show the log as it was before,
or the job half done, and it may be merged after the job's result: to begin anew by it would clean twice, and hold the
partition as cleaned in vain. So looks carry how many jobs had ended when they were asked for, and a partition waits for
one that surveyed it after its last job. Mostly that is the job's own, made at its end: then an older look that comes in
after it counts for nothing. That a look at everything passes over a partition as unchanged tells nothing: unchanged
since which look?

A partition that was forgiven waits in the same way: the look that it waits for forgets the quarantine in the state
directory, to which nobody else writes as long as no job runs on the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.daemon.partition_scan import PartitionScan

if TYPE_CHECKING:
    from cleanerd.daemon.discovery.log_dir_scan import LogDirScan
    from cleanerd.daemon.partition_scan import Key


class StaleScans:
    """``jobs_ended``: how many, of all partitions. ``forgiven``: how many it were when each of these was."""

    def __init__(self) -> None:
        self.jobs_ended = 0
        self._numbers: dict[Key, int] = {}
        self._by_jobs: dict[Key, int] = {}
        self.forgiven: dict[Key, int] = {}

    def __contains__(self, key: Key) -> bool:
        # Mostly there are none, and a key's hash is what asking costs.
        return bool(self._numbers) and key in self._numbers

    def keys(self) -> frozenset[Key]:
        """All of them: whoever looks at everything has to survey these."""
        return frozenset(self._numbers)

    def ended(self, key: Key) -> None:
        """A job on it has; whatever came of it."""
        self.jobs_ended += 1
        self._numbers[key] = self.jobs_ended

    def clear_failures(self, key: Key) -> None:
        """Its quarantine is over, while no job runs on it."""
        self.ended(key)
        self.forgiven[key] = self.jobs_ended

    def job_scanned(self, key: Key) -> None:
        """Its last job has looked at it itself."""
        self._by_jobs[key] = self._numbers.pop(key)

    def is_older(self, key: Key, jobs_ended: int) -> bool:
        """Whether a look that was asked for when so many jobs had ended is older than what the last one saw itself."""
        return bool(self._by_jobs) and self._by_jobs.get(key, 0) > jobs_ended

    def scanned(self, found: LogDirScan) -> None:
        """What was surveyed after its last job is seen, whether that told anything or failed."""
        for look in found.looks:
            key = (str(found.path), look.name)
            if key in self._numbers and self._numbers[key] <= found.jobs_ended:
                del self._numbers[key]
            if key in self._by_jobs and self._by_jobs[key] <= found.jobs_ended:
                del self._by_jobs[key]
            if key in self.forgiven and self.forgiven[key] <= found.jobs_ended and isinstance(look, PartitionScan):
                del self.forgiven[key]

    def forget(self, key: Key) -> None:
        """The partition is gone."""
        self._numbers.pop(key, None)
        self._by_jobs.pop(key, None)
        self.forgiven.pop(key, None)
