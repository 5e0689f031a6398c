"""What is kept of a segment between the index pass and the decision: a few bits a record, nine bytes a batch.

Kept so that no dirty byte is decoded twice before it is rewritten (kernel.md section 3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cleanerd._kernel import FLAG_HAS_KEY
from cleanerd.cleaner.bits import BitColumn
from cleanerd.errors import CorruptionError, UnsupportedLogError
from cleanerd.log.segment import BatchWitness
from cleanerd.policy.producer import protected
from cleanerd.policy.retain import BATCH_EXPIRED, BATCH_HAS_HORIZON, BATCH_PROTECTED
from cleanerd.policy.supported import unsupported
from cleanerd.policy.tombstone import expired, has_horizon, tombstones

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.cleaner.plan import CleaningPlan, Source


class SegmentEvidence:
    """The facts of one source segment, gathered chunk by chunk in file order.

    ``dirty_from`` and ``dirty_to`` are the record numbers where the plan's dirty range begins and ends in this segment.
    """

    def __init__(self, plan: CleaningPlan, source: Source) -> None:
        self._plan = plan
        self.source = source
        self._protected_offsets = np.array(plan.protected_offsets, dtype=np.int64)
        self._record_counts = [np.zeros(1, np.uint32)]
        self._sizes = [np.zeros(0, np.uint32)]
        self._flags = [np.zeros(0, np.uint8)]
        self.keyed = BitColumn()
        self.tombstone = BitColumn()
        self.superseded = BitColumn()
        self.dirty_from = 0
        self.dirty_to = 0
        self.last_offset = -1
        self.last_max_timestamp_ms = -1
        self.first_batch: BatchWitness | None = None
        self.last_batch: BatchWitness | None = None
        self.min_timestamp_ms = -1
        self.max_timestamp_ms = -1

    @property
    def bound_offset(self) -> int:
        """The plan's: the first offset that may not be cleaned."""
        return self._plan.bound_offset

    @property
    def records(self) -> int:
        """Records so far."""
        return self.keyed.count

    def add(self, chunk: _kernel.Chunk) -> tuple[int, int]:
        """Take in the next chunk; returns the rows of its record table that the dirty range covers, as (from, to).

        Raises:
            UnsupportedLogError: batches that this version does not clean.
            CorruptionError: offsets that do not ascend or leave the segment's range.
        """
        batches, records = chunk.batches, chunk.records
        self._check(batches)
        flags = batches.attributes
        batch_flags = np.zeros(len(batches), dtype=np.uint8)
        batch_flags[has_horizon(flags)] |= BATCH_HAS_HORIZON
        batch_flags[expired(flags, batches.base_timestamp, self._plan.now_ms)] |= BATCH_EXPIRED
        batch_flags[protected(batches.producer_id, batches.last_offset, self._protected_offsets)] |= BATCH_PROTECTED
        self._record_counts.append(np.diff(batches.first_record))
        self._sizes.append(batches.size)
        self._flags.append(batch_flags)
        self.keyed.append((records.flags & FLAG_HAS_KEY) != 0)
        self.tombstone.append(tombstones(records.flags))
        self._remember_ends(batches)
        first = int(np.searchsorted(records.offset, self._plan.first_dirty_offset))
        last = int(np.searchsorted(records.offset, self._plan.end_offset))
        self.dirty_from += first
        self.dirty_to += last
        return first, last

    def first_record(self) -> NDArray[np.uint32]:
        """[b + 1] uint32: where each batch's records begin in the segment."""
        return np.cumsum(np.concatenate(self._record_counts), dtype=np.uint32)

    def sizes(self) -> NDArray[np.uint32]:
        """[b] uint32: bytes of each batch on disk."""
        return np.concatenate(self._sizes)

    def batch_flags(self) -> NDArray[np.uint8]:
        """[b] uint8: ``BATCH_*`` of the retention policy."""
        return np.concatenate(self._flags)

    def _check(self, batches: _kernel.Batches) -> None:
        where = f"{self._plan.path}/{self.source.base:020d}.log"
        reason = unsupported(batches)
        if reason is not None:
            raise UnsupportedLogError(reason, where=where)
        previous = np.concatenate([[max(self.last_offset, self.source.base - 1)], batches.last_offset[:-1]])
        bad = (batches.base_offset <= previous) | (batches.last_offset >= self.source.end)
        if bad.any():
            row = int(np.argmax(bad))
            raise CorruptionError(
                f"batch with offsets {batches.base_offset[row]}..{batches.last_offset[row]} does not follow offset "
                f"{previous[row]} inside the segment's range {self.source.base}..{self.source.end - 1}",
                where=where,
                position=int(batches.position[row]),
            )

    def _remember_ends(self, batches: _kernel.Batches) -> None:
        if self.first_batch is None:
            self.first_batch = BatchWitness(int(batches.base_offset[0]), int(batches.crc[0]))
        self.last_batch = BatchWitness(int(batches.base_offset[-1]), int(batches.crc[-1]))
        self.last_offset = int(batches.last_offset[-1])
        self.last_max_timestamp_ms = int(batches.max_timestamp[-1])
        known = batches.max_timestamp[batches.max_timestamp >= 0]
        if len(known):
            low, high = int(known.min()), int(known.max())
            self.min_timestamp_ms = low if self.min_timestamp_ms < 0 else min(self.min_timestamp_ms, low)
            self.max_timestamp_ms = max(self.max_timestamp_ms, high)
