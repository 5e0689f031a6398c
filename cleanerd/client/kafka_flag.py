"""Producer and consumer for the tombstone flag of KIP-87, on kafka-python (``tombstone.mode=flag``, R87-2, R87-7).

confluent-kafka cannot do it (U-25). The flag lasts until the batch is recompressed: leave the topic's
``compression.type`` at ``producer``; a broker's own cleaner clears it (U-8, U-14).

The flag is bit 5 of a record's attributes. kafka-python writes 0 there and ignores it when it reads. Here a flagged
record has a :class:`TombstoneHeaders` as its list of headers: the batch builder sets the bit for such a list, the batch
reader makes one from the bit, and all code in between passes the list on unchanged.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Final

import kafka
from kafka import TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.consumer.fetcher import Fetcher
from kafka.producer.producer_batch import ProducerBatch
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from kafka.record.util import decode_varint

from cleanerd.client.errors import ClientError
from cleanerd.client.record import ConsumedRecord
from cleanerd.client.rules import TOMBSTONE_FLAG, TopicRules
from cleanerd.closeable import Closeable
from cleanerd.errors import ConfigError


class TombstoneHeaders(list[tuple[str, bytes | None]]):
    """The headers of a flagged record."""


class FlagBatchBuilder(DefaultRecordBatchBuilder):
    """Writes a v2 batch in which records with :class:`TombstoneHeaders` have the flag."""

    __slots__ = ()

    def append(self, offset: int, timestamp: int, key: Any, value: Any, headers: Any) -> Any:
        """Append one record; returns None if it does not fit."""
        start = len(self._buffer)
        metadata = super().append(offset, timestamp, key, value, headers)
        if metadata is not None and isinstance(headers, TombstoneHeaders):
            _, attributes_at = decode_varint(self._buffer, start)
            self._buffer[attributes_at] |= TOMBSTONE_FLAG
        return metadata


class FlagRecordsBuilder(MemoryRecordsBuilder):
    """kafka-python's class, around a :class:`FlagBatchBuilder`."""

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
        """The next batch; None after the last."""
        batch = super().next_batch()
        return FlagRecordBatch(batch._buffer) if isinstance(batch, DefaultRecordBatch) else batch  # noqa: SLF001


class FlagAccumulator(RecordAccumulator):
    """kafka-python's queue of batches, with support for flags."""

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
        """Queue a record.

        Returns its future, and whether its batch is full, new, or was not begun because of the arguments.
        """
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
        """Replace a batch that the broker found too large by two halves, keeping flags. Returns 2."""
        tp = batch.topic_partition
        if self._transaction_manager and batch.has_sequence:
            self._transaction_manager.set_sequence_number(tp, batch.base_sequence)
        records = [record for found in FlagRecords(batch.records.buffer()) for record in found]
        futures = batch._record_futures  # noqa: SLF001 - as its owner does
        middle = (len(records) + 1) // 2
        halves = []
        for part, waiting in ((records[:middle], futures[:middle]), (records[middle:], futures[middle:])):
            # Twice the size: each record fitted before, and must not fail because its timestamp delta is longer now.
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
        """Wait for every record that is queued now, even if its batch is split.

        kafka-python waits for batches, and would report one that is split meanwhile as an error.

        Raises:
            KafkaTimeoutError: not all were delivered or failed within ``timeout`` seconds.
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
    """kafka-python's fetcher, with support for flags."""

    class PartitionRecords(Fetcher.PartitionRecords):
        """Unpacks one partition's part of a response."""

        def __init__(self, fetch_offset: int, tp: TopicPartition, records: MemoryRecords, **options: Any) -> None:
            flagged = FlagRecords(records._buffer)  # noqa: SLF001 - the bytes of the response
            super().__init__(fetch_offset, tp, flagged, **options)


FLAG_RULES: Final = TopicRules(tombstone_mode="flag")


class FlagProducer(Closeable):
    """Writes records to topics with ``tombstone.mode=flag``. ``configs`` are ``kafka.KafkaProducer``'s.

    Warns of a topic whose ``compression.type`` is not ``producer``, if it may read that setting: the broker
    recompresses its batches and clears the flag. ``kafka`` is kafka-python's own producer.

    Raises:
        ConfigError: the rules have another ``tombstone.mode``.
        ClientError: kafka-python refuses the settings, or the broker is older than message format v2.
    """

    def __init__(self, rules: TopicRules = FLAG_RULES, **configs: Any) -> None:
        self._rules = rules
        if rules.tombstone_mode != "flag":
            raise ConfigError(
                f"tombstone.mode is {rules.tombstone_mode}",
                where="client",
                hint="use cleanerd.client.producer.Producer",
            )
        try:
            self.kafka = kafka.KafkaProducer(**configs)
        except (errors.KafkaError, ValueError) as error:
            raise ClientError(f"kafka-python cannot produce: {error}") from error
        if self.kafka.config["api_version"] < (0, 11):
            self.kafka.close()
            raise ClientError("the broker is older than 0.11: its records have no attributes")
        # It makes its own accumulator and cannot be given one. Nothing has been sent yet.
        self.kafka._accumulator.__class__ = FlagAccumulator  # noqa: SLF001
        self._admin_configs = {key: value for key, value in configs.items() if key in KafkaAdminClient.DEFAULT_CONFIG}
        self._checked_topics: set[str] = set()

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        tombstone: bool | None = None,
        version: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        """Queue a record; returns kafka-python's future of its metadata, whose offset is -1 if unknown.

        ``tombstone``: None leaves it to the value: null sets the flag.

        Raises:
            TombstoneError, VersionError: see :class:`~cleanerd.client.rules.TopicRules`.
            ClientError: kafka-python refuses the record.
        """
        given = tuple(headers)
        deletes = self._rules.resolve_tombstone(value, given, tombstone)
        settled = self._rules.resolve_version(given, version)
        if topic not in self._checked_topics:
            self._checked_topics.add(topic)
            self._warn_of_compression(topic)
        wanted = TombstoneHeaders if deletes else list
        try:
            return self.kafka.send(
                topic, value, key, headers=wanted(settled), partition=partition, timestamp_ms=timestamp_ms
            )
        except (errors.KafkaError, TypeError, ValueError) as error:
            raise ClientError(f"cannot be sent to {topic}: {error}") from error

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all records are delivered or failed.

        Raises:
            ClientError: not within ``timeout_s``.
        """
        try:
            self.kafka.flush(timeout_s)
        except errors.KafkaError as error:
            raise ClientError(f"not everything was sent: {error}") from error

    def close(self) -> None:
        """Flush and close the connections."""
        self.kafka.close()

    def _warn_of_compression(self, topic: str) -> None:
        try:
            admin = KafkaAdminClient(**self._admin_configs)
            try:
                answer = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
            finally:
                admin.close()
        except errors.KafkaError:
            return
        found = answer.get("topic", {}).get(topic, {}).get("compression.type", {}).get("value", "producer")
        if found != "producer":
            warnings.warn(
                f"compression.type of topic {topic} is {found}: the broker recompresses and clears the tombstone "
                "flag of KIP-87; set it to producer",
                stacklevel=3,
            )


class FlagConsumer(Closeable):
    """Reads records with their flags. ``configs`` are ``kafka.KafkaConsumer``'s, without deserializers.

    ``kafka`` is kafka-python's own consumer: subscribe, assign and seek with it.

    Raises:
        ClientError: kafka-python refuses the settings.
    """

    def __init__(self, *topics: str, rules: TopicRules = FLAG_RULES, **configs: Any) -> None:
        self._rules = rules
        try:
            self.kafka = kafka.KafkaConsumer(*topics, **configs)
        except (errors.KafkaError, ValueError, AssertionError) as error:
            raise ClientError(f"kafka-python cannot consume: {error}") from error
        # As in FlagProducer; nothing has been fetched yet.
        self.kafka._fetcher.__class__ = FlagFetcher  # noqa: SLF001

    def poll(self, timeout_s: float, *, max_records: int = 500) -> list[ConsumedRecord]:
        """Records that arrived within ``timeout_s``, possibly none.

        Raises:
            ClientError: the broker or kafka-python reported an error.
        """
        try:
            found = self.kafka.poll(timeout_ms=int(timeout_s * 1000), max_records=max_records)
        except errors.KafkaError as error:
            raise ClientError(f"cannot be read: {error}") from error
        return [self._consumed(record) for records in found.values() for record in records]

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Yield records as they arrive; waits for more and never ends."""
        while True:
            yield from self.poll(1.0)

    def close(self) -> None:
        """Leave the group and close the connections."""
        self.kafka.close()

    def _consumed(self, record: Any) -> ConsumedRecord:
        return ConsumedRecord(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp,
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
            rules=self._rules,
            flagged=isinstance(record.headers, TombstoneHeaders),
            # kafka-python gives a checksum only to messages of v0 and v1
            magic=2 if record.checksum is None else 1,
        )
