"""kafka-python's record codec, extended by the tombstone flag of KIP-87: bit 5 of a record's attributes (U-25).

kafka-python writes 0 there and ignores it when it reads. In it a flagged record is one whose list of headers is a
:class:`TombstoneHeaders`: the batch builder here sets the bit for such a list, the batch reader here makes one from the
bit, and all code in between passes the list on unchanged.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafka import errors
from kafka.consumer.fetcher import Fetcher
from kafka.producer.producer_batch import ProducerBatch
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from kafka.record.util import decode_varint

from cleanerd.client.rules import TOMBSTONE_FLAG

if TYPE_CHECKING:
    from kafka import TopicPartition


class TombstoneHeaders(list[tuple[str, bytes | None]]):
    """The headers of a flagged record."""


class FlagBatchBuilder(DefaultRecordBatchBuilder):
    """Writes a v2 batch in which records with :class:`TombstoneHeaders` have the flag."""

    __slots__ = ()

    def append(self, offset: int, timestamp: int, key: Any, value: Any, headers: Any) -> Any:
        """One record; None when it does not fit."""
        start = len(self._buffer)
        metadata = super().append(offset, timestamp, key, value, headers)
        if metadata is not None and isinstance(headers, TombstoneHeaders):
            _, attributes_at = decode_varint(self._buffer, start)
            self._buffer[attributes_at] |= TOMBSTONE_FLAG
        return metadata


class FlagRecordsBuilder(MemoryRecordsBuilder):
    """kafka-python's, around a :class:`FlagBatchBuilder`."""

    def __init__(self, compression_attrs: int, batch_size: int) -> None:
        super().__init__(2, compression_attrs, batch_size)
        self._builder = FlagBatchBuilder(
            magic=2,
            compression_type=compression_attrs,
            is_transactional=False,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=batch_size,
        )


class FlagRecordBatch(DefaultRecordBatch):
    """A v2 batch whose flagged records have :class:`TombstoneHeaders`."""

    __slots__ = ()

    def _read_msg(self) -> Any:
        _, attributes_at = decode_varint(self._buffer, self._pos)
        attributes = self._buffer[attributes_at]
        # kafka-python reads this byte as a varint, which fails from 0x80 on. The checksum was verified before.
        self._buffer[attributes_at] = 0
        record = super()._read_msg()
        if attributes & TOMBSTONE_FLAG:
            record._headers = TombstoneHeaders(record._headers)  # noqa: SLF001 - it has no other way in
        return record


class FlagRecords(MemoryRecords):
    """Batches of a response or a request, the v2 ones as :class:`FlagRecordBatch`."""

    __slots__ = ()

    def next_batch(self) -> Any:
        """The next batch, None after the last."""
        batch = super().next_batch()
        return FlagRecordBatch(batch._buffer) if isinstance(batch, DefaultRecordBatch) else batch  # noqa: SLF001


class FlagAccumulator(RecordAccumulator):
    """kafka-python's queue of batches, with batches that can be flagged."""

    def append(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        key: Any,
        value: Any,
        headers: Any,
        now: float | None = None,
        abort_on_new_batch: bool = False,  # noqa: FBT001, FBT002 - kafka-python's signature
    ) -> tuple[Any, bool, bool, bool]:
        """Queue a record: its future, whether its batch is full, new, or was not begun because that was not wanted."""
        self._appends_in_progress.increment()
        try:
            with self._tp_lock(tp):
                if self._closed:
                    raise errors.IllegalStateError("the producer is closed")
                queue = self._batches[tp]
                future = queue[-1].try_append(timestamp_ms, key, value, headers, now=now) if queue else None
                is_new = future is None
                if is_new:
                    if abort_on_new_batch:
                        return None, False, False, True
                    batch = ProducerBatch(tp, self._builder(self.config["batch_size"]), now=now)
                    future = batch.try_append(timestamp_ms, key, value, headers, now=now)
                    queue.append(batch)
                    self._incomplete.add(batch)
                return future, len(queue) > 1 or queue[-1].records.is_full(), is_new, False
        finally:
            self._appends_in_progress.decrement()

    def split_and_reenqueue(self, batch: ProducerBatch, now: float | None = None) -> int:
        """Replace a batch that the broker found too large by two halves; flags stay. Returns 2."""
        tp = batch.topic_partition
        if self._transaction_manager and batch.has_sequence:
            self._transaction_manager.set_sequence_number(tp, batch.base_sequence)
        records = [record for found in FlagRecords(batch.records.buffer()) for record in found]
        futures = batch._record_futures  # noqa: SLF001 - as its owner does
        middle = (len(records) + 1) // 2
        halves = []
        for part, waiting in ((records[:middle], futures[:middle]), (records[middle:], futures[middle:])):
            # Twice the size: each record fitted before, and must not fail for a timestamp delta that is longer now.
            half = ProducerBatch(tp, self._builder(2 * self.config["batch_size"]), now=now)
            half.created, half.attempts = batch.created, batch.attempts
            for record, future in zip(part, waiting, strict=True):
                metadata = half.records.append(record.timestamp, record.key, record.value, record.headers)
                future.rebind(half.produce_future, metadata.offset)
                half._record_futures.append(future)  # noqa: SLF001
            halves.append(half)
        with self._tp_lock(tp):
            for half in reversed(halves):
                self._batches[tp].appendleft(half)
                self._incomplete.add(half)
        return len(halves)

    def await_flush_completion(self, timeout: float | None = None) -> None:
        """Wait for every record that is queued now, whatever batch it ends in.

        kafka-python waits for batches, and would report one that is split meanwhile as an error.

        Raises:
            KafkaTimeoutError: not all have ended, well or not, within ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            for future in [future for batch in self._incomplete.all() for future in batch._record_futures]:  # noqa: SLF001
                while not future.is_done:
                    left = None if deadline is None else max(deadline - time.monotonic(), 0)
                    if not future._produce_future.wait(left):  # noqa: SLF001 - another one after a split
                        raise errors.KafkaTimeoutError("records are still waiting to be sent")
        finally:
            self._flushes_in_progress.decrement()

    def _builder(self, batch_size: int) -> FlagRecordsBuilder:
        return FlagRecordsBuilder(self.config["compression_attrs"], batch_size)


class FlagFetcher(Fetcher):
    """kafka-python's fetcher, with batches whose flags are seen."""

    class PartitionRecords(Fetcher.PartitionRecords):
        """Unpacks one partition's share of a response."""

        def __init__(self, fetch_offset: int, tp: TopicPartition, records: MemoryRecords, **options: Any) -> None:
            flagged = FlagRecords(records._buffer)  # noqa: SLF001 - the bytes of the response
            super().__init__(fetch_offset, tp, flagged, **options)
