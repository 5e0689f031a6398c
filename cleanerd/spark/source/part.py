"""A part of a log in a task, which reads it as a split."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.spark.source.plan import LogRange, TaskSplit, pieces_of
from cleanerd.verify.listing import NO_END

if TYPE_CHECKING:
    from cleanerd.spark.logs import Log


def part_of(log: Log, begin: int, end: int) -> Log:
    """``log`` with only the segments that have offsets from ``begin`` to ``end`` (exclusive)."""
    return replace(log, segments=tuple(each for each in log.segments if each.end > begin and each.base < end))


def split_of(log: Log, begin: int, end: int) -> TaskSplit:
    """The offsets ``begin`` to ``end`` (exclusive) of ``log``."""
    reach = LogRange(
        name=log.name,
        log_start=log.log_start,
        begin=begin,
        end=end,
        acknowledged=NO_END,
        stable=NO_END,
        clean_end=None,
        rules=log.rules,
    )
    return TaskSplit((reach,), tuple(pieces_of(0, log, reach, NO_END)))
