"""A partition of a running broker: the broker reports what is valid, the directory has the files (D-06, U-23)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cleanerd.broker.agent_facts import BrokerSegment, LogFacts
from cleanerd.errors import CleanerdError, RefusedError, StalePlanError
from cleanerd.format.names import TopicPartition, uuid_from_base64
from cleanerd.humanize import human_ms
from cleanerd.segments.log_dir import LogDir, OneOffset, cleaner_offset, lasting_start_offset
from cleanerd.segments.partition import PartitionLog, read_partition

if TYPE_CHECKING:
    import uuid

    from cleanerd.broker.live_broker import RetryPolicy
    from cleanerd.segments.segment import Segment

RESTART: Final = "a restart of the broker resolves it"


def read_live(
    log_dir: LogDir, name: TopicPartition, facts: LogFacts, patience: RetryPolicy
) -> tuple[LogDir, PartitionLog]:
    """The log as the broker reports it, and ``log_dir`` with the broker's offsets of this partition.

    ``facts`` must be newer than the event that made the caller read. Checkpoint files lag behind a running broker and
    may be ahead of it after a truncation (S-03). So only two of them are used: the cleaner's, which the broker itself
    uses, and that of log starts, with which it would start after a kill. Segments newer than the broker's report are
    left out.

    Raises:
        StalePlanError: the directory has other segments than the report, because the broker changed them in between.
            RefusedError: a replacement was interrupted, and the broker has to be restarted.
        CorruptionError, CleanerdError: it cannot be read.
    """
    log_dir = _of_one(log_dir, name, facts)
    found = read_partition(log_dir, name)
    # In a job these are the offsets of the broker's earlier report, not of a checkpoint.
    lasting = lasting_start_offset(log_dir.path, name)
    if found.unfinished:
        raise _unfinished(found, patience)
    if found.topic_id != _topic_id(facts):
        raise _moved(found, "its topic was created again")
    newest = facts.active
    segments = tuple([segment for segment in found.segments if segment.base <= newest.base])
    listed = [held_as(segment) for segment in segments[:-1]]
    if listed != facts.segments[:-1] or segments[-1].base != newest.base:
        differing = sorted({s.base for s in set(listed) ^ set(facts.segments[:-1])} or {newest.base})
        raise _moved(found, f"segment {differing[0]} is not the one that the broker has")
    if segments[-1].inode != newest.inode:
        raise _moved(found, "the active segment is not the broker's: is it the broker of this directory?")
    # As much as the broker had appended: later bytes may be half a batch, or preallocated space.
    active = segments[-1]
    if active.size_bytes != newest.size:
        active = replace(active, size_bytes=newest.size)
    return log_dir, replace(
        found,
        segments=(*segments[:-1], active),
        snapshots=tuple([base for base in found.snapshots if base <= facts.leo]),
        # The first segment may begin above the checkpointed value, never above the broker's own.
        log_start_offset=facts.log_start,
        last_stable_offset=facts.lso,
        reported_end_offset=facts.leo,
        lasting_start_offset=min(max(lasting, segments[0].base), facts.log_start),
        # Segments newer than the broker's report are in the listing, but were not read.
        listed=found.listed if len(segments) == len(found.segments) else None,
    )


def _of_one(log_dir: LogDir, name: TopicPartition, facts: LogFacts) -> LogDir:
    """``log_dir`` with the offsets of this partition only: thousands of scans store theirs."""
    clean = cleaner_offset(log_dir.path, name)
    return LogDir(
        path=log_dir.path,
        place=log_dir.place,
        meta=log_dir.meta,
        partitions=(name,),
        cleaner_offsets={} if clean is None else OneOffset(name, clean),
        # After an unclean stop the broker's recovery point does not move until a segment is rolled. Kafka's cleaner
        # does not use it; cleanerd flushes closed segments before it replaces any (U-49).
        recovery_points=OneOffset(name, max(facts.recovery_point, facts.active.base)),
        log_start_offsets=OneOffset(name, facts.log_start),
        high_watermarks=OneOffset(name, facts.hw),
        has_high_watermarks=True,
        clean_shutdown=False,
    )


def _unfinished(log: PartitionLog, patience: RetryPolicy) -> CleanerdError:
    """U-34: the error for files of a replacement.

    It takes a broker a moment; if files remain, it was interrupted, and only a restart ends it.

    A file whose time is ahead of the clock is new: the clock was set back, and the next reading decides.
    """
    name = log.unfinished[0]
    try:
        age_seconds = max(patience.wall_seconds() - (log.path / name).lstat().st_ctime, 0.0)
    except OSError:
        age_seconds = 0.0
    if age_seconds < patience.replacement_seconds:
        return _moved(log, f"{name} exists, so a swap is in progress; if it stays, {RESTART}")
    return RefusedError(
        f"a swap was not completed: {name} has been there for {human_ms(age_seconds * 1000)}",
        where=str(log.path),
        hint=RESTART,
    )


def held_as(segment: Segment) -> BrokerSegment:
    """The segment in the broker's form, to compare with its report."""
    return BrokerSegment(segment.base, segment.size_bytes, segment.mtime_ns // 1_000_000, segment.inode)


def _topic_id(facts: LogFacts) -> uuid.UUID | None:
    return None if facts.topic_id is None else uuid_from_base64(facts.topic_id)


def _moved(log: PartitionLog, reason: str) -> StalePlanError:
    return StalePlanError(f"the broker changed the log while it was read: {reason}", where=str(log.path))
