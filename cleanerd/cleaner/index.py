"""Phase 1: put the keys of the dirty section into the offset map (C-17..C-24), with versions if the strategy has any.

A record's ordinal is its segment's first ordinal plus its number in the segment. First ordinals ascend and are
multiples of 64, so that a segment's winners are whole words of the map's bitmap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from cleanerd import _kernel
from cleanerd.cleaner.evidence import SegmentEvidence
from cleanerd.cleaner.record_anomalies import RecordAnomalies
from cleanerd.segments.pool import ReaderPool, SegmentPart, SegmentRange
from cleanerd.segments.reading import SegmentReader, gathered, until_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.chunk_rows import ChunkRows
    from cleanerd.cleaner.metadata_budget import MetadataBudget
    from cleanerd.cleaner.plan import CleaningPlan, Source

FIRST_DIRTY_ORDINAL = 2**38
"""Ordinals of clean records are below this one."""

BUFFERS_A_CHUNK: Final = 4
"""Limit of a chunk, in read buffers: a chunk's fixed cost equals that of thousands of records.

With several threads a chunk is a part, and those at the end of the log are smaller.
"""


class OffsetMapFullError(Exception):
    """The distinct keys of this shard do not fit the map; the caller uses more shards (U-20).

    ``offset``: the first record that did not fit; -1: unknown.
    """

    def __init__(self, offset: int = -1) -> None:
        super().__init__(offset)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Contestants:
    """Records ``first`` to ``last`` (exclusive) of a segment, which competed for their keys.

    Record ``n`` of the segment has the ordinal ``first_ordinal + n``.
    """

    evidence: SegmentEvidence
    first_ordinal: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Contest:
    """All records that competed.

    Clean records have ordinals below ``clean_ordinals``; there are ``dirty_ordinals`` dirty ones, from
    FIRST_DIRTY_ORDINAL on.
    """

    contestants: Sequence[Contestants]
    clean_ordinals: int
    dirty_ordinals: int


@dataclass(frozen=True, slots=True)
class Winners:
    """Bitmaps by ordinal: the ``dirty`` records that won their key, and the ``clean`` ones, None under ``offset``.

    ``held``: clean records whose key occurs in the dirty section; None if ``KeyPass.add_clean`` returned them.
    ``entries``: distinct keys. ``utilization``: of the map when it was fullest, 0 to 1.
    """

    dirty: NDArray[np.uint64]
    clean: NDArray[np.uint64] | None
    held: NDArray[np.uint64] | None
    entries: int
    utilization: float


class DirtyKeySink(Protocol):
    """Takes the dirty records, which compete for their keys."""

    def add_dirty(self, chunk: _kernel.Chunk, first_ordinal: int, mask: NDArray[np.bool_]) -> None:
        """Let the dirty records of ``mask`` [n] compete (C-20: tombstones too, null keys never).

        Raises:
            OffsetMapFullError: not all of them fit.
        """


class KeyPass(DirtyKeySink, Protocol):
    """Decides keys in one pass over the log, which adds first all dirty records, then all clean ones."""

    def add_clean(self, chunk: _kernel.Chunk, first_ordinal: int, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Let the clean records of ``mask`` [n] compete.

        Returns [n] bool: which are known to be superseded; all False if only :meth:`decide` knows.
        """

    def decide(self, decoder: ChunkDecoding, contest: Contest) -> Winners:
        """The winners, after all records have competed."""


class ChunkDecoding:
    """Decodes with the plan's parameters, counting the bytes read."""

    def __init__(self, plan: CleaningPlan, pool: ReaderPool, progress: Callable[[int], None]) -> None:
        self._plan = plan
        self._pool = pool
        self._progress = progress
        rules = plan.rules
        self._headers = (rules.version_header, rules.encoding, rules.flag_header)

    @property
    def reader(self) -> SegmentReader:
        """Reads batch headers only; not while chunks are decoded."""
        return self._pool.reader

    def chunks(self, source: Source, part: SegmentPart | None = None, *, torn: bool = False) -> Iterator[_kernel.Chunk]:
        """The decoded chunks of a segment, or of a ``part`` of it, in file order, hashed with the plan's key.

        ``torn``: the first damage is the end.
        """
        segment = source.segment
        reading = gathered(self._begin, chunk_bytes=self._chunk_bytes)
        if torn:
            # At once: if an index is wrong, the parts that it defines look damaged.
            reading, part = until_damage(reading), part or SegmentPart(0, segment.size_bytes)
        parts = self._pool.parts(segment, self._chunk_bytes) if part is None else [part]
        yield from self._with_progress(self._pool.chunks(segment, parts, lambda _: reading, guessed=part is None))

    def segments(self, sources: Sequence[Source]) -> Iterator[Iterator[_kernel.Chunk]]:
        """The chunks of each segment; consume them before the next segment's."""
        for chunks in self._pool.segments(self._stretches(sources)):
            yield self._with_progress(chunks)

    def _stretches(self, sources: Sequence[Source]) -> Iterator[SegmentRange[_kernel.Chunk]]:
        reading = gathered(self._begin, chunk_bytes=self._chunk_bytes)
        bytes_behind = sum(source.segment.size_bytes for source in sources)
        for source in sources:
            bytes_behind -= source.segment.size_bytes
            parts = self._pool.parts(source.segment, self._chunk_bytes, bytes_behind)
            yield SegmentRange(source.segment, parts, lambda _: reading, guessed=True)

    def _with_progress(self, chunks: Iterator[_kernel.Chunk]) -> Iterator[_kernel.Chunk]:
        """The chunks; reports the bytes of each after the caller has used it."""
        for chunk in chunks:
            yield chunk
            self._progress(chunk.consumed)

    @property
    def _chunk_bytes(self) -> int:
        # At most what one thread uses: after a worker's part ends, only the owner reads on.
        most_bytes = max(self._plan.max_unpacked_bytes, self._pool.chunk_bytes)
        return min(BUFFERS_A_CHUNK * self._pool.chunk_bytes, most_bytes)

    def _begin(self, expected_bytes: int) -> _kernel.ChunkDecoder:
        version_header, encoding, tombstone_header = self._headers
        return _kernel.ChunkDecoder(
            expected_bytes,
            hash_key=self._plan.hash_key,
            version_header=version_header,
            version_encoding=encoding,
            tombstone_header=tombstone_header,
            max_unpacked=self._plan.max_unpacked_bytes,
        )


class DirtyIndex:
    """The dirty segments of a plan: their evidence, their ordinals, and the retained records so far."""

    def __init__(self, plan: CleaningPlan, budget: MetadataBudget) -> None:
        self._plan = plan
        self._budget = budget
        self.evidence: list[SegmentEvidence] = []
        self.first_ordinals: list[int] = []
        self.oddities = RecordAnomalies(plan.rules, plan.now_ms)
        self._end_ordinal = FIRST_DIRTY_ORDINAL
        self._winners: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)

    def build(self, decoder: ChunkDecoding, sink: DirtyKeySink) -> None:
        """Let every record of the dirty range compete for its key; the first pass stores the evidence.

        Raises:
            OffsetMapFullError: see ``DirtyKeySink.add_dirty``.
            CorruptionError: see ``SegmentEvidence.add``.
        """
        sources = dirty_sources(self._plan)
        is_first = not self.evidence
        for row, (source, chunks) in enumerate(zip(sources, decoder.segments(sources), strict=True)):
            if is_first:
                self.evidence.append(SegmentEvidence(self._plan, source))
                self.first_ordinals.append(self._end_ordinal)
                self._add_segment(chunks, sink, row)
                self._end_ordinal += (self.evidence[row].records + 63) // 64 * 64
            else:
                self._add_again(chunks, sink, row)

    @property
    def ordinals(self) -> int:
        """The number of ordinals of the dirty records, from FIRST_DIRTY_ORDINAL on."""
        return self._end_ordinal - FIRST_DIRTY_ORDINAL

    def take_winners(self, winners: NDArray[np.uint64]) -> None:
        """Add the winners of a pass, after the clean section has competed (R280-10)."""
        self._winners = self._winners | winners if len(self._winners) else winners

    @property
    def contestants(self) -> list[Contestants]:
        rows = zip(self.evidence, self.first_ordinals, strict=True)
        return [Contestants(each, first, each.dirty_from, each.dirty_to) for each, first in rows]

    def winners(self, row: int) -> NDArray[np.uint64]:
        """Bitmap over the records of dirty segment ``row``: those that won their key."""
        first = (self.first_ordinals[row] - FIRST_DIRTY_ORDINAL) // 64
        return self._winners[first : first + (self.evidence[row].records + 63) // 64]

    def _add_segment(self, chunks: Iterator[_kernel.Chunk], sink: DirtyKeySink, row: int) -> None:
        evidence = self.evidence[row]
        for chunk in chunks:
            self._budget.reserve(evidence.source, chunk)
            ordinal = self.first_ordinals[row] + evidence.records
            mask = keyed_rows(chunk, evidence.add(chunk))
            self.oddities.add(chunk, mask)
            sink.add_dirty(chunk, ordinal, mask)

    def _add_again(self, chunks: Iterator[_kernel.Chunk], sink: DirtyKeySink, row: int) -> None:
        evidence = self.evidence[row]
        for known in evidence.replay(chunks):
            mask = keyed_rows(known.chunk, known.rows(evidence.dirty_from, evidence.dirty_to))
            sink.add_dirty(known.chunk, self.first_ordinals[row] + known.record, mask)


def dirty_sources(plan: CleaningPlan) -> list[Source]:
    """The segments with records in the dirty range."""
    return [source for source in plan.sources if source.end > plan.first_dirty_offset]


def keyed_rows(chunk: _kernel.Chunk, rows: ChunkRows) -> NDArray[np.bool_]:
    """[n] bool: the record has a key, is in ``rows`` and not in an excluded batch."""
    mask: NDArray[np.bool_] = (chunk.records.flags & _kernel.FLAG_HAS_KEY) != 0
    mask[: rows.first] = False
    mask[rows.last :] = False
    if rows.excluded.any():
        mask[np.repeat(rows.excluded, np.diff(chunk.batches.first_record))] = False
    return mask
