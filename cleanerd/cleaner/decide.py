"""Phase 2: a keep bit for every record, an action for every batch (KeepBitmaps)."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd._kernel import ACTION_COPY, ACTION_DROP, ACTION_EMPTY, ACTION_REBUILD, ACTION_SET_HORIZON
from cleanerd.cleaner.clean_part import CleanPart, newest
from cleanerd.cleaner.disorder import resolve_disorder
from cleanerd.cleaner.index import ChunkDecoding, Contest, DirtyIndex
from cleanerd.cleaner.map_size import SIZING, MapSizing, MapUse, with_map
from cleanerd.cleaner.marker_check import corrected_by_markers
from cleanerd.cleaner.metadata_budget import MetadataBudget
from cleanerd.cleaner.tombstone_guard import guarded
from cleanerd.format.batch import HEADER_BYTES
from cleanerd.policy.grouping import DecidedSegment
from cleanerd.policy.retain import (
    ACTION_MASK,
    BATCH_PROTECTED,
    BATCH_REBUILT,
    RecordEvidence,
    Retention,
    closing,
    end_of_group,
    retain,
)
from cleanerd.policy.tombstone import new_horizon_ms
from cleanerd.policy.transaction import OpenTransactions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.chunk_rows import RewriteStart
    from cleanerd.cleaner.evidence import SegmentEvidence
    from cleanerd.cleaner.plan import CleaningPlan, Source
    from cleanerd.cleaner.record_anomalies import RecordAnomalies
    from cleanerd.policy.retain import LastBatchAction
    from cleanerd.segments.segment import Witness


@dataclass(frozen=True, slots=True)
class SegmentDecision:
    """What is retained of one source segment; all that the rewrite needs of the decision.

    ``rewrite_starts``: where the rewrite can begin. ``actions`` treats the segment as one in the middle of a group;
    :meth:`actions_at` handles ends (U-13), where an emptied last batch gets the action ``closing``, or
    ``closing_alone`` if the group retains no other batch. ``last_written_offset``: its last offset if it ends a group.
    ``ordered``: its offsets are ascending (U-45). ``legacy_batches``: the number of its v0 and v1 batches,
    ``horizons_begun``: batches that get a delete horizon now; ``next_horizon_ms``: the earliest existing future one.
    ``shortens_transactions``: data batches of transactions are removed, so their markers may become unneeded.
    ``waits_for_producers``: some of them stay without records until their producers have expired (R192-1). ``waiting``:
    retained tombstones past their horizon (U-1, U-4). ``tombstones_kept``: see :class:`Retention`.
    ``removed_tombstones``: a bitmap of the removed tombstones if not all expired ones are removed; None: none.
    ``least_max_timestamps`` [b] int64: lower limits of the batches' largest timestamps (U-65).
    """

    source: Source
    witness: Witness
    rewrite_starts: tuple[RewriteStart, ...]
    keep: NDArray[np.uint64]
    actions: NDArray[np.uint8]
    records: int
    kept: int
    superseded: int
    keyless: int
    expired_tombstones: int
    removed_tombstones: NDArray[np.uint64] | None
    waiting: int
    aborted: int
    markers: int
    txn_entries: NDArray[np.void]
    closing: int
    closing_alone: int
    last_written_offset: int
    ordered: bool
    legacy_batches: int
    horizons_begun: int
    shortens_transactions: bool
    waits_for_producers: bool
    next_horizon_ms: int | None
    tombstones_kept: int
    outcome: DecidedSegment
    least_max_timestamps: NDArray[np.int64] | None = None

    @property
    def keeps_batches(self) -> bool:
        """Whether it retains a batch at any place in a group."""
        return bool((self.actions != ACTION_DROP).any())

    def actions_at(self, *, ends_group: bool, alone: bool = False) -> NDArray[np.uint8]:
        """[b] uint8: the batch actions for a rewrite.

        ``ends_group``: this is the group's last non-empty source. ``alone``: the group retains no other batch.
        """
        if ends_group and len(self.actions):
            return end_of_group(self.actions, self.closing_alone if alone else self.closing)
        return self.actions


LOG_START_WRITTEN_MS: Final = 120_000
"""Twice the default of ``log.flush.start.offset.checkpoint.interval.ms``."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The KeepBitmaps of a plan: one entry per source, in order, and the number of passes.

    ``map_note``: that the keys were on disk, or why they were not; "" if they fit the map. ``index_seconds``,
    ``decide_seconds``: duration of both phases, all passes together. ``guard_note``: why no tombstone could be proven
    removable, if so. ``map_utilization``: entries by capacity of the fullest pass's map, 0 to 1. ``index_note``:
    corrections of the transaction indexes by the log's markers (U-44). ``disorder_note``: how records with descending
    offsets were treated (U-45).
    """

    segments: tuple[SegmentDecision, ...]
    passes: int
    map_note: str
    map_entries: int
    index_seconds: float
    decide_seconds: float
    oddities: RecordAnomalies
    guard_note: str
    disorder_note: str
    next_purge: NextPurge
    map_utilization: float
    index_note: str = ""


def decide(plan: CleaningPlan, decoder: ChunkDecoding, sizing: MapSizing = SIZING) -> Decision:
    """Phases 1 and 2, in as many passes as the map's size requires; their number does not change the result (OP-2).

    Raises:
        CorruptionError: a segment is damaged; see ``corrected_by_markers``.
        DisorderedLogError: see ``resolve_disorder``.
        TooManyPassesError, CleanerdError: see ``with_map``.
    """
    started = time.monotonic()
    found = _gathered(plan, decoder, sizing)
    index_note = ""
    edges = (edge for segment in found.segments for edge in segment.marker_edges())
    corrected = corrected_by_markers(plan, decoder.reader, edges)
    if corrected is not None:
        index_note, plan = corrected.note, replace(plan, aborted=corrected.aborted)
        found = _gathered(plan, decoder, sizing)
    # The map's memory is free now, for checking which tombstones may be removed.
    return _make_decision(plan, decoder, found, started, index_note)


def _gathered(plan: CleaningPlan, decoder: ChunkDecoding, sizing: MapSizing) -> _Evidence:
    return with_map(plan, lambda use: _gather(plan, decoder, use), sizing)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The evidence of both phases, in log order, without the map. ``winners`` [s]: None for clean segments."""

    segments: tuple[SegmentEvidence, ...]
    winners: tuple[NDArray[np.uint64] | None, ...]
    passes: int
    map_note: str
    oddities: RecordAnomalies
    map_entries: int
    map_utilization: float
    index_seconds: float


def _gather(plan: CleaningPlan, decoder: ChunkDecoding, use: MapUse) -> _Evidence:
    budget = MetadataBudget(plan)
    index = DirtyIndex(plan, budget)
    clean_part = CleanPart(plan, budget)
    entries = 0
    utilization = 0.0
    index_seconds = 0.0
    for key_pass in use.passes:
        started = time.monotonic()
        index.build(decoder, key_pass)
        index_seconds += time.monotonic() - started
        clean_part.add_all(decoder, key_pass, index.evidence)
        everyone = [*clean_part.contestants, *index.contestants]
        found = key_pass.decide(decoder, Contest(everyone, clean_part.ordinals, index.ordinals))
        clean_part.take_winners(found)
        index.take_winners(found.dirty)
        entries += found.entries
        utilization = max(utilization, found.utilization)
    winners = tuple(index.winners(row) for row in range(len(index.evidence)))
    return _Evidence(
        segments=(*clean_part.evidence, *index.evidence),
        winners=(*[None] * len(clean_part.evidence), *winners),
        passes=use.count,
        map_note=use.note,
        oddities=index.oddities,
        map_entries=entries,
        map_utilization=utilization,
        index_seconds=index_seconds,
    )


def _make_decision(
    plan: CleaningPlan, decoder: ChunkDecoding, found: _Evidence, started: float, index_note: str
) -> Decision:
    records = [
        record_evidence(evidence, winners) for evidence, winners in zip(found.segments, found.winners, strict=True)
    ]
    disorder = resolve_disorder(plan, decoder, found.segments, records)
    records = disorder.records
    guards = guarded(plan, decoder, found.segments, records)
    # In log order: whether a marker is still needed depends on the batches before it (C-33).
    transactions = OpenTransactions()
    decided = [
        decide_segment(evidence, facts.with_guards(*guards_of), transactions)
        for evidence, facts, *guards_of in zip(found.segments, records, guards.by_segment, disorder.guards, strict=True)
    ]
    return Decision(
        segments=tuple(decided),
        passes=found.passes,
        map_note=found.map_note,
        map_entries=found.map_entries,
        index_seconds=found.index_seconds,
        decide_seconds=time.monotonic() - started - found.index_seconds,
        oddities=found.oddities,
        guard_note=guards.note,
        disorder_note=disorder.note,
        next_purge=next_purge(plan, decided, for_deleted=guards.for_deleted),
        map_utilization=found.map_utilization,
        index_note=index_note,
    )


@dataclass(frozen=True, slots=True)
class NextPurge:
    """When the next remaining tombstones or markers can be removed, None if there are none.

    ``without_new_ms``: the same if no batch gets the delete horizon that it should, because of its size (U-95).
    """

    at_ms: int | None = None
    without_new_ms: int | None = None


def next_purge(plan: CleaningPlan, decided: Sequence[SegmentDecision], *, for_deleted: bool) -> NextPurge:
    """The earliest future horizon: existing ones, and those that this cleaning sets (C-48).

    A horizon of now, as with ``delete.retention.ms=0``, is due now. A marker whose data this cleaning removes gets its
    horizon in the next one, as in Kafka, so it is due as if its horizon were set now. Due at once: tombstones past
    their horizon that wait for another record of their key, if this cleaning removes records (R534-6). ``for_deleted``:
    they wait for deleted records, whose deletion becomes permanent later. If an emptied batch stays for its producer,
    its marker stays too and is due when the producer has expired.
    """
    waits = plan.rules.tombstone_guard == "horizon" and any(each.waiting for each in decided)
    if waits and plan.rules.versioned and any(each.kept < each.records for each in decided):
        return NextPurge(plan.expiry_ms, plan.expiry_ms)
    horizons = [decision.next_horizon_ms for decision in decided]
    begun = new_horizon_ms(plan.now_ms, plan.delete_retention_ms)
    new = [begun] if begun >= 0 and any(decision.horizons_begun for decision in decided) else []
    if begun >= 0 and any(decision.shortens_transactions for decision in decided):
        horizons.append(begun)
    if any(decision.waits_for_producers for decision in decided):
        horizons.append(plan.producers_expired_ms)
    if waits and for_deleted:
        horizons.append(plan.now_ms + LOG_START_WRITTEN_MS)
    known = [horizon for horizon in horizons if horizon is not None]
    return NextPurge(min([*known, *new], default=None), min(known, default=None))


def record_evidence(evidence: SegmentEvidence, winners: NDArray[np.uint64] | None) -> RecordEvidence:
    """A segment's facts for retention; ``winners`` as in :func:`newest`."""
    return RecordEvidence(
        keyed=evidence.keyed.words(),
        tombstone=evidence.tombstone.words(),
        newest=newest(evidence, winners),
        cleaned_records=evidence.records if winners is None else evidence.dirty_to,
        unjudged_records=evidence.unjudged_records,
    )


def decide_segment(
    evidence: SegmentEvidence, records: RecordEvidence, transactions: OpenTransactions
) -> SegmentDecision:
    """Decide one segment, after every other record of its keys was read; call in log order."""
    data_batches = evidence.transactional_data()
    txn_entries = evidence.resolve_transactions(transactions)
    least_max_timestamps = evidence.settle_write_times()
    first_record = evidence.first_record()
    retention = retain(records, first_record, evidence.batch_flags())
    counts = np.diff(first_record)
    end = closing(
        int(counts[-1]) if len(counts) else 0,
        evidence.last_max_timestamp_ms,
        at_bound=evidence.last_offset + 1 == evidence.first_uncleanable_offset,
    )
    segment = evidence.source.segment
    return SegmentDecision(
        source=evidence.source,
        witness=segment.witness(evidence.first_batch, evidence.last_batch),
        rewrite_starts=tuple(evidence.rewrite_starts),
        keep=retention.keep,
        actions=retention.actions,
        records=evidence.records,
        kept=int(retention.kept_by_batch.sum()),
        superseded=retention.superseded,
        keyless=retention.keyless,
        expired_tombstones=retention.expired_tombstones,
        removed_tombstones=retention.removed_tombstones
        if evidence.is_versioned and retention.expired_tombstones
        else None,
        waiting=retention.waiting,
        aborted=retention.aborted,
        markers=retention.markers,
        txn_entries=txn_entries,
        closing=end.beside,
        closing_alone=end.alone,
        last_written_offset=_last_written_offset(evidence, retention),
        ordered=not evidence.disorder,
        legacy_batches=evidence.legacy_batches,
        horizons_begun=int(np.count_nonzero(retention.actions & ACTION_SET_HORIZON)),
        shortens_transactions=_shortens(retention.actions, counts, data_batches),
        waits_for_producers=_waits_for_producers(evidence, retention, data_batches),
        next_horizon_ms=evidence.next_horizon_ms,
        tombstones_kept=retention.tombstones_kept,
        outcome=_at_least(
            _outcome(evidence, retention, counts, end, changes_txn_index=evidence.changes_txn_index(txn_entries)),
            least_max_timestamps,
            retention,
        ),
        least_max_timestamps=least_max_timestamps,
    )


def _at_least(outcome: DecidedSegment, least_ms: NDArray[np.int64] | None, retention: Retention) -> DecidedSegment:
    """The outcome, with the later times that retained batches take over (U-65)."""
    if least_ms is None:
        return outcome
    high_ms = int(least_ms[retention.kept_by_batch > 0].max(initial=outcome.max_timestamp_ms))
    return replace(outcome, max_timestamp_ms=high_ms, batch_time_ms=max(outcome.batch_time_ms, high_ms))


def _shortens(actions: NDArray[np.uint8], counts: NDArray[np.uint32], data_batches: NDArray[np.uint32]) -> bool:
    """Whether one of these batches is removed.

    An empty one at the segment's end is ignored, because it may remain there (U-13).
    """
    if len(data_batches) == 0:
        return False
    goes = actions[data_batches] == ACTION_DROP
    goes &= (counts[data_batches] > 0) | (data_batches + 1 < len(actions))
    return bool(goes.any())


def _waits_for_producers(evidence: SegmentEvidence, retention: Retention, data_batches: NDArray[np.uint32]) -> bool:
    """Whether one of these batches is retained without records, only for its producer."""
    if len(data_batches) == 0:
        return False
    protected = (evidence.batch_flags()[data_batches] & BATCH_PROTECTED) != 0
    return bool((protected & (retention.kept_by_batch[data_batches] == 0)).any())


def _closing_of_segment(
    evidence: SegmentEvidence, actions: NDArray[np.uint8], counts: NDArray[np.uint32], end: LastBatchAction
) -> int:
    """The last batch's action if the segment is a group by itself.

    An earlier cleaning may have emptied the batch and left its time. That justifies a rewrite only if it is the
    segment's largest time, which retention and offset lookups by time use (U-13, U-37).
    """
    if not (actions != ACTION_DROP).any():
        return end.alone
    if not counts[-1] and 0 <= evidence.last_max_timestamp_ms <= evidence.max_timestamp_ms:
        return ACTION_COPY
    return end.beside


def _last_written_offset(evidence: SegmentEvidence, retention: Retention) -> int:
    """The last offset of the segment's last batch; for a rebuilt v0 or v1 batch, that of its last retained record."""
    offsets = evidence.last_batch_offsets
    if offsets is not None and retention.actions[-1] & ACTION_MASK == ACTION_REBUILD:
        for row in range(evidence.records - 1, evidence.records - len(offsets) - 1, -1):
            if int(retention.keep[row // 64]) >> row % 64 & 1:
                return int(offsets[row - evidence.records])
    return evidence.last_offset


def _outcome(
    evidence: SegmentEvidence,
    retention: Retention,
    counts: NDArray[np.uint32],
    end: LastBatchAction,
    *,
    changes_txn_index: bool,
) -> DecidedSegment:
    """The facts for grouping."""
    actions = retention.actions
    closing_bytes = 0
    if len(actions):
        actions = end_of_group(actions, _closing_of_segment(evidence, actions, counts, end))
        closing_bytes = HEADER_BYTES if retention.actions[-1] == ACTION_DROP else 0
    sizes = evidence.sizes()
    copied = actions == ACTION_COPY
    rebuilt = np.flatnonzero((actions & ACTION_MASK) == ACTION_REBUILD)
    written_bytes = (
        int((sizes * copied).sum())
        + (_rebuilt_bytes(evidence, retention, counts, sizes, rebuilt) if len(rebuilt) else 0)
        + HEADER_BYTES * int(np.count_nonzero((actions & ACTION_MASK) == ACTION_EMPTY))
    )
    has_records = bool(retention.kept_by_batch.any())
    low_ms, high_ms = evidence.min_timestamp_ms, evidence.max_timestamp_ms
    idle_ms, file_ms = evidence.idle_timestamp_ms, -1
    if len(counts) and not counts[-1] and end.beside == ACTION_COPY:
        idle_ms = max(idle_ms, evidence.last_max_timestamp_ms)
    stays_ms = max(high_ms, idle_ms)
    if has_records and high_ms < 0:
        # If no batch has a time, a broker uses the file's, so neighbours must not mix their file times (U-17).
        file_ms = evidence.source.segment.mtime_ns // 1_000_000 if idle_ms < 0 else -1
        low_ms = high_ms = file_ms if idle_ms < 0 else idle_ms
    return DecidedSegment(
        base=evidence.source.base,
        last_offset=evidence.high_offset,
        output_bytes=written_bytes,
        output_batches=int(np.count_nonzero(actions != ACTION_DROP)),
        has_records=has_records,
        changed=not copied.all() or changes_txn_index,
        min_timestamp_ms=low_ms,
        max_timestamp_ms=high_ms,
        file_time_ms=file_ms,
        batch_time_ms=stays_ms,
        closing_bytes=closing_bytes,
    )


def _rebuilt_bytes(
    evidence: SegmentEvidence,
    retention: Retention,
    counts: NDArray[np.uint32],
    sizes: NDArray[np.uint32],
    rebuilt: NDArray[np.intp],
) -> int:
    """The estimated size of the ``rebuilt`` batches [k]: their size times the share of retained records.

    A v0 or v1 batch that becomes v2 gets a header for it.
    """
    share = retention.kept_by_batch[rebuilt] / counts[rebuilt]
    has_no_header = ((evidence.batch_flags()[rebuilt] & BATCH_REBUILT) != 0) & (evidence.legacy_batches > 0)
    old_header = np.where(has_no_header, 0, HEADER_BYTES)
    payload = np.maximum(sizes[rebuilt].astype(np.int64) - old_header, 0)
    return int((HEADER_BYTES + payload * share).sum())
