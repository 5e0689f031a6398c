"""The first dirty offset of a log, from cleanerd's checkpoint and Kafka's (U-10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.state.cleaner_checkpoint import CleanerdCheckpoint, LastSegment, last_below, segment_at

if TYPE_CHECKING:
    from cleanerd.segments.partition import PartitionLog


def clean_below(point: CleanerdCheckpoint | None, kafka_offset: int | None, *, is_valid: bool) -> int | None:
    """The offset up to which a log is clean; None if no source states it: all of it is dirty.

    ``is_valid``: ``point`` describes the log. ``kafka_offset``: Kafka's checkpoint, None if it has no entry or the
    topic does not use Kafka's rules. It is used only if it changed since ``point``.
    """
    if point is None:
        return kafka_offset
    news = kafka_offset if kafka_checkpoint_changed(kafka_offset, point) else None
    if not is_valid:
        return news
    # Under `offset` both cleaners prove the same, so the higher offset is right.
    return point.offset if news is None else max(news, point.offset)


def kafka_checkpoint_changed(kafka_offset: int | None, point: CleanerdCheckpoint) -> bool:
    """Whether Kafka's checkpoint has changed since ``point`` was stored.

    An unchanged value proves nothing about a log that has diverged since: a broker whose cleaner is off does not lower
    it when the log is truncated.
    """
    return kafka_offset not in {point.offset, point.checkpoint}


def unproven_below(point: CleanerdCheckpoint | None, first_dirty_offset: int) -> int:
    """Below this offset only Kafka's checkpoint says that the log, clean up to ``first_dirty_offset``, is clean (U-50).

    ``point``: cleanerd's own checkpoint, None if none fits the log. Without a note how far it relies on Kafka's
    checkpoint, it proves nothing.
    """
    if point is None or point.offset < first_dirty_offset:
        return first_dirty_offset
    return first_dirty_offset if point.unproven_below is None else point.unproven_below


def unproven_after(before: int, first_dirty_offset: int, end_offset: int) -> int:
    """The same after a cleaning from ``first_dirty_offset`` up to ``end_offset``; ``before``: its previous value.

    A formerly dirty tombstone has no deleted record below it any more.
    """
    return before if end_offset < before else min(before, first_dirty_offset)


def still_valid(point: CleanerdCheckpoint, log: PartitionLog, log_end_offset: int) -> str | None:
    """Why ``point`` no longer fits this log; None if it does (U-10)."""
    if not log.log_start_offset <= point.offset <= log_end_offset:
        return f"offset {point.offset} is outside the log {log.log_start_offset}..{log_end_offset}"
    if not _begins_as_then(point, log):
        return (
            f"it began at {point.log_start}, and now begins at {log.log_start_offset}: deleted records are there again"
        )
    if log.leader_epoch_at(point.offset - 1) != point.leader_epoch:
        return f"the leader epoch at offset {point.offset} is no longer {point.leader_epoch}"
    changed = next((known for known, found in _compared(point, log) if found != known), None)
    return None if changed is None else f"segment {changed.base} is not the file that was cleaned"


def may_be_about(point: CleanerdCheckpoint, log: PartitionLog) -> bool:
    """Whether ``log`` may be a copy of the log in ``point``; inodes and times are ignored."""
    return (
        _begins_as_then(point, log)
        and log.leader_epoch_at(point.offset - 1) == point.leader_epoch
        and all(
            found is not None and (found.base, found.size) == (known.base, known.size)
            for known, found in _compared(point, log)
        )
    )


def may_descend_from(point: CleanerdCheckpoint | None, log: PartitionLog, since_ns: int) -> bool:
    """Whether ``log`` may be a copy of a log whose place was first used at ``since_ns`` (U-46).

    ``point``: the stored checkpoint of this partition, None: none. A copy has no file older than the original's, but
    the original place has. A log whose segments are not listed may be a copy.
    """
    changed_ns = {each.base: each.ctime_ns for each in log.segments if not each.is_active}
    if point is None or not log.segments:
        return all(each >= since_ns for each in changed_ns.values())
    if not may_be_about(point, log):
        return False
    found = _compared(point, log)
    if any(known == now for known, now in found):
        return True  # the same file: a copy of the whole disk
    return all(changed_ns.get(known.base, since_ns) >= since_ns for known, _ in found)


def _begins_as_then(point: CleanerdCheckpoint, log: PartitionLog) -> bool:
    """Whether data that was deleted, and therefore not cleaned, is visible again."""
    return point.log_start is None or log.log_start_offset >= point.log_start


def _compared(point: CleanerdCheckpoint, log: PartitionLog) -> list[tuple[LastSegment, LastSegment | None]]:
    """The cleaned segments then and now, without completely deleted ones.

    The counterpart of the last cleaned segment is the last one below the checkpoint. After a truncation another segment
    may have begun there, beside an unchanged file or in place of a missing one.
    """
    pairs: list[tuple[LastSegment, LastSegment | None]] = []
    last, output = last_below(log, point.offset), point.last_output
    if last is not None:
        pairs.append((point.last_segment, LastSegment.of(last)))
    if output is not None and output.base >= log.segments[0].base:
        pairs.append((output, segment_at(log, output.base)))
    return pairs
