"""Why a partition is to be cleaned now, and whether a cleaning would change anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.daemon.registry.partition_entry import (
    RESTAGE_AFTER_MS,
    is_overdue,
    is_past,
    is_to_be_erased,
    was_staged_lately,
)
from cleanerd.policy.state_digest import coarsest_offset

if TYPE_CHECKING:
    from cleanerd.daemon.discovery.log_dir_scan import Work
    from cleanerd.daemon.partition_scan import PartitionScan
    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.view import Trigger

GREW: Final = 10
"""In observe mode a partition is examined again when its dirty section has grown by one part in this many."""


ESTIMATE_GREW: Final = 2
ESTIMATE_INTERVAL_MS: Final = 3_600_000
"""The shortest interval of estimates of a partition whose dirty section has doubled."""

DIGEST_INTERVAL_MS: Final = 900_000
DIGEST_AGAIN_MS: Final = 6 * 3_600_000
"""When to compute digests again: after the first interval if the coarsest grid offset changed, else the second."""


def trigger_of(
    entry: PartitionEntry, work: Work, now_ms: int, *, is_full: bool, plan_max_age_ms: int
) -> Trigger | None:
    """Why a worker should do its ``work`` on the partition now; None: there is no reason.

    ``is_full``: only the reserve is free on its disk. ``plan_max_age_ms``: how old a staged plan may become.
    """
    scan = entry.scan
    if scan is None:
        return None
    if entry.requested:
        return "manual"
    trigger: Trigger
    if is_full and work != "observe":
        return None
    if scan.forceable and is_overdue(scan, now_ms):
        trigger = "overdue"
    elif scan.forceable and is_to_be_erased(entry, scan):
        trigger = "erasure"
    elif scan.eligible:
        trigger = "ratio"
    elif (
        scan.forceable
        and scan.has_clean_part
        and scan.may_remove_tombstones
        and is_past(entry.next_purge_ms, scan.expiry.expiry_ms(now_ms))
    ):
        trigger = "tombstone_removal"
    elif scan.leftover and work == "live":
        trigger = "tombstone_removal"  # a killed cleaning: another one tidies up and moves the checkpoint
    else:
        return None
    if work == "stage":
        return None if _is_staged(entry, scan, trigger, now_ms, plan_max_age_ms) else trigger
    return None if work == "observe" and _is_estimated(entry, scan) else trigger


def is_to_be_estimated(entry: PartitionEntry, now_ms: int) -> bool:
    """Whether the reclaimable bytes are unknown, or the dirty section has doubled since; once an hour."""
    scan, saving, before = entry.scan, entry.saving, entry.estimated_ms
    if scan is None or not scan.dirty_bytes or entry.suspect is not None or entry.quarantine is not None:
        return False
    # A clock that jumped back delays nothing.
    if before is not None and 0 <= now_ms - before < ESTIMATE_INTERVAL_MS:
        return False
    if saving is None or saving.now(scan) is None:
        return True
    return scan.dirty_bytes >= ESTIMATE_GREW * saving.dirty_bytes


def is_digest_due(entry: PartitionEntry, now_ms: int) -> bool:
    """Whether the log has a grid offset without a digest: the coarsest one, or after a while another (U-90)."""
    scan, before = entry.scan, entry.digested
    if scan is None or entry.suspect is not None or entry.quarantine is not None:
        return False
    coarsest, replicas = coarsest_offset(*scan.digest_range), scan.config.replicas
    if coarsest is None or (replicas is not None and replicas.is_alone(scan.name.partition)):
        return False
    if before is None or before.rules != scan.fingerprint:
        return True
    waited_ms = now_ms - before.at_ms
    if before.digest_range == scan.digest_range or 0 <= waited_ms < DIGEST_INTERVAL_MS:
        return False
    return coarsest_offset(*before.digest_range) != coarsest or not 0 <= waited_ms < DIGEST_AGAIN_MS


def has_nothing_to_stage(entry: PartitionEntry, work: Work | None) -> bool:
    """Whether a worker found that a cleaning of the unchanged log would remove nothing."""
    scan = entry.scan
    return (
        scan is not None and scan.staged is None and work == "stage" and entry.done_to == scan.first_uncleanable_offset
    )


def _is_staged(entry: PartitionEntry, scan: PartitionScan, trigger: Trigger, now_ms: int, plan_max_age_ms: int) -> bool:
    """Whether nothing has changed since it was staged, or since there was nothing to stage."""
    plan = scan.staged
    if plan is not None and 0 <= now_ms - plan.created_ms < plan_max_age_ms // 2:
        return (
            now_ms - plan.created_ms < RESTAGE_AFTER_MS
            or plan.first_uncleanable_offset >= scan.first_uncleanable_offset
        )
    # It cannot be read, or its age depends on a wall clock that is not trusted: another plan would not help.
    if (plan is None or plan.created_ms > now_ms) and was_staged_lately(entry, now_ms):
        return True
    return trigger != "tombstone_removal" and has_nothing_to_stage(entry, "stage")


def _is_estimated(entry: PartitionEntry, scan: PartitionScan) -> bool:
    """Whether the saving is known for the current log, or nearly so."""
    saving = entry.saving
    if saving is None or (saving.reclaimable.method != "exact" and entry.observed_to != scan.first_uncleanable_offset):
        return False
    grown = GREW * (scan.dirty_bytes - saving.dirty_bytes) >= saving.dirty_bytes
    return scan.first_dirty_offset == saving.first_dirty_offset and (
        scan.first_uncleanable_offset == saving.first_uncleanable_offset or not grown
    )
