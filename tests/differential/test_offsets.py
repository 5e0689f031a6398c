"""Offsets with gaps, empty batches and segments, the end of the cleaning, segments and indexes of unusual sizes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner import cleaner
from cleanerd.policy.grouping import split
from tests.differential.cell import Cell, parameters
from tests.differential.cells.offsets import EMPTY, END, GAPS, SIZES, once
from tests.differential.history import T0, History, batch, log

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka


@pytest.mark.long
@pytest.mark.parametrize("cell", parameters([*GAPS, *EMPTY, *END, *SIZES]))
def test_offsets(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-23, C-39, C-41, C-63, C-64, U-13: offsets never move, and the end of the log stays."""
    cell.check(judge_43, work)


def test_our_segments_hold_records(judge_43: Judge, work: Path) -> None:
    """D-02: cleanerd merges empty segments that Kafka leaves beside a neighbour with space; it adds nothing else."""
    cell = EMPTY[-3]
    (outcome,) = cell.check(judge_43, work)
    ours = judge_43.dump(work / "ours" / "t-0")
    records = {segment.base: 0 for segment in ours.segments[:-1]}
    for found in ours.batches:
        records[found.segment] += found.count
    assert all(records.values()), records
    assert all(low < high for low, high in pairwise(sorted(records)))
    assert len(outcome.comparison.additions) <= len(records)


def test_time_spans(judge_43: Judge, work: Path) -> None:
    """U-17: with a retention of ten hours no merged segment spans more than one, so that old records can be deleted."""
    cell = next(cell for cell in SIZES if cell.name.startswith("compact,delete"))
    cell.check(judge_43, work)
    stamps: dict[int, list[int]] = {}
    for found in judge_43.dump(work / "ours" / "t-0").batches:
        stamps.setdefault(found.segment, []).append(found.max_timestamp)
    assert len(stamps) > 5
    assert all(max(times) - min(times) <= 3_600_000 for times in stamps.values())


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_growth(judge_43: Judge, work: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """U-17: horizons make batches grow; the merged segment would exceed segment.bytes, so the group is split in two."""
    cuts: list[int] = []

    def counted(rows: range, before: int) -> tuple[range, range]:
        cuts.append(before)
        return split(rows, before)

    monkeypatch.setattr(cleaner, "split", counted)  # segments that were never merged would look the same
    words = " ".join(f"k{row}" for row in range(20))
    segments = [[batch(base, words.replace("k", f"s{base}k"))] for base in range(0, 20 * count, 20)]
    size = 61 + 20 * 13
    cell = once(
        f"{count} segments of tombstones",
        lambda rounds: len(rounds[0].horizons()) == count,
        *segments,
        segment_bytes=str(count * size),
    )
    cell.check(judge_43, work)
    assert cuts
    ours = judge_43.dump(work / "ours" / "t-0").segments
    assert 1 < len(ours) - 1 < count + 1
    assert all(segment.size <= count * size for segment in ours)


def test_file_times(judge_43: Judge, work: Path) -> None:
    """C-65: a merged segment and its indexes have the time of the last source."""
    segments = log([batch(0, "a=1 b=1")], [batch(2, "a=2")], [batch(3, "c=1")])
    aged = tuple(replace(segment, last_modified_ms=T0 + 60_000 * row) for row, segment in enumerate(segments))
    cell = Cell(
        "file times", History(aged), lambda rounds: rounds[0].after.segments[0].last_modified_ms == T0 + 120_000
    )
    cell.check(judge_43, work)
    ours = judge_43.dump(work / "ours" / "t-0").segments
    assert [segment.last_modified_ms for segment in ours[:-1]] == [T0 + 120_000]
    stats = [(work / "ours" / "t-0" / f"{0:020d}{suffix}").stat() for suffix in (".log", ".index", ".timeindex")]
    assert {stat.st_mtime_ns for stat in stats} == {(T0 + 120_000) * 1_000_000}
