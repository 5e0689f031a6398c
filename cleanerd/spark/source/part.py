"""A part of a log as JSON, for a task, which reads it as a split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cleanerd.format.names import TopicPartition
from cleanerd.spark.logs import Log
from cleanerd.spark.record_scan import rules_from_item, rules_to_item, segment_from
from cleanerd.spark.source.plan import LogRange, TaskSplit, pieces_of
from cleanerd.verify.listing import NO_END

if TYPE_CHECKING:
    from cleanerd.spark.task_runner import Item


def part_item(log: Log, begin: int, end: int) -> dict[str, Any]:
    """The offsets ``begin`` to ``end`` (exclusive) of ``log``, as JSON."""
    segments = [each for each in log.segments if each.end > begin and each.base < end]
    return {
        "topic": log.name.topic,
        "partition": log.name.partition,
        "segments": [[str(each.path), each.base, each.end, each.size_bytes, each.sealed] for each in segments],
        "log_start": log.log_start,
        "begin": begin,
        "end": end,
        "rules": rules_to_item(log.rules),
    }


def split_of(item: Item) -> TaskSplit:
    """The split from an item of :func:`part_item`.

    Raises:
        CleanerdError: a file does not exist any more.
    """
    segments = tuple(segment_from(fields) for fields in item["segments"])
    name, rules = TopicPartition(item["topic"], item["partition"]), rules_from_item(item["rules"])
    reach = LogRange(
        name=name,
        log_start=item["log_start"],
        begin=item["begin"],
        end=item["end"],
        acknowledged=NO_END,
        stable=NO_END,
        clean_end=None,
        rules=rules,
    )
    if not segments:
        return TaskSplit((reach,), ())
    log = Log(segments[0].path.parent.parent, name, segments, item["log_start"], None, rules)
    return TaskSplit((reach,), tuple(pieces_of(0, log, reach, NO_END)))
