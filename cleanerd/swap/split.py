"""Splits a segment whose offsets do not fit an index, before its partition is cleaned (C-67).

One segment is replaced by several, as in an undo (:mod:`cleanerd.swap.restore`), but by new files: recovery, journal
and crash behaviour are the same. One segment at a time, so that only one needs its space twice.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cleanerd.cleaner.plan import new_plan_id
from cleanerd.cleaner.resources import disk_reserve_bytes
from cleanerd.cleaner.split import stage_pieces
from cleanerd.cleaner.stage import Staging
from cleanerd.errors import UnsupportedLogError, delete_segment_hint
from cleanerd.swap.group_swap import finish_plan
from cleanerd.swap.journal import Journal
from cleanerd.swap.recover import abandon, rollback_on_error
from cleanerd.swap.restore import RestoredSegment, RestoreGroup, RestorePlan, restore_group, write_restore
from cleanerd.swap.signals import signals_wait
from cleanerd.swap.unfinished import refuse_unfinished
from cleanerd.swap.validate import check_witness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.cleaner.cleaner import Cleaning
    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.swap.files import PartitionFiles
    from cleanerd.swap.session import LockedDir


def split_segments(
    locked: LockedDir,
    files: PartitionFiles,
    cleaning: Cleaning,
    overflowed: Sequence[SegmentDecision],
    config: TopicConfig,
    *,
    grows: bool = False,
) -> tuple[str, ...]:
    """Split each of the ``overflowed`` segments; returns notes for the operator.

    ``grows``: they would become too large when cleaned, so they are halved (U-55).

    Raises:
        CorruptionError, CleanerdError: see ``stage_pieces``; earlier segments are split, which changes no record.
        LogDirBusyError: the lock was lost.
    """
    reserve_bytes = disk_reserve_bytes(locked.resources, config, cleaning.plan.path)
    cleaning.progress.phase("split", sum(member.source.segment.size_bytes for member in overflowed))
    return tuple(_split(locked, files, cleaning, member, reserve_bytes, grows=grows) for member in overflowed)


def _split(
    locked: LockedDir,
    files: PartitionFiles,
    cleaning: Cleaning,
    member: SegmentDecision,
    reserve_bytes: int,
    *,
    grows: bool,
) -> str:
    plan = replace(cleaning.plan, plan_id=new_plan_id())
    reader = cleaning.pool.reader
    staging_room = Staging(plan, reader.directory, reserve_bytes=reserve_bytes)
    with staging_room as staging, rollback_on_error(partial(abandon, files)):
        half = member.source.segment.size_bytes // 2 if grows else None
        pieces = stage_pieces(plan, reader, member, staging, cleaning.progress.advance, half)
        if len(pieces) == 1:
            raise UnsupportedLogError(
                f"segment {member.source.base} is one batch, and larger than a segment can be when it is cleaned",
                where=plan.path,
                hint=delete_segment_hint(f"it (offset {member.source.end})"),
            )
        group = RestoreGroup(
            member.source.base,
            member.source.end,
            tuple(RestoredSegment(piece.base, piece.files) for piece in pieces),
        )
        write_restore(files, RestorePlan(plan.plan_id, (group,)))
        check_witness(files, member.witness)
        refuse_unfinished(files, files.names())  # U-34
        with signals_wait():
            restore_group(files, plan.plan_id, group, Journal(files, plan.plan_id), locked.lock)
    finish_plan(files, plan.plan_id)
    if grows:
        return f"segment {member.source.base} would pass the size of a segment: split into {len(pieces)}"
    return (
        f"segment {member.source.base} held offsets more than 2^31-1 above its base, as old brokers wrote them: split "
        f"into {len(pieces)}"
    )
