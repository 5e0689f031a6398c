"""Why a partition is not cleaned now: the first rule against it, with its numbers and when that changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cleanerd.config.delegation import MAX_LAG
from cleanerd.config.topic_config import BROKERS_ORIGINS
from cleanerd.config.topic_keys import REMOTE_STORAGE, VENDORS_TIER
from cleanerd.errors import DELETE_RECORDS
from cleanerd.humanize import human_bytes, human_ms
from cleanerd.policy.cleanable import LimitedBy, is_eligible
from cleanerd.segments.partition import TIER_SUFFIX, PartitionLog

if TYPE_CHECKING:
    from cleanerd.cleaner.rules_change import RulesChange
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.segments.cleanable_range import CleanableRange
    from cleanerd.segments.log_dir import LogDir

NOT_STOPPED_CLEANLY: Final = (
    "the broker was not stopped cleanly: start and stop it once, or give --unclean to clean the log below the "
    "recovery point"
)


_MOVES: Final = {
    LimitedBy.HIGH_WATERMARK: "when the in-sync replicas have caught up and the broker has written its checkpoint",
    LimitedBy.RECOVERY_POINT: "when the broker has flushed the log: at the latest at its next clean stop",
    LimitedBy.OPEN_TRANSACTION: "when the transaction is committed or aborted; a producer that ended times out, a "
    "hanging one needs kafka-transactions.sh",
}
"""When each limit moves."""


@dataclass(frozen=True, slots=True)
class NotCleanedReason:
    """The reason not to clean now.

    ``rule``: the deciding setting or state; ``reason``: the sentence with its numbers; ``changes``: when or how that
    ends. ``is_refusal``: it stays until an operator acts, and a requested cleaning has failed.
    """

    rule: str
    reason: str
    changes: str
    is_refusal: bool = False


def verdict(
    log: PartitionLog,
    log_dir: LogDir,
    config: TopicConfig,
    bounds: CleanableRange,
    end_offset: int,
    *,
    now_ms: int,
    force: bool,
    unclean: bool,
    tombstone_removal: bool = False,
    change: RulesChange | None = None,
) -> NotCleanedReason | None:
    """The first rule against cleaning this partition, in the order of the checks; None when it is to be cleaned."""
    removes = tombstone_removal and end_offset > log.segments[0].base
    return (
        _of_leftovers(log)
        or of_delegation(config)
        or of_rules(change)
        or _of_tiers(log, config)
        or _of_directory(log_dir, unclean=unclean)
        or (None if removes else _of_bounds(bounds, end_offset, config, now_ms))
        or (None if force or tombstone_removal else _of_ratio(bounds, config))
    )


def _of_leftovers(log: PartitionLog) -> NotCleanedReason | None:
    """S-21: an unfinished swap. ``clean`` repairs it before; a scan sees segments of both sides."""
    if not log.unfinished:
        return None
    return NotCleanedReason(
        ".swap and .cleaned files",
        f"a swap was cut short: {', '.join(log.unfinished[:4])} (cleanerd clean finishes or undoes "
        "its own; a start of the broker resolves any other)",
        "at the next run of clean, or at the next start of the broker",
    )


def of_delegation(config: TopicConfig) -> NotCleanedReason | None:
    """U-8: a topic must not be cleaned by cleanerd's rules and then by the broker's."""
    if config.delegation.permits:
        return None
    reason = f"{config.delegation.reason}: {config.delegation.fix}"
    return NotCleanedReason("delegation", reason, config.delegation.fix, is_refusal=True)


def of_rules(change: RulesChange | None) -> NotCleanedReason | None:
    """U-6: the rules changed, and the operator has not confirmed it."""
    if change is None or change.is_stated:
        return None
    return NotCleanedReason("compaction.strategy", change.reason, change.remedy, is_refusal=True)


def _of_tiers(log: PartitionLog, config: TopicConfig) -> NotCleanedReason | None:
    """S-49: the local segments are not the whole log, and another component tracks them."""
    if config.remote_storage_enable:
        origin = config.origins[REMOTE_STORAGE]
        key = VENDORS_TIER if VENDORS_TIER in origin else REMOTE_STORAGE
        changes = "when remote storage is switched off for the topic"
        return NotCleanedReason(REMOTE_STORAGE, f"{key} is set: tiered topics are not cleaned", changes)
    tiered = [name for name in log.foreign if name.endswith(TIER_SUFFIX)]
    if not tiered:
        return None
    what = f"{tiered[0]} is a file of tiered storage: tiered topics are not cleaned"
    return NotCleanedReason(
        REMOTE_STORAGE, what, f"when the files *{TIER_SUFFIX} no longer exist: the broker that wrote them deletes them"
    )


def _of_directory(log_dir: LogDir, *, unclean: bool) -> NotCleanedReason | None:
    if not log_dir.clean_shutdown and not unclean:
        return NotCleanedReason(
            ".kafka_cleanshutdown",
            NOT_STOPPED_CLEANLY,
            "at the next clean stop of the broker",
        )
    if not log_dir.has_high_watermarks:
        return NotCleanedReason(
            "replication-offset-checkpoint",
            "replication-offset-checkpoint is missing, so no high watermark is known and nothing is cleanable",
            "when the broker has run and written its checkpoints",
        )
    return None


def _of_bounds(bounds: CleanableRange, end_offset: int, config: TopicConfig, now_ms: int) -> NotCleanedReason | None:
    if end_offset > bounds.first_dirty_offset:
        return None
    limit = bounds.bound.limited_by
    return NotCleanedReason(
        limit,
        f"nothing to clean: dirty from offset {bounds.first_dirty_offset}, cleanable up to {end_offset} "
        f"(set by {limit})",
        _when_limit_moves(limit, bounds, config, now_ms),
    )


IMPOSSIBLE_MS: Final = 10 * 365 * 86_400_000
"""A deadline further away is a misconfiguration."""


def _when_limit_moves(limit: LimitedBy, bounds: CleanableRange, config: TopicConfig, now_ms: int) -> str:
    if limit is LimitedBy.MIN_COMPACTION_LAG and bounds.young_since_ms is not None:
        return _when_old_enough(bounds, bounds.young_since_ms, config.min_compaction_lag_ms, now_ms)
    if limit is LimitedBy.ACTIVE_SEGMENT:
        least = f"{_rolled_after(config)} or segment.bytes ({human_bytes(config.segment_bytes)})"
        return f"when the broker rolls the active segment: after {least}"
    return _MOVES.get(limit, "when that limit moves")


def _rolled_after(config: TopicConfig) -> str:
    """A broker rolls after the shorter of ``segment.ms`` and its ``max.compaction.lag.ms``; cleanerd's is its own."""
    lag_ms = config.max_compaction_lag_ms
    if lag_ms < config.segment_ms and config.origins[MAX_LAG].startswith(BROKERS_ORIGINS):
        return f"{MAX_LAG} ({human_ms(lag_ms)})"
    return f"segment.ms ({human_ms(config.segment_ms)})"


def _when_old_enough(bounds: CleanableRange, since_ms: int, lag_ms: int, now_ms: int) -> str:
    """When the segment with the largest timestamp ``since_ms`` has the minimum age ``lag_ms``."""
    at_ms = since_ms + lag_ms
    if at_ms - now_ms <= IMPOSSIBLE_MS:
        return f"at {_time(at_ms)}, in {human_ms(max(0, at_ms - now_ms))}, when the segment is old enough"
    if since_ms - now_ms < lag_ms:
        return f"never by that: min.compaction.lag.ms is {human_ms(lag_ms)}; lower it"
    return (
        f"never by that: a record in {bounds.bound.offset:020d}.log has time {since_ms} ms, far in the future (a "
        "client that writes micro- or nanoseconds?); set min.compaction.lag.ms to 0, or delete the records up to there "
        f"with {DELETE_RECORDS}"
    )


def _of_ratio(bounds: CleanableRange, config: TopicConfig) -> NotCleanedReason | None:
    dirty, least = bounds.dirtiness, config.min_cleanable_dirty_ratio
    if is_eligible(dirty, bounds.overdue_ms, least):
        return None
    if least >= 1:
        changes = "never by this ratio: it cannot exceed 1"
    else:
        # The smallest cleanable size whose share of the whole is above `least`.
        needed = int(least * dirty.clean_bytes / (1 - least)) + 1
        missing = max(0, needed - dirty.cleanable_bytes)
        changes = f"when {missing} more bytes ({human_bytes(missing)}) are cleanable"
    if bounds.overdue_at_ms is not None:
        changes += f", or at {_time(bounds.overdue_at_ms)} by max.compaction.lag.ms"
    return NotCleanedReason(
        "min.cleanable.dirty.ratio",
        f"dirty ratio {dirty.ratio:.3f} is not above min.cleanable.dirty.ratio {least:g} "
        "(clean --force or trigger cleans it)",
        changes,
    )


def _time(at_ms: int) -> str:
    """UTC, to the second."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"
