"""Logs with descending offsets (U-45): retain records of a key whose offset is not below that of its last record.

Brokers store and serve such logs: a batch written twice, a batch with lower offsets, records whose offsets do not fit
their batch. Some readers use a key's last record in the file, others the one with the highest offset. So a record is
removed only if the last record of its key in the log has a higher offset, as in Kafka's cleaner. The offset map
contains the last one. Only records at disordered offsets can have an equal or higher offset, so they are read again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.cleaner.index import ChunkDecoding, keyed_rows
from cleanerd.cleaner.tombstone_guard import bools
from cleanerd.humanize import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd._kernel import Chunk
    from cleanerd.cleaner.evidence import Intervals, SegmentEvidence
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.policy.retain import RecordEvidence
    from cleanerd.policy.rules import Rules

MOST_KEYS: Final = 4_000_000
"""The most keys of one pass."""
KEY_BYTES: Final = 100
"""Memory per key, including the sort."""
MOST_PASSES: Final = 64
_LAST: Final = np.dtype([("key", "V16"), ("offset", "<i8"), ("version", "<i8")])


@dataclass(frozen=True, slots=True)
class Disorder:
    """The effect of the disorder: ``records`` for retention; per segment the tombstones that are retained.

    ``note`` is for the operator, empty if offsets are ascending.
    """

    records: list[RecordEvidence]
    guards: list[NDArray[np.uint64] | None]
    note: str


def resolve_disorder(
    plan: CleaningPlan,
    decoder: ChunkDecoding,
    segments: Sequence[SegmentEvidence],
    records: list[RecordEvidence],
) -> Disorder:
    """Retain records that the offset map alone would remove.

    Raises:
        DisorderedLogError: transactions are involved, or the keys exceed the memory (U-35). CorruptionError,
        CleanerdError: a segment cannot be read.
    """
    guards: list[NDArray[np.uint64] | None] = [None] * len(segments)
    odd = [evidence for evidence in segments if evidence.disorder]
    if not odd:
        return Disorder(records, guards, "")
    tangles = _merged([*_between(segments), *(each for evidence in odd for each in evidence.tangles)])
    for evidence in segments:
        for events in evidence.events:
            if (inside := _inside(tangles, events.offset)).any():
                offset = int(events.offset[inside][0])
                raise evidence.disordered(f"a transaction has a batch at offset {offset}, where offsets decrease")
    intervals = _merged([tangles, *(each for evidence in odd for each in evidence.disorder)])
    most_keys = min(MOST_KEYS, plan.facts_bytes // KEY_BYTES)
    kept = [np.zeros(len(facts.newest), dtype=np.uint64) for facts in records]
    held = [np.zeros(len(facts.newest), dtype=np.uint64) for facts in records]
    number, passes = 0, 1
    while number < passes:
        share = _Pass(plan.rules, decoder, segments, records, intervals, (number, passes))
        if share.find_last(most_keys):
            share.judge(kept, held)
            number += 1
        elif passes < MOST_PASSES:
            number, passes = 0, 2 * passes
        else:
            raise odd[0].disordered(f"offsets decrease among more than {passes * most_keys} keys")
    return Disorder(
        [replace(facts, newest=facts.newest | more) for facts, more in zip(records, kept, strict=True)],
        [bits if bits.any() else None for bits in held],
        _note(intervals, _count(kept), _count(held)),
    )


def _count(bitmaps: Sequence[NDArray[np.uint64]]) -> int:
    return sum(int(np.bitwise_count(bits).sum()) for bits in bitmaps)


def _note(intervals: Intervals, kept: int, held: int) -> str:
    first, last = intervals[0].tolist()
    more = f" and in {counted(len(intervals) - 1, 'more place')}" if len(intervals) > 1 else ""
    note = f"offsets do not rise at {first}..{last}{more}, as a client or a broker wrote them: "
    if not kept:
        return f"{note}the records are cleaned in the order of the log"
    tombstones = f", and {counted(held, 'tombstone')} beside them" if held else ""
    return f"{note}{counted(kept, 'record')} stay beside a later one of their key that has no higher offset{tombstones}"


def _between(segments: Sequence[SegmentEvidence]) -> list[Intervals]:
    """The offset intervals in which a segment reaches below earlier ones."""
    found, high = [], -1
    for evidence in segments:
        if 0 <= evidence.low_offset <= high:
            found.append(np.array([[evidence.low_offset, high]], dtype=np.int64))
        high = max(high, evidence.high_offset)
    return found


def _merged(intervals: Sequence[Intervals]) -> Intervals:
    """[k, 2], ascending, without neighbours that touch."""
    every = np.concatenate([np.zeros((0, 2), dtype=np.int64), *intervals])
    every = every[np.argsort(every[:, 0], kind="stable")]
    ends = np.maximum.accumulate(every[:, 1]) if len(every) else every[:, 1]
    starts = np.flatnonzero(np.concatenate([[True], every[1:, 0] > ends[:-1]])[: len(every)])
    lasts = np.concatenate([starts[1:], [len(every)]])[: len(starts)] - 1
    return np.stack([every[starts, 0], ends[lasts]], axis=1)


def _inside(intervals: Intervals, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[n] bool: the offset is in one of the ``intervals``, which are merged."""
    if not len(intervals):
        return np.zeros(len(offsets), dtype=np.bool_)
    row = np.searchsorted(intervals[:, 0], offsets, side="right") - 1
    inside: NDArray[np.bool_] = (row >= 0) & (offsets <= intervals[np.maximum(row, 0), 1])
    return inside


def _bits(numbers: NDArray[np.int64], total: int) -> NDArray[np.uint64]:
    flags = np.zeros((total + 63) // 64 * 64, dtype=np.bool_)
    flags[numbers] = True
    return np.packbits(flags, bitorder="little").view("<u8").astype(np.uint64)


class _Pass:
    """The keys of one pass. ``records``: the offset map's evidence."""

    def __init__(
        self,
        rules: Rules,
        decoder: ChunkDecoding,
        segments: Sequence[SegmentEvidence],
        records: Sequence[RecordEvidence],
        intervals: Intervals,
        share: tuple[int, int],
    ) -> None:
        self._rules = rules
        self._decoder = decoder
        self._segments = segments
        self._records = records
        self._intervals = intervals
        self._share = share
        self._last = np.zeros(0, dtype=_LAST)

    def find_last(self, most_keys: int) -> bool:
        """Find the last record of each key whose last record is at a disordered offset; False: too many keys."""
        for row, facts in enumerate(self._records):
            for chunk, record, judged in self._rows(row):
                rows = judged[bools(facts.newest, record, len(chunk.records))[judged]]
                last = np.zeros(len(rows), dtype=_LAST)
                last["key"] = _keys(chunk, rows)
                last["offset"], last["version"] = chunk.records.offset[rows], self._versions(chunk)[rows]
                together = np.concatenate([self._last, last])[::-1]  # the first entry of a key is used
                _, first = np.unique(together["key"], return_index=True)
                self._last = together[first]
                if len(self._last) > most_keys:
                    return False
        return True

    def judge(self, kept: list[NDArray[np.uint64]], held: list[NDArray[np.uint64]]) -> None:
        """Set the bits of further retained records, and of tombstones whose key has a retained value."""
        has_value = np.zeros(len(self._last), dtype=np.bool_)
        tombstones: list[tuple[int, NDArray[np.int64], NDArray[np.intp]]] = []
        for row, facts in enumerate(self._records if len(self._last) else ()):
            for chunk, record, judged in self._rows(row):
                keys = _keys(chunk, judged)
                place = np.minimum(np.searchsorted(self._last["key"], keys), len(self._last) - 1)
                known = self._last["key"][place] == keys
                rows, place = judged[known], place[known]
                newest, tombstone = (
                    bools(bits, record, len(chunk.records))[rows] for bits in (facts.newest, facts.tombstone)
                )
                last = self._last[place]
                no_lower = chunk.records.offset[rows] >= last["offset"]
                stays = newest | (no_lower & (self._versions(chunk)[rows] == last["version"]))
                has_value[place[stays & ~tombstone]] = True
                kept[row] |= _bits(rows[stays & ~newest] + record, self._segments[row].records)
                tombstones.append((row, rows[stays & tombstone] + record, place[stays & tombstone]))
        for row, numbers, place in tombstones:
            held[row] |= _bits(numbers[has_value[place]], self._segments[row].records)

    def _rows(self, row: int) -> Iterator[tuple[Chunk, int, NDArray[np.intp]]]:
        """The rows of a segment's chunks that take part, with the number of the chunk's first record."""
        evidence, facts = self._segments[row], self._records[row]
        reach = (self._intervals[:, 1] >= evidence.low_offset) & (self._intervals[:, 0] <= evidence.high_offset)
        if not reach.any():
            return
        number, passes = self._share
        for known in evidence.replay(self._decoder.chunks(evidence.source)):
            records = known.chunk.records
            mask = keyed_rows(known.chunk, known.rows(facts.unjudged_records, facts.cleaned_records))
            mask &= _inside(self._intervals, records.offset) & (records.key_hash[1::2] % np.uint64(passes) == number)
            yield known.chunk, known.record, np.flatnonzero(mask)

    def _versions(self, chunk: Chunk) -> NDArray[np.int64]:
        """[n]: the version for the strategy; a missing version is below all others (R280-6)."""
        if not self._rules.versioned:
            return np.zeros(len(chunk.records), dtype=np.int64)
        version, present = self._rules.ranking.versions(chunk.records)
        return np.where(present, version, np.iinfo(np.int64).min)


def _keys(chunk: Chunk, rows: NDArray[np.intp]) -> NDArray[np.void]:
    """[k]: the 128 bits of the key hashes, to be compared as bytes."""
    return chunk.records.key_hash.reshape(-1, 2)[rows].view(_LAST["key"]).reshape(-1)
