"""Compare a plan's aborted transactions with the log's markers before the decision (U-44).

Phase 1 reads every cleaned segment, so only later markers that end its open transactions are read in addition. Headers
are read again only if log and index disagree.
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
from cleanerd.policy.markers import Disagreement, MarkedTransactions, MarkerCheck, MarkerEdges
from cleanerd.policy.transaction import AbortedTransactions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.segments.reading import SegmentReader


@dataclass(frozen=True, slots=True)
class CorrectedTransactions:
    """The aborted transactions according to the log's markers, and a note for the operator."""

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
    """The entries; in segments with a disordered index, each has its first offset as last stable offset.

    A reader stops at the first entry with a higher one, so wrong ones would hide entries. The agent accepts added
    entries in this form only (A-40).
    """
    bases = [source.base for source in (*plan.sources, *plan.uncleanable)]
    wrong = np.searchsorted(bases, sorted(plan.aborted.disordered), side="right")
    rows = np.isin(np.searchsorted(bases, entries["last_offset"].astype(np.int64), side="right"), wrong)
    entries["last_stable_offset"][rows] = entries["first_offset"][rows]
    return entries


def _marked(plan: CleaningPlan, reader: SegmentReader, producers: NDArray[np.int64]) -> MarkedTransactions:
    """The transactions of these producers, from the headers of the whole log."""
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
    """The headers after the plan's sources, up to where transactions are decided."""
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
    """The first correction in words, and the first segment whose index stays wrong because it is not cleaned."""
    end = plan.sources[-1].end if plan.sources else plan.first_uncleanable_offset
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
    """The base offset of the segment that contains the offset."""
    bases = [source.base for source in (*plan.sources, *plan.uncleanable)]
    return bases[max(0, bisect_right(bases, offset) - 1)]


def _describe(found: Disagreement) -> str:
    transaction = found.transaction
    what = f"producer {transaction.producer_id} has a transaction from offset {transaction.first}"
    if found.marker is None:
        return f"{what} without a marker, but the index says that {found.index_claim}"
    kind = "an ABORT" if found.aborts else "a COMMIT"
    return f"{what} to {kind} marker at offset {found.marker}, but the index says that {found.index_claim}"


def _refused(plan: CleaningPlan, found: Disagreement) -> CorruptionError:
    """The error that names the wrong file and the fix: the broker rebuilds the index, or a marker is written."""
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
