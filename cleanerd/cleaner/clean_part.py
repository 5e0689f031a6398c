"""The clean section in phase 2: which of its records are superseded, and which win (C-45.3, R280-10).

Under ``offset`` a clean record whose key is in the map is superseded. Under a versioned strategy it competes: if it is
higher, it replaces the map's entry, and the dirty record loses. Ordinals of clean records are below all dirty ones, so
that of equal versions the later record wins. Clean records whose keys are not in the map are retained (R280-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd.cleaner.bits import BitColumn
from cleanerd.cleaner.chunk_rows import ChunkRows
from cleanerd.cleaner.evidence import SegmentEvidence
from cleanerd.cleaner.index import ChunkDecoding, Contestants, KeyPass, Winners, keyed_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd._kernel import Chunk
    from cleanerd.cleaner.metadata_budget import MetadataBudget
    from cleanerd.cleaner.plan import CleaningPlan


class CleanPart:
    """The segments below the first dirty offset, and the clean beginning of the segment that contains it.

    ``contestants``: the records that competed in the last pass; ``ordinals``: the number of their ordinals.
    """

    def __init__(self, plan: CleaningPlan, budget: MetadataBudget) -> None:
        self._budget = budget
        self.evidence = [SegmentEvidence(plan, s) for s in plan.sources if s.end <= plan.first_dirty_offset]
        self.contestants: list[Contestants] = []
        self.ordinals = 0

    def add_all(self, decoder: ChunkDecoding, key_pass: KeyPass, dirty: Sequence[SegmentEvidence]) -> None:
        """Have all clean records compete; ``dirty`` is the evidence of the dirty segments.

        Raises:
            CorruptionError: see ``SegmentEvidence.add``.
        """
        is_first = not self.contestants
        self.contestants, self.ordinals = [], 0
        every = decoder.segments([evidence.source for evidence in self.evidence])
        for evidence, chunks in zip(self.evidence, every, strict=True):
            if is_first:
                self._read_first(chunks, evidence, key_pass)
            else:
                self._read_again(chunks, evidence, evidence.records, key_pass)
        for evidence in dirty:
            if evidence.dirty_from > 0:
                self._read_again(decoder.chunks(evidence.source), evidence, evidence.dirty_from, key_pass)

    def take_winners(self, found: Winners) -> None:
        """Store which clean records won and which have a key of the dirty section, after all have competed."""
        for each in self.contestants:
            first, evidence = each.first_ordinal // 64, each.evidence
            rows = slice(first, first + (each.last + 63) // 64)
            if found.held is not None:
                evidence.superseded.merge(BitColumn.of(found.held[rows], each.last))
            if found.clean is not None:
                won = found.clean[rows]
                evidence.won = won.copy() if evidence.won is None else evidence.won | won

    def _read_first(self, chunks: Iterator[Chunk], evidence: SegmentEvidence, key_pass: KeyPass) -> None:
        """Read a clean segment for the first time."""
        superseded = BitColumn()
        for chunk in chunks:
            self._budget.reserve(evidence.source, chunk)
            record = evidence.records
            excluded = evidence.add(chunk).excluded
            # Records below the log start are no candidates (U-2).
            below = min(max(evidence.unjudged_records - record, 0), len(chunk.records))
            rows = ChunkRows(below, len(chunk.records), excluded)
            superseded.append(key_pass.add_clean(chunk, self.ordinals + record, keyed_rows(chunk, rows)))
        self._done(evidence, superseded, evidence.records)

    def _read_again(self, chunks: Iterator[Chunk], evidence: SegmentEvidence, records: int, key_pass: KeyPass) -> None:
        """Read the first ``records`` of a segment again, or a few more; ``chunks`` are the whole segment."""
        superseded = BitColumn()
        for known in evidence.replay(chunks):
            mask = keyed_rows(known.chunk, known.rows(evidence.unjudged_records, records))
            superseded.append(key_pass.add_clean(known.chunk, self.ordinals + known.record, mask))
            if records < evidence.records and superseded.count >= records:
                break
        self._done(evidence, superseded, records)

    def _done(self, evidence: SegmentEvidence, superseded: BitColumn, records: int) -> None:
        evidence.superseded.merge(superseded)
        self.contestants.append(Contestants(evidence, self.ordinals, evidence.unjudged_records, records))
        # Each segment begins at a multiple of 64: its winners are whole words.
        self.ordinals += (records + 63) // 64 * 64


def newest(evidence: SegmentEvidence, winners: NDArray[np.uint64] | None) -> NDArray[np.uint64]:
    """Bitmap over a segment: no other record of the cleaned range wins over this one.

    ``winners``: those of its dirty range; None: it has no dirty range. In the clean part: records that won, and records
    whose key is not in the map.
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
