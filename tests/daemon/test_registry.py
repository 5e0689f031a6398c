"""What the fleet makes of looks and results: who is a candidate, why, and who is left alone."""

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
from tests.daemon.fleets import (
    CLEAN,
    DAY_MS,
    KEY,
    NAME,
    NOW,
    PATH,
    SAVING,
    dir_scan,
    done,
    fleet_with,
    job_on,
    nothing_new,
    partition_scan,
    result,
    tracked,
    triggers,
)


def test_why_it_is_cleaned() -> None:
    """C-11, and what Kafka never does: a tombstone removal on an idle partition."""
    assert triggers(fleet_with()) == ["ratio"]
    assert triggers(fleet_with(partition_scan(**CLEAN))) == []
    assert triggers(fleet_with(partition_scan(overdue_at_ms=NOW))) == ["overdue"]
    late = fleet_with(partition_scan(eligible=False, reason="ratio", overdue_at_ms=NOW + 5))
    assert triggers(late) == []
    assert triggers(late, NOW + 5) == ["overdue"], "by the clock alone, without another look"
    idle = fleet_with(partition_scan(**CLEAN, removal_known=True, next_tombstone_removal_ms=NOW + 9))
    assert triggers(idle, NOW + 8) == []
    assert triggers(idle, NOW + 9) == ["tombstone_removal"]
    assert triggers(fleet_with(partition_scan(refused=True, forceable=False, eligible=False, overdue_at_ms=NOW))) == []


def test_which_partitions_are_left_alone() -> None:
    fleet = fleet_with()
    fleet.pause(["orders-0"], paused=True)
    assert triggers(fleet) == []
    fleet.pause(["orders-0"], paused=False)
    fleet.pause(None, paused=True)
    assert triggers(fleet) == []
    fleet.pause(None, paused=False)
    fleet.begun(KEY, "ratio")
    assert triggers(fleet) == []
    assert triggers(fleet_with(work=None)) == []
    assert triggers(fleet_with(free=100)) == [], "U-16: the reserve"
    assert triggers(fleet_with(free=100, work="observe")) == ["ratio"], "which writes nothing"


def test_a_full_disk_does_not_stop_requests() -> None:
    """The cleaning itself sees whether its next segment fits."""
    fleet = fleet_with(free=0)
    tracked(fleet).requested = True
    assert triggers(fleet) == ["manual"]


def test_a_failure_is_remembered_and_ends_with_a_success() -> None:
    fleet = fleet_with()
    retry = Retry(NOW, 3, NOW + 4000)
    done(fleet, failed="broken", retry=retry, result=result("quarantined"))
    found = partition_view(fleet, tracked(fleet))
    assert found.phase == "quarantined"
    assert found.quarantine is not None
    assert (found.quarantine.failures, found.quarantine.retry_at_ms) == (3, NOW + 4000)
    assert triggers(fleet, NOW + 3999) == []
    assert triggers(fleet, NOW + 4000) == ["ratio"]
    assert triggers(fleet, NOW - DAY_MS) == ["ratio"], "a clock that jumped back leaves nobody alone for a day"
    done(fleet, NOW + 4000, result=result())
    assert partition_view(fleet, tracked(fleet)).quarantine is None


def test_a_passing_obstacle_holds_a_partition_briefly() -> None:
    fleet = fleet_with()
    for wait_ms in (HOLD_BACKOFF.first_ms, 2 * HOLD_BACKOFF.first_ms):
        done(fleet, result=result("skipped", reason="busy", error=StalePlanError("busy")))
        assert partition_view(fleet, tracked(fleet)).quarantine is None
        assert partition_view(fleet, tracked(fleet)).reason == "busy"
        assert triggers(fleet, NOW + wait_ms - 1) == []
        assert triggers(fleet, NOW + wait_ms) == ["ratio"]


def test_a_refusal_that_needs_the_operator_is_tried_seldom() -> None:
    """A cleaning that has to index all of a log to find that it may not go on: as rarely as after a failure."""
    fleet = fleet_with()
    fleet.settings = replace(fleet.settings, backoff=Backoff(60_000, 3_600_000))
    for number in range(12):
        done(fleet, result=result("skipped", reason="v0 messages", error=RefusedError("v0 messages")))
        assert triggers(fleet, NOW + min(60_000 << number, 3_600_000) - 1) == []
    assert triggers(fleet, NOW + 3_600_000) == ["ratio"]
    assert partition_view(fleet, tracked(fleet)).reason == "v0 messages"
    fleet.merge(dir_scan(partition_scan(**CLEAN)), NOW)
    assert partition_view(fleet, tracked(fleet)).reason == "clean enough"


def test_leftovers_of_a_killed_cleaning_are_removed() -> None:
    assert triggers(fleet_with(partition_scan(**CLEAN, leftover=True))) == ["tombstone_removal"]
    assert triggers(fleet_with(partition_scan(**CLEAN, leftover=True), work="stage")) == []


def test_a_scan_that_fails_twice_is_a_quarantine_and_ends_by_itself() -> None:
    """Beside a broker files are replaced while they are looked at: once is no proof."""
    bad = FailedScan(NAME, "damaged", Cause.DATA)
    fleet = fleet_with(partition_scan(), bad)
    assert partition_view(fleet, tracked(fleet)).phase == "idle"
    assert triggers(fleet) == []
    fleet.merge(dir_scan(bad), NOW)
    assert partition_view(fleet, tracked(fleet)).phase == "quarantined"
    fleet.merge(dir_scan(partition_scan()), NOW)
    assert partition_view(fleet, tracked(fleet)).phase == "idle"
    assert triggers(fleet) == ["ratio"]
    refused = FailedScan(NAME, "no such policy", Cause.OPERATOR)
    assert partition_view(fleet_with(refused, refused), PartitionEntry(NAME, str(PATH))).quarantine is None


def test_a_topic_that_was_created_again_starts_anew() -> None:
    import uuid  # noqa: PLC0415

    fleet = fleet_with(partition_scan(topic_id=uuid.UUID(int=1)))
    done(fleet, failed="broken", retry=Retry(NOW, 9, NOW + 8000))
    fleet.merge(dir_scan(partition_scan(topic_id=uuid.UUID(int=2))), NOW)
    assert tracked(fleet).quarantine is None
    assert triggers(fleet) == ["ratio"]


def test_the_saving_of_a_cleaning_is_expected_of_the_next() -> None:
    fleet = fleet_with()
    assert reclaimable_bytes(tracked(fleet)) == 100, "half of what is dirty, before anything is known"
    done(fleet, result=result(bytes_before=300, bytes_after=280))
    assert reclaimable_bytes(tracked(fleet)) == 20
    done(fleet, saving=SAVING)
    assert reclaimable_bytes(tracked(fleet)) == 50
    assert partition_view(fleet, tracked(fleet)).reclaimable_exact
    fleet.merge(dir_scan(partition_scan(bound_offset=30)), NOW)
    assert not partition_view(fleet, tracked(fleet)).reclaimable_exact


def test_nothing_is_left_to_reclaim_of_what_somebody_else_cleaned() -> None:
    """The bound stays where it was when the partition is cleaned up to it: what was worked out is about another log."""
    fleet = fleet_with(work="observe")
    done(fleet, kind="observe", saving=SAVING)
    fleet.merge(dir_scan(partition_scan(clean_offset=20, clean_bytes=240, **CLEAN), work="observe"), NOW)
    view = partition_view(fleet, tracked(fleet))
    assert (view.reclaimable_bytes, view.reclaimable_exact) == (0, False)
    # Tombstones go from a log that stays clean up to the same offset.
    idle = replace(SAVING, clean_offset=20, clean_bytes=240, dirty_bytes=0)
    done(fleet, kind="observe", saving=idle)
    assert partition_view(fleet, tracked(fleet)).reclaimable_exact
    fleet.merge(dir_scan(partition_scan(clean_offset=20, clean_bytes=200, **CLEAN), work="observe"), NOW)
    assert partition_view(fleet, tracked(fleet)).reclaimable_bytes == 0
    # As much was written again: another log, which is worked out anew.
    done(fleet, kind="observe", saving=SAVING)
    fleet.merge(dir_scan(partition_scan(clean_offset=20, bound_offset=30, dirty_bytes=205), work="observe"), NOW)
    assert triggers(fleet) == ["ratio"]


def test_tombstones_that_waited_for_what_went_now_have_another_turn() -> None:
    """R534-6: their cleaning says that the next one is due at once; what is only staged has not gone yet."""
    for outcome, expected in (("cleaned", ["tombstone_removal"]), ("staged", [])):
        fleet = fleet_with(partition_scan(strategy="timestamp", **CLEAN))
        done(fleet, result=result(outcome, next_tombstone_removal_ms=NOW))
        assert triggers(fleet) == expected


def test_a_staged_plan_is_made_anew_when_it_is_old_or_much_was_written() -> None:
    def after(age_ms: int, bound: int) -> list[str]:
        return triggers(fleet_with(partition_scan(staged=StagedPlan(bound, NOW - age_ms)), work="stage"))

    assert after(0, 20) == []
    assert after(RESTAGE_AFTER_MS, 20) == []
    assert after(RESTAGE_AFTER_MS - 1, 10) == []
    assert after(RESTAGE_AFTER_MS, 10) == ["ratio"]
    assert after(7 * DAY_MS // 2, 20) == ["ratio"]
    fleet = fleet_with(work="stage")
    done(fleet, result=result("unchanged"))
    assert triggers(fleet) == [], "there was nothing to stage: not tried again before more is dirty"
    fleet.merge(dir_scan(partition_scan(bound_offset=30), work="stage"), NOW)
    assert triggers(fleet) == ["ratio"]


def test_a_plan_from_a_clock_that_is_ahead_is_not_made_anew_all_the_time() -> None:
    """A manifest has the wall clock's time, which may be a day ahead of the one that counts: once, not for an hour."""
    fleet = fleet_with(partition_scan(staged=StagedPlan(20, NOW + DAY_MS)), work="stage")
    assert triggers(fleet) == ["ratio"], "by whom it was made nobody knows"
    done(fleet, kind="stage", result=result("staged"))
    fleet.merge(dir_scan(partition_scan(staged=StagedPlan(20, NOW + DAY_MS)), work="stage"), NOW)
    assert triggers(fleet, NOW + 1) == []
    assert triggers(fleet, NOW + RESTAGE_AFTER_MS) == ["ratio"]
    assert triggers(fleet, NOW - 1) == ["ratio"], "ours was ahead too when it was staged"


def test_observed_again_when_a_tenth_more_is_dirty() -> None:
    fleet = fleet_with(work="observe")
    done(fleet, saving=SAVING)
    assert triggers(fleet) == []
    fleet.merge(dir_scan(partition_scan(bound_offset=30, dirty_bytes=219), work="observe"), NOW)
    assert triggers(fleet) == []
    fleet.merge(dir_scan(partition_scan(bound_offset=40, dirty_bytes=220), work="observe"), NOW)
    assert triggers(fleet) == ["ratio"]


def test_a_removed_partition_is_forgotten() -> None:
    fleet = fleet_with()
    fleet.merge(replace(dir_scan(), present=frozenset()), NOW)
    assert not fleet.partitions
    fleet.merge(replace(dir_scan(partition_scan()), present=None), NOW)
    assert not fleet.partitions, "a look at one partition does not bring it back"


def test_an_observed_partition_is_staged_after_a_reload() -> None:
    """A reload from observe to on-start: nothing is staged yet."""
    fleet = fleet_with(work="observe")
    done(fleet, kind="observe", saving=SAVING)
    fleet.merge(dir_scan(partition_scan(), work="stage"), NOW)
    assert triggers(fleet) == ["ratio"]


def test_a_plan_that_went_away_is_staged_again() -> None:
    """``apply`` dropped it as stale: after a while, for one that nobody can read is not made again and again either."""
    fleet = fleet_with(work="stage")
    done(fleet, kind="stage", result=result("staged"))
    assert triggers(fleet) == []
    assert triggers(fleet, NOW + RESTAGE_AFTER_MS) == ["ratio"]


def test_horizons_are_unknown_after_a_cleaning_by_the_broker() -> None:
    """The broker's own cleaner, after ours: they are looked up again."""
    fleet = fleet_with(partition_scan(**CLEAN, removal_known=True, next_tombstone_removal_ms=None))
    assert not list(fleet.spare_work(NOW))
    fleet.merge(dir_scan(partition_scan(**CLEAN, clean_offset=15)), NOW)
    assert [(each.name, kind) for each, kind in fleet.spare_work(NOW)] == [(NAME, "horizons")]
    done(fleet, kind="horizons", horizons=True, next_tombstone_removal_ms=NOW + 7)
    fleet.merge(dir_scan(partition_scan(**CLEAN, clean_offset=15)), NOW)
    assert not list(fleet.spare_work(NOW)), "also when that could not be written down"
    assert triggers(fleet, NOW + 7) == ["tombstone_removal"]


def test_the_result_of_a_partition_that_is_gone_is_nobodys() -> None:
    """Deleted and created again while a worker had the old one."""
    fleet = fleet_with()
    old = tracked(fleet).scan
    assert old is not None
    job = job_on(old)
    fleet.begun(KEY, "ratio")
    fleet.merge(replace(dir_scan(), present=frozenset()), NOW)
    fleet.merge(dir_scan(partition_scan()), NOW)
    assert fleet.finished(JobDone(job, NOW, failed="broken", retry=Retry(NOW, 9, NOW + 8000))) is None
    fleet.died(KEY, "broken", NOW)
    nothing_new(fleet)
    assert tracked(fleet).quarantine is None
    assert triggers(fleet) == ["ratio"]


def test_the_result_of_a_topic_that_was_created_again_is_nobodys() -> None:
    import uuid  # noqa: PLC0415

    fleet = fleet_with(partition_scan(topic_id=uuid.UUID(int=1)))
    old = tracked(fleet).scan
    assert old is not None
    job = job_on(old)
    fleet.begun(KEY, "ratio")
    fleet.merge(dir_scan(partition_scan(topic_id=uuid.UUID(int=2))), NOW)
    fleet.finished(JobDone(job, NOW, failed="broken", retry=Retry(NOW, 9, NOW + 8000)))
    fleet.merge(dir_scan(partition_scan(topic_id=uuid.UUID(int=2))), NOW)
    nothing_new(fleet)
    assert tracked(fleet).quarantine is None
    assert triggers(fleet) == ["ratio"]


def test_a_full_disk_is_the_reason_that_is_reported() -> None:
    """U-16: not "about to be cleaned" for days."""
    fleet = fleet_with()
    assert partition_view(fleet, tracked(fleet)).reason == "about to be cleaned"
    fleet.merge(dir_scan(free=100), NOW)
    assert "cleanerd.disk.reserve" in partition_view(fleet, tracked(fleet)).reason
    fleet.merge(dir_scan(), NOW)
    assert partition_view(fleet, tracked(fleet)).reason == "about to be cleaned"
    nothing = fleet_with(work="stage")
    done(nothing, kind="stage", result=result("unchanged"))
    assert partition_view(nothing, tracked(nothing)).reason == "cleaning would remove nothing"


def test_scans_do_not_forgive_what_a_worker_found() -> None:
    """Two that fail and one that goes well: tried again when it was to be, and its failures still count."""
    fleet = fleet_with()
    done(fleet, failed="corrupt", retry=Retry(NOW - 5, 5, NOW + 8000))
    for _ in range(2):
        fleet.merge(dir_scan(FailedScan(NAME, "cannot be read", Cause.DATA)), NOW)
    fleet.merge(dir_scan(partition_scan()), NOW)
    found = tracked(fleet).quarantine
    assert found is not None
    assert (found.reason, found.failures, found.retry_at_ms) == ("corrupt", 5, NOW + 8000)
    assert triggers(fleet) == []
