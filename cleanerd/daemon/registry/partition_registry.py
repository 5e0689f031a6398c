"""All partitions of the daemon: their states, and which may be cleaned now.

Pure: no files, clocks or threads. Scans and results go in, candidates come out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cleanerd.daemon.partition_scan import FailedScan, Key, PartitionScan
from cleanerd.daemon.registry.due import is_digest_due, is_to_be_estimated, trigger_of
from cleanerd.daemon.registry.partition_entry import (
    HOLD_BACKOFF,
    Digested,
    OperatorOutcome,
    PartitionEntry,
    Quarantine,
    has_advanced,
    is_past,
    is_to_be_erased,
    note_done,
    note_next_removal,
    note_suspect,
    note_swapped_in,
    reclaimable_bytes,
)
from cleanerd.daemon.registry.pauses import NO_PAUSES, Pauses
from cleanerd.daemon.registry.schedule import Candidate
from cleanerd.daemon.work.job import Backoff, JobDone, JobReclaimable, Kind
from cleanerd.errors import Cause
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path
    from uuid import UUID

    from cleanerd.config.load import Settings
    from cleanerd.daemon.discovery.log_dir_scan import LogDirScan, Work
    from cleanerd.daemon.view import CleaningView, Trigger
    from cleanerd.policy.canary import CanaryBudget
    from cleanerd.policy.state_digest import StateDigest


SPARE_KINDS: Final[tuple[Kind, ...]] = ("drop", "horizons")


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The settings for all partitions.

    ``backoff``: the waits after failures. ``plan_max_age_ms``: how old a staged plan may become. ``reserve_bytes``: the
    free space to leave on a disk, None: by its size. ``spark_threshold_keys``: from this number of keys on Spark
    cleans. ``estimate_bytes``: how much of a partition is read for an estimate; 0: nothing. ``digest_percent``: the
    share of a worker's time for digests of the latest states; 0: none (U-90). ``canary``: the budget of
    ``cleanerd.canary``. ``hold``: the waits after temporary conditions.
    """

    backoff: Backoff
    plan_max_age_ms: int
    reserve_bytes: int | None = None
    spark_threshold_keys: int | None = None
    estimate_bytes: int = 0
    digest_percent: int = 0
    canary: CanaryBudget | None = None
    hold: Backoff = HOLD_BACKOFF

    @classmethod
    def of(cls, settings: Settings) -> RegistrySettings:
        """The settings for this registry."""
        daemon = settings.daemon
        return cls(
            Backoff(daemon.cleanerd_retry_backoff_ms, daemon.cleanerd_retry_backoff_max_ms),
            daemon.cleanerd_plan_max_age_ms,
            daemon.cleanerd_disk_reserve,
            daemon.cleanerd_spark_threshold_keys,
            daemon.cleanerd_estimate_bytes,
            daemon.cleanerd_digest_percent,
            daemon.cleanerd_canary,
        )


class PartitionRegistry:
    """All partitions, and the log directories at their last scan.

    ``settings`` may be replaced at any time. ``held``: why the canary allows no cleaning, empty while it does.
    ``recall``: the earlier daemon's estimate for a log at its first scan. ``clear_quarantine``: has a partition's
    quarantine removed from the state directory by a scan that begins later.

    ``stale``: the partitions that were not scanned since their last job, or since their failures were cleared. They
    wait: the last scan shows the log as before the job, and the scan that they wait for removes the quarantine from the
    state directory, to which nothing else writes while no job runs on them. If a full scan skips a partition as
    unchanged, that proves nothing: the earlier scan that it compares with may be as old.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        pauses: Pauses = NO_PAUSES,
        recall: Callable[[Key, PartitionScan], JobReclaimable | None] = lambda _key, _scan: None,
        clear_quarantine: Callable[[Path, TopicPartition], None] = lambda _path, _name: None,
    ) -> None:
        self.settings = settings
        self._recall = recall
        self._clear_quarantine = clear_quarantine
        self.pauses = pauses
        self.held = ""
        self.dirs: dict[str, LogDirScan] = {}
        self.partitions: dict[Key, PartitionEntry] = {}
        self.stale: set[Key] = set()
        self._by_name: list[PartitionEntry] | None = None
        self.digest_changes = 0
        self._swapped_in: list[CleaningView] = []

    # -- input --------------------------------------------------------------------------------------------------------

    def merge(self, found: LogDirScan, now_ms: int) -> None:
        """Merge a scan of a log directory, without partitions on which a job has ended since it was requested."""
        path = str(found.path)
        before = self.dirs.get(path)
        if before is not None and found.facts is None:
            found = replace(found, facts=before.facts)
        self.dirs[path] = found
        changed = before is None or before.mode != found.mode or before.error != found.error
        if changed or before is None or self.is_full(before) != self.is_full(found):
            for entry in self.in_dir(path):
                entry.touch()
        if found.present is not None:
            for key in [key for key in self.partitions if key[0] == path and key[1] not in found.present]:
                self._forget(key)
            # Thousands of names, each of which costs a hash: skip empty sets.
            excluded, suspects = found.excluded, found.suspects
            for name in found.present:
                entry = self._present(path, name, excluded.get(name, "") if excluded else "")
                note_suspect(entry, suspects.get(name) if suspects else None, self.settings.backoff)
        for scan in found.scans:
            key = path, scan.name
            if key in self.partitions:
                self.stale.discard(key)
                self._apply_scan(self.partitions[key], scan, now_ms)

    def _present(self, path: str, name: TopicPartition, excluded: str) -> PartitionEntry:
        entry = self.partitions.get((path, name))
        if entry is None:
            entry = self._store(PartitionEntry(name, path, paused=str(name) in self.pauses.names))
        if entry.excluded != excluded:
            entry.excluded = excluded
            entry.scan = entry.scan if not excluded else None
            entry.touch()
        return entry

    def _apply_scan(self, entry: PartitionEntry, scan: PartitionScan | FailedScan, now_ms: int) -> None:
        entry.touch()
        if isinstance(scan, FailedScan):
            entry.failed = scan
            entry.failed_in_a_row += 1
            # Beside a broker a scan can read files that are being replaced. Two failures in a row are real damage.
            if scan.cause is Cause.DATA and entry.failed_in_a_row > 1:
                self._quarantine(entry, scan.reason, now_ms, by_scan=True)
            return
        if entry.scan is not None and entry.scan.topic_id != scan.topic_id and entry.trigger is None:
            # Created again under the same name: the earlier state belongs to another topic.
            entry = self._store(entry.for_new_topic())
        first = entry.scan is None
        if has_advanced(entry, scan):
            entry.release()
        entry.scan, entry.failed, entry.failed_in_a_row = scan, None, 0
        is_to_be_done = entry.hold.requested or is_to_be_erased(entry, scan)
        if not scan.eligible and entry.hold.reason and not is_to_be_done:
            entry.hold = replace(entry.hold, reason="")
        if entry.quarantine is not None and entry.quarantine.by_scan:
            entry.quarantine = None
        known = entry.quarantine
        may_end = entry.trigger is None and (first if known is None else not known.by_death)
        if scan.quarantine_outdated and may_end:
            self.clear_failures(entry)
        elif first and scan.quarantine is not None and scan.retry is not None and entry.quarantine is None:
            retry = scan.retry
            entry.quarantine = Quarantine(scan.quarantine, retry.since_ms, retry.failures, retry.at_ms)
        if first and entry.saving is None:
            entry.saving = self._recall(entry.key, scan)
        note_next_removal(entry, scan, now_ms)
        swapped_in = note_swapped_in(entry, scan)
        if swapped_in is not None:
            self._swapped_in.append(swapped_in)

    def pop_swapped_in(self) -> list[CleaningView]:
        """The staged cleanings that ``cleanerd apply`` has swapped in since the last call."""
        found, self._swapped_in = self._swapped_in, []
        return found

    def _quarantine(self, entry: PartitionEntry, reason: str, now_ms: int, *, by_scan: bool) -> None:
        before = entry.quarantine
        if before is not None and by_scan and (not before.by_scan or now_ms < before.retry_at_ms):
            return  # a successful scan does not clear a worker's finding
        failures = 1 if before is None else before.failures + 1
        since_ms = now_ms if before is None else before.since_ms
        retry_at_ms = now_ms + self.settings.backoff.wait_ms(failures)
        entry.quarantine = Quarantine(reason, since_ms, failures, retry_at_ms, by_scan)

    def begun(self, key: Key, trigger: Trigger) -> None:
        """Note that a worker has begun it."""
        entry = self.partitions[key]
        entry.trigger = trigger
        entry.queued = False
        if trigger == "manual":
            entry.requested = False  # a request meanwhile is served when this job is done
            entry.answered = None
        entry.touch()

    def finished(self, done: JobDone) -> CleaningView | None:
        """Merge a worker's result, with its scan if it made one. Returns the entry for the history, if any."""
        job = done.job
        entry = self.partitions.get((str(job.path), job.name))
        if entry is None:
            return None
        self.stale.add(entry.key)
        if entry.trigger is None:
            return None  # its partition does not exist any more, even if another has its name
        entry.trigger = None
        entry.suspect = None  # it ended, in whatever way
        entry.touch()
        if done.stopped:
            entry.requested = entry.requested or job.trigger == "manual"
            return None
        if entry.scan is not None and entry.scan.topic_id != job.scan.topic_id:
            # Created again meanwhile: the next scan begins with a new state.
            self._store(entry.for_new_topic())
            return None
        before, view = entry.quarantine, note_done(entry, done, self.settings.backoff, self.settings.hold)
        if before is not None and entry.quarantine is None:
            self._clear_quarantine(job.path, job.name)
        elif done.after is not None and not entry.excluded:
            self._apply_job_scan(entry, done.after.scan, done.ended_ms)
        return view

    def _apply_job_scan(self, entry: PartitionEntry, scan: PartitionScan, now_ms: int) -> None:
        """Use a job's scan of its partition at its end, unless its topic was created again meanwhile."""
        if entry.scan is not None and entry.scan.topic_id == scan.topic_id:
            self.stale.discard(entry.key)
            self._apply_scan(entry, scan, now_ms)

    def died(self, key: Key, reason: str, now_ms: int) -> None:
        entry = self.partitions.get(key)
        if entry is None:
            return
        self.stale.add(key)
        if entry.trigger is not None:
            entry.trigger = None
            entry.suspect = None
            entry.touch()
            entry.answered = OperatorOutcome("failed", reason, 1)
            self._quarantine(entry, reason, now_ms, by_scan=False)

    def forget_dir(self, path: str) -> None:
        """Drop a directory that is not managed any more."""
        self.dirs.pop(path, None)
        for key in [key for key in self.partitions if key[0] == path]:
            self._forget(key)

    def _store(self, entry: PartitionEntry) -> PartitionEntry:
        self.partitions[entry.key] = entry
        self._by_name = None
        return entry

    def _forget(self, key: Key) -> None:
        del self.partitions[key]
        self._by_name = None
        self.stale.discard(key)

    # -- operators' requests
    # --------------------------------------------------------------------------------------------

    def named(self, name: str) -> list[PartitionEntry]:
        """The partitions of that name (``orders-0``): one, unless it is being moved between log directories."""
        wanted = parse_topic_partition_dir(name)
        if wanted is None:
            return []
        return [found for path in self.dirs if (found := self.partitions.get((path, wanted))) is not None]

    def by_name(self) -> list[PartitionEntry]:
        """All partitions by topic, partition and log directory; sorted only when the set changes."""
        if self._by_name is None:
            self._by_name = sorted(self.partitions.values(), key=_place)
        return self._by_name

    def in_dir(self, path: str) -> Iterator[PartitionEntry]:
        """The partitions of one log directory."""
        return (entry for key, entry in self.partitions.items() if key[0] == path)

    def pause(self, names: Collection[str] | None, *, paused: bool) -> None:
        """Pause or resume the partitions of these names; None: all cleaning."""
        self.pauses = self.pauses.changed(names, paused=paused)
        for entry in self.partitions.values():
            entry.paused = str(entry.name) in self.pauses.names
            entry.touch()

    def clear_failures(self, entry: PartitionEntry) -> None:
        """End its quarantine: it is tried again after a scan has removed it from the state directory."""
        entry.clear_failures()
        if entry.trigger is None:  # otherwise the job's result is stored
            self.stale.add(entry.key)
            self._clear_quarantine(self.dirs[entry.path].path, entry.name)

    # -- output -------------------------------------------------------------------------------------------------------

    def candidates(self, now_ms: int, among: Iterable[PartitionEntry] | None = None) -> list[Candidate]:
        """The partitions that may be cleaned now, in no order; ``among``: only of these."""
        found = []
        full = {path for path, each in self.dirs.items() if self.is_full(each)}
        for entry in self.partitions.values() if among is None else among:
            trigger = self._trigger(entry, now_ms, is_full=entry.path in full)
            scan = entry.scan
            if trigger is None or scan is None:
                entry.waiting_since_ms = None
                if entry.queued:
                    entry.queued = False
                    entry.touch()
                continue
            if entry.waiting_since_ms is None or entry.waiting_since_ms > now_ms:
                entry.waiting_since_ms = now_ms
            reclaimable = reclaimable_bytes(entry)
            kept = scan.clean_bytes + scan.dirty_bytes - reclaimable
            overdue_at = scan.overdue_at_ms
            found.append(
                Candidate(
                    entry.name,
                    entry.path,
                    trigger,
                    reclaimable,
                    scan.clean_bytes + scan.dirty_bytes + kept,
                    0 if trigger != "overdue" or overdue_at is None else max(1, now_ms - overdue_at),
                    now_ms - entry.waiting_since_ms,
                    is_suspect=entry.suspect is not None,
                    had_part=entry.had_part,
                )
            )
        return found

    def spare_work(self, now_ms: int) -> Iterator[tuple[PartitionEntry, Kind]]:
        """Work to do while no partition is to be cleaned."""
        for kind in SPARE_KINDS:
            yield from ((each, kind) for each in self.partitions.values() if self.is_spare_work(each, kind, now_ms))

    def is_spare_work(self, entry: PartitionEntry, kind: Kind, now_ms: int) -> bool:
        """Whether that may be done: ``drop`` a staged plan that is too old, or find its ``horizons``."""
        return self._is_outdated(entry, now_ms) if kind == "drop" else self._has_unknown_horizons(entry, now_ms)

    def _has_unknown_horizons(self, entry: PartitionEntry, now_ms: int) -> bool:
        """Whether it is unknown when its tombstones can be removed."""
        scan = entry.scan
        unknown = scan is not None and scan.has_clean_part and not entry.removal_known
        return unknown and not self._is_skipped(entry, now_ms)

    def _is_outdated(self, entry: PartitionEntry, now_ms: int) -> bool:
        """Whether ``apply`` would refuse its staged plan because of its age (U-15), and it was not replaced."""
        plan = None if entry.scan is None else entry.scan.staged
        outdated = plan is not None and is_past(plan.expires_ms, now_ms)
        return outdated and self.work_of(entry) in {"live", "stage"} and not self._is_skipped(entry, now_ms)

    def unknown_savings(self, now_ms: int) -> list[PartitionEntry]:
        """Partitions with unknown reclaimable bytes; the dirtiest first."""
        found = [
            (-entry.scan.dirty_bytes, entry)
            for entry in self.partitions.values()
            if entry.scan is not None and self.may_be_estimated(entry, now_ms)
        ]
        return [entry for _, entry in sorted(found, key=lambda pair: pair[0])]

    def may_be_estimated(self, entry: PartitionEntry, now_ms: int) -> bool:
        """Whether it may be estimated: no job runs on it, and no rule forbids reading it."""
        wanted = bool(self.settings.estimate_bytes) and is_to_be_estimated(entry, now_ms)
        return wanted and self._may_be_read(entry, now_ms)

    def _may_be_read(self, entry: PartitionEntry, now_ms: int) -> bool:
        found = self.dirs.get(entry.path)
        reads = found is not None and not found.error and found.facts is not None
        return reads and not self._is_skipped(entry, now_ms)

    def due_digests(self, now_ms: int) -> list[PartitionEntry]:
        """Partitions with grid offsets without a digest; those that waited longest come first (U-90)."""
        found = [entry for entry in self.partitions.values() if self.may_be_digested(entry, now_ms)]
        return sorted(found, key=lambda entry: -1 if entry.digested is None else entry.digested.at_ms)

    def may_be_digested(self, entry: PartitionEntry, now_ms: int) -> bool:
        """Whether its digests may be computed: no job runs on it, and no rule forbids reading it."""
        wanted = bool(self.settings.digest_percent) and is_digest_due(entry, now_ms)
        return wanted and self._may_be_read(entry, now_ms)

    def digested(self, key: Key, scan: PartitionScan, digests: tuple[StateDigest, ...], now_ms: int) -> None:
        """Store its digests from a job that began with this scan; none if they could not be computed."""
        entry = self.partitions.get(key)
        if entry is None or entry.scan is None or entry.scan.topic_id != scan.topic_id:
            return
        found = Digested(now_ms, scan.fingerprint, scan.digest_range, digests)
        entry.digested = found if entry.digested is None else entry.digested.followed_by(found)
        self.digest_changes += 1
        entry.touch()

    def estimated(self, key: Key, topic_id: UUID | None, saving: JobReclaimable | None, now_ms: int) -> None:
        """Store its estimate; None: it could not be made."""
        entry = self.partitions.get(key)
        if entry is None or entry.scan is None or entry.scan.topic_id != topic_id:
            return
        entry.estimated_ms = now_ms
        # An exact result that came meanwhile is better.
        exact = entry.saving is not None and entry.saving.is_of(entry.scan) and entry.saving.estimate is None
        if saving is not None and not exact:
            entry.saving = saving
            entry.touch()

    def reserve_of(self, found: LogDirScan) -> int:
        """The free space to leave on its disk: the setting, or a tenth (two segments, if that is more: U-16)."""
        kept = self.settings.reserve_bytes
        return found.total_bytes // 10 if kept is None else kept

    def is_full(self, found: LogDirScan) -> bool:
        """Whether its disk has no more free space than the reserve."""
        return found.free_bytes <= self.reserve_of(found)

    def work_of(self, entry: PartitionEntry) -> Work | None:
        """What a worker would do in its log directory."""
        found = self.dirs.get(entry.path)
        return None if found is None or found.error or found.facts is None else found.mode.work

    def _trigger(self, entry: PartitionEntry, now_ms: int, *, is_full: bool) -> Trigger | None:
        work = self.work_of(entry)
        if entry.scan is None or work is None or self._is_skipped(entry, now_ms):
            return None
        return trigger_of(entry, work, now_ms, is_full=is_full, plan_max_age_ms=self.settings.plan_max_age_ms)

    def may_change_now(self, entry: PartitionEntry, now_ms: int) -> bool:
        """Whether the daemon cleans the partition live, and neither an operator nor a failure holds it back."""
        return self.work_of(entry) == "live" and not self.held and not self._is_skipped(entry, now_ms)

    def _is_skipped(self, entry: PartitionEntry, now_ms: int) -> bool:
        if entry.excluded or entry.failed is not None or entry.trigger is not None:
            return True
        # Usually the set is empty, so avoid hashing the key.
        if self.stale and entry.key in self.stale:
            return True
        if self.pauses.everything or entry.paused or (entry.quarantine is not None and entry.quarantine.by_scan):
            return True
        held = 0 if entry.requested else entry.hold.until_ms
        if entry.quarantine is not None and not entry.requested:
            held = max(held, entry.quarantine.retry_at_ms)
        # A clock that jumped back must not delay it for longer than the longest wait.
        return now_ms < held <= now_ms + max(self.settings.backoff.longest_ms, self.settings.hold.longest_ms)


def _place(entry: PartitionEntry) -> tuple[str, int, str]:
    """Its sort key in the list of all: plain values, which compare quickly."""
    return entry.name.topic, entry.name.partition, entry.path
