"""Transfers decisions: the bits as a file in the work directory, the rest in the row for the driver."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd.cleaner.chunk_rows import BEGINNING
from cleanerd.cleaner.decide import SegmentDecision
from cleanerd.cleaner.keep_bitmaps import decode_keep, encode_keep
from cleanerd.format.index import TXN_ENTRY
from cleanerd.policy.grouping import DecidedSegment
from cleanerd.segments.segment import BatchWitness, Witness
from cleanerd.spark.columns import pack, unpack
from cleanerd.spark.work import read_file, write_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.cleaner.plan import CleaningPlan

_OTHERWISE: Final = (
    "source",
    "witness",
    "rewrite_starts",
    "keep",
    "actions",
    "removed_tombstones",
    "txn_entries",
    "outcome",
)


def store_decision(plan: CleaningPlan, row: int, decision: SegmentDecision, attempt: str) -> dict[str, Any]:
    """Write the decision's bits; returns the driver's part, for :func:`stored_decision`."""
    name = f"{decision.source.base:020d}.{attempt}"
    keep = write_file(plan, f"{name}.keep", encode_keep(decision.keep, decision.records, decision.actions))
    tombstones = None
    if decision.removed_tombstones is not None:
        tombstones = write_file(
            plan, f"{name}.removed", pack({}, {"removed_tombstones": decision.removed_tombstones}, dense=True)
        )
    return {**decision_summary(row, decision), "keep": keep, "removed_tombstones": tombstones}


def decision_summary(row: int, decision: SegmentDecision) -> dict[str, Any]:
    """The driver's part: everything except the bits; ``keep`` and ``removed_tombstones`` are file names."""
    summary = {each.name: getattr(decision, each.name) for each in fields(decision) if each.name not in _OTHERWISE}
    return {
        **summary,
        "segment": row,
        "keep": None,
        "removed_tombstones": None,
        "witness": asdict(decision.witness),
        "outcome": asdict(decision.outcome),
        "txn_entries": decision.txn_entries.tobytes().hex(),
    }


def stored_decision(plan: CleaningPlan, summary: Mapping[str, Any], *, bits: bool) -> SegmentDecision:
    """The decision; without ``bits`` as the driver needs it: without keep bits and actions, only whether tombstones go.

    Raises:
        CorruptionError, CleanerdError: its file cannot be read.
    """
    keep, actions = np.zeros(0, np.uint64), np.zeros(0, np.uint8)
    removed_tombstones = None if summary["removed_tombstones"] is None else np.zeros(0, np.uint64)
    if bits:
        keep, _, actions = decode_keep(read_file(plan, summary["keep"]), summary["keep"])
    counted = {each.name for each in fields(SegmentDecision)} - set(_OTHERWISE)
    return SegmentDecision(
        source=plan.sources[summary["segment"]],
        witness=_witness(summary["witness"]),
        rewrite_starts=(BEGINNING,) if len(actions) else (),
        keep=keep,
        actions=actions,
        removed_tombstones=removed_tombstones,
        txn_entries=np.frombuffer(bytes.fromhex(summary["txn_entries"]), TXN_ENTRY),
        outcome=DecidedSegment(**summary["outcome"]),
        **{name: summary[name] for name in counted},
    )


def removed_bits(plan: CleaningPlan, name: str) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The bitmap of a segment's removed tombstones."""
    _, columns = unpack(read_file(plan, name), name)
    bits: np.ndarray[tuple[int], np.dtype[np.uint64]] = columns["removed_tombstones"]
    return bits


def _witness(summary: Mapping[str, Any]) -> Witness:
    ends = {
        name: None if summary[name] is None else BatchWitness(**summary[name]) for name in ("first_batch", "last_batch")
    }
    return Witness(**{**summary, **ends})
