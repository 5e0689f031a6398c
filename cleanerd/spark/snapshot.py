"""The latest state of topics under their strategies, as Parquet: the content of a table ``key -> value``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from cleanerd.errors import ConfigError, CorruptionError
from cleanerd.format.names import TopicPartition
from cleanerd.spark.header_walk import HeaderSummary, walk_headers
from cleanerd.spark.latest_by_tasks import LARGE_BYTES, find_winners, on_winners
from cleanerd.spark.logs import Log, describe_names, size_of_all
from cleanerd.spark.snapshot_files import UNDECODED, write_files, write_offsets
from cleanerd.spark.state_rows import STATE, STATE_COLUMNS, read_winners
from cleanerd.spark.task_runner import ROWS_AN_ARROW_BATCH, ignore_progress, queries
from cleanerd.spark.values.decode_options import error_name
from cleanerd.spark.values.decoding import Decoding, require_within
from cleanerd.verify.listing import NO_END

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """A partition's snapshot: ``keys`` records, as of ``end_offset`` (exclusive).

    ``undecoded``: undecodable keys and values.
    """

    name: TopicPartition
    strategy: str
    log_start: int
    end_offset: int
    keys: int
    undecoded: int = 0


def write_snapshot(
    session: SparkSession | None,
    logs: Sequence[Log],
    target: str,
    *,
    tombstones: bool = False,
    whole_log: bool = False,
    decoding: Decoding | None = None,
    advance: Callable[[int], None] = ignore_progress,
    large_bytes: int = LARGE_BYTES,
) -> list[SnapshotResult]:
    """Write the latest state of ``logs`` to the new directory or URL ``target``, with a sub-directory per topic.

    By the tasks of ``session`` or, without one, by this process. Files of a directory are written as they are
    (``snapshot_files.py``); to any other place Spark's own writer writes.

    Its offsets are beside it, in ``_cleanerd``, which Spark's readers ignore: it is written last, so a snapshot without
    it is not complete.

    ``tombstones``: deleted keys too, by the record that deletes them. ``whole_log``: up to the end of the log, whatever
    its high watermark, without what is not committed. ``decoding``: with the columns that it makes of keys and values;
    what it cannot decode is written to ``_undecoded`` besides, which Spark's readers pass over too. Many tasks read a
    log of more than ``large_bytes``.

    Raises:
        ConfigError: the high watermark of a log is not known, and not its ``whole_log`` wanted.
        CorruptionError: a log has bytes that cannot be read: its state is not known; or more of it cannot be
            decoded than may be.
        CleanerdError: a file cannot be read.
    """
    ends = [NO_END if whole_log else high_watermark_of(log) for log in logs]
    what = f"snapshot: {describe_names(log.name for log in logs)}"
    with queries(session, what, size_of_all(logs), advance, rows_a_batch=ROWS_AN_ARROW_BATCH):
        walks = walked_logs(session, logs, ends, whole_log=whole_log)
        place = target.removeprefix("file://") if target.startswith("file:///") else None
        if session is None or place is not None:
            path = Path(unquote(target if place is None else place))
            counts = write_files(
                session, logs, walks, path,
                tombstones=tombstones, decoding=decoding, advance=advance, large_bytes=large_bytes,
            )  # fmt: skip
            results = _results(logs, walks, counts)
            write_offsets([_offsets_of(each) for each in results], path)
            return results
        state = latest_state(session, logs, walks, tombstones=tombstones, decoding=decoding)
        state.write.mode("error").partitionBy("topic").parquet(target)
        results = _results(logs, walks, counted_rows(session, target, decoding))
        offsets = pa.Table.from_pylist([_offsets_of(each) for each in results])
        # One JSON file, a line per partition.
        session.createDataFrame(offsets).coalesce(1).write.mode("error").json(f"{target}/_cleanerd")
    return results


def walked_logs(
    session: SparkSession | None, logs: Sequence[Log], ends: Sequence[int], *, whole_log: bool
) -> list[HeaderSummary]:
    """The header facts of ``logs``, up to ``ends``. ``whole_log``: open transactions there do not limit later data.

    Raises:
        CorruptionError: a log has unreadable bytes, so its state is unknown.
        CleanerdError: a file cannot be read.
    """
    walks = walk_headers(session, [log.segments for log in logs], ends)
    if whole_log:
        walks = [replace(walked, stable_end=walked.end_offset) for walked in walks]
    damaged = [text for walked in walks for text in walked.damaged]
    if damaged:
        raise CorruptionError(damaged[0], where="snapshot", hint=f"{len(damaged)} such places; cleanerd verify")
    return walks


def counted_rows(
    session: SparkSession, target: str, decoding: Decoding | None
) -> dict[TopicPartition, tuple[int, int]]:
    """The number of rows of each partition in ``target``, and of undecoded ones, which are in the side directory.

    Raises:
        CorruptionError: more is undecoded than allowed.
    """
    sources = [] if decoding is None else [each.source for each in decoding.columns]
    # Spark would read a topic 2024 as a number, and treat an empty directory as an error.
    schema = "topic string, partition int, offset long"
    schema += "".join(f", {source} binary, {error_name(source)} string" for source in sources)
    written = session.read.schema(schema).parquet(target)
    names = [error_name(source) for source in sources]
    rows = written.groupBy("topic", "partition").agg({"*": "count", **dict.fromkeys(names, "count")}).collect()
    counts = {
        TopicPartition(row["topic"], row["partition"]): (
            row["count(1)"], sum(row[f"count({name})"] for name in names)
        )
        for row in rows
    }  # fmt: skip
    if decoding is not None:
        require_within(decoding.limit, sum(failed for _, failed in counts.values()))
        sides = [
            written.where(f"{error_name(source)} IS NOT NULL").selectExpr(
                "topic",
                "partition",
                "offset",
                f"'{source}' AS column",
                f"{source} AS bytes",
                f"{error_name(source)} AS reason",
            )
            for source in sources
        ]
        reduce(lambda one, other: one.union(other), sides).coalesce(1).write.mode("error").parquet(
            f"{target}/{UNDECODED}"
        )
    return counts


def _results(
    logs: Sequence[Log], walks: Sequence[HeaderSummary], counts: Mapping[TopicPartition, tuple[int, int]]
) -> list[SnapshotResult]:
    return [
        SnapshotResult(
            log.name,
            log.rules.strategy,
            begin := max(log.log_start, log.segments[0].base),
            max(walked.stable_end, begin),
            *counts.get(log.name, (0, 0)),
        )
        for log, walked in zip(logs, walks, strict=True)
    ]


def high_watermark_of(log: Log) -> int:
    """The high watermark from the directory's checkpoint.

    Raises:
        ConfigError: it is unknown.
    """
    if log.high_watermark is None:
        raise ConfigError(
            f"the high watermark of {log.name} is not known",
            where=str(log.log_dir),
            hint="start the broker once, or take all of the log with --whole-log",
        )
    return log.high_watermark


def _offsets_of(result: SnapshotResult) -> dict[str, Any]:
    """The offsets that the snapshot covers of a partition."""
    return {
        "topic": result.name.topic,
        "partition": result.name.partition,
        "strategy": result.strategy,
        "log_start_offset": result.log_start,
        "end_offset": result.end_offset,
        "records": result.keys,
    }


def latest_state(
    session: SparkSession,
    logs: Sequence[Log],
    walks: Sequence[HeaderSummary],
    *,
    tombstones: bool = False,
    decoding: Decoding | None = None,
) -> DataFrame:
    """The rows of the snapshot of ``logs`` with the header facts ``walks``."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - what this process does alone needs no pyspark

    winners, files = find_winners(session, logs, walks, tombstones=tombstones)
    places = [(logs[number].name, file) for file, number in files]
    if decoding is None:
        return on_winners(winners, partial(read_winners, places, None), STATE_COLUMNS)
    columns = from_arrow_schema(decoding.added_to(STATE))
    return on_winners(winners, partial(read_winners, places, decoding), columns)
