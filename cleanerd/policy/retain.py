"""The decision: which records and batches of a segment are retained.

Other modules collect the evidence and carry the decision out. Records come first (C-38, C-40, C-45), then batches
(C-39, C-41, C-48, C-51), then the end of a group (U-13).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cleanerd._kernel import (
    ACTION_COPY,
    ACTION_DROP,
    ACTION_EMPTY,
    ACTION_REBUILD,
    ACTION_SET_HORIZON,
    ACTION_TIME_ZERO,
    ACTION_TIMELESS,
    fill_by_batch,
    popcount_by_batch,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

ACTION_MASK = np.uint8(0x0F)
"""The bits of a batch's action, without the flags."""

TIMELESS_MS = -1
"""The largest timestamp of a closing batch beside others: only their timestamps count for the segment."""
ZERO_MS = 0
"""The same for a closing batch alone in its segment: lower than every timestamp that is searched for."""
BATCH_HAS_HORIZON = 1
BATCH_EXPIRED = 2
BATCH_PROTECTED = 4
BATCH_ABORTED = 8
"""Data of an aborted transaction."""
BATCH_CONTROL = 16
BATCH_ENDS_NOTHING = 32
"""A control batch whose transaction has no batch left (C-37): it can be removed."""
BATCH_REBUILT = 64
"""The batch is rewritten even if all its records are retained: its format changes (C-51)."""
BATCH_NO_HORIZON = 128
"""The batch keeps a format without a delete horizon."""


@dataclass(frozen=True, slots=True)
class RecordEvidence:
    """The facts that decide about one segment's records, as bitmaps of ``ceil(n / 64)`` words.

    ``newest``: no record of the cleaned range has the same key and wins over this one; ignored where ``keyed`` is
    clear. Records from ``cleaned_records`` on are past the end of the cleaned range. The first ``unjudged_records`` are
    retained: under a non-default strategy those below the log start offset (U-2). ``guarded``: tombstones that are
    retained although their horizon has passed (U-1, U-4); None: none.
    """

    keyed: NDArray[np.uint64]
    tombstone: NDArray[np.uint64]
    newest: NDArray[np.uint64]
    cleaned_records: int
    unjudged_records: int = 0
    guarded: NDArray[np.uint64] | None = None

    def with_guards(self, *guards: NDArray[np.uint64] | None) -> RecordEvidence:
        """A copy in which the tombstones of all these bitmaps are guarded."""
        masks = [guard for guard in guards if guard is not None]
        return replace(self, guarded=np.bitwise_or.reduce(masks)) if masks else self


@dataclass(frozen=True, slots=True)
class Retention:
    """One segment's decision: a keep bit per record, an action per batch, and counts of removed records.

    ``removed_tombstones``: a bit for each expired tombstone of a key without other records. ``waiting``: the number of
    guarded tombstones past their horizon. ``tombstones_kept``: tombstones that stay in the cleaned range, and markers
    whose transaction has no batch left; all of them go after their horizon.
    """

    keep: NDArray[np.uint64]
    actions: NDArray[np.uint8]
    kept_by_batch: NDArray[np.uint32]
    superseded: int
    keyless: int
    expired_tombstones: int
    removed_tombstones: NDArray[np.uint64]
    aborted: int
    markers: int
    waiting: int
    tombstones_kept: int


def retain(records: RecordEvidence, first_record: NDArray[np.uint32], batch_flags: NDArray[np.uint8]) -> Retention:
    """Decide one segment.

    Args:
        records: bitmaps over the segment's ``n = first_record[b]`` records.
        first_record: [b + 1] uint32, where each batch's records begin.
        batch_flags: [b] uint8 of ``BATCH_*``.
    """
    total = int(first_record[-1])
    past_horizon = (batch_flags & BATCH_EXPIRED) != 0
    control = _records_of(batch_flags, BATCH_CONTROL, first_record)
    aborted = _records_of(batch_flags, BATCH_ABORTED, first_record)
    ends_nothing = (batch_flags & BATCH_ENDS_NOTHING) != 0
    spent = _records_in(ends_nothing & past_horizon, first_record)
    untouched = bits_from(records.cleaned_records, total)
    if records.unjudged_records:
        untouched |= ~bits_from(records.unjudged_records, total) & bits_from(0, total)
    late = records.tombstone & _records_in(past_horizon, first_record)
    expired = late if records.guarded is None else late & ~records.guarded
    current = records.keyed & records.newest
    # C-45: outside of the cleaned range every record is retained; inside, only the winner of a key, unless it is an
    # expired tombstone. C-38, C-40: everywhere, aborted data is removed, and a marker once its transaction has no batch
    # left.
    keep = (untouched | (current & ~expired) | control) & ~aborted & ~spent
    judged = ~untouched & bits_from(0, total) & ~control & ~aborted
    kept = popcount_by_batch(keep, first_record)
    removed = judged & current & expired
    return Retention(
        keep=keep,
        actions=_actions(kept, first_record, batch_flags, _records_by_batch(keep & records.tombstone, first_record)),
        kept_by_batch=kept,
        superseded=_count(judged & records.keyed & ~records.newest),
        keyless=_count(judged & ~records.keyed),
        expired_tombstones=_count(removed),
        removed_tombstones=removed,
        aborted=_count(aborted),
        markers=_count(spent),
        waiting=0 if records.guarded is None else _count(judged & current & late & ~expired),
        tombstones_kept=_count(keep & ~untouched & (records.tombstone | _records_in(ends_nothing, first_record))),
    )


def expired_winners(
    records: RecordEvidence, first_record: NDArray[np.uint32], batch_flags: NDArray[np.uint8]
) -> NDArray[np.uint64]:
    """The tombstones that :func:`retain` would remove by their horizon, guarded or not, as a bitmap."""
    total = int(first_record[-1])
    past_horizon = (batch_flags & BATCH_EXPIRED) != 0
    judged_batches = past_horizon & ((batch_flags & (BATCH_CONTROL | BATCH_ABORTED)) == 0)
    judged = bits_from(records.unjudged_records, total) & ~bits_from(records.cleaned_records, total)
    late = records.tombstone & records.keyed & records.newest
    return late & judged & _records_in(judged_batches, first_record)


def _records_of(batch_flags: NDArray[np.uint8], flag: int, first_record: NDArray[np.uint32]) -> NDArray[np.uint64]:
    return _records_in((batch_flags & flag) != 0, first_record)


def _records_in(batches: NDArray[np.bool_], first_record: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """The bits of all records in some ``batches`` [b]. Most logs have no such batches, so that is checked first."""
    if not batches.any():
        return np.zeros((int(first_record[-1]) + 63) // 64, dtype=np.uint64)
    return fill_by_batch(batches, first_record)


def _records_by_batch(bits: NDArray[np.uint64], first_record: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """[b] uint32: set bits of each batch."""
    if not bits.any():
        return np.zeros(len(first_record) - 1, dtype=np.uint32)
    return popcount_by_batch(bits, first_record)


def _actions(
    kept: NDArray[np.uint32],
    first_record: NDArray[np.uint32],
    batch_flags: NDArray[np.uint8],
    kept_tombstones: NDArray[np.uint32],
) -> NDArray[np.uint8]:
    count = np.diff(first_record)
    whole = (kept == count) & ((batch_flags & BATCH_REBUILT) == 0)
    # Sums and products cost a tenth of masks, which counts for logs of one record per batch. DROP is 0.
    actions: NDArray[np.uint8] = np.uint8(ACTION_REBUILD) - whole * np.uint8(ACTION_REBUILD - ACTION_COPY)
    actions *= kept != 0
    retained = np.flatnonzero((kept == 0) & ((batch_flags & BATCH_PROTECTED) != 0))
    actions[retained] = emptied(count[retained])
    waits = (kept_tombstones > 0) | ((kept > 0) & ((batch_flags & BATCH_ENDS_NOTHING) != 0))
    waits &= (batch_flags & (BATCH_HAS_HORIZON | BATCH_NO_HORIZON)) == 0
    actions[np.flatnonzero(waits)] = ACTION_REBUILD | ACTION_SET_HORIZON
    return actions


def emptied(record_count: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """[k] uint8: the action for batches that lose all records. An empty batch is copied (F-2.5)."""
    return np.where(record_count == 0, np.uint8(ACTION_COPY), np.uint8(ACTION_EMPTY))


@dataclass(frozen=True, slots=True)
class LastBatchAction:
    """The action for an emptied batch that ends its group, if it is ``beside`` other batches or ``alone``."""

    beside: int
    alone: int


def closing(record_count: int, max_timestamp_ms: int, *, at_bound: bool) -> LastBatchAction:
    """The action for an emptied batch that is the last of its group (U-13, S-09).

    It is retained without records and time. Beside other batches its time is -1: any other time could become the
    segment's largest, and retention uses that, with records or not. Alone its time is 0: a lookup by time ends in the
    first segment whose largest timestamp is not lower; for -1 it would use the file's time. Only the batch that ends
    the cleanable range (``at_bound``) keeps its time, as in Kafka's cleaner (C-39.2). Earlier releases closed groups
    with empty batches of time 0.
    """
    if at_bound and not (record_count == 0 and max_timestamp_ms == ZERO_MS):
        action = ACTION_EMPTY if record_count else ACTION_COPY
        return LastBatchAction(action, action)
    empty = record_count == 0
    return LastBatchAction(
        ACTION_COPY if empty and max_timestamp_ms == TIMELESS_MS else ACTION_EMPTY | ACTION_TIMELESS,
        ACTION_COPY if empty and max_timestamp_ms == ZERO_MS else ACTION_EMPTY | ACTION_TIME_ZERO,
    )


def end_of_group(actions: NDArray[np.uint8], last: int) -> NDArray[np.uint8]:
    """Give the last batch the action ``last`` if it would be removed.

    ``actions`` [b] are those of a group's last non-empty source.
    """
    if actions[-1] != ACTION_DROP:
        return actions
    result = actions.copy()
    result[-1] = last
    return result


def bits_from(first: int, total: int) -> NDArray[np.uint64]:
    """A bitmap of ``ceil(total / 64)`` words with bits ``first .. total`` set."""
    words = np.zeros((total + 63) // 64, dtype=np.uint64)
    if first >= total:
        return words
    word, bit = divmod(first, 64)
    words[word:] = ~np.uint64(0)
    words[word] = ~np.uint64(0) << np.uint64(bit)
    if total % 64:
        words[-1] &= (np.uint64(1) << np.uint64(total % 64)) - np.uint64(1)
    return words


def _count(words: NDArray[np.uint64]) -> int:
    return int(np.bitwise_count(words).sum())
