"""Which expired tombstones a versioned strategy may remove (U-1): ``cleaner/tombstone_guard.py`` on executors.

Removable tombstones are put into maps by shard, and every other visible record, from log start to log end, is compared
with them. Only the hashes of the log's keys are shuffled, each once per split.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from cleanerd._kernel import OffsetMap
from cleanerd.cleaner.chunk_rows import ChunkRows
from cleanerd.cleaner.evidence import SegmentEvidence
from cleanerd.cleaner.index import ChunkDecoding, OffsetMapFullError, keyed_rows
from cleanerd.cleaner.tombstone_guard import OTHER_RECORD, bools, candidates_of, visible_rows
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.segments.pool import SegmentPart
from cleanerd.spark.blocks import KeyBlocks, KeyRows, NumberSpool, bitmap_of_flags, set_bits
from cleanerd.spark.plan import SegmentSplit, Sizes, plan_of, readers_of
from cleanerd.spark.rows import CLEAN, DIRTY, ERROR, FACTS, WINNERS, Row, error_row, pack, result_row
from cleanerd.spark.scan import DEFINITE
from cleanerd.spark.settle import stored_facts
from cleanerd.spark.winners import everything, full_row
from cleanerd.spark.work import new_attempt, write_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.policy.retain import RecordEvidence


def gather(packed: bytes, sizes: Sizes, facts: Mapping[int, str], splits: Sequence[SegmentSplit]) -> Iterator[Row]:
    """The rows of some splits of sources and later segments: candidates as ``DIRTY``, all others as ``CLEAN``.

    ``facts``: by segment the file of its evidence, for those that have candidates.
    """
    plan = plan_of(packed)
    with readers_of(plan) as pool:
        decoder = ChunkDecoding(plan, pool, lambda _: None)
        for split in splits:
            in_tail = split.segment >= len(plan.sources)
            try:
                if in_tail:
                    yield from _gather_tail(plan, sizes, split, decoder)
                else:
                    yield from _gather_source(plan, sizes, split, decoder, facts.get(split.segment))
            except DEFINITE as error:
                yield error_row(error, guessed=split.guessed, tail=in_tail)
                return
            except CleanerdError as error:
                if not in_tail:
                    raise
                yield error_row(error, guessed=False, tail=True)
                return


def _gather_source(
    plan: CleaningPlan, sizes: Sizes, split: SegmentSplit, decoder: ChunkDecoding, facts: str | None
) -> Iterator[Row]:
    source = plan.sources[split.segment]
    candidates, first = np.zeros(0, np.uint64), 0
    if facts is not None:
        known, records = stored_facts(plan, split.segment, facts)
        candidates = _candidates(plan, known, records)
        first = {start.position: start.record for start in known.rewrite_starts}[split.start] if split.bytes else 0
        yield Row(split.segment % sizes.shards, FACTS, split.segment, split.number)
    evidence = SegmentEvidence(plan, source)
    held = KeyBlocks(plan.rules, sizes, split, DIRTY, combine=False, versions=False)
    others = KeyBlocks(plan.rules, sizes, split, CLEAN, combine=True, versions=False)
    for chunk in decoder.chunks(source, SegmentPart(split.start, split.end)):
        record = evidence.records
        rows = evidence.add(chunk)
        # Records that this cleaning removes are compared too, but not invisible ones (U-2).
        end = rows.last if plan.rules.versioned else int(np.searchsorted(chunk.records.offset, plan.unproven_below))
        below = min(max(evidence.lasting_from - record, 0), end)
        mask = keyed_rows(chunk, ChunkRows(below, end, rows.excluded))
        if facts is not None:
            chosen = bools(candidates, first + record, len(mask))
            yield from held.put(chunk, first + record, chosen)
            mask &= ~chosen
        if plan.rules.versioned:
            beyond = visible_rows(chunk)
            beyond[: rows.last] = False
            mask |= beyond
        yield from others.put(chunk, record, mask)
    yield from held.flush()
    yield from others.flush()


def _candidates(plan: CleaningPlan, evidence: SegmentEvidence, records: RecordEvidence) -> NDArray[np.uint64]:
    found = candidates_of(plan, evidence, records)
    return np.zeros((evidence.records + 63) // 64, np.uint64) if found is None else found


def _gather_tail(plan: CleaningPlan, sizes: Sizes, split: SegmentSplit, decoder: ChunkDecoding) -> Iterator[Row]:
    source = plan.guarding_sources[split.segment - len(plan.sources)]
    others = KeyBlocks(plan.rules, sizes, split, CLEAN, combine=True, versions=False)
    record = 0
    # If an index says that a split begins here, damage may mean that it is wrong.
    torn = plan.may_be_torn(source) and not split.guessed
    for chunk in decoder.chunks(source, SegmentPart(split.start, split.end), torn=torn):
        yield from others.put(chunk, record, visible_rows(chunk))
        record += len(chunk.records)
    yield from others.flush()


def prove(packed: bytes, sizes: Sizes, rows: Iterable[Row]) -> Iterator[Row]:
    """One shard: returns the candidates without another record of their key, by their numbers in their segments."""
    plan = plan_of(packed)
    with contextlib.closing(_RemovalProof(plan, sizes)) as proof:
        for row in rows:
            if row.kind in (ERROR, FACTS):
                yield row._replace(target=row.segment)
            elif row.kind == DIRTY:
                try:
                    proof.put(row)
                except OffsetMapFullError:
                    yield full_row()
                    return
            else:
                proof.compare_with(KeyRows.of_bytes(row.payload))
        yield from proof.free()


class _RemovalProof:
    def __init__(self, plan: CleaningPlan, sizes: Sizes) -> None:
        self._map = OffsetMap(sizes.map_bytes, load=plan.map_load)
        self._candidates = NumberSpool(0, hashes=True)
        self._complete = False

    def put(self, row: Row) -> None:
        keys = KeyRows.of_bytes(row.payload)
        ordinal = self._candidates.add(row, keys)
        if self._map.put_max(keys.hashes, ordinal, everything(keys)) < len(keys):
            raise OffsetMapFullError

    def compare_with(self, keys: KeyRows) -> None:
        self._find_superseded()
        known = self._map.contains(keys.hashes, everything(keys))
        if known.any():
            # Their keys are in the map, so it cannot be full.
            self._map.put_max(keys.hashes, OTHER_RECORD, known)

    def _find_superseded(self) -> None:
        """Mark all but a key's last tombstone, which the map contains: they have another record."""
        if self._complete:
            return
        self._complete = True
        held = self._map.winners(0, self._candidates.next_ordinal)
        for _, ordinal, keys in self._candidates.replay():
            lost = ~bools(held, ordinal, len(keys))
            if lost.any():
                self._map.put_max(keys.hashes, OTHER_RECORD, lost)

    def free(self) -> Iterator[Row]:
        self._find_superseded()
        yield from self._candidates.winners(self._map, WINNERS)

    def close(self) -> None:
        self._candidates.close()


def guard(packed: bytes, facts: Mapping[int, str], rows: Iterable[Row]) -> Iterator[Row]:
    """The shards' proofs, by segment: a file each with the tombstones that must stay."""
    plan = plan_of(packed)
    attempt = new_attempt()
    free: dict[int, list[bytes]] = defaultdict(list)
    wanted = set()
    for row in rows:
        if row.kind == ERROR:
            yield row
        elif row.kind == FACTS:
            wanted.add(row.segment)
        else:
            free[row.segment].append(row.payload)
    for segment in sorted(wanted):
        try:
            guard = _guard_of(plan, segment, facts[segment], free[segment], attempt)
        except RefusedError as error:
            yield error_row(error)
            return
        yield result_row(segment, guard)


def _guard_of(plan: CleaningPlan, segment: int, facts: str, free: list[bytes], attempt: str) -> str:
    evidence, records = stored_facts(plan, segment, facts)
    candidates = _candidates(plan, evidence, records)
    flags = np.zeros(evidence.records, np.bool_)
    for payload in free:
        set_bits(flags, 0, payload)
    held: NDArray[np.uint64] = candidates & ~bitmap_of_flags(flags)
    guarded = held if records.guarded is None else held | records.guarded
    name = f"{plan.sources[segment].base:020d}.{attempt}.guard"
    return write_file(plan, name, pack({}, {"guarded": guarded}, dense=True))
