"""Task 1: decodes a part of a segment; yields its evidence, and the competing keys for their shards.

Control records, aborted data and other excluded records are removed before the combiner; otherwise an aborted record
could supersede a committed one of its split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.cleaner.chunk_rows import ChunkRows
from cleanerd.cleaner.evidence import SegmentEvidence
from cleanerd.cleaner.index import ChunkDecoding, keyed_rows
from cleanerd.cleaner.record_anomalies import RecordAnomalies
from cleanerd.errors import CorruptionError, KernelError, RefusedError
from cleanerd.segments.pool import SegmentPart
from cleanerd.spark.blocks import KeyBlocks
from cleanerd.spark.plan import SegmentSplit, Sizes, plan_of, readers_of
from cleanerd.spark.rows import CLEAN, DIRTY, FACTS, Row, error_row, pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cleanerd.cleaner.plan import CleaningPlan

DEFINITE: Final = (CorruptionError, KernelError, RefusedError)
"""Errors that another try would only repeat."""


def scan(packed: bytes, sizes: Sizes, splits: Sequence[SegmentSplit]) -> Iterator[Row]:
    """The rows of some splits: evidence, and keys by shard."""
    plan = plan_of(packed)
    with readers_of(plan) as pool:
        decoder = ChunkDecoding(plan, pool, lambda _: None)
        for split in splits:
            try:
                yield from _scan_split(plan, sizes, split, decoder)
            except DEFINITE as error:
                yield error_row(error, guessed=split.guessed)
                return


def _scan_split(plan: CleaningPlan, sizes: Sizes, split: SegmentSplit, decoder: ChunkDecoding) -> Iterator[Row]:
    rules = plan.rules
    source = plan.sources[split.segment]
    evidence = SegmentEvidence(plan, source)
    oddities = RecordAnomalies(rules, plan.now_ms)
    dirty = KeyBlocks(rules, sizes, split, DIRTY, combine=True, versions=rules.versioned)
    # All records of the clean section: each may be superseded.
    clean = KeyBlocks(rules, sizes, split, CLEAN, combine=False, versions=rules.versioned)
    for chunk in decoder.chunks(source, SegmentPart(split.start, split.end)):
        first = evidence.records
        rows = evidence.add(chunk)
        if rows.first < rows.last:
            mask = keyed_rows(chunk, rows)
            oddities.add(chunk, mask)
            yield from dirty.put(chunk, first, mask)
        if rows.first:
            # Records below the log start are ignored (U-2), except under `offset`.
            below = min(max(evidence.visible_from - first, 0), rows.first) if rules.versioned else 0
            yield from clean.put(chunk, first, keyed_rows(chunk, ChunkRows(below, rows.first, rows.excluded)))
    if evidence.disorder:
        raise evidence.disordered("offsets decrease: one task has to read the whole log")
    yield from dirty.flush()
    yield from clean.flush()
    numbers, columns = evidence.to_columns()
    payload = pack({**numbers, "oddities": oddities.to_json()}, columns, dense=True)
    target = (split.segment + split.number) % sizes.shards
    yield Row(target, FACTS, split.segment, split.number, payload=payload)
