"""The memory limit for the facts about a log's batches and records (U-35).

Their columns grow with the log: a gigabyte of single messages has forty million batches, and a few megabytes may
decompress to a thousand million records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.errors import LogTooLargeError

if TYPE_CHECKING:
    from cleanerd import _kernel
    from cleanerd.cleaner.plan import CleaningPlan, Source

BATCH_BYTES: Final = 14
"""Memory per batch until all segments are decided."""

SEGMENT_BATCH_BYTES: Final = 26
"""Additional memory per batch of the segment that is being decided."""

WRITE_TIME_BYTES: Final = 24
"""Additional memory per batch if batches keep write times: their own, those taken over, and the larger of both."""

RECORD_BITS: Final = 5
SEGMENT_RECORD_BITS: Final = 7
"""Memory per record of the segment that is being decided: bitmaps."""


class MetadataBudget:
    """Counts the batches and records of one cleaning as they arrive."""

    def __init__(self, plan: CleaningPlan) -> None:
        self._plan = plan
        self._batch_bytes = BATCH_BYTES + (WRITE_TIME_BYTES if plan.rules.keeps_write_time else 0)
        self._batches = 0
        self._records = 0
        self._source: Source | None = None
        self._own_batches = 0
        self._own_records = 0
        self._largest_bytes = 0

    def reserve(self, source: Source, chunk: _kernel.Chunk) -> None:
        """Count one more chunk of ``source``; a source's chunks arrive in order.

        Raises:
            LogTooLargeError: the facts need more memory than there is.
        """
        if source is not self._source:
            self._source, self._own_batches, self._own_records = source, 0, 0
        batches, records = len(chunk.batches), len(chunk.records)
        self._batches += batches
        self._records += records
        self._own_batches += batches
        self._own_records += records
        own_bytes = SEGMENT_BATCH_BYTES * self._own_batches + SEGMENT_RECORD_BITS * self._own_records // 8
        self._largest_bytes = max(self._largest_bytes, own_bytes)
        needed = self._largest_bytes + self._batch_bytes * self._batches + RECORD_BITS * self._records // 8
        if needed > self._plan.facts_bytes:
            raise LogTooLargeError(
                f"the log has more than {self._batches} batches and {self._records} records up to here; cleaning it "
                f"needs {needed} bytes of memory, and cleanerd may use {self._plan.facts_bytes}",
                where=f"{self._plan.path}/{source.base:020d}.log",
            )
