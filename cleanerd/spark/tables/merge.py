"""The latest state of logs into a table: all of it, or what has changed since the table's last commit.

Tasks write files that no reader sees. One commit at the end adds them, removes old ones, and stores the table's
offsets. So an interrupted run has no effect, and a repeated run changes nothing. A new record supersedes the row of its
key by the topic's rules, as in a snapshot of the whole log. The new part alone is enough if no deciding record can have
been removed: ``refusals.py``. A task turns a file of new winners into one of the table, without superseded records and
deleted keys.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd.errors import ConfigError
from cleanerd.spark.latest_by_tasks import LARGE_BYTES
from cleanerd.spark.logs import Log, describe_names, size_of_all
from cleanerd.spark.snapshot import SnapshotResult, high_watermark_of, walked_logs
from cleanerd.spark.source.plan import part_of
from cleanerd.spark.tables import refusals
from cleanerd.spark.tables.files import WrittenFile, read_columns, without, write_rows
from cleanerd.spark.tables.filter_superseded import sift
from cleanerd.spark.tables.latest import write_found, write_latest
from cleanerd.spark.tables.parts import LogPart, as_of, first_of, leader_epoch_at, leader_epochs_of, topics_of
from cleanerd.spark.tables.remembered import UNKNOWN_EPOCH, TableState, Topic
from cleanerd.spark.tables.tasks import Tasks
from cleanerd.spark.task_runner import ROWS_AN_ARROW_BATCH, ignore_progress, queries, result_row
from cleanerd.spark.values.decoding import Decoding, require_within
from cleanerd.verify.listing import NO_END

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.header_walk import HeaderSummary
    from cleanerd.spark.tables.opened import OpenTable, TableFile


def finish(item: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Rewrite the file ``path`` without the offsets ``beaten`` and, unless ``keep_deleted``, without tombstones.

    Returns the new ``files`` and the number of additionally removed tombstones (``deleted``).

    Raises:
        CleanerdError: a file cannot be read or written.
    """
    place, path, columns = item["place"], item["path"], item["columns"]
    table = read_columns(place, path, ["offset", "is_tombstone"])
    drop = np.isin(table.column("offset").to_numpy(), np.array(item["beaten"], np.int64))
    if not item["keep_deleted"]:
        drop |= table.column("is_tombstone").to_numpy(zero_copy_only=False)
    files = write_rows(place, without(place, path, drop, columns), columns)
    yield result_row({"path": path, "files": files})


_OFTEN: Final = 10
"""A watermark is renewed after this part of ``delete.retention.ms``, even without new records."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge for a partition: the log from ``begin`` to ``end_offset`` (exclusive) was new.

    ``written``: added rows; ``removed``: removed ones; a replaced row counts in both. ``undecoded``: new keys and
    values that could not be decoded.
    """

    name: TopicPartition
    strategy: str
    log_start: int
    begin: int
    end_offset: int
    written: int
    removed: int
    undecoded: int = 0


def write_table(
    session: SparkSession | None,
    table: OpenTable,
    logs: Sequence[Log],
    *,
    tombstones: bool = False,
    whole_log: bool = False,
    replace_all: bool = False,
    decoding: Decoding | None = None,
    advance: Callable[[int], None] = ignore_progress,
    now_ms: int | None = None,
    large_bytes: int = LARGE_BYTES,
) -> list[SnapshotResult]:
    """Write the latest state of ``logs`` as the table, in one commit. ``replace_all``: replace its content.

    By the tasks of ``session``, a task a partition, or by this process. ``tombstones`` and ``whole_log`` are those of
    :func:`~cleanerd.spark.snapshot.write_snapshot`; of topics with versions deleted keys are always rows of the table.
    ``now_ms``: None, the clock's. ``decoding``: what makes the further columns, if the table is open with some. A log
    of more than ``large_bytes`` is read by many tasks.

    Raises:
        ConfigError: the table exists, and ``replace_all`` is not set; the high watermark of a log is not known.
        RefusedError: it has other columns, or another writer changed it meanwhile.
        CorruptionError: a log has bytes that cannot be read: its state is not known.
        CleanerdError: a file cannot be read or written.
    """
    if table.exists and not replace_all:
        raise ConfigError(
            "exists already", where=table.where, hint="--incremental adds new records, --replace writes it again"
        )
    if table.exists:
        table.require_ours()
    tasks = Tasks(session, table, decoding)
    with _jobs(session, logs, advance), tasks.cleaning_up():
        now = _now_ms() if now_ms is None else now_ms
        walks = walked_logs(
            session, logs, [NO_END if whole_log else high_watermark_of(log) for log in logs], whole_log=whole_log
        )
        parts = [
            _full_part(table.where, log, walked, topic, now)
            for log, walked, topic in zip(logs, walks, topics_of(logs, tombstones=tombstones), strict=True)
        ]
        written = _write_all(session, tasks, parts, walks, advance, large_bytes)
        _require_decoded(decoding, written)
        files = [file for summary in written.values() for file in summary["files"]]
        removed = table.files() if table.exists else []
        remember = TableState(
            {part.log.name.topic: part.topic for part in parts}, {part.log.name: part.now for part in parts}, whole_log
        )
        tasks.commit(files, removed, remember)
    return [_result(part, written.get(number), tombstones=tombstones) for number, part in enumerate(parts)]


def _full_part(where: str, log: Log, walked: HeaderSummary, topic: Topic, now_ms: int) -> LogPart:
    refusals.require_one_topic(where, log, topic)
    first = first_of(log)
    end = max(walked.stable_end, first)
    epoch = leader_epoch_at(leader_epochs_of(log), end - 1)
    return LogPart(log, first, first, end, watermark=None, topic=topic, as_of_ms=as_of(log, now_ms), leader_epoch=epoch)


def _write_all(
    session: SparkSession | None,
    tasks: Tasks,
    parts: Sequence[LogPart],
    walks: Sequence[HeaderSummary],
    advance: Callable[[int], None],
    large_bytes: int,
) -> dict[int, dict[str, Any]]:
    """As :func:`_write`, for whole logs: a large one with many tasks."""
    large = [number for number, part in enumerate(parts) if session and size_of_all([part.log]) > large_bytes]
    small = {number for number in range(len(parts)) if number not in large}
    found = _write(tasks, parts, lambda part: part.topic.keep_deleted, session, advance, small)
    for keep_deleted in (False, True):
        mine = [number for number in large if parts[number].topic.keep_deleted == keep_deleted]
        if session is None or not mine:
            continue
        logs, theirs = [parts[number].log for number in mine], [walks[number] for number in mine]
        for summary in tasks.run_on(write_found(session, logs, theirs, tasks.how, tombstones=keep_deleted)):
            mine_so_far = found.setdefault(mine[summary["log"]], {"files": [], "undecoded": 0})
            mine_so_far["files"] += summary["files"]
            mine_so_far["undecoded"] += summary["undecoded"]
    return found


def _result(part: LogPart, summary: Mapping[str, Any] | None, *, tombstones: bool) -> SnapshotResult:
    """The result of a partition; deleted keys are included if they were requested."""
    keys = sum(file.rows - (0 if tombstones else file.tombstones) for file in summary["files"]) if summary else 0
    undecoded = summary["undecoded"] if summary else 0
    return SnapshotResult(part.log.name, part.log.rules.strategy, part.first, part.end, keys, undecoded)


def _require_decoded(decoding: Decoding | None, summary: Mapping[int, Mapping[str, Any]]) -> None:
    """Check the limit of undecodable values over all tasks: each has only checked its own."""
    if decoding is not None:
        require_within(decoding.limit, sum(each["undecoded"] for each in summary.values()))


def merge_into(
    session: SparkSession | None,
    table: OpenTable,
    logs: Sequence[Log],
    *,
    retention_ms: Callable[[str], int],
    tombstones: bool = False,
    decoding: Decoding | None = None,
    advance: Callable[[int], None] = ignore_progress,
    now_ms: int | None = None,
) -> list[Merged]:
    """Update the table with the new records of ``logs`` since its offsets, in one commit.

    Other partitions do not change.

    Other partitions in it stay as they are. ``retention_ms``: the ``delete.retention.ms`` of a topic. ``now_ms``: None,
    the clock's.

    Raises:
        ConfigError: the table does not exist; a high watermark is unknown.
        RefusedError: new records do not show the latest state (``refusals.py``), or another writer changed the table.
        CorruptionError: a log has bytes that cannot be read.
        CleanerdError: a file cannot be read or written.
    """
    if not table.exists:
        hint = "make it first: without --incremental; in a notebook by write_table()"
        raise ConfigError("there is no such table", where=table.where, hint=hint)
    table.require_ours()
    before = table.stored_state()
    if before is None:
        raise refusals.unknown(table.where)
    refusals.require_acknowledged(table.where, before)
    now = _now_ms() if now_ms is None else now_ms
    tasks = Tasks(session, table, decoding)
    with _jobs(session, logs, advance), tasks.cleaning_up():
        parts = _new_parts(session, table, before, logs, topics_of(logs, tombstones=tombstones), now)
        new = _write(tasks, parts, lambda _part: True, session, advance)
        _require_decoded(decoding, new)
        for number, summary in new.items():
            part = parts[number]
            if part.watermark is not None:
                missing = part.end - part.begin - summary["stored"]
                retention = retention_ms(part.log.name.topic)
                refusals.require_complete(
                    table.where, part.log, part.watermark, missing, now_ms=now, retention_ms=retention
                )
        old, sifted = _sift(tasks, table, parts, new)
        added = _finish(tasks, parts, new, sifted)
        topics = {part.log.name.topic: part.topic for part in parts}
        remember = TableState(
            {**before.topics, **{name: topic.after(before.topics.get(name)) for name, topic in topics.items()}},
            {**before.watermarks, **{part.log.name: part.now for part in parts}},
        )
        come = [file for files in added.values() for file in files]
        come += [file for summary in sifted for file in summary["files"]]
        gone = [old[summary["path"]] for summary in sifted if summary["changed"]]
        if come or gone or _is_worth(before, parts, retention_ms):
            tasks.commit(come, gone, remember)
    return [_merged(number, part, added, sifted, new.get(number)) for number, part in enumerate(parts)]


def _merged(
    number: int,
    part: LogPart,
    added: dict[int, list[WrittenFile]],
    sifted: Sequence[dict[str, Any]],
    summary: Mapping[str, Any] | None,
) -> Merged:
    name = str(part.log.name)
    removed = sum(summary["replaced"].get(name, 0) + summary["below"].get(name, 0) for summary in sifted)
    written = sum(file.rows for file in added.get(number, ()))
    return Merged(
        name=part.log.name,
        strategy=part.log.rules.strategy,
        log_start=part.first,
        begin=part.begin,
        end_offset=part.end,
        written=written,
        removed=removed,
        undecoded=summary["undecoded"] if summary else 0,
    )


def _new_parts(
    session: SparkSession | None,
    table: OpenTable,
    before: TableState,
    logs: Sequence[Log],
    topics: Sequence[Topic],
    now_ms: int,
) -> list[LogPart]:
    """The new part of each of ``logs``; all of a log that the table does not have."""
    begins = []
    for log, topic in zip(logs, topics, strict=True):
        was, watermark = before.topics.get(log.name.topic), before.watermarks.get(log.name)
        if was is not None:
            refusals.require_same_topic(table.where, log, was, topic)
        begins.append(first_of(log) if watermark is None else watermark.end_offset)
    # Transactions open at the watermark are above it, so nothing below is needed.
    tails = [
        replace(log, segments=tuple(each for each in log.segments if each.end > begin) or log.segments[-1:])
        for log, begin in zip(logs, begins, strict=True)
    ]
    walks = walked_logs(session, tails, [high_watermark_of(log) for log in logs], whole_log=False)
    parts = []
    for log, topic, begin, walked in zip(logs, topics, begins, walks, strict=True):
        first, watermark = first_of(log), before.watermarks.get(log.name)
        end = max(walked.stable_end, first)
        epoch = UNKNOWN_EPOCH if watermark is None else watermark.leader_epoch
        if watermark is not None:
            refusals.require_range(table.where, log, watermark, first, end)
        if watermark is None or end > watermark.end_offset:
            refusals.require_one_topic(table.where, log, topic)
            epochs = leader_epochs_of(log)
            if watermark is not None:
                refusals.require_not_cut(table.where, log, watermark, epochs)
            epoch = leader_epoch_at(epochs, end - 1)
        as_of_ms = as_of(log, now_ms)
        parts.append(
            LogPart(
                log,
                first,
                begin,
                max(end, begin),
                watermark=watermark,
                topic=topic,
                as_of_ms=as_of_ms,
                leader_epoch=epoch,
            )
        )
    return parts


def _write(
    tasks: Tasks,
    parts: Sequence[LogPart],
    tombstones: Callable[[LogPart], bool],
    session: SparkSession | None,
    advance: Callable[[int], None],
    numbers: Collection[int] | None = None,
) -> dict[int, dict[str, Any]]:
    """The retained records of each part that has offsets, as files: results of ``write_latest``, by number.

    ``numbers``: only these parts.
    """
    items = []
    for number, part in enumerate(parts):
        if part.end > part.begin and (numbers is None or number in numbers):
            log = part_of(replace(part.log, log_start=part.first), part.begin, part.end)
            size_bytes = sum(each.size_bytes for each in part.log.segments if each.end > part.begin)
            item = {"log": log, "begin": part.begin, "end": part.end, "tombstones": tombstones(part)}
            items.append((size_bytes, {"number": number, **item}))
    found = {}
    # Without a session one by one, so that the progress is visible.
    for bundle in [[each] for each in items] if session is None else [items]:
        found.update({summary["number"]: summary for summary in tasks.run(write_latest, bundle)})
        if session is None:
            advance(sum(size for size, _ in bundle))
    return found


def _sift(
    tasks: Tasks, table: OpenTable, parts: Sequence[LogPart], new: dict[int, dict[str, Any]]
) -> tuple[dict[str, TableFile], list[dict[str, Any]]]:
    """The results of ``sift`` for the table's files that may have rows of changed partitions, by path."""
    changes: dict[TopicPartition, dict[str, Any]] = {}
    for number, part in enumerate(parts):
        paths = [file.path for file in new.get(number, {"files": ()})["files"]]
        if part.watermark is not None and (paths or part.is_moved):
            change: dict[str, Any] = {
                "topic": part.log.name.topic,
                "partition": part.log.name.partition,
                "log_start": part.first,
                "new": paths,
                "log": None,
            }
            if part.log.rules.by_version:
                change["log"] = part_of(part.log, part.first, part.begin)
            changes[part.log.name] = change
    files = {file.path: file for file in table.files()} if changes else {}
    items = []
    for path, file in files.items():
        of_file = {str(name): change for name, change in changes.items() if file.may_hold(name)}
        if of_file:
            items.append((1, {"path": path, "changes": of_file}))
    summary = tasks.run(sift, items)
    for part in parts:
        name = str(part.log.name)
        if part.log.rules.by_version and any(each["below"].get(name) for each in summary):
            raise refusals.winners_gone(table.where, part.first, name)
    return files, summary


def _finish(
    tasks: Tasks, parts: Sequence[LogPart], new: dict[int, dict[str, Any]], sifted: Sequence[dict[str, Any]]
) -> dict[int, list[WrittenFile]]:
    """The new files for the table, by the number of their part."""
    added: dict[int, list[WrittenFile]] = {}
    items, owners = [], {}
    for number, summary in new.items():
        part = parts[number]
        name = str(part.log.name)
        beaten = [offset for each in sifted for offset in each["beaten"].get(name, ())]
        for file in summary["files"]:
            if beaten or (file.tombstones and not part.topic.keep_deleted):
                owners[file.path] = number
                work = {"path": file.path, "beaten": beaten, "keep_deleted": part.topic.keep_deleted}
                items.append((file.size_bytes, work))
            else:
                added.setdefault(number, []).append(file)
    for summary in tasks.run(finish, items):
        added.setdefault(owners[summary["path"]], []).extend(summary["files"])
    tasks.drop(owners)
    return added


def _is_worth(before: TableState, parts: Sequence[LogPart], retention_ms: Callable[[str], int]) -> bool:
    """Whether to store a commit without changed rows: new offsets, or an old watermark."""
    for part in parts:
        watermark = before.watermarks.get(part.log.name)
        if watermark is None or (watermark.log_start, watermark.end_offset) != (part.first, part.end):
            return True
        if part.now.as_of_ms - watermark.as_of_ms > retention_ms(part.log.name.topic) // _OFTEN:
            return True
    return False


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _jobs(
    session: SparkSession | None, logs: Sequence[Log], advance: Callable[[int], None]
) -> AbstractContextManager[None]:
    return queries(
        session,
        f"snapshot: {describe_names(log.name for log in logs)}",
        size_of_all(logs),
        advance,
        rows_a_batch=ROWS_AN_ARROW_BATCH,
    )
