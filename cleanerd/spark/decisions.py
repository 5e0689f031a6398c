"""Transfers decisions: the bits as packed columns in the work directory, the rest to the driver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cleanerd.cleaner.chunk_rows import BEGINNING
from cleanerd.spark.rows import pack, unpack
from cleanerd.spark.work import read_file, write_file

if TYPE_CHECKING:
    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.plan import CleaningPlan


@dataclass(frozen=True, slots=True)
class StoredDecision:
    """A segment's decision without bits; these are in files of the work directory, ``keep`` and ``removed``."""

    decision: SegmentDecision
    keep: str | None = None
    removed: str | None = None

    @classmethod
    def without_bits(cls, decision: SegmentDecision, removed: str | None) -> StoredDecision:
        """The driver's part: ``decision`` says only whether tombstones go."""
        none = np.zeros(0, np.uint64)
        plain = replace(
            decision,
            rewrite_starts=(),
            keep=none,
            actions=np.zeros(0, np.uint8),
            removed_tombstones=None if decision.removed_tombstones is None else none,
        )
        return cls(plain, removed=removed)


def store_decision(plan: CleaningPlan, decision: SegmentDecision, attempt: str) -> StoredDecision:
    """Write the decision's bits; returns the driver's part, for :func:`with_bits`."""
    name = f"{decision.source.base:020d}.{attempt}"
    packed = pack({}, {"keep": decision.keep, "actions": decision.actions}, dense=True)
    keep = write_file(plan, f"{name}.keep", packed)
    removed = None
    if decision.removed_tombstones is not None:
        packed = pack({}, {"removed_tombstones": decision.removed_tombstones}, dense=True)
        removed = write_file(plan, f"{name}.removed", packed)
    return replace(StoredDecision.without_bits(decision, removed), keep=keep)


def with_bits(plan: CleaningPlan, stored: StoredDecision) -> SegmentDecision:
    """The decision for a rewrite, with keep bits and actions.

    Raises:
        CorruptionError: its file is damaged.
    """
    name = str(stored.keep)
    _, columns = unpack(read_file(plan, name), name)
    keep, actions = columns["keep"], columns["actions"]
    starts = (BEGINNING,) if len(actions) else ()
    return replace(stored.decision, rewrite_starts=starts, keep=keep, actions=actions)


def removed_bits(plan: CleaningPlan, name: str) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The bitmap of a segment's removed tombstones."""
    _, columns = unpack(read_file(plan, name), name)
    bits: np.ndarray[tuple[int], np.dtype[np.uint64]] = columns["removed_tombstones"]
    return bits
