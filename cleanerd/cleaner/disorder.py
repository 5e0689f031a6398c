"""Logs whose offsets do not rise (U-45): a record goes only where every reader has a later one of its key.

Brokers store such logs and serve them: a batch that was written twice, one that goes back, records whose offsets do not
fit their batch. A reader of the file takes the last record of a key. A consumer never goes back: it passes over records
below its position. So a record goes only where another one of its key beats it in the order of the log as well as by
offset, and no consumer passes over that one. Only keys with a record among the disordered offsets can differ from what
the offset map says. All their records are read once more, in as many passes as their number asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd.cleaner.index import keyed_rows
from cleanerd.cleaner.purge import bools
from cleanerd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd._kernel import Chunk
    from cleanerd.cleaner.chunk_rows import KnownChunk
    from cleanerd.cleaner.evidence import Intervals, SegmentEvidence
    from cleanerd.cleaner.index import Decoder
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.policy.retain import RecordEvidence
    from cleanerd.policy.rules import Rules

MOST_RECORDS: Final = 2_000_000
"""In one pass."""
RECORD_BYTES: Final = 150
"""What a record of a pass takes, with what sorting takes."""
MOST_PASSES: Final = 64


@dataclass(frozen=True, slots=True)
class Disorder:
    """What the disorder changes: ``records`` as retention takes them; per segment the tombstones that have to stay.

    ``note`` is for the operator, "" where offsets rise.
    """

    records: list[RecordEvidence]
    guards: list[NDArray[np.uint64] | None]
    note: str


def settle_disorder(
    plan: CleaningPlan,
    decoder: Decoder,
    segments: Sequence[SegmentEvidence],
    records: list[RecordEvidence],
) -> Disorder:
    """Keep what the offset map alone would let go.

    Raises:
        DisorderedLogError: transactions take part, or so many records that memory for them is missing (U-35).
        CorruptionError, CleanerdError: a segment cannot be read.
    """
    guards: list[NDArray[np.uint64] | None] = [None] * len(segments)
    most_records = min(MOST_RECORDS, plan.facts_bytes // RECORD_BYTES)
    odd = [evidence for evidence in segments if evidence.disorder]
    if not odd:
        return Disorder(records, guards, "")
    tangles = _merged([*_between(segments), *(each for evidence in odd for each in evidence.tangles)])
    for evidence in segments:
        for events in evidence.events:
            if (inside := _inside(tangles, events.offset)).any():
                offset = int(events.offset[inside][0])
                raise evidence.disordered(f"a transaction has a batch at offset {offset}, where offsets go back")
    intervals = _merged([tangles, *(each for evidence in odd for each in evidence.disorder)])
    records, kept, held, passes, number = list(records), 0, 0, 1, 0
    while number < passes:
        rows = _Rows(plan.rules, decoder, segments, records, (number, passes))
        if not rows.gather(intervals, most_records):
            if passes == MOST_PASSES:
                raise odd[0].disordered(f"offsets go back among more than {passes * most_records} records")
            number, passes = 0, 2 * passes
            continue
        stays, guarded = rows.judged()
        for row, evidence in enumerate(segments):
            if (mine := stays[rows.segment[stays] == row]).size:
                bits = _bits(rows.number[mine], evidence.records)
                records[row] = replace(records[row], newest=records[row].newest | bits)
            if (mine := guarded[rows.segment[guarded] == row]).size:
                bits, before = _bits(rows.number[mine], evidence.records), guards[row]
                guards[row] = bits if before is None else bits | before
        kept, held, number = kept + len(stays), held + len(guarded), number + 1
    return Disorder(records, guards, _note(intervals, kept, held))


def _note(intervals: Intervals, kept: int, held: int) -> str:
    first, last = intervals[0].tolist()
    more = f" and in {counted(len(intervals) - 1, 'more place')}" if len(intervals) > 1 else ""
    note = f"offsets do not rise at {first}..{last}{more}: "
    if not kept:
        return f"{note}the records are cleaned in the order of the log"
    tombstones = f", and {counted(held, 'tombstone')} beside them" if held else ""
    superseded = "that a later one of their key supersedes for some readers only"
    return f"{note}{counted(kept, 'record')} {superseded} must stay{tombstones}"


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
    if not len(intervals):
        return np.zeros(len(offsets), dtype=np.bool_)
    row = np.searchsorted(intervals[:, 0], offsets, side="right") - 1
    inside: NDArray[np.bool_] = (row >= 0) & (offsets <= intervals[np.maximum(row, 0), 1])
    return inside


def _bits(numbers: NDArray[np.int64], total: int) -> NDArray[np.uint64]:
    """A bitmap of ``total`` bits with those of ``numbers`` set."""
    flags = np.zeros((total + 63) // 64 * 64, dtype=np.bool_)
    flags[numbers] = True
    return np.packbits(flags, bitorder="little").view("<u8").astype(np.uint64)


def seen_by_consumers(chunk: Chunk, high: int) -> tuple[NDArray[np.bool_], int]:
    """[n] bool: the record lies above all before it, ``high`` included; and the highest offset behind the chunk."""
    counts = np.diff(chunk.batches.first_record)
    reached = np.maximum.accumulate(np.concatenate([[high], chunk.batches.last_offset]))
    records = np.maximum.accumulate(np.concatenate([[high], chunk.records.offset]))
    before = np.maximum(records[:-1], np.repeat(reached[:-1], counts))
    return chunk.records.offset > before, int(max(reached[-1], records[-1]))


def _is_beaten(
    key: NDArray[np.intp], version: NDArray[np.intp], offset: NDArray[np.int64], seen: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """[n] bool: a ``seen`` row of the ``key`` has a higher version, or the same and lies behind with a higher offset.

    The rows are sorted by key, then in the order of the log; ``version`` is a rank from 0 on.
    """
    starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    highest = np.maximum.reduceat(np.where(seen, version, -1), starts)[key]
    _, rank = np.unique(offset, return_inverse=True)
    order = np.lexsort((version, key))  # stable: in the order of the log within each version of a key
    pair = np.cumsum(np.concatenate([[0], (np.diff(key[order]) != 0) | (np.diff(version[order]) != 0)]))
    # From the end on: the numbers of a pair lie above those of the pairs behind it, so its own count alone.
    floor = (pair[-1] - pair) * (len(key) + 2)
    height = floor + rank[order] + 1
    behind = np.maximum.accumulate(np.where(seen[order], height, floor)[::-1])[::-1]
    result = highest > version
    result[order] |= np.concatenate([behind[1:], [-1]]) > height
    return result


class _Rows:
    """The records of one pass's share of the keys, in the order of the log. ``records``: what the offset map said."""

    def __init__(
        self,
        rules: Rules,
        decoder: Decoder,
        segments: Sequence[SegmentEvidence],
        records: Sequence[RecordEvidence],
        share: tuple[int, int],
    ) -> None:
        self._rules = rules
        self._decoder = decoder
        self._segments = segments
        self._records = records
        self._share = share
        self._parts: list[tuple[NDArray[Any], ...]] = []
        self.segment = np.zeros(0, dtype=np.int64)
        self.number = np.zeros(0, dtype=np.int64)

    def gather(self, intervals: Intervals, most_records: int) -> bool:
        """All records of keys that have one in the ``intervals``; False when there are more than ``most_records``."""
        found = [np.zeros(0, dtype=np.uint64)]
        for row, evidence in enumerate(self._segments):
            if ((intervals[:, 1] >= evidence.low_offset) & (intervals[:, 0] <= evidence.high_offset)).any():
                for known, mask in self._read(row):
                    inside = mask & _inside(intervals, known.chunk.records.offset)
                    found.append(known.chunk.records.key_hash[::2][inside])
        keys = np.unique(np.concatenate(found))
        count, high = 0, -1
        for row in range(len(self._segments)):
            for known, mask in self._read(row):
                seen, high = seen_by_consumers(known.chunk, high)
                rows = np.flatnonzero(mask & np.isin(known.chunk.records.key_hash[::2], keys))
                count += len(rows)
                if count > most_records:
                    return False
                self._take(row, known, rows, seen)
        return True

    def _read(self, row: int) -> Iterator[tuple[KnownChunk, NDArray[np.bool_]]]:
        """The chunks of a segment, and [n] bool: a record of this pass that is judged."""
        evidence, facts = self._segments[row], self._records[row]
        number, passes = self._share
        for known in evidence.again(self._decoder.chunks(evidence.source)):
            mask = keyed_rows(known.chunk, known.rows(facts.unjudged_records, facts.cleaned_records))
            yield known, mask & (known.chunk.records.key_hash[1::2] % np.uint64(passes) == number)

    def _take(self, row: int, known: KnownChunk, rows: NDArray[np.intp], seen: NDArray[np.bool_]) -> None:
        facts, records = self._records[row], known.chunk.records
        newest, tombstone = (bools(bits, known.record, len(records)) for bits in (facts.newest, facts.tombstone))
        version, present = np.zeros(len(records), dtype=np.int64), np.zeros(len(records), dtype=np.bool_)
        if self._rules.versioned:
            version, present = self._rules.ranking.versions(records)
        columns = (
            np.full(len(rows), row),
            rows + known.record,
            records.offset[rows],
            newest[rows],
            tombstone[rows],
            seen[rows],
            present[rows],
            np.where(present, version, 0)[rows],
            records.key_hash[::2][rows],
            records.key_hash[1::2][rows],
        )
        self._parts.append(columns)

    def judged(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows that stay against the offset map's word; and tombstones beside which a value of their key stays."""
        columns = [np.concatenate(column) for column in zip(*self._parts, strict=True)]
        if not columns or not len(columns[0]):
            return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
        self.segment, self.number, offset, newest, tombstone, seen, present, version, low, high = columns
        order = np.lexsort((high, low))
        key = np.cumsum(np.concatenate([[0], (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)]))
        ranks = np.zeros(len(order), dtype=np.intp)
        if self._rules.versioned:
            by_version = np.lexsort((version, present))
            rises = (np.diff(version[by_version]) != 0) | (np.diff(present[by_version].astype(np.int8)) != 0)
            ranks[by_version] = np.cumsum(np.concatenate([[0], rises]))
        newest, tombstone = newest[order], tombstone[order]
        stays = newest | ~_is_beaten(key, ranks[order], offset[order], seen[order])
        starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        has_value = np.logical_or.reduceat(stays & ~tombstone, starts)[key]
        return order[stays & ~newest], order[stays & tombstone & has_value]
