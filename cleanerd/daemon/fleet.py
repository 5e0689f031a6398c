"""Every partition that the daemon looks after: what it knows of each, and which may be cleaned now.

Pure in the sense that matters: no file, no clock, no thread. Looks and results go in, candidates come out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cleanerd.daemon.jobs import passes_soon
from cleanerd.daemon.look import FailedLook, Look
from cleanerd.daemon.schedule import Candidate, Trigger, retry_wait_ms
from cleanerd.daemon.tracked import (
    IN_VAIN,
    RESTAGE_AFTER_MS,
    Key,
    Quarantine,
    Tracked,
    is_in_vain,
    is_news,
    is_overdue,
    is_past,
    quarantine_after,
    reclaimable_bytes,
    was_staged_lately,
)
from cleanerd.daemon.unseen import Unseen
from cleanerd.daemon.view import CleanView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.daemon.jobs import JobDone, Kind
    from cleanerd.daemon.looker import DirLook
    from cleanerd.daemon.modes import Work
    from cleanerd.format.names import TopicPartition

HOLD_MS: Final = (15_000, 300_000)
"""After something that passes (the broker was busy): so long at first, so long at most."""

GREW: Final = 10
"""In observe mode a partition is worked out again when one part in so many more is dirty."""


class Fleet:
    """All of them, and the log directories as they were last looked at.

    ``backoff_ms``: the first and the longest wait after a failure. ``reserve_bytes``: what stays free on a disk, None:
    by the disk's size.
    """

    def __init__(
        self,
        backoff_ms: tuple[int, int],
        plan_max_age_ms: int,
        reserve_bytes: int | None,
        spark_threshold_keys: int | None = None,
    ) -> None:
        self.backoff_ms = backoff_ms
        self.plan_max_age_ms = plan_max_age_ms
        self.reserve_bytes = reserve_bytes
        self.spark_threshold_keys = spark_threshold_keys
        self.dirs: dict[str, DirLook] = {}
        self.partitions: dict[Key, Tracked] = {}
        self.unseen = Unseen()
        self.paused = False
        self.paused_names: set[str] = set()

    # -- what comes in ------------------------------------------------------------------------------------------------

    def merge(self, found: DirLook, now_ms: int) -> None:
        """A look at a log directory."""
        path = str(found.path)
        before = self.dirs.get(path)
        if before is not None and found.facts is None:
            found = replace(found, facts=before.facts)
        self.dirs[path] = found
        changed = before is None or before.mode != found.mode or before.error != found.error
        if changed or before is None or self.is_full(before) != self.is_full(found):
            for tracked in self.in_dir(path):
                tracked.touch()
        if found.present is not None:
            for key in [key for key in self.partitions if key[0] == path and key[1] not in found.present]:
                self._forget(key)
            for name in found.present:
                self._present(path, name, found.excluded.get(name, ""))
        for look in found.looks:
            if (path, look.name) in self.partitions:
                self._looked(self.partitions[path, look.name], look, now_ms)
        self.unseen.looked(found)

    def _present(self, path: str, name: TopicPartition, excluded: str) -> None:
        tracked = self.partitions.get((path, name))
        if tracked is None:
            tracked = self.partitions[path, name] = Tracked(name, path, paused=str(name) in self.paused_names)
        if tracked.excluded != excluded:
            tracked.excluded = excluded
            tracked.look = tracked.look if not excluded else None
            tracked.touch()

    def _looked(self, tracked: Tracked, look: Look | FailedLook, now_ms: int) -> None:
        tracked.touch()
        if isinstance(look, FailedLook):
            tracked.failed = look
            tracked.failed_in_a_row += 1
            # Beside a broker a look can meet files that are being replaced: twice in a row is no accident.
            if look.kind == "bad" and tracked.failed_in_a_row > 1:
                self._quarantine(tracked, look.reason, now_ms, by_look=True)
            return
        if tracked.look is not None and tracked.look.topic_id != look.topic_id and tracked.trigger is None:
            # Created again under the same name: what was known is another topic's.
            tracked = self.partitions[tracked.key] = tracked.anew()
        first = tracked.look is None
        if is_news(tracked, look):
            tracked.holds, tracked.hold_until_ms, tracked.hold_reason = 0, 0, ""
        tracked.look, tracked.failed, tracked.failed_in_a_row = look, None, 0
        if not look.eligible:
            tracked.hold_reason = ""
        if tracked.quarantine is not None and tracked.quarantine.by_look:
            tracked.quarantine = None
        if first and look.quarantine is not None and look.retry is not None and tracked.quarantine is None:
            retry = look.retry
            tracked.quarantine = Quarantine(look.quarantine, retry.since_ms, retry.failures, retry.at_ms)
        if look.purge_known:
            told = (look.clean_offset, look.next_purge_ms)
            # Said again it is no news: what a worker found out since may be what could not be written down.
            if told != tracked.purge_told and not (tracked.purge_known and is_past(tracked.next_purge_ms, now_ms)):
                tracked.next_purge_ms = look.next_purge_ms
            tracked.purge_known, tracked.purge_to, tracked.purge_told = True, look.clean_offset, told
        elif look.clean_offset > tracked.purge_to:
            tracked.purge_known = False  # somebody else cleaned, and set horizons

    def _quarantine(self, tracked: Tracked, reason: str, now_ms: int, *, by_look: bool) -> None:
        before = tracked.quarantine
        if before is not None and by_look and (not before.by_look or now_ms < before.retry_at_ms):
            return  # nor is what a worker found forgiven by the next look that goes well
        failures = 1 if before is None else before.failures + 1
        since_ms = now_ms if before is None else before.since_ms
        retry_at_ms = now_ms + retry_wait_ms(failures, *self.backoff_ms)
        tracked.quarantine = Quarantine(reason, since_ms, failures, retry_at_ms, by_look)

    def begun(self, key: Key, trigger: Trigger) -> None:
        """A worker has it now."""
        tracked = self.partitions[key]
        tracked.trigger = trigger
        tracked.queued = False
        if trigger == "asked":
            tracked.asked = False  # who asks again meanwhile is heard when this one is done
        tracked.touch()

    def finished(self, done: JobDone) -> CleanView | None:
        """What a worker says. Returns what goes into the history, if anything does."""
        job = done.job
        tracked = self.partitions.get((str(job.path), job.name))
        if tracked is None:
            return None
        self.unseen.ended(tracked.key)
        if tracked.trigger is None:
            return None  # the one that it worked on is gone, whatever has its name now
        tracked.trigger = None
        tracked.touch()
        if done.stopped:
            tracked.asked = tracked.asked or job.trigger == "asked"
            return None
        if tracked.look is not None and tracked.look.topic_id != job.look.topic_id:
            # Created again meanwhile: the next look begins with it anew.
            self.partitions[tracked.key] = tracked.anew()
            return None
        tracked.waiting_since_ms = None
        if done.horizons:
            tracked.purge_known, tracked.next_purge_ms = True, done.next_purge_ms
            tracked.purge_to = max(tracked.purge_to, job.look.clean_offset)
        if done.saving is not None:
            tracked.saving = done.saving
        if done.failed:
            tracked.quarantine = quarantine_after(done, self.backoff_ms[0])
        elif done.passing:
            self._hold(tracked, done.passing, done.ended_ms, HOLD_MS)
        elif done.result is None or done.result.outcome not in {"skipped", "failed"}:
            tracked.quarantine = None
            if is_in_vain(tracked, job):
                self._hold(tracked, IN_VAIN, done.ended_ms, HOLD_MS)
            else:
                tracked.holds, tracked.hold_until_ms, tracked.hold_reason = 0, 0, ""
        return self._result(tracked, done)

    def _result(self, tracked: Tracked, done: JobDone) -> CleanView | None:
        result = done.result
        if result is None:
            return None
        if result.outcome in {"skipped", "failed"} or (result.outcome == "quarantined" and not done.failed):
            # Without an error the look was just outdated.
            reason = "" if result.error is None else result.reason
            self._hold(tracked, reason, done.ended_ms, HOLD_MS if passes_soon(result.error) else self.backoff_ms)
            if result.outcome != "failed":
                return None
        elif not done.failed:
            look = done.job.look
            saved = max(0, result.bytes_before - result.bytes_after)
            tracked.share = min(1.0, saved / look.dirty_bytes) if look.dirty_bytes else tracked.share
            # What is staged goes at the next start of the broker, and not before.
            if result.outcome != "staged":
                tracked.purge_known, tracked.next_purge_ms = True, result.next_purge_ms
                tracked.done_to = look.bound_offset
                if done.job.kind == "live":
                    tracked.purge_to = max(tracked.purge_to, look.bound_offset)
            guards = look.config.tombstone_guard == "horizon"
            if result.tombstones_waiting and result.dropped.total and guards and look.strategy != "offset":
                # What they waited for went in this very round (R534-6): another one finds out.
                tracked.next_purge_ms = done.ended_ms
        tracked.last_clean = CleanView(
            tracked.name.topic,
            tracked.name.partition,
            done.job.started_ms,
            done.ended_ms,
            done.job.trigger,
            result.to_json(),
        )
        return tracked.last_clean

    def _hold(self, tracked: Tracked, reason: str, now_ms: int, waits_ms: tuple[int, int]) -> None:
        tracked.holds += 1
        tracked.hold_until_ms = now_ms + retry_wait_ms(tracked.holds, *waits_ms)
        tracked.hold_reason = reason

    def died(self, key: Key, reason: str, now_ms: int) -> None:
        """The worker that had it is gone."""
        tracked = self.partitions.get(key)
        if tracked is None:
            return
        self.unseen.ended(key)
        if tracked.trigger is not None:
            tracked.trigger = None
            tracked.touch()
            self._quarantine(tracked, reason, now_ms, by_look=False)

    def forget_dir(self, path: str) -> None:
        """It is no longer looked after."""
        self.dirs.pop(path, None)
        for key in [key for key in self.partitions if key[0] == path]:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        del self.partitions[key]
        self.unseen.forget(key)

    # -- what people ask for ------------------------------------------------------------------------------------------

    def named(self, name: str) -> list[Tracked]:
        """The partitions of that name (``orders-0``): one, unless it is being moved between log directories."""
        return [tracked for tracked in self.partitions.values() if str(tracked.name) == name]

    def in_dir(self, path: str) -> Iterator[Tracked]:
        """Those of one log directory."""
        return (tracked for key, tracked in self.partitions.items() if key[0] == path)

    def pause(self, name: str | None, *, paused: bool) -> None:
        """One partition, or with None all of them."""
        if name is None:
            self.paused = paused
        elif paused:
            self.paused_names.add(name)
        else:
            self.paused_names.discard(name)
        for tracked in self.partitions.values():
            tracked.paused = str(tracked.name) in self.paused_names
            tracked.touch()

    def forgive(self, tracked: Tracked) -> None:
        """End its quarantine: it is tried again at once."""
        tracked.quarantine = None
        tracked.holds, tracked.hold_until_ms, tracked.hold_reason = 0, 0, ""
        tracked.done_to = None
        tracked.touch()

    # -- what comes out -----------------------------------------------------------------------------------------------

    def candidates(self, now_ms: int) -> list[Candidate]:
        """Who may be cleaned now, in no order."""
        found = []
        full = {path for path, each in self.dirs.items() if self.is_full(each)}
        for key, tracked in self.partitions.items():
            trigger = self._trigger(tracked, now_ms, is_full=key[0] in full)
            look = tracked.look
            if trigger is None or look is None:
                tracked.waiting_since_ms = None
                if tracked.queued:
                    tracked.queued = False
                    tracked.touch()
                continue
            if tracked.waiting_since_ms is None or tracked.waiting_since_ms > now_ms:
                tracked.waiting_since_ms = now_ms
            reclaimable = reclaimable_bytes(tracked)
            kept = look.clean_bytes + look.dirty_bytes - reclaimable
            overdue_at = look.overdue_at_ms
            found.append(
                Candidate(
                    tracked.name,
                    tracked.path,
                    trigger,
                    reclaimable,
                    look.clean_bytes + look.dirty_bytes + kept,
                    0 if trigger != "overdue" or overdue_at is None else max(1, now_ms - overdue_at),
                    now_ms - tracked.waiting_since_ms,
                )
            )
        return found

    def unknown_horizons(self, now_ms: int) -> Iterator[Tracked]:
        """Partitions of which nobody knows when their tombstones may go."""
        for tracked in self.partitions.values():
            look = tracked.look
            if (
                look is not None
                and look.has_clean_part
                and not tracked.purge_known
                and not self._is_left_alone(tracked, now_ms)
            ):
                yield tracked

    def spare_work(self, now_ms: int) -> Iterator[tuple[Tracked, Kind]]:
        """What may be done while nobody is to be cleaned."""
        yield from ((tracked, "drop") for tracked in self.outdated_plans(now_ms))
        yield from ((tracked, "horizons") for tracked in self.unknown_horizons(now_ms))

    def outdated_plans(self, now_ms: int) -> Iterator[Tracked]:
        """Partitions with a staged plan that ``apply`` would refuse for its age (U-15), and that was not made anew."""
        for tracked in self.partitions.values():
            plan = None if tracked.look is None else tracked.look.staged
            outdated = plan is not None and is_past(plan.expires_ms, now_ms)
            if outdated and self.work_of(tracked) in {"live", "stage"} and not self._is_left_alone(tracked, now_ms):
                yield tracked

    def reserve_of(self, found: DirLook) -> int:
        """What is kept free on its disk: the setting, or a tenth (two segments, where that is more: U-16)."""
        return found.total_bytes // 10 if self.reserve_bytes is None else self.reserve_bytes

    def is_full(self, found: DirLook) -> bool:
        """Whether only what is kept free is left there."""
        return found.free_bytes <= self.reserve_of(found)

    def work_of(self, tracked: Tracked) -> Work | None:
        """What a worker would do in its log directory."""
        found = self.dirs.get(tracked.path)
        return None if found is None or found.error or found.facts is None else found.mode.work

    def _trigger(self, tracked: Tracked, now_ms: int, *, is_full: bool) -> Trigger | None:
        look, work = tracked.look, self.work_of(tracked)
        if look is None or work is None or self._is_left_alone(tracked, now_ms):
            return None
        trigger: Trigger | None = None
        if tracked.asked:
            trigger = "asked"
        elif is_full and work != "observe":
            trigger = None
        elif look.forceable and is_overdue(look, now_ms):
            trigger = "overdue"
        elif look.eligible:
            trigger = "ratio"
        elif look.forceable and look.has_clean_part and is_past(tracked.next_purge_ms, now_ms):
            trigger = "purge"
        elif look.leftover and work == "live":
            trigger = "purge"  # a cleaning that was killed: another one tidies up and moves the clean point
        return None if trigger != "asked" and self._is_done(tracked, look, work, trigger, now_ms) else trigger

    def _is_left_alone(self, tracked: Tracked, now_ms: int) -> bool:
        if tracked.excluded or tracked.failed is not None or tracked.trigger is not None:
            return True
        if tracked.key in self.unseen:
            return True
        if self.paused or tracked.paused or (tracked.quarantine is not None and tracked.quarantine.by_look):
            return True
        held = 0 if tracked.asked else tracked.hold_until_ms
        if tracked.quarantine is not None and not tracked.asked:
            held = max(held, tracked.quarantine.retry_at_ms)
        # A clock that jumped back must not leave it alone for longer than the longest wait.
        return now_ms < held <= now_ms + max(self.backoff_ms[1], HOLD_MS[1])

    def has_nothing_to_stage(self, tracked: Tracked) -> bool:
        """Whether a worker found that nothing of the log as it is would go."""
        look = tracked.look
        if look is None or look.staged is not None or self.work_of(tracked) != "stage":
            return False
        return tracked.done_to == look.bound_offset

    def _is_done(self, tracked: Tracked, look: Look, work: Work, trigger: Trigger | None, now_ms: int) -> bool:
        """Whether nothing has changed since it was staged or worked out, where doing so changes no log."""
        if work == "stage":
            plan = look.staged
            if plan is not None and 0 <= now_ms - plan.created_ms < self.plan_max_age_ms // 2:
                return now_ms - plan.created_ms < RESTAGE_AFTER_MS or plan.bound_offset >= look.bound_offset
            # Nobody can read it, or its age goes by a wall clock that is not believed: another one would be no better.
            if (plan is None or plan.created_ms > now_ms) and was_staged_lately(tracked, now_ms):
                return True
            return trigger != "purge" and self.has_nothing_to_stage(tracked)
        if work == "observe" and tracked.saving is not None:
            grown = GREW * (look.dirty_bytes - tracked.saving.dirty_bytes) >= tracked.saving.dirty_bytes
            return look.bound_offset == tracked.saving.bound_offset or not grown
        return False
