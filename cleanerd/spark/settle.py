"""Collects the shards' results at their segment: the decision, or the missing facts for it.

A segment is decided at once unless it has transactions, which depend on earlier segments, or tombstones that must be
proven removable (U-1). Then its evidence becomes a file, and the driver gets the facts for other segments: the
producers with an open transaction at its end, and the number of such tombstones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from cleanerd.cleaner.bits import BitColumn
from cleanerd.cleaner.decide import decide_segment, record_evidence
from cleanerd.cleaner.evidence import SegmentEvidence
from cleanerd.cleaner.record_anomalies import RecordAnomalies
from cleanerd.cleaner.tombstone_guard import candidates_of, either, guarded_in_segment
from cleanerd.errors import DisorderedLogError
from cleanerd.policy.retain import RecordEvidence
from cleanerd.policy.transaction import OpenTransactions, TransactionEdges
from cleanerd.spark.blocks import bitmap_of_flags, set_bits
from cleanerd.spark.decisions import store_decision
from cleanerd.spark.plan import plan_of
from cleanerd.spark.rows import ERROR, FACTS, SUPERSEDED, WINNERS, WON, Row, error_row, pack, result_row, unpack
from cleanerd.spark.scan import DEFINITE
from cleanerd.spark.work import new_attempt, read_file, write_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.plan import CleaningPlan


@dataclass(frozen=True, slots=True)
class DeferredSegment:
    """A segment that is decided after all others are known.

    ``open_before``: producers with committed and with aborted transactions open at its beginning. ``guard``: the file
    of tombstones that must stay; ``guard_all``: all removable ones must stay.
    """

    segment: int
    facts: str
    open_before: tuple[tuple[int, ...], tuple[int, ...]]
    guard: str | None = None
    guard_all: bool = False


def settle(packed: bytes, splits: Sequence[int], rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of some segments, sorted by segment, kind, split and block; ``splits`` [segments]: parts of each."""
    plan = plan_of(packed)
    for segment, group in groupby(rows, key=lambda row: row.segment):
        try:
            summary, errors = _SegmentRows(plan, segment).result(group, splits[segment])
        except DisorderedLogError as error:
            yield error_row(error, guessed=splits[segment] > 1)
            continue
        yield from errors
        if summary is not None:
            yield result_row(segment, summary)


class _SegmentRows:
    """Collects the rows of one segment until they are complete."""

    def __init__(self, plan: CleaningPlan, segment: int) -> None:
        self._plan = plan
        self._segment = segment
        self._source = plan.sources[segment]
        self._evidence = SegmentEvidence(plan, self._source)
        self._oddities = RecordAnomalies(plan.rules, plan.now_ms)
        self._first: list[int] = []

    def result(self, rows: Iterable[Row], splits: int) -> tuple[dict[str, Any] | None, list[Row]]:
        """The driver's row, None if an error made a part missing; and the errors.

        Raises:
            DisorderedLogError: the parts do not follow each other.
        """
        errors: list[Row] = []
        found: dict[int, NDArray[np.bool_]] = {}
        for row in rows:
            if row.kind == ERROR:
                errors.append(row)
            elif row.kind == FACTS:
                self._add_row(row)
            elif row.split < len(self._first):
                flags = found.setdefault(row.kind, np.zeros(self._evidence.records, np.bool_))
                set_bits(flags, self._first[row.split], row.payload)
        if len(self._first) < splits:
            return None, errors
        nothing = np.zeros(self._evidence.records, np.bool_)
        words = {kind: bitmap_of_flags(found.get(kind, nothing)) for kind in (WINNERS, SUPERSEDED, WON)}
        return self._decided(words), errors

    def _add_row(self, row: Row) -> None:
        if row.split != len(self._first):
            return  # the previous part is missing: its error has been reported
        numbers, columns = unpack(row.payload)
        self._first.append(self._evidence.records)
        part = SegmentEvidence.of_columns(self._plan, self._source, numbers, columns)
        self._evidence.extend(part)
        counted = RecordAnomalies(self._plan.rules, self._plan.now_ms)
        counted.load(numbers["oddities"])
        self._oddities.merge(counted)

    def _decided(self, words: dict[int, NDArray[np.uint64]]) -> dict[str, Any]:
        plan, evidence = self._plan, self._evidence
        evidence.superseded = BitColumn.of(words[SUPERSEDED], evidence.records)
        evidence.won = words[WON] if plan.rules.versioned else None
        records = record_evidence(evidence, words[WINNERS] if is_dirty(plan, self._segment) else None)
        guarded, bits = guarded_in_segment(plan, evidence, records)
        records = replace(records, guarded=guarded)
        candidates = 0 if bits is None else int(np.bitwise_count(bits).sum())
        summary: dict[str, Any] = {"oddities": self._oddities, "candidates": candidates}
        attempt = new_attempt()
        if candidates or evidence.events:
            name = f"{self._source.base:020d}.{attempt}.facts"
            return {
                **summary,
                "facts": write_file(plan, name, _packed(evidence, records)),
                "edges": TransactionEdges.of(evidence.events),
                "markers": list(evidence.marker_edges()),
            }
        decision = decide_segment(evidence, records, OpenTransactions())
        return {**summary, "decision": store_decision(plan, decision, attempt)}


def is_dirty(plan: CleaningPlan, segment: int) -> bool:
    """Whether the segment has offsets in the dirty range."""
    return plan.sources[segment].end > plan.first_dirty_offset


def _packed(evidence: SegmentEvidence, records: RecordEvidence) -> bytes:
    numbers, columns = evidence.to_columns()
    columns["newest"] = records.newest
    if records.guarded is not None:
        columns["guarded"] = records.guarded
    return pack(numbers, columns, dense=True)


def stored_facts(plan: CleaningPlan, segment: int, name: str) -> tuple[SegmentEvidence, RecordEvidence]:
    """The facts that :func:`settle` wrote for a segment.

    Raises:
        CorruptionError, CleanerdError: they cannot be read.
    """
    numbers, columns = unpack(read_file(plan, name), name)
    evidence = SegmentEvidence.of_columns(plan, plan.sources[segment], numbers, columns)
    records = RecordEvidence(
        keyed=evidence.keyed.words(),
        tombstone=evidence.tombstone.words(),
        newest=columns["newest"],
        cleaned_records=evidence.dirty_to if is_dirty(plan, segment) else evidence.records,
        unjudged_records=evidence.unjudged_records,
        guarded=columns.get("guarded"),
    )
    return evidence, records


def decide_deferred(packed: bytes, deferred: Sequence[DeferredSegment]) -> Iterator[Row]:
    """Decide segments from the facts that :func:`settle` wrote."""
    plan = plan_of(packed)
    attempt = new_attempt()
    for each in deferred:
        try:
            evidence, records = stored_facts(plan, each.segment, each.facts)
            if each.guard is not None:
                _, columns = unpack(read_file(plan, each.guard), each.guard)
                records = replace(records, guarded=columns["guarded"])
            elif each.guard_all:
                bits = candidates_of(plan, evidence, records)
                records = replace(records, guarded=either(records.guarded, bits))
            decision = decide_segment(evidence, records, OpenTransactions(*each.open_before))
            stored = store_decision(plan, decision, attempt)
        except DEFINITE as error:
            yield error_row(error)
            return
        yield result_row(each.segment, stored)
