"""Which expired tombstones may be removed: with a non-default strategy those whose key has no other record (U-1).

Under ``offset`` a tombstone's deleted records are below it and are removed first, so all may be removed, with two
exceptions. Where only Kafka's checkpoint says that the log is clean, the key must have no other record in the cleaned
segments (U-50): Kafka's cleaner can leave two records of a key below its checkpoint. In a part that ``--first-dirty``
leaves out all are retained.

Under a version strategy a deleted record may be above its tombstone: in a later group, which a stopped cleaning does
not reach, or above the bound. Without the tombstone such a record would bring its key back permanently. So every record
from the log start to the log end is compared with the keys of the removable tombstones; those with another record wait
for a later cleaning, even if this one removes that record. Records after the sources are compared whether their
transactions commit or not: they can only delay a tombstone's removal. So they need no witness (U-3) while no other
process writes; a staged cleaning checks them again (``swap/removed_tombstones.py``).

If there are such tombstones, this needs two more walks: over their segments and over the log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd._kernel import FLAG_HAS_KEY, Chunk, OffsetMap
from cleanerd.cleaner.index import ChunkDecoding, keyed_rows
from cleanerd.cleaner.map_size import MAP_ENTRY_BYTES, MIN_MAP_BYTES
from cleanerd.errors import CleanerdError
from cleanerd.format.batch import CONTROL
from cleanerd.policy.retain import RecordEvidence, bits_from, expired_winners

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.evidence import SegmentEvidence
    from cleanerd.cleaner.plan import CleaningPlan, Source

OTHER_RECORD: Final = 2**38
"""A key's entry gets at least this ordinal when another record of it is read; ordinals of tombstones are lower."""

MOST_SHARDS: Final = 64
"""The most shards, each a pass over the whole log; tombstones that do not fit wait for the next cleaning."""

TOO_MANY_KEYS: Final = (
    f"some tombstones past their delete horizon stay for now: their keys do not fit {MOST_SHARDS} passes with the "
    "offset map (raise log.cleaner.dedupe.buffer.size)"
)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The removable tombstones of one segment, a bit per record; the first record has ordinal ``first_ordinal``."""

    evidence: SegmentEvidence
    first_ordinal: int
    bits: NDArray[np.uint64]

    def rows(self, record: int, count: int) -> NDArray[np.bool_]:
        """[count] bool: those among the records from number ``record`` on."""
        return bools(self.bits, record, count)


@dataclass(frozen=True, slots=True)
class Guards:
    """Per segment the tombstones that are retained for now, as a bitmap; None: the horizon alone decides.

    ``note``: why nothing could be checked, if the rest cannot be read; then all of them wait. ``for_deleted``: some
    wait for deleted records, until the broker has stored the new log start.
    """

    by_segment: tuple[NDArray[np.uint64] | None, ...]
    note: str = ""
    for_deleted: bool = False


def guarded(
    plan: CleaningPlan, decoder: ChunkDecoding, segments: Sequence[SegmentEvidence], records: Sequence[RecordEvidence]
) -> Guards:
    """Which tombstones of each segment may not go yet.

    Raises:
        CorruptionError, CleanerdError: a segment that is to be cleaned cannot be read.
    """
    kept: list[NDArray[np.uint64] | None] = []
    candidates = []
    next_ordinal = 0
    for evidence, facts in zip(segments, records, strict=True):
        stays, bits = guarded_in_segment(plan, evidence, facts)
        kept.append(stays)
        if bits is not None:
            candidates.append(_Candidates(evidence, next_ordinal, bits))
            next_ordinal += 64 * len(bits)
    count = sum(int(np.bitwise_count(each.bits).sum()) for each in candidates)
    if not count:
        return Guards(tuple(kept))
    free, note, for_deleted = _free(plan, decoder, candidates, count)
    held = {each.evidence.source.base: each.bits & ~_bitmap(free, each) for each in candidates}
    rows = zip(segments, kept, strict=True)
    by_segment = tuple(either(stays, held.get(evidence.source.base)) for evidence, stays in rows)
    return Guards(by_segment, note, for_deleted)


def guarded_in_segment(
    plan: CleaningPlan, evidence: SegmentEvidence, facts: RecordEvidence
) -> tuple[NDArray[np.uint64] | None, NDArray[np.uint64] | None]:
    """A segment's tombstones that are retained, and those to remove if no other record has their key.

    Bitmaps over its records, None for none. Both are None if the horizon alone decides.
    """
    rules = plan.rules
    if not rules.versioned:
        return _left_out(plan, evidence, facts), candidates_of(plan, evidence, facts)
    if rules.tombstone_guard == "forever":
        return facts.tombstone, None
    return None, candidates_of(plan, evidence, facts)


def candidates_of(plan: CleaningPlan, evidence: SegmentEvidence, facts: RecordEvidence) -> NDArray[np.uint64] | None:
    """Bitmap: a segment's tombstones that may be removed if no other record has their key; None: it has none."""
    if not plan.rules.versioned and plan.unproven_below <= evidence.source.base:
        return None
    late = expired_winners(facts, evidence.first_record(), evidence.batch_flags())
    return late if plan.rules.versioned else late & ~bits_from(evidence.unproven_to, evidence.records)


def either(one: NDArray[np.uint64] | None, other: NDArray[np.uint64] | None) -> NDArray[np.uint64] | None:
    """The bits of both."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _left_out(plan: CleaningPlan, evidence: SegmentEvidence, facts: RecordEvidence) -> NDArray[np.uint64] | None:
    """Under ``offset``, a segment's tombstones in the part that ``--first-dirty`` leaves out, between clean and dirty.

    Their deleted records may not have been removed yet, and this cleaning does not supersede clean records with them.
    """
    if not plan.proven_offset < min(evidence.source.end, plan.first_dirty_offset):
        return None
    between = bits_from(evidence.proven_to, evidence.records) & ~bits_from(evidence.dirty_from, evidence.records)
    return facts.tombstone & between


def removed_tombstone_keys(
    decoder: ChunkDecoding, source: Source, removed: NDArray[np.uint64]
) -> Iterator[NDArray[np.uint64]]:
    """[2k] each: the key hashes of a segment's tombstones in the bitmap ``removed``, in file order."""
    record = 0
    for chunk in decoder.chunks(source):
        rows = bools(removed, record, len(chunk.records))
        if rows.any():
            yield chunk.records.key_hash[np.repeat(rows, 2)]
        record += len(chunk.records)


def _free(
    plan: CleaningPlan, decoder: ChunkDecoding, candidates: Sequence[_Candidates], count: int
) -> tuple[NDArray[np.uint64], str, bool]:
    """Bitmap over all candidates' ordinals: no other record has the key. The rest is as in :class:`Guards`."""
    wanted = int(count * MAP_ENTRY_BYTES / plan.map_load) + MIN_MAP_BYTES
    offset_map = OffsetMap(max(MIN_MAP_BYTES, min(plan.map_bytes, wanted)), load=plan.map_load)
    shards = min(-(-count // offset_map.capacity), MOST_SHARDS)
    total = candidates[-1].first_ordinal + 64 * len(candidates[-1].bits)
    free = np.zeros(total // 64, dtype=np.uint64)
    shard = 0
    note = ""
    for_deleted = False
    while shard < shards:
        offset_map.clear()
        proof = _ProofShard(plan, decoder, offset_map, shard, shards)
        if not proof.put_all(candidates):
            if shards < MOST_SHARDS:
                # Keys are spread over shards unevenly. Start over with more shards.
                free[:] = 0
                shard, shards = 0, min(2 * shards, MOST_SHARDS)
                continue
            note = TOO_MANY_KEYS
        # The map contains the last tombstone of each key; earlier ones delay it.
        held = offset_map.winners(0, total)
        for each in candidates:
            proof.compare_with(replace(each, bits=_bitmap(held, each)))
        try:
            for source in plan.guarding_sources:
                proof.compare_tail(source)
        except CleanerdError as error:
            # This segment is not cleaned, so its damage is not an error. Later records are unknown.
            note = f"no expired tombstone is removed: the end of the log cannot be read ({error})"
            return np.zeros_like(free), note, for_deleted
        free |= offset_map.winners(0, total)
        for_deleted = for_deleted or proof.for_deleted
        shard += 1
    return free, note, for_deleted


class _ProofShard:
    """One shard of the keys."""

    def __init__(
        self, plan: CleaningPlan, decoder: ChunkDecoding, offset_map: OffsetMap, shard: int, shards: int
    ) -> None:
        self._plan = plan
        self._decoder = decoder
        self._map = offset_map
        self._shard = shard
        self._shards = shards
        self.for_deleted = False

    def put_all(self, candidates: Sequence[_Candidates]) -> bool:
        """Put the tombstones into the map, for each key the last. False: not all fit, and the others are retained."""
        fits = True
        for each in candidates:
            if not each.bits.any():
                continue
            for known in each.evidence.replay(self._decoder.chunks(each.evidence.source)):
                mask = each.rows(known.record, len(known.chunk.records))
                if mask.any():
                    hashes, ordinal = known.chunk.records.key_hash, each.first_ordinal + known.record
                    done = self._map.put_max(hashes, ordinal, mask, shard=self._shard, shards=self._shards)
                    fits = fits and done == len(mask)
        return fits

    def compare_with(self, held: _Candidates) -> None:
        """Compare all records of a segment except the ``held`` tombstones, including those that this cleaning removes.

        Records that consumers do not see (U-2) are ignored, unless they could return: after a crash a broker forgets
        deletions of the last minute. Under ``offset`` records above the candidates' part are ignored, because a
        tombstone deletes only records below it.
        """
        evidence = held.evidence
        end = evidence.dirty_to if evidence.is_versioned else evidence.unproven_to
        for known in evidence.replay(self._decoder.chunks(evidence.source)):
            chunk = known.chunk
            mask = keyed_rows(chunk, known.rows(evidence.lasting_from, end))
            mask &= ~held.rows(known.record, len(chunk.records))
            if evidence.is_versioned:
                beyond = visible_rows(chunk)
                beyond[: known.rows(0, end).last] = False
                mask |= beyond
            met = self._meet(chunk, mask)
            if evidence.lasting_from < evidence.visible_from and not self.for_deleted:
                deleted = known.rows(evidence.lasting_from, evidence.visible_from)
                self.for_deleted = bool(met[deleted.first : deleted.last].any())

    def compare_tail(self, source: Source) -> None:
        """Compare the segment's records after the cleaned ones; of a torn segment, those that a broker recovers."""
        for chunk in self._decoder.chunks(source, torn=self._plan.may_be_torn(source)):
            self._meet(chunk, visible_rows(chunk))

    def _meet(self, chunk: Chunk, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """[n] bool: which of ``mask`` have the key of a candidate tombstone."""
        if not mask.any():
            return mask
        hashes = chunk.records.key_hash
        known = self._map.contains(hashes, mask, shard=self._shard, shards=self._shards)
        if known.any():
            # Their keys are in the map, so it cannot be full.
            self._map.put_max(hashes, OTHER_RECORD, known, shard=self._shard, shards=self._shards)
        return known


def visible_rows(chunk: Chunk) -> NDArray[np.bool_]:
    """[n] bool: the record has a key and is not in a control batch."""
    mask: NDArray[np.bool_] = (chunk.records.flags & FLAG_HAS_KEY) != 0
    control = (chunk.batches.attributes & CONTROL) != 0
    if control.any():
        mask[np.repeat(control, np.diff(chunk.batches.first_record))] = False
    return mask


def _bitmap(bits: NDArray[np.uint64], candidates: _Candidates) -> NDArray[np.uint64]:
    first = candidates.first_ordinal // 64
    return bits[first : first + len(candidates.bits)]


def bools(bits: NDArray[np.uint64], first: int, count: int) -> NDArray[np.bool_]:
    """[count] bool: the bits of a bitmap from ``first`` on, least significant bits first."""
    words = bits[first // 64 : (first + count + 63) // 64].astype("<u8")
    unpacked = np.unpackbits(words.view(np.uint8), bitorder="little")
    result: NDArray[np.bool_] = unpacked[first % 64 : first % 64 + count].astype(np.bool_)
    return result
