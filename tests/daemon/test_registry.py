"""The registry: which scans and results make a partition a candidate, why, and which partitions wait."""

from __future__ import annotations

from dataclasses import replace

from cleanerd.cleaner.staged_plan import StagedPlan
from cleanerd.daemon.partition_scan import FailedScan
from cleanerd.daemon.registry.partition_entry import (
    HOLD_BACKOFF,
    RESTAGE_AFTER_MS,
    PartitionEntry,
    reclaimable_bytes,
)
from cleanerd.daemon.status.view_parts import partition_view
from cleanerd.daemon.work.job import Backoff, JobDone
from cleanerd.errors import Cause, RefusedError, StalePlanError
from cleanerd.state.cleaner_checkpoint import Retry
from tests.daemon.registries import (
    CLEAN,
    DAY_MS,
    KEY,
    NAME,
    NOW,
    PATH,
    SAVING,
    dir_scan,
    done,
    entry_of,
    job_on,
    nothing_new,
    partition_scan,
    registry_with,
    result,
    triggers,
)


def test_the_triggers_of_a_cleaning() -> None:
    """C-11, and one that Kafka never has: a tombstone removal on an idle partition."""
    assert triggers(registry_with()) == ["ratio"]
    assert triggers(registry_with(partition_scan(**CLEAN))) == []
    assert triggers(registry_with(partition_scan(overdue_at_ms=NOW))) == ["overdue"]
    late = registry_with(partition_scan(eligible=False, reason="ratio", overdue_at_ms=NOW + 5))
    assert triggers(late) == []
    assert triggers(late, NOW + 5) == ["overdue"], "by the clock alone, without another scan"
    idle = registry_with(partition_scan(**CLEAN, removal_known=True, next_purge_ms=NOW + 9))
    assert triggers(idle, NOW + 8) == []
    assert triggers(idle, NOW + 9) == ["tombstone_removal"]
    assert (
        triggers(registry_with(partition_scan(refused=True, forceable=False, eligible=False, overdue_at_ms=NOW))) == []
    )


def test_which_partitions_are_left_alone() -> None:
    registry = registry_with()
    registry.pause(["orders-0"], paused=True)
    assert triggers(registry) == []
    registry.pause(["orders-0"], paused=False)
    registry.pause(None, paused=True)
    assert triggers(registry) == []
    registry.pause(None, paused=False)
    registry.begun(KEY, "ratio")
    assert triggers(registry) == []
    assert triggers(registry_with(work=None)) == []
    assert triggers(registry_with(free=100)) == [], "U-16: the reserve"
    assert triggers(registry_with(free=100, work="observe")) == ["ratio"], "which writes nothing"


def test_a_full_disk_does_not_stop_requests() -> None:
    """The cleaning itself sees whether its next segment fits."""
    registry = registry_with(free=0)
    entry_of(registry).requested = True
    assert triggers(registry) == ["manual"]


def test_a_failure_is_remembered_and_ends_with_a_success() -> None:
    registry = registry_with()
    retry = Retry(NOW, 3, NOW + 4000)
    done(registry, failed="broken", retry=retry, result=result("quarantined"))
    found = partition_view(registry, entry_of(registry))
    assert found.phase == "quarantined"
    assert found.quarantine is not None
    assert (found.quarantine.failures, found.quarantine.retry_at_ms) == (3, NOW + 4000)
    assert triggers(registry, NOW + 3999) == []
    assert triggers(registry, NOW + 4000) == ["ratio"]
    assert triggers(registry, NOW - DAY_MS) == ["ratio"], "a clock that jumped back pauses no partition for a day"
    done(registry, NOW + 4000, result=result())
    assert partition_view(registry, entry_of(registry)).quarantine is None


def test_a_passing_obstacle_holds_a_partition_briefly() -> None:
    registry = registry_with()
    for wait_ms in (HOLD_BACKOFF.first_ms, 2 * HOLD_BACKOFF.first_ms):
        done(registry, result=result("skipped", reason="busy", error=StalePlanError("busy")))
        assert partition_view(registry, entry_of(registry)).quarantine is None
        assert partition_view(registry, entry_of(registry)).reason == "busy"
        assert triggers(registry, NOW + wait_ms - 1) == []
        assert triggers(registry, NOW + wait_ms) == ["ratio"]


def test_a_refusal_that_needs_the_operator_is_tried_seldom() -> None:
    """A cleaning that has to index the whole log to find that it is refused: as rarely as after a failure."""
    registry = registry_with()
    registry.settings = replace(registry.settings, backoff=Backoff(60_000, 3_600_000))
    for number in range(12):
        done(registry, result=result("skipped", reason="v0 messages", error=RefusedError("v0 messages")))
        assert triggers(registry, NOW + min(60_000 << number, 3_600_000) - 1) == []
    assert triggers(registry, NOW + 3_600_000) == ["ratio"]
    assert partition_view(registry, entry_of(registry)).reason == "v0 messages"
    registry.merge(dir_scan(partition_scan(**CLEAN)), NOW)
    assert partition_view(registry, entry_of(registry)).reason == "clean enough"


def test_leftovers_of_a_killed_cleaning_are_removed() -> None:
    assert triggers(registry_with(partition_scan(**CLEAN, leftover=True))) == ["tombstone_removal"]
    assert triggers(registry_with(partition_scan(**CLEAN, leftover=True), work="stage")) == []


def test_a_scan_that_fails_twice_is_a_quarantine_that_ends_by_itself() -> None:
    """Next to a broker, files are replaced during a scan, so one failure is no proof."""
    bad = FailedScan(NAME, "damaged", Cause.DATA)
    registry = registry_with(partition_scan(), bad)
    assert partition_view(registry, entry_of(registry)).phase == "idle"
    assert triggers(registry) == []
    registry.merge(dir_scan(bad), NOW)
    assert partition_view(registry, entry_of(registry)).phase == "quarantined"
    registry.merge(dir_scan(partition_scan()), NOW)
    assert partition_view(registry, entry_of(registry)).phase == "idle"
    assert triggers(registry) == ["ratio"]
    refused = FailedScan(NAME, "no such policy", Cause.OPERATOR)
    assert partition_view(registry_with(refused, refused), PartitionEntry(NAME, str(PATH))).quarantine is None


def test_a_topic_that_was_created_again_starts_from_zero() -> None:
    import uuid  # noqa: PLC0415

    registry = registry_with(partition_scan(topic_id=uuid.UUID(int=1)))
    done(registry, failed="broken", retry=Retry(NOW, 9, NOW + 8000))
    registry.merge(dir_scan(partition_scan(topic_id=uuid.UUID(int=2))), NOW)
    assert entry_of(registry).quarantine is None
    assert triggers(registry) == ["ratio"]


def test_the_ratio_saved_by_a_cleaning_is_expected_of_the_next() -> None:
    registry = registry_with()
    assert reclaimable_bytes(entry_of(registry)) == 100, "half of the dirty bytes, as long as nothing is known"
    done(registry, result=result(bytes_before=300, bytes_after=280))
    assert reclaimable_bytes(entry_of(registry)) == 20
    done(registry, saving=SAVING)
    assert reclaimable_bytes(entry_of(registry)) == 50
    assert partition_view(registry, entry_of(registry)).reclaimable_exact
    registry.merge(dir_scan(partition_scan(first_uncleanable_offset=30)), NOW)
    assert not partition_view(registry, entry_of(registry)).reclaimable_exact


def test_nothing_is_reclaimable_after_another_process_cleaned() -> None:
    """The bound stays where it was when the partition is cleaned up to it: the estimate is about another log."""
    registry = registry_with(work="observe")
    done(registry, kind="observe", saving=SAVING)
    registry.merge(dir_scan(partition_scan(first_dirty_offset=20, clean_bytes=240, **CLEAN), work="observe"), NOW)
    view = partition_view(registry, entry_of(registry))
    assert (view.reclaimable_bytes, view.reclaimable_exact) == (0, False)
    # Tombstones are removed from a log that stays clean up to the same offset.
    idle = replace(SAVING, first_dirty_offset=20, clean_bytes=240, dirty_bytes=0)
    done(registry, kind="observe", saving=idle)
    assert partition_view(registry, entry_of(registry)).reclaimable_exact
    registry.merge(dir_scan(partition_scan(first_dirty_offset=20, clean_bytes=200, **CLEAN), work="observe"), NOW)
    assert partition_view(registry, entry_of(registry)).reclaimable_bytes == 0
    # As much was written again: another log, which is estimated again.
    done(registry, kind="observe", saving=SAVING)
    registry.merge(
        dir_scan(partition_scan(first_dirty_offset=20, first_uncleanable_offset=30, dirty_bytes=205), work="observe"),
        NOW,
    )
    assert triggers(registry) == ["ratio"]


def test_tombstones_whose_predecessors_were_removed_are_due_at_once() -> None:
    """R534-6: the cleaning reports that the next one is due at once; a staged cleaning has removed nothing yet."""
    for outcome, expected in (("cleaned", ["tombstone_removal"]), ("staged", [])):
        registry = registry_with(partition_scan(strategy="timestamp", **CLEAN))
        done(registry, result=result(outcome, next_purge_ms=NOW))
        assert triggers(registry) == expected


def test_a_staged_cleaning_is_made_again_when_it_is_old_or_much_was_written() -> None:
    def after(age_ms: int, bound: int) -> list[str]:
        return triggers(registry_with(partition_scan(staged=StagedPlan(bound, NOW - age_ms)), work="stage"))

    assert after(0, 20) == []
    assert after(RESTAGE_AFTER_MS, 20) == []
    assert after(RESTAGE_AFTER_MS - 1, 10) == []
    assert after(RESTAGE_AFTER_MS, 10) == ["ratio"]
    assert after(7 * DAY_MS // 2, 20) == ["ratio"]
    registry = registry_with(work="stage")
    done(registry, result=result("unchanged"))
    assert triggers(registry) == [], "there was nothing to stage: not tried again before more is dirty"
    registry.merge(dir_scan(partition_scan(first_uncleanable_offset=30), work="stage"), NOW)
    assert triggers(registry) == ["ratio"]


def test_a_staged_cleaning_of_a_clock_that_is_ahead_is_made_again_once() -> None:
    """A manifest has the wall clock's time, which may be a day ahead: staged again once, not for an hour."""
    registry = registry_with(partition_scan(staged=StagedPlan(20, NOW + DAY_MS)), work="stage")
    assert triggers(registry) == ["ratio"], "the maker of the staged cleaning is unknown"
    done(registry, kind="stage", result=result("staged"))
    registry.merge(dir_scan(partition_scan(staged=StagedPlan(20, NOW + DAY_MS)), work="stage"), NOW)
    assert triggers(registry, NOW + 1) == []
    assert triggers(registry, NOW + RESTAGE_AFTER_MS) == ["ratio"]
    assert triggers(registry, NOW - 1) == ["ratio"], "ours was ahead too when it was staged"


def test_observed_again_when_a_tenth_more_is_dirty() -> None:
    registry = registry_with(work="observe")
    done(registry, saving=SAVING)
    assert triggers(registry) == []
    registry.merge(dir_scan(partition_scan(first_uncleanable_offset=30, dirty_bytes=219), work="observe"), NOW)
    assert triggers(registry) == []
    registry.merge(dir_scan(partition_scan(first_uncleanable_offset=40, dirty_bytes=220), work="observe"), NOW)
    assert triggers(registry) == ["ratio"]


def test_a_removed_partition_is_forgotten() -> None:
    registry = registry_with()
    registry.merge(replace(dir_scan(), present=frozenset()), NOW)
    assert not registry.partitions
    registry.merge(replace(dir_scan(partition_scan()), present=None), NOW)
    assert not registry.partitions, "a scan of one partition does not restore it"


def test_an_observed_partition_is_staged_after_a_reload() -> None:
    """After a reload from observe to on-start, nothing is staged yet."""
    registry = registry_with(work="observe")
    done(registry, kind="observe", saving=SAVING)
    registry.merge(dir_scan(partition_scan(), work="stage"), NOW)
    assert triggers(registry) == ["ratio"]


def test_a_staged_cleaning_that_was_discarded_is_made_again() -> None:
    """``apply`` discarded it as stale: after a while, because an unreadable one must not be staged all the time."""
    registry = registry_with(work="stage")
    done(registry, kind="stage", result=result("staged"))
    assert triggers(registry) == []
    assert triggers(registry, NOW + RESTAGE_AFTER_MS) == ["ratio"]


def test_horizons_are_unknown_after_a_cleaning_by_the_broker() -> None:
    """The broker's own cleaner ran after ours, so the horizons are read again."""
    registry = registry_with(partition_scan(**CLEAN, removal_known=True, next_purge_ms=None))
    assert not list(registry.spare_work(NOW))
    registry.merge(dir_scan(partition_scan(**CLEAN, first_dirty_offset=15)), NOW)
    assert [(each.name, kind) for each, kind in registry.spare_work(NOW)] == [(NAME, "horizons")]
    done(registry, kind="horizons", horizons=True, next_purge_ms=NOW + 7)
    registry.merge(dir_scan(partition_scan(**CLEAN, first_dirty_offset=15)), NOW)
    assert not list(registry.spare_work(NOW)), "also when that could not be stored"
    assert triggers(registry, NOW + 7) == ["tombstone_removal"]


def test_the_result_of_a_partition_that_is_gone_is_ignored() -> None:
    """It was deleted and created again while a worker had the old one."""
    registry = registry_with()
    old = entry_of(registry).scan
    assert old is not None
    job = job_on(old)
    registry.begun(KEY, "ratio")
    registry.merge(replace(dir_scan(), present=frozenset()), NOW)
    registry.merge(dir_scan(partition_scan()), NOW)
    assert registry.finished(JobDone(job, NOW, failed="broken", retry=Retry(NOW, 9, NOW + 8000))) is None
    registry.died(KEY, "broken", NOW)
    nothing_new(registry)
    assert entry_of(registry).quarantine is None
    assert triggers(registry) == ["ratio"]


def test_the_result_of_a_topic_that_was_created_again_is_ignored() -> None:
    import uuid  # noqa: PLC0415

    registry = registry_with(partition_scan(topic_id=uuid.UUID(int=1)))
    old = entry_of(registry).scan
    assert old is not None
    job = job_on(old)
    registry.begun(KEY, "ratio")
    registry.merge(dir_scan(partition_scan(topic_id=uuid.UUID(int=2))), NOW)
    registry.finished(JobDone(job, NOW, failed="broken", retry=Retry(NOW, 9, NOW + 8000)))
    registry.merge(dir_scan(partition_scan(topic_id=uuid.UUID(int=2))), NOW)
    nothing_new(registry)
    assert entry_of(registry).quarantine is None
    assert triggers(registry) == ["ratio"]


def test_a_full_disk_is_the_reason_that_is_reported() -> None:
    """U-16: not "about to be cleaned" for days."""
    registry = registry_with()
    assert partition_view(registry, entry_of(registry)).reason == "about to be cleaned"
    registry.merge(dir_scan(free=100), NOW)
    assert "cleanerd.disk.reserve" in partition_view(registry, entry_of(registry)).reason
    registry.merge(dir_scan(), NOW)
    assert partition_view(registry, entry_of(registry)).reason == "about to be cleaned"
    nothing = registry_with(work="stage")
    done(nothing, kind="stage", result=result("unchanged"))
    assert partition_view(nothing, entry_of(nothing)).reason == "cleaning would remove nothing"


def test_scans_do_not_clear_a_workers_failure() -> None:
    """Two scans that fail and one that succeeds: tried again when it was due, and its failures still count."""
    registry = registry_with()
    done(registry, failed="corrupt", retry=Retry(NOW - 5, 5, NOW + 8000))
    for _ in range(2):
        registry.merge(dir_scan(FailedScan(NAME, "cannot be read", Cause.DATA)), NOW)
    registry.merge(dir_scan(partition_scan()), NOW)
    found = entry_of(registry).quarantine
    assert found is not None
    assert (found.reason, found.failures, found.retry_at_ms) == ("corrupt", 5, NOW + 8000)
    assert triggers(registry) == []
