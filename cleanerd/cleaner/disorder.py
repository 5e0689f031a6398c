"""Logs whose offsets do not rise (U-45): what both the log's order and the offsets let go is removed, nothing else.

Brokers store such logs and serve them: a batch that was written twice, one that goes back, records whose offsets do not
fit their batch. A reader of the file takes the last record of a key, a consumer never goes back and misses it. So of
two records of a key the earlier one goes only where its offset is lower too; Kafka's cleaner keeps no fewer. Only
records whose offsets take part in the disorder can differ from the offset map's judgement. They are read once more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.cleaner.index import keyed_rows
from cleanerd.cleaner.purge import bools
from cleanerd.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.evidence import Intervals, SegmentEvidence
    from cleanerd.cleaner.index import Decoder
    from cleanerd.policy.retain import RecordEvidence

MOST_RECORDS: Final = 4_000_000
"""About 400 MB with what sorting takes."""


@dataclass(frozen=True, slots=True)
class Disorder:
    """What the disorder changes: ``records`` as retention takes them; per segment the tombstones that have to stay.

    ``note`` is for the operator, "" where offsets rise.
    """

    records: list[RecordEvidence]
    guards: list[NDArray[np.uint64] | None]
    note: str


def settle_disorder(
    decoder: Decoder,
    segments: Sequence[SegmentEvidence],
    records: list[RecordEvidence],
    most_records: int = MOST_RECORDS,
) -> Disorder:
    """Keep what the order of the log alone would remove.

    Raises:
        DisorderedLogError: transactions take part, or more than ``most_records`` records.
        CorruptionError, CleanerdError: a segment cannot be read.
    """
    guards: list[NDArray[np.uint64] | None] = [None] * len(segments)
    if not any(evidence.disorder for evidence in segments):
        return Disorder(records, guards, "")
    tangles = _merged([*_between(segments), *(each for evidence in segments for each in evidence.tangles)])
    for evidence in segments:
        for events in evidence.events:
            if (inside := _inside(tangles, events.offset)).any():
                offset = int(events.offset[inside][0])
                raise evidence.disordered(f"a transaction has a batch at offset {offset}, where offsets go back")
    intervals = _merged([tangles, *(each for evidence in segments for each in evidence.disorder)])
    rows = _Rows(decoder, intervals, most_records)
    for number, (evidence, facts) in enumerate(zip(segments, records, strict=True)):
        rows.read(number, evidence, facts)
    kept, guarded = rows.judged()
    records = list(records)
    for number, (evidence, facts) in enumerate(zip(segments, records, strict=True)):
        if (mine := kept[rows.segment[kept] == number]).size:
            newest = facts.newest | _bits(rows.number[mine], evidence.records)
            records[number] = replace(facts, newest=newest)
        if (mine := guarded[rows.segment[guarded] == number]).size:
            guards[number] = _bits(rows.number[mine], evidence.records)
    return Disorder(records, guards, _note(intervals, len(kept), len(guarded)))


def _note(intervals: Intervals, kept: int, guarded: int) -> str:
    first, last = intervals[0].tolist()
    more = f" and in {counted(len(intervals) - 1, 'more place')}" if len(intervals) > 1 else ""
    note = f"offsets do not rise at {first}..{last}{more}: "
    if not kept:
        return f"{note}the records are cleaned in the order of the log"
    held = f"; {counted(guarded, 'tombstone')} beside them stay too" if guarded else ""
    return f"{note}{counted(kept, 'record')} stay beside a later one of their key that has no higher offset{held}"


def _between(segments: Sequence[SegmentEvidence]) -> list[Intervals]:
    """The offsets at which a segment reaches below what lies before it."""
    found, high = [], -1
    for evidence in segments:
        if 0 <= evidence.low_offset <= high:
            found.append(np.array([[evidence.low_offset, high]], dtype=np.int64))
        high = max(high, evidence.high_offset)
    return found


def _merged(intervals: Sequence[Intervals]) -> Intervals:
    """[k, 2], ascending, none touching another."""
    every = np.concatenate([np.zeros((0, 2), dtype=np.int64), *intervals])
    every = every[np.argsort(every[:, 0], kind="stable")]
    ends = np.maximum.accumulate(every[:, 1]) if len(every) else every[:, 1]
    starts = np.flatnonzero(np.concatenate([[True], every[1:, 0] > ends[:-1]])[: len(every)])
    lasts = np.concatenate([starts[1:], [len(every)]])[: len(starts)] - 1
    return np.stack([every[starts, 0], ends[lasts]], axis=1)


def _inside(intervals: Intervals, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[n] bool: the offset lies in one of the ``intervals``, which are merged."""
    row = np.searchsorted(intervals[:, 0], offsets, side="right") - 1
    inside: NDArray[np.bool_] = (row >= 0) & (offsets <= intervals[np.maximum(row, 0), 1])
    return inside if len(intervals) else np.zeros(len(offsets), dtype=np.bool_)


def _bits(numbers: NDArray[np.int64], total: int) -> NDArray[np.uint64]:
    """A bitmap of ``total`` bits with those of ``numbers`` set."""
    flags = np.zeros((total + 63) // 64 * 64, dtype=np.bool_)
    flags[numbers] = True
    return np.packbits(flags, bitorder="little").view("<u8").astype(np.uint64)


def _has_higher_behind(group: NDArray[np.intp], offset: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[n] bool: a later row of the same ``group`` (ascending) has a higher offset."""
    _, rank = np.unique(offset, return_inverse=True)
    # From the end on: a group's numbers lie above those of the groups behind it, so its own count alone.
    height = (group[-1] - group) * (len(group) + 1) + rank
    behind = np.concatenate([np.maximum.accumulate(height[::-1])[::-1][1:], [-1]])
    result: NDArray[np.bool_] = behind > height
    return result


class _Rows:
    """The records with a key that take part, in the order of the log."""

    def __init__(self, decoder: Decoder, intervals: Intervals, most_records: int) -> None:
        self._decoder = decoder
        self._intervals = intervals
        self._most = most_records
        self._parts: list[tuple[NDArray[np.int64], ...]] = []
        self._hashes: list[NDArray[np.uint64]] = []
        self._count = 0
        self.segment = np.zeros(0, dtype=np.int64)
        self.number = np.zeros(0, dtype=np.int64)

    def read(self, segment: int, evidence: SegmentEvidence, facts: RecordEvidence) -> None:
        """Add those of a segment."""
        reach = (self._intervals[:, 1] >= evidence.low_offset) & (self._intervals[:, 0] <= evidence.high_offset)
        if not reach.any():
            return
        for known in evidence.again(self._decoder.chunks(evidence.source)):
            chunk, count = known.chunk, len(known.chunk.records)
            mask = keyed_rows(chunk, known.rows(facts.unjudged_records, facts.cleaned_records))
            rows = np.flatnonzero(mask & _inside(self._intervals, chunk.records.offset))
            self._count += len(rows)
            if self._count > self._most:
                raise evidence.disordered(f"offsets go back among more than {self._most} records")
            newest, tombstone = (bools(bits, known.record, count)[rows] for bits in (facts.newest, facts.tombstone))
            numbers = rows + known.record
            of_segment = np.full(len(rows), segment)
            self._parts.append((of_segment, numbers, chunk.records.offset[rows], newest, tombstone))  # type: ignore[arg-type]
            self._hashes.append(chunk.records.key_hash.reshape(-1, 2)[rows])

    def judged(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows that stay although the map has a later one; and rows of tombstones beside which another record stays."""
        columns = [np.concatenate(column) for column in zip(*self._parts, strict=True)]
        self.segment, self.number, offset, newest, tombstone = columns
        hashes = np.concatenate(self._hashes)
        order = np.lexsort((hashes[:, 1], hashes[:, 0]))
        hashes = hashes[order]
        begins = np.concatenate([[True], (hashes[1:] != hashes[:-1]).any(axis=1)])[: len(order)]
        starts, group = np.flatnonzero(begins), np.cumsum(begins) - 1
        if not len(starts):
            return np.zeros(0, np.intp), np.zeros(0, np.intp)
        newest, tombstone, offset = newest[order].astype(np.bool_), tombstone[order].astype(np.bool_), offset[order]
        wins = np.logical_or.reduceat(newest, starts)[group]
        stays = newest | (wins & ~_has_higher_behind(group, offset))
        values = np.logical_or.reduceat(stays & ~tombstone, starts)[group]
        return order[stays & ~newest], order[stays & tombstone & values]
