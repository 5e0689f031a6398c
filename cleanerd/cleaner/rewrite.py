"""Phase 3: rewrite one group of sources into one segment, by keep bits and actions, without any policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import SegmentGrowsError
from cleanerd.policy.grouping import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from cleanerd.policy.tombstone import new_horizon_ms
from cleanerd.segments.pool import ReaderPool, SegmentPart
from cleanerd.segments.reading import Reading, gathered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.chunk_rows import RewriteStart
    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.plan import CleaningPlan


LEAST_SHARE: Final = 1 / 8
"""If a smaller share is retained, chunks do not grow further: they have eight times the read size."""

HEADROOM: Final = 1.125
"""Buffer for the output of a chunk, relative to its estimate: growing it later would copy it."""


class GroupTooLargeError(Exception):
    """The output exceeds a limit that its estimate did not exceed; ``source``: at which row of the group (U-17)."""

    def __init__(self, source: int) -> None:
        super().__init__(source)
        self.source = source


class SegmentOutput(Protocol):
    """Receives the bytes of the new ``.log``."""

    def lead(self) -> NDArray[np.uint8] | None:
        """Less than a page of bytes to put before the next output, which saves a copy."""

    def write(self, block: NDArray[np.uint8], lead_bytes: int = 0) -> None:
        """Append ``block`` without its first ``lead_bytes``."""


@dataclass(frozen=True, slots=True)
class LargeBatches:
    """Rebuilt batches of an output that are, or would be, too large.

    ``oversized``: larger than both ``max.message.bytes`` and their original; they are written anyway (C-55, R534-5).
    ``without_horizon``: with their new delete horizon larger than ``segment.bytes``; they have none (U-95).
    """

    oversized: int = 0
    without_horizon: int = 0

    def __add__(self, other: LargeBatches) -> LargeBatches:
        return LargeBatches(self.oversized + other.oversized, self.without_horizon + other.without_horizon)


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """The written segment: the index contents, and the facts that verification compares with the file.

    ``time_entries_max``: how many entries the time index may have; a full one can lack the last entry (T-36).
    """

    base: int
    log_bytes: int
    log_crc32c: int
    offset_index: bytes
    time_index: bytes
    txn_index: bytes
    time_entries_max: int
    batches: int
    records: int
    large: LargeBatches
    last_offset: int
    max_unpacked_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class RewrittenChunk:
    """The output of one chunk, and which of its batches are too large."""

    written: _kernel.Written
    large: LargeBatches

    @property
    def consumed(self) -> int:
        """Bytes of the whole batches that were read."""
        return self.written.consumed


class TargetSegment:
    """The new segment while it is written."""

    def __init__(self, plan: CleaningPlan, base: int, output: SegmentOutput) -> None:
        limits = plan.limits
        self._time_entries_max = limits.index_bytes // TIME_ENTRY_BYTES
        self._max_unpacked_bytes = plan.max_unpacked_bytes
        self._output = output
        self.index = _kernel.IndexBuilder(
            base,
            limits.index_interval_bytes,
            max_offset_entries=limits.index_bytes // OFFSET_ENTRY_BYTES,
            max_time_entries=self._time_entries_max,
        )
        self.base = base
        self.crc = 0
        self.batches = 0
        self.records = 0
        self.large = LargeBatches()
        self.last_offset = -1

    def append(self, rewritten: RewrittenChunk) -> None:
        """Write the chunk at the end."""
        written = rewritten.written
        if len(written) == 0:
            return
        self.large += rewritten.large
        self._output.write(written.with_lead, len(written.with_lead) - len(written.data))
        self.crc = _kernel.crc32c_of_batches(written.data, self.crc)
        self.index.append(written)
        self.batches += len(written)
        self.records += int(written.record_count.sum())
        self.last_offset = int(written.last_offset[-1])

    def finish(self, txn_index: bytes) -> WrittenSegment:
        """Complete the segment, with its indexes."""
        offset_index, time_index = self.index.finish()
        return WrittenSegment(
            base=self.base,
            log_bytes=self.index.position,
            log_crc32c=self.crc,
            offset_index=offset_index,
            time_index=time_index,
            txn_index=txn_index,
            time_entries_max=self._time_entries_max,
            batches=self.batches,
            records=self.records,
            large=self.large,
            last_offset=self.last_offset,
            max_unpacked_bytes=self._max_unpacked_bytes,
        )


def rewrite_group(
    plan: CleaningPlan,
    pool: ReaderPool,
    group: Sequence[SegmentDecision],
    output: SegmentOutput,
    progress: Callable[[int], None],
) -> WrittenSegment:
    """Write the retained records of the group's sources, in order, as one segment.

    Raises:
        GroupTooLargeError: more than one source, and the output passes ``segment_bytes``.
        SegmentGrowsError: the first source alone gives more than a segment can hold (2^31 - 1 bytes).
        CorruptionError: a retained batch is damaged.
    """
    target = TargetSegment(plan, group[0].source.base, output)
    last = max((row for row, member in enumerate(group) if len(member.actions)), default=-1)
    alone = not any(member.keeps_batches for member in group)
    most_bytes = plan.limits.most_bytes
    limit = min(plan.limits.segment_bytes, most_bytes)
    for row, member in enumerate(group):
        actions = member.actions_at(ends_group=row == last, alone=alone)
        for rewritten in _rewritten(plan, pool, member, actions, output):
            grown_bytes = target.index.position + len(rewritten.written.data)
            if row > 0 and grown_bytes > limit:
                raise GroupTooLargeError(row)
            if grown_bytes > most_bytes:
                raise SegmentGrowsError(member.source.base, most_bytes, where=plan.path)
            target.append(rewritten)
            progress(rewritten.consumed)
    return target.finish(b"".join(member.txn_entries.tobytes() for member in group))


def _rewritten(
    plan: CleaningPlan, pool: ReaderPool, member: SegmentDecision, actions: NDArray[np.uint8], output: SegmentOutput
) -> Iterator[RewrittenChunk]:
    """The chunks of one source through ``rewrite_chunk``, in order."""
    horizon_ms = new_horizon_ms(plan.now_ms, plan.delete_retention_ms)
    size_bytes = member.source.segment.size_bytes
    share = max(min(member.outcome.output_bytes / max(size_bytes, 1), 1.0), LEAST_SHARE)
    # Chunks of similar output size: each is one write to the disk.
    chunk_bytes = int(pool.chunk_bytes / share)
    if pool.workers > 1 and member.rewrite_starts:
        # The bytes before a part's output are unknown.
        start_at, lead = {start.position: start for start in member.rewrite_starts}, None
        parts = pool.shared_out(np.array(list(start_at), dtype=np.int64), size_bytes, pool.chunk_bytes, chunk_bytes)
        rewrite_starts = [start_at[part.start] for part in parts]
    else:
        rewrite_starts, lead = list(member.rewrite_starts[:1]), output.lead
        parts = [SegmentPart(start.position, size_bytes) for start in rewrite_starts]

    def reading_of(number: int) -> Reading[RewrittenChunk]:
        part = SourcePartRewrite(plan, member, actions, horizon_ms, rewrite_starts[number], share, lead)
        return gathered(part.begin, chunk_bytes=chunk_bytes)

    yield from pool.chunks(member.source.segment, parts, reading_of)


class SourcePartRewrite:
    """The rewrite of a part, chunk by chunk, with its position in batches and records.

    About ``share`` of the bytes is retained. ``lead`` returns the bytes before a chunk's output.
    """

    def __init__(
        self,
        plan: CleaningPlan,
        member: SegmentDecision,
        actions: NDArray[np.uint8],
        horizon_ms: int,
        start: RewriteStart,
        share: float = 1.0,
        lead: Callable[[], NDArray[np.uint8] | None] | None = None,
    ) -> None:
        self._keep = member.keep
        self._actions = actions
        self._horizon_ms = horizon_ms
        self._least_max_timestamps = member.least_max_timestamps
        self._segment_bytes = plan.limits.segment_bytes
        self._convert_legacy = plan.convert_legacy
        self._max_message_bytes = plan.max_message_bytes
        self._max_unpacked = plan.max_unpacked_bytes
        self._batch = start.batch
        self._record = start.record
        self._share = share
        self._lead = lead

    def begin(self, expected_bytes: int) -> _Chunk:
        """Begin the next chunk, of about ``expected_bytes``, after the previous one is complete."""
        least = self._least_max_timestamps
        rewriter = _kernel.ChunkRewriter(
            min(expected_bytes, int(expected_bytes * self._share * HEADROOM)),
            self._keep,
            self._record,
            self._actions[self._batch :],
            delete_horizon=self._horizon_ms,
            max_batch_bytes=self._segment_bytes,
            convert_legacy=self._convert_legacy,
            max_unpacked=self._max_unpacked,
            lead=None if self._lead is None else self._lead(),
            least_max_timestamps=None if least is None else least[self._batch :],
        )
        return _Chunk(rewriter, self._finished)

    def _finished(self, written: _kernel.Written) -> RewrittenChunk:
        self._batch += written.batches_read
        self._record += written.records_read
        large = written.size > self._max_message_bytes
        grown = int(np.count_nonzero(large & (written.size > written.source_size))) if large.any() else 0
        return RewrittenChunk(written, LargeBatches(grown, written.without_horizon))


class _Chunk:
    """A chunk while it is rewritten."""

    def __init__(self, rewriter: _kernel.ChunkRewriter, finished: Callable[[_kernel.Written], RewrittenChunk]) -> None:
        self._rewriter = rewriter
        self._finished = finished
        self.feed = rewriter.feed

    @property
    def full(self) -> bool:
        return self._rewriter.full

    def finish(self) -> RewrittenChunk:
        return self._finished(self._rewriter.finish())
