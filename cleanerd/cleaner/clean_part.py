"""The clean part of the log in phase 2: what of it the dirty part supersedes, and where it wins (C-45.3, R280-10).

Under ``offset`` a clean record whose key is in the map is superseded, whatever it is. Under a versioned strategy it
competes: the map's entry is raised where the clean record is higher, and a dirty record loses to it. Ordinals of the
clean part count from 0, below all dirty ones, so that of equal versions the later record wins. Keys that are not in the
map do not occur in the dirty part: their records stay as they are (R280-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd.cleaner.bits import BitColumn
from cleanerd.cleaner.chunk_rows import ChunkRows
from cleanerd.cleaner.evidence import SegmentEvidence
from cleanerd.cleaner.index import Contestants, keyed_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd._kernel import Chunk, OffsetMap
    from cleanerd.cleaner.index import ChunkDecoding
    from cleanerd.cleaner.metadata_budget import MetadataBudget
    from cleanerd.cleaner.plan import CleaningPlan


class CleanPart:
    """The segments below the first dirty offset, and the clean front of the segment that contains it.

    ``contestants``: under a versioned strategy, the records that competed in the last shard.
    """

    def __init__(self, plan: CleaningPlan, room: MetadataBudget) -> None:
        self._plan = plan
        self._room = room
        self.evidence = [SegmentEvidence(plan, s) for s in plan.sources if s.end <= plan.first_dirty_offset]
        self.contestants: list[Contestants] = []

    def walk(
        self, decoder: ChunkDecoding, offset_map: OffsetMap, dirty: Sequence[SegmentEvidence], shard: int, shards: int
    ) -> None:
        """All clean records against the keys of this shard; ``dirty`` is the evidence of the dirty segments.

        Raises:
            CorruptionError: see ``SegmentEvidence.add``.
        """
        split = [evidence for evidence in dirty if evidence.dirty_from > 0]
        if not self._plan.rules.versioned:
            every = decoder.segments([evidence.source for evidence in self.evidence])
            for evidence, chunks in zip(self.evidence, every, strict=True):
                self._look_up(chunks, offset_map, evidence, shard, shards)
            for evidence in split:
                _look_up_front(decoder, offset_map, evidence, shard, shards)
            return
        contest = _VersionedPass(self._plan, offset_map, shard, shards)
        every = decoder.segments([evidence.source for evidence in self.evidence])
        for evidence, chunks in zip(self.evidence, every, strict=True):
            if shard == 0:
                contest.first_walk(chunks, evidence, self._room)
            else:
                contest.walk(chunks, evidence, evidence.records)
        for evidence in split:
            contest.walk(decoder.chunks(evidence.source), evidence, evidence.dirty_from)
        contest.take_winners()
        self.contestants = contest.contestants

    def _look_up(
        self, chunks: Iterator[Chunk], offset_map: OffsetMap, evidence: SegmentEvidence, shard: int, shards: int
    ) -> None:
        """Which records of a clean segment have a newer one in the dirty range (C-45.3): whose key is in the map."""
        superseded = BitColumn()
        for chunk in chunks:
            if shard == 0:
                self._room.reserve(evidence.source, chunk)
                evidence.add(chunk)
            mask = keyed_rows(chunk, _all_of(chunk, len(chunk.records)))
            superseded.append(offset_map.contains(chunk.records.key_hash, mask, shard=shard, shards=shards))
        evidence.superseded.merge(superseded)


class _VersionedPass:
    """One shard's keys of the clean part under a versioned strategy."""

    def __init__(self, plan: CleaningPlan, offset_map: OffsetMap, shard: int, shards: int) -> None:
        self._rules = plan.rules
        self._map = offset_map
        self._shard = shard
        self._shards = shards
        self._next_ordinal = 0
        self.contestants: list[Contestants] = []

    def first_walk(self, chunks: Iterator[Chunk], evidence: SegmentEvidence, room: MetadataBudget) -> None:
        """The first pass over a clean segment."""
        superseded = BitColumn()
        for chunk in chunks:
            room.reserve(evidence.source, chunk)
            record = evidence.records
            excluded = evidence.add(chunk).excluded
            # Records below the log start are ignored (U-2).
            below = min(max(evidence.visible_from - record, 0), len(chunk.records))
            superseded.append(self._compete(chunk, record, ChunkRows(below, len(chunk.records), excluded)))
        self._done(evidence, superseded, evidence.records)

    def walk(self, chunks: Iterator[Chunk], evidence: SegmentEvidence, records: int) -> None:
        """The first ``records`` of a segment whose facts are known, or a few more; ``chunks`` are all of it."""
        superseded = BitColumn()
        for known in evidence.replay(chunks):
            rows = known.rows(evidence.visible_from, records)
            superseded.append(self._compete(known.chunk, known.record, rows))
            if records < evidence.records and superseded.count >= records:
                break
        self._done(evidence, superseded, records)

    def _compete(self, chunk: Chunk, record: int, rows: ChunkRows) -> NDArray[np.bool_]:
        version, present = self._rules.ranking.versions(chunk.records)
        return self._map.update_existing(
            chunk.records.key_hash,
            self._next_ordinal + record,
            keyed_rows(chunk, rows),
            version=version,
            has_version=present,
            shard=self._shard,
            shards=self._shards,
        )

    def _done(self, evidence: SegmentEvidence, superseded: BitColumn, records: int) -> None:
        evidence.superseded.merge(superseded)
        self.contestants.append(Contestants(evidence, self._next_ordinal, evidence.visible_from, records))
        # Each segment begins at a multiple of 64: its winners are whole words.
        self._next_ordinal += (records + 63) // 64 * 64

    def take_winners(self) -> None:
        """Whose record the map holds when all have competed."""
        winners = self._map.winners(0, self._next_ordinal)
        for each in self.contestants:
            first, evidence = each.first_ordinal // 64, each.evidence
            words = winners[first : first + (each.last + 63) // 64]
            evidence.won = words.copy() if evidence.won is None else evidence.won | words


def _look_up_front(
    decoder: ChunkDecoding, offset_map: OffsetMap, evidence: SegmentEvidence, shard: int, shards: int
) -> None:
    """As :meth:`Head.walk`, for the records before the first dirty offset in the segment that contains it."""
    superseded = BitColumn()
    for chunk in decoder.chunks(evidence.source):
        clean = min(evidence.dirty_from - superseded.count, len(chunk.records))
        mask = keyed_rows(chunk, _all_of(chunk, clean))
        superseded.append(offset_map.contains(chunk.records.key_hash, mask, shard=shard, shards=shards))
        if superseded.count >= evidence.dirty_from:
            break
    evidence.superseded.merge(superseded)


def _all_of(chunk: Chunk, last: int) -> ChunkRows:
    """Records before row ``last``, aborted data included: it is removed anyway."""
    return ChunkRows(0, last, np.zeros(len(chunk.batches), dtype=np.bool_))


def newest(evidence: SegmentEvidence, winners: NDArray[np.uint64] | None) -> NDArray[np.uint64]:
    """Bitmap over a segment: no other record of the cleaned range wins over this one.

    ``winners`` are those of its dirty range, None when it has none. In the clean part: what the map does not hold, and
    what won.
    """
    clean = ~evidence.superseded.words()
    if evidence.won is not None:
        clean[: len(evidence.won)] |= evidence.won
    if winners is None:
        return clean
    result = winners.copy()
    if evidence.dirty_from:
        word, bit = divmod(evidence.dirty_from, 64)
        result[:word] = clean[:word]
        if bit:
            # Retained records begin at dirty_from, so the clean bits of the shared word are clear in them.
            result[word] |= clean[word] & ((np.uint64(1) << np.uint64(bit)) - np.uint64(1))
    return result
