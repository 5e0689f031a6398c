"""Walks over the headers of each log once, in a task per log: committed data, ends of segments, damage.

A transaction's end may be segments after its data, so this precedes the judging of records (U-12). It uses the markers
in the log instead of its transaction indexes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cleanerd.spark.task_runner import result_row, results
from cleanerd.verify.finding import Findings, Severity
from cleanerd.verify.listing import NO_END, SegmentFile
from cleanerd.verify.partition_log import HeaderWalk
from cleanerd.verify.producers import ProducerExpiry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class HeaderSummary:
    """The header facts of a log. ``hidden``: [n][3] producer, first offset, end of uncommitted data.

    ``ends``: one past the last offset of each segment that has a batch. ``damaged``: bytes that are not a batch, in
    words. ``stable_end``: up to where the log is stable, within its high watermark.
    """

    end_offset: int
    stable_end: int
    batches: int
    hidden: list[list[int]]
    ends: dict[Path, int]
    damaged: list[str]


def walk_headers(
    session: SparkSession | None, logs: Sequence[Sequence[SegmentFile]], high_watermarks: Sequence[int] | None = None
) -> list[HeaderSummary]:
    """Walk ``logs``, the segments of one partition each, in order. Without ``high_watermarks`` the whole log counts.

    Without a ``session`` this process does it.

    Raises:
        CleanerdError: a file cannot be read.
    """
    items = [
        (
            sum(file.size_bytes for file in files),
            {
                "walk": number,
                "files": files,
                "high_watermark": NO_END if high_watermarks is None else high_watermarks[number],
            },
        )
        for number, files in enumerate(logs)
    ]
    found = dict(results(session, items, walk_one))
    return [found[number] for number in range(len(logs))]


def walk_one(item: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """The number of one log with its summary."""
    findings = Findings(limit=20)
    log = HeaderWalk(
        findings,
        ProducerExpiry(0, 0),
        lambda _bytes: None,
        indexes=False,
        tail_may_be_cut=True,
        high_watermark=item["high_watermark"],
    ).walk(item["files"])
    summary = HeaderSummary(
        end_offset=log.end_offset,
        stable_end=min(log.end_offset, log.last_stable_offset),
        batches=log.batches,
        hidden=log.invisible.ranges.tolist(),
        ends={facts.file.path: facts.end_offset for facts in log.segments if facts.batches},
        damaged=[
            f"{each.file} at byte {each.position}: {each.what}"
            for each in findings.in_order()
            if each.severity is Severity.ERROR
        ],
    )
    yield result_row((item["walk"], summary))
