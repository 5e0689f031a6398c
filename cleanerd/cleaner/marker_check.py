"""Compare a plan's aborted transactions with the log's own markers before the decision (U-44).

Phase 1 reads every segment that is cleaned, so the comparison reads nothing but the markers behind them that end what
is still open there. Only where log and index disagree are the headers read once more.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cleanerd.cleaner.hanging_transaction import abort_command
from cleanerd.errors import CorruptionError
from cleanerd.format.names import INDEX_SUFFIX, SNAPSHOT_SUFFIX, TXNINDEX_SUFFIX, file_name
from cleanerd.humanize import counted
from cleanerd.policy.markers import MarkedTransactions, MarkerCheck
from cleanerd.policy.transaction import AbortedTransactions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.policy.markers import Disagreement, MarkerEdges
    from cleanerd.segments.reading import SegmentReader


@dataclass(frozen=True, slots=True)
class CorrectedTransactions:
    """The aborted transactions by the log's markers, and what the operator should know of that."""

    aborted: AbortedTransactions
    note: str


def corrected_by_markers(
    plan: CleaningPlan, reader: SegmentReader, edges: Iterable[MarkerEdges]
) -> CorrectedTransactions | None:
    """The plan's transactions as the log's markers show them; None if the plan agrees.

    ``edges``: of the plan's sources, in log order.

    Raises:
        CorruptionError: the log cannot confirm or correct the index, or it is damaged after the sources.
        CleanerdError: a segment cannot be read.
    """
    check = MarkerCheck()
    for each in edges:
        check.add_chunk(each)
    if len(check.open):
        for batches in _behind(plan, reader):
            check.add_markers(batches, plan.decided_offset)
            if not len(check.open):
                break
    suspects, disordered = check.suspects, plan.aborted.disordered
    if disordered:
        suspects = np.union1d(suspects, plan.aborted.entries["producer_id"].astype(np.int64))
    if not len(suspects):
        return None
    marked = _marked(plan, reader, suspects)
    if len(marked.producers) > len(suspects):
        marked = _marked(plan, reader, marked.producers)
    if marked.doubt is not None:
        raise _refused(plan, marked.doubt)
    if not len(marked.corrections) and not disordered:
        return None
    entries = _without_stable_offsets(plan, marked.entries)
    return CorrectedTransactions(AbortedTransactions(entries, plan.aborted.entries, disordered), _note(plan, marked))


def _without_stable_offsets(plan: CleaningPlan, entries: NDArray[np.void]) -> NDArray[np.void]:
    """The entries; of segments with a disordered index, each with its first offset as the last stable one.

    A reader stops at the first entry with a high one, so those of another order would hide entries. The agent accepts
    an added entry in this form only (A-40).
    """
    bases = [source.base for source in (*plan.sources, *plan.uncleanable)]
    wrong = np.searchsorted(bases, sorted(plan.aborted.disordered), side="right")
    rows = np.isin(np.searchsorted(bases, entries["last_offset"].astype(np.int64), side="right"), wrong)
    entries["last_stable_offset"][rows] = entries["first_offset"][rows]
    return entries


def _marked(plan: CleaningPlan, reader: SegmentReader, producers: NDArray[np.int64]) -> MarkedTransactions:
    """The transactions of these producers by the headers of the whole log."""
    marked = MarkedTransactions(plan.aborted, producers, plan.judged_span)
    for source in plan.sources:
        for batches in reader.headers(source.segment):
            marked.add(batches, plan.decided_offset)
    for batches in _behind(plan, reader):
        marked.add(batches, plan.decided_offset)
    # Under `offset` a clean record supersedes nothing, so an open transaction of the clean part does no harm.
    marked.finish(0 if plan.rules.versioned else plan.first_dirty_offset)
    return marked


def _behind(plan: CleaningPlan, reader: SegmentReader) -> Iterator[_kernel.Batches]:
    """The headers behind the plan's sources, up to where transactions are decided."""
    for source in plan.uncleanable:
        if source.base >= plan.decided_offset:
            return
        position = 0
        read = reader.headers_until_damage if plan.may_be_torn(source) else reader.headers
        for batches in read(source.segment):
            position += batches.consumed
            yield batches
        if position < source.segment.size_bytes:
            return


def _note(plan: CleaningPlan, marked: MarkedTransactions) -> str:
    """The first correction in words, and the first segment whose index stays wrong, as it is not cleaned."""
    end = plan.sources[-1].end if plan.sources else plan.bound_offset
    disordered = np.array(sorted(plan.aborted.disordered), np.int64)
    wrong = np.union1d(marked.corrections, disordered)
    behind = wrong[wrong >= end]
    stays = ""
    if len(behind):
        file = file_name(_base_at(plan, int(behind[0])), TXNINDEX_SUFFIX)
        stays = f"; {file} stays wrong until its segment is cleaned"
    first = "" if marked.corrected is None else f": {_describe(marked.corrected)}"
    what = "the transaction index disagrees with the log"
    if len(disordered):
        file = file_name(_base_at(plan, int(disordered[0])), TXNINDEX_SUFFIX)
        what = f"{file} has entries out of order, twice, or of another segment"
    return f"{what}, and the markers in the log decide ({counted(len(marked.corrections), 'correction')}){first}{stays}"


def _base_at(plan: CleaningPlan, offset: int) -> int:
    """The base offset of the segment with that offset."""
    bases = [source.base for source in (*plan.sources, *plan.uncleanable)]
    return bases[max(0, bisect_right(bases, offset) - 1)]


def _describe(found: Disagreement) -> str:
    transaction = found.transaction
    what = f"producer {transaction.producer_id} has a transaction from offset {transaction.first}"
    if found.marker is None:
        return f"{what} without a marker, but the index says that {found.index_says}"
    kind = "an ABORT" if found.aborts else "a COMMIT"
    return f"{what} to {kind} marker at offset {found.marker}, but the index says that {found.index_says}"


def _refused(plan: CleaningPlan, found: Disagreement) -> CorruptionError:
    """Which file is wrong, and the way out: the broker makes an index from the log, or a marker is written."""
    transaction = found.transaction
    base = _base_at(plan, found.at)
    if found.marker is None:
        hint = "the broker's producer state lacks this transaction. Write its marker: " + abort_command(
            plan.name,
            f"--producer-id {transaction.producer_id} --producer-epoch {transaction.epoch} --coordinator-epoch 0",
        )
    else:
        files = [file_name(base, INDEX_SUFFIX)]
        if transaction.first < base:
            files.append(file_name(base, SNAPSHOT_SUFFIX))
        hint = (
            f"stop the broker and delete {' and '.join(files)}: broker and cleanerd then make the transaction index "
            "of this segment from the log"
        )
    return CorruptionError(_describe(found), where=f"{plan.path}/{file_name(base, TXNINDEX_SUFFIX)}", hint=hint)
