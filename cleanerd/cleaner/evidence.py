"""A segment's facts after the index pass: a few bits per record, nine bytes per batch.

They are stored so that no dirty byte is decoded twice before the rewrite.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from cleanerd._kernel import FLAG_HAS_KEY
from cleanerd.cleaner.bits import BitColumn
from cleanerd.cleaner.chunk_rows import BEGINNING, ChunkRows, KnownChunk, RewriteStart
from cleanerd.errors import DisorderedLogError, RefusedError
from cleanerd.format.batch import CONTROL, HAS_DELETE_HORIZON, TRANSACTIONAL
from cleanerd.format.index import TXN_ENTRY
from cleanerd.policy import legacy
from cleanerd.policy.markers import MarkerEdges
from cleanerd.policy.retain import (
    BATCH_ABORTED,
    BATCH_CONTROL,
    BATCH_ENDS_NOTHING,
    BATCH_EXPIRED,
    BATCH_HAS_HORIZON,
    BATCH_NO_HORIZON,
    BATCH_PROTECTED,
    BATCH_REBUILT,
)
from cleanerd.policy.tombstone import expired, has_horizon, next_horizon_ms, safe_horizon_ms, tombstones
from cleanerd.policy.transaction import (
    ABORT,
    ABORTED_DATA,
    COMMIT,
    OpenTransactions,
    TransactionEvents,
    events_of,
)
from cleanerd.segments.segment import BatchWitness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.cleaner.plan import CleaningPlan, Source


Intervals: TypeAlias = "NDArray[np.int64]"
"""[k, 2]: first and last offset of each of k intervals."""

COUNTS: Final = ("visible_from", "lasting_from", "unproven_to", "proven_to", "dirty_from", "dirty_to")
"""Fields of :class:`SegmentEvidence` that count the records below an offset, so the counts of its parts add up."""

_NUMBERS: Final = (
    "first_offset",
    "last_offset",
    "low_offset",
    "high_offset",
    "last_max_timestamp_ms",
    "min_timestamp_ms",
    "max_timestamp_ms",
    "idle_timestamp_ms",
    "legacy_batches",
    "next_horizon_ms",
)


class SegmentEvidence:
    """The facts of one source segment, gathered chunk by chunk in file order.

    Record numbers in this segment: ``dirty_from`` and ``dirty_to``, where the plan's dirty range begins and ends;
    ``visible_from``, the first record at or above the log start offset; ``lasting_from``, the first one that would
    return if the broker crashed now; ``unproven_to``, the first one that more than Kafka's checkpoint proves clean
    (U-50); ``proven_to``, the first one not known to be clean. Of the clean section's records, ``superseded`` has those
    whose key the map contains, ``won`` those of them that are retained nevertheless. ``last_batch_offsets``: the last
    batch's record offsets if it is v0 or v1, because a rewritten one ends with its last retained record (F-3.2, F-3.3).
    ``next_horizon_ms``: the earliest future delete horizon. ``min_timestamp_ms`` and ``max_timestamp_ms`` are those of
    batches with records: other batches with a time are placeholders (U-13, U-17). ``idle_timestamp_ms`` is the largest
    of batches without records that stay for their producers. -1: there are none. ``low_offset`` and ``high_offset`` are
    the least and largest of any batch or record. ``disorder``: the offsets that are not ascending; ``tangles``: those
    of several batches (U-45).
    """

    def __init__(self, plan: CleaningPlan, source: Source) -> None:
        self._plan = plan
        self.source = source
        self._record_counts = [np.zeros(1, np.uint32)]
        self._first_record = np.zeros(0, np.uint32)
        self._sizes = [np.zeros(0, np.uint32)]
        self._flags = [np.zeros(0, np.uint8)]
        self._max_timestamps = [np.zeros(0, np.int64)]
        self._taken_over: NDArray[np.int64] | None = None
        self._batches = 0
        self.rewrite_starts: list[RewriteStart] = []
        self._events: list[TransactionEvents] = []
        self.keyed = BitColumn()
        self.tombstone = BitColumn()
        self.superseded = BitColumn()
        self.won: NDArray[np.uint64] | None = None
        self.visible_from = 0
        self.lasting_from = 0
        self.unproven_to = 0
        self.proven_to = 0
        self.dirty_from = 0
        self.dirty_to = 0
        self.first_offset = -1
        self.last_offset = -1
        self.low_offset = -1
        self.high_offset = -1
        self._batch_end = -1
        self.disorder: list[Intervals] = []
        self.tangles: list[Intervals] = []
        self.last_max_timestamp_ms = -1
        self.first_batch: BatchWitness | None = None
        self.last_batch: BatchWitness | None = None
        self.legacy_batches = 0
        self.last_batch_offsets: NDArray[np.int64] | None = None
        self.next_horizon_ms: int | None = None
        self.min_timestamp_ms = -1
        self.max_timestamp_ms = -1
        self.idle_timestamp_ms = -1

    @property
    def unjudged_records(self) -> int:
        """How many records at the segment's beginning are ignored: those below the log start; none under ``offset``."""
        return self.visible_from if self._plan.rules.versioned else 0

    @property
    def is_versioned(self) -> bool:
        """Whether the strategy uses more than offsets."""
        return self._plan.rules.versioned

    @property
    def first_uncleanable_offset(self) -> int:
        return self._plan.first_uncleanable_offset

    @property
    def records(self) -> int:
        """How many records were added so far."""
        return self.keyed.count

    def add(self, chunk: _kernel.Chunk) -> ChunkRows:
        """Add the next chunk; returns which rows of its record table are in the dirty range.

        Raises:
            DisorderedLogError: a batch is below the segment.
        """
        batches, records = chunk.batches, chunk.records
        before = self.high_offset
        ordered = self._in_order(batches) and len(batches.unordered) == 0
        if not ordered:
            self._note_disorder(chunk)
        elif len(batches):
            self.high_offset = int(batches.last_offset[-1])
        offsets, end_row = records.offset, None
        if self.disorder:
            # A record is beyond an offset if an earlier one is, because the log's order decides. A broker would cut off
            # batches beyond the cleaned range there.
            offsets = np.maximum(np.maximum.accumulate(offsets), before)
            ends = np.maximum.accumulate(np.concatenate([[self._batch_end], batches.last_offset]))[1:]
            end_row = int(batches.first_record[np.searchsorted(ends, self._plan.end_offset)])
        if len(batches):
            self._batch_end = max(self._batch_end, int(batches.last_offset.max() if not ordered else self.high_offset))
        self._record_starts(batches)
        batch_flags = self._batch_flags(batches, ordered=ordered)
        self._record_counts.append(np.diff(batches.first_record))
        self._sizes.append(batches.size)
        self._flags.append(batch_flags)
        if self._plan.rules.keeps_write_time:
            self._max_timestamps.append(batches.max_timestamp)
        self._batches += len(batches)
        self.keyed.append((records.flags & FLAG_HAS_KEY) != 0)
        self.tombstone.append(tombstones(records.flags, self._plan.rules.tombstone_mode, legacy_rows(batches)))
        self._record_ends(batches, batch_flags)
        if is_legacy(batches):
            self.legacy_batches += int(np.count_nonzero(batches.magic < 2))
        if len(batches):
            last_rows = records.offset[batches.first_record[-2] :]
            self.last_batch_offsets = last_rows.copy() if batches.magic[-1] < 2 else None
        rows = ChunkRows(
            int(np.searchsorted(offsets, self._plan.first_dirty_offset)),
            int(np.searchsorted(offsets, self._plan.end_offset)) if end_row is None else end_row,
            (batch_flags & (BATCH_ABORTED | BATCH_CONTROL)) != 0,
        )
        below_start = int(np.searchsorted(offsets, self._plan.log_start_offset))
        self.visible_from += below_start
        if below_start:
            self.lasting_from += int(np.searchsorted(offsets, self._plan.lasting_start_offset))
        self.unproven_to += int(np.searchsorted(offsets, self._plan.unproven_below))
        if self._plan.proven_offset < self._plan.first_dirty_offset:
            self.proven_to += int(np.searchsorted(offsets, self._plan.proven_offset))
        self.dirty_from += rows.first
        self.dirty_to += rows.last
        return rows

    def _record_starts(self, batches: _kernel.Batches) -> None:
        """Add places where a rewrite may begin: the chunk's first batch, and others about a read buffer apart."""
        if len(batches):
            first, last = int(batches.position[0]), int(batches.position[-1])
            at = np.arange(first, last + 1, self._plan.chunk_bytes, dtype=np.uint32)
            # np.unique would import numpy.ma at its first call.
            for row in dict.fromkeys(np.searchsorted(batches.position, at).tolist()):
                records = self.records + int(batches.first_record[row])
                self.rewrite_starts.append(RewriteStart(int(batches.position[row]), self._batches + row, records))

    def replay(self, chunks: Iterable[_kernel.Chunk], begin: RewriteStart = BEGINNING) -> Iterator[KnownChunk]:
        """Read the segment's chunks from ``begin`` on again, with their stored facts."""
        excluded = self.excluded()
        _, batch, record = begin
        for chunk in chunks:
            yield KnownChunk(chunk, record, excluded[batch : batch + len(chunk.batches)])
            record += len(chunk.records)
            batch += len(chunk.batches)

    def extend(self, part: SegmentEvidence) -> None:
        """Add the evidence of the next part of the segment, which was collected separately.

        Raises:
            DisorderedLogError: its offsets do not follow.
        """
        if part.first_offset >= 0 and part.first_offset <= self.last_offset:
            raise self.disordered(f"a batch at offset {part.first_offset} follows offset {self.last_offset}")
        batches, records = self._batches, self.records
        self.rewrite_starts += [
            RewriteStart(start.position, start.batch + batches, start.record + records) for start in part.rewrite_starts
        ]
        self._record_counts += part._record_counts[1:]
        self._sizes += part._sizes
        self._flags += part._flags
        self._events += [replace(events, batch=events.batch + np.uint32(batches)) for events in part._events]
        self._batches += part._batches
        self.keyed.extend(part.keyed)
        self.tombstone.extend(part.tombstone)
        self.legacy_batches += part.legacy_batches
        horizons = (self.next_horizon_ms, part.next_horizon_ms)
        self.next_horizon_ms = min((horizon for horizon in horizons if horizon is not None), default=None)
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(part, name))
        if part.last_batch is None:
            return
        self.first_batch = self.first_batch or part.first_batch
        self.first_offset = part.first_offset if self.first_offset < 0 else self.first_offset
        self.low_offset = part.low_offset if self.low_offset < 0 else self.low_offset
        self.high_offset = part.high_offset
        self.last_batch, self.last_batch_offsets = part.last_batch, part.last_batch_offsets
        self.last_offset, self.last_max_timestamp_ms = part.last_offset, part.last_max_timestamp_ms
        lows = [low for low in (self.min_timestamp_ms, part.min_timestamp_ms) if low >= 0]
        self.min_timestamp_ms = min(lows, default=-1)
        self.max_timestamp_ms = max(self.max_timestamp_ms, part.max_timestamp_ms)
        self.idle_timestamp_ms = max(self.idle_timestamp_ms, part.idle_timestamp_ms)

    def to_columns(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The numbers and columns from which :meth:`of_columns` restores this object on another machine.

        Left out are the results of comparisons: ``superseded`` and ``won``.
        """
        ends = {name: getattr(self, name) for name in ("first_batch", "last_batch")}
        numbers = {name: getattr(self, name) for name in (*COUNTS, *_NUMBERS)}
        numbers |= {name: None if end is None else [end.offset, end.crc] for name, end in ends.items()}
        columns: dict[str, NDArray[Any]] = {
            "rewrite_starts": np.array(self.rewrite_starts, dtype=np.int64).reshape(-1),
            "record_counts": np.concatenate(self._record_counts)[1:],
            "sizes": self.sizes(),
            "flags": self.batch_flags(),
            "keyed": self.keyed.words(),
            "tombstone": self.tombstone.words(),
        }
        for field in fields(TransactionEvents) if self._events else ():
            columns[f"event_{field.name}"] = np.concatenate([getattr(events, field.name) for events in self._events])
        if self.last_batch_offsets is not None:
            columns["last_batch_offsets"] = self.last_batch_offsets
        return {**numbers, "records": self.records}, columns

    @classmethod
    def of_columns(
        cls, plan: CleaningPlan, source: Source, numbers: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]
    ) -> SegmentEvidence:
        """Restore the object, the reverse of :meth:`to_columns`."""
        evidence = cls(plan, source)
        for name in (*COUNTS, *_NUMBERS):
            setattr(evidence, name, numbers[name])
        for name in ("first_batch", "last_batch"):
            setattr(evidence, name, None if numbers[name] is None else BatchWitness(*numbers[name]))
        evidence.rewrite_starts = [RewriteStart(*each) for each in columns["rewrite_starts"].reshape(-1, 3).tolist()]
        evidence._record_counts.append(columns["record_counts"])
        evidence._sizes.append(columns["sizes"])
        evidence._flags.append(columns["flags"])
        evidence._batches = len(columns["flags"])
        evidence.keyed = BitColumn.of(columns["keyed"], numbers["records"])
        evidence.tombstone = BitColumn.of(columns["tombstone"], numbers["records"])
        if "event_batch" in columns:
            names = [field.name for field in fields(TransactionEvents)]
            evidence._events.append(TransactionEvents(**{name: columns[f"event_{name}"] for name in names}))
        evidence.last_batch_offsets = columns.get("last_batch_offsets")
        return evidence

    @property
    def events(self) -> Sequence[TransactionEvents]:
        """The batches that matter to transactions, until :meth:`resolve_transactions`."""
        return self._events

    def transactional_data(self) -> NDArray[np.uint32]:
        """[k] uint32: rows of the data batches of transactions, until :meth:`resolve_transactions`."""
        rows = [events.batch[(events.kind != COMMIT) & (events.kind != ABORT)] for events in self._events]
        return np.concatenate([np.zeros(0, np.uint32), *rows])

    def marker_edges(self) -> Iterator[MarkerEdges]:
        """This segment's part of the comparison of index and markers, in file order (U-44)."""
        counts = np.concatenate(self._record_counts)[1:] if self._events else np.zeros(0, np.uint32)
        for events in self._events:
            yield MarkerEdges.of_events(events, counts, self._plan.judged_span)

    def resolve_transactions(self, open_transactions: OpenTransactions) -> NDArray[np.void]:
        """Find the markers that are not needed any more; returns the remaining index entries (C-37, C-69).

        Call once per segment, in log order, after all its chunks.
        """
        aborted = self._plan.aborted
        kept = [aborted.ended_by(np.zeros(0, np.int64))]
        if not self._events:
            return kept[0]
        flags = self.batch_flags()
        # An emptied control batch has no type, because its transaction was removed.
        first_record = self.first_record()
        control = np.flatnonzero(flags & BATCH_CONTROL)
        flags[control[first_record[control] == first_record[control + 1]]] |= BATCH_ENDS_NOTHING
        for events in self._events:
            ended = open_transactions.ended(events)
            markers = (events.kind == COMMIT) | (events.kind == ABORT)
            flags[events.batch[markers & ~ended]] |= BATCH_ENDS_NOTHING
            kept.append(aborted.ended_by(events.offset[ended & (events.kind == ABORT)]))
        self._flags = [flags]
        self._events = []
        return np.concatenate(kept, dtype=TXN_ENTRY)  # otherwise NumPy changes the byte order

    def _batch_flags(self, batches: _kernel.Batches, *, ordered: bool) -> NDArray[np.uint8]:
        attributes = batches.attributes
        flags = np.zeros(len(batches), dtype=np.uint8)
        # Most chunks have none of the following, and setting flags by an empty mask costs as much as by a full one.
        any_of = int(np.bitwise_or.reduce(attributes))
        if any_of & HAS_DELETE_HORIZON:
            flags[has_horizon(attributes)] |= BATCH_HAS_HORIZON
            expiry_ms = self._plan.expiry_of(batches.last_offset)
            horizon_ms = batches.base_timestamp
            if self._plan.waits:
                horizon_ms = safe_horizon_ms(horizon_ms, batches.max_timestamp)
            flags[expired(attributes, horizon_ms, expiry_ms)] |= BATCH_EXPIRED
            horizons = (self.next_horizon_ms, next_horizon_ms(attributes, horizon_ms, expiry_ms))
            self.next_horizon_ms = min((horizon for horizon in horizons if horizon is not None), default=None)
        flags[self._plan.last_records.protected(batches, ordered=ordered)] |= BATCH_PROTECTED
        if is_legacy(batches):
            flags |= legacy.batch_flags(
                batches,
                mtime_ms=self.source.segment.mtime_ns // 1_000_000,
                legacy_horizon_ms=self._plan.legacy_horizon_ms,
                waits=self._plan.waits,
                convert=self._plan.convert_legacy,
            )
        if any_of & (TRANSACTIONAL | CONTROL):
            flags[(attributes & CONTROL) != 0] |= BATCH_CONTROL
            events = events_of(batches, self._plan.aborted, self._batches)
            flags[events.batch[events.kind == ABORTED_DATA] - self._batches] |= BATCH_ABORTED
            self._events.append(events)
        return flags

    def first_record(self) -> NDArray[np.uint32]:
        """[b + 1] uint32: where each batch's records begin in the segment."""
        if len(self._first_record) != self._batches + 1:
            self._first_record = np.cumsum(np.concatenate(self._record_counts), dtype=np.uint32)
        return self._first_record

    def sizes(self) -> NDArray[np.uint32]:
        """[b] uint32: bytes of each batch on disk."""
        return np.concatenate(self._sizes)

    def batch_flags(self) -> NDArray[np.uint8]:
        """[b] uint8: ``BATCH_*`` of the retention policy."""
        return np.concatenate(self._flags)

    def batch_times(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """[k] int64: the largest timestamps of these records' [k] batches, where batches keep write times (U-65)."""
        self._max_timestamps = [np.concatenate(self._max_timestamps)]
        times: NDArray[np.int64] = self._max_timestamps[0][self._batch_of(numbers)]
        return times

    def _batch_of(self, numbers: NDArray[np.int64]) -> NDArray[np.intp]:
        return np.searchsorted(self.first_record(), numbers, side="right") - 1

    def take_over(self, numbers: NDArray[np.int64], times_ms: NDArray[np.int64]) -> None:
        """Let the batches of these records [k] take over the times [k] of the records that they supersede (U-65)."""
        if self._taken_over is None:
            self._taken_over = np.full(self._batches, -1, dtype=np.int64)
        np.maximum.at(self._taken_over, self._batch_of(numbers), times_ms)

    def settle_write_times(self) -> NDArray[np.int64] | None:
        """[b] int64: lower limits of the batches' largest timestamps; None if only records' times count.

        Records do not show that their batch took over a later time, so no time may decrease. Batches that take over a
        later time are rebuilt. Call once, after all chunks and all keys.

        Raises:
            RefusedError: a batch would need a later time, but its format has no time per batch and is not converted.
        """
        if not self._plan.rules.keeps_write_time:
            return None
        own = np.concatenate(self._max_timestamps)
        if self._taken_over is None:
            return own
        flags = self.batch_flags()
        rising = self._taken_over > own
        flags[rising] |= BATCH_REBUILT
        if (flags[rising] & BATCH_NO_HORIZON).any():
            raise RefusedError(
                "a record of format v0 or v1 supersedes a younger one, and its batch cannot take over a later time",
                where=f"{self._plan.path}/{self.source.base:020d}.log",
                hint="set compaction.winner.retention=record-time for this topic, or cleanup.policy=compact",
            )
        self._flags = [flags]
        return np.maximum(own, self._taken_over)

    def changes_txn_index(self, entries: NDArray[np.void]) -> bool:
        """Whether the segment's transaction index differs from ``entries``."""
        return not self._plan.aborted.is_stored(entries, self.source.base, self.source.end)

    def excluded(self) -> NDArray[np.bool_]:
        """[b] bool: control batches and aborted data."""
        result: NDArray[np.bool_] = (self.batch_flags() & (BATCH_ABORTED | BATCH_CONTROL)) != 0
        return result

    def disordered(self, message: str) -> DisorderedLogError:
        """The error that refuses this segment because of its offsets."""
        return DisorderedLogError(message, self.source.end, where=f"{self._plan.path}/{self.source.base:020d}.log")

    def _note_disorder(self, chunk: _kernel.Chunk) -> None:
        """Note the offsets that are not in the order of the log (U-45)."""
        batches, offsets = chunk.batches, chunk.records.offset
        below = np.flatnonzero(batches.last_offset < self.source.base)
        if len(below):
            row = int(below[0])
            raise self.disordered(
                f"the batch at byte {batches.position[row]} ends at {batches.last_offset[row]}, below its segment"
            )
        low, high = batches.base_offset.copy(), batches.last_offset.copy()
        for row in batches.unordered.tolist():
            of_batch = offsets[batches.first_record[row] : batches.first_record[row + 1]]
            low[row], high[row] = min(low[row], of_batch.min()), max(high[row], of_batch.max())
        largest = np.maximum.accumulate(np.concatenate([[max(self.high_offset, self.source.base - 1)], high]))
        back = np.flatnonzero(low <= largest[:-1])
        beyond = np.flatnonzero(high >= self.source.end)
        self.tangles += [
            np.stack([low[back], np.maximum(largest[back], high[back])], axis=1),
            np.stack([np.full(len(beyond), self.source.end), high[beyond]], axis=1),
        ]
        self.disorder += [*self.tangles[-2:], np.stack([low, high], axis=1)[batches.unordered]]
        self.low_offset = min(self.low_offset, int(low.min())) if self.low_offset >= 0 else int(low.min())
        self.high_offset = int(largest[-1])

    def _in_order(self, batches: _kernel.Batches) -> bool:
        """No temporary column: that is measurable in logs of single-record batches."""
        if len(batches) == 0:
            return True
        before = max(self.high_offset, self.source.base - 1)
        inside = before < int(batches.base_offset[0]) and int(batches.last_offset[-1]) < self.source.end
        return inside and bool((batches.base_offset[1:] > batches.last_offset[:-1]).all())

    def _record_ends(self, batches: _kernel.Batches, batch_flags: NDArray[np.uint8]) -> None:
        if self.first_batch is None:
            self.first_batch = _witness(batches, 0)
            self.first_offset = int(batches.base_offset[0])
            if self.low_offset < 0:
                self.low_offset = self.first_offset
        self.last_batch = _witness(batches, -1)
        self.last_offset = int(batches.last_offset[-1])
        self.last_max_timestamp_ms = int(batches.max_timestamp[-1])
        times = batches.max_timestamp
        with_records = self._record_counts[-1] > 0
        if not with_records.all():
            idle = times[~with_records & ((batch_flags & BATCH_PROTECTED) != 0)]
            self.idle_timestamp_ms = max(self.idle_timestamp_ms, int(idle.max(initial=-1)))
            times = times[with_records]
        high = int(times.max(initial=-1))
        if high >= 0:
            low = int(times.min())
            if low < 0:
                low = int(times[times >= 0].min())
            self.min_timestamp_ms = low if self.min_timestamp_ms < 0 else min(self.min_timestamp_ms, low)
            self.max_timestamp_ms = max(self.max_timestamp_ms, high)


def _witness(batches: _kernel.Batches, row: int) -> BatchWitness:
    """Offset and CRC in the frame; of v0 and v1 batches that is the last offset."""
    offset = batches.last_offset[row] if batches.magic[row] < 2 else batches.base_offset[row]
    return BatchWitness(int(offset), int(batches.crc[row]))


def legacy_rows(batches: _kernel.Batches) -> NDArray[np.bool_] | None:
    """[n] bool: the record is of format v0 or v1; None: none is."""
    return np.repeat(batches.magic < 2, np.diff(batches.first_record)) if is_legacy(batches) else None


def is_legacy(batches: _kernel.Batches) -> bool:
    """Whether batches of format v0 or v1 are among them."""
    return int(batches.magic.min(initial=2)) < 2
