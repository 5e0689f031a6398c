"""A topic in the log directories of a broker: the source of a :class:`~cleanerd.client.latest_state.LatestState`.

The records that a ``read_committed`` consumer would see, from the files alone: from the log start offset to the high
watermark of the last checkpoint, but not beyond the first open transaction, without aborted data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cleanerd import _kernel
from cleanerd.client.errors import ClientError
from cleanerd.client.latest_state import ReadingStart
from cleanerd.client.record import ConsumedRecord
from cleanerd.client.rules import TOMBSTONE_FLAG, TopicRules
from cleanerd.errors import CorruptionError
from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.legacy import parse_message, records_of_message
from cleanerd.format.names import SEGMENT_SUFFIX, file_name
from cleanerd.format.record import MAX_OFFSET, Record, records_of
from cleanerd.host.memory import batch_bytes_of_objects
from cleanerd.segments.chunks import ChunkResult
from cleanerd.segments.log_dir import LogDir, read_log_dir
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.segments.producers import read_producers
from cleanerd.segments.reading import SegmentReader
from cleanerd.segments.torn_tail import loaded_aborted, recovered_aborted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from cleanerd.policy.transaction import AbortedTransactions
    from cleanerd.segments.segment import Segment

"""Limit of one decompressed batch."""


@dataclass(frozen=True, slots=True)
class _BatchRun(ChunkResult):
    """Whole batches of a segment: their headers, and their bytes, valid until the next part is read."""

    chunk: _kernel.Batches
    data: NDArray[np.uint8]
    position: int


class LogDirTopic:
    """Reads a topic's partitions from ``log_dirs``: completely each time, since changes by a cleaning are not visible.

    Best with the broker stopped. Beside a running one the high watermark is that of its last checkpoint, and a segment
    that it deletes meanwhile is an error. ``whole_log``: up to the end, whatever the high watermark; data above it may
    never have been acknowledged.
    """

    def __init__(
        self, log_dirs: Sequence[Path], topic: str, rules: TopicRules | None = None, *, whole_log: bool = False
    ) -> None:
        self.topic = topic
        self.rules = rules or TopicRules()
        self._log_dirs = tuple(log_dirs)
        self._whole_log = whole_log
        self._logs: dict[int, tuple[LogDir, PartitionLog]] = {}

    def begin(self) -> Mapping[int, ReadingStart]:
        """See :class:`~cleanerd.client.latest_state.TopicSource`.

        Raises:
            ClientError: the topic is missing, exists twice, or has no high watermark.
            CleanerdError: a directory or a file in it cannot be read.
        """
        self._logs = {}
        for path in self._log_dirs:
            log_dir = read_log_dir(path)
            for name in log_dir.partitions:
                if name.topic != self.topic:
                    continue
                if name.partition in self._logs:
                    raise ClientError(f"{name} is in two log directories", where=str(path))
                if name not in log_dir.high_watermarks and not self._whole_log:
                    raise ClientError(
                        f"the high watermark of {name} is not known",
                        where=str(path),
                        hint="start the broker once, or read the whole log (whole_log=True)",
                    )
                self._logs[name.partition] = (log_dir, read_partition(log_dir, name))
        if not self._logs:
            raise ClientError(f"topic {self.topic} is in none of {', '.join(map(str, self._log_dirs))}")
        return {number: ReadingStart(log.log_start_offset, again=True) for number, (_, log) in self._logs.items()}

    def reread(self, partition: int) -> None:
        """See :class:`~cleanerd.client.latest_state.TopicSource`; everything is read each time."""

    def records(self, timeout_s: float) -> Iterator[ConsumedRecord]:  # noqa: ARG002 - files do not let one wait
        """See :class:`~cleanerd.client.latest_state.TopicSource`.

        Raises:
            CorruptionError: a batch below the bound, an index or a snapshot is damaged.
            CleanerdError: a file cannot be read.
        """
        for log_dir, log in self._logs.values():
            with SegmentReader.open(str(log.path)) as reader:
                yield from self._partition(log, reader, may_be_torn=not log_dir.clean_shutdown)

    def close(self) -> None:
        """Does nothing: no file stays open."""

    def _partition(self, log: PartitionLog, reader: SegmentReader, *, may_be_torn: bool) -> Iterator[ConsumedRecord]:
        bound = MAX_OFFSET if self._whole_log else log.high_watermark
        torn_from = log.recovery_point if may_be_torn else None
        open_from = read_producers(log, reader, below=bound, torn_from=torn_from).first_open_offset()
        if open_from is not None:
            bound = min(bound, open_from)
        aborted = recovered_aborted(log, reader, bound) if may_be_torn else loaded_aborted(log, reader, bound)
        for number, segment in enumerate(log.segments):
            is_active = segment is log.active
            if segment.base >= bound or (not is_active and log.end_of(number) <= log.log_start_offset):
                continue
            for part in _parts(reader, segment, bound, may_be_torn=may_be_torn and is_active):
                where = f"{log.path}/{file_name(segment.base, SEGMENT_SUFFIX)}"
                for record, magic in _visible(part, aborted, where, bound):
                    if log.log_start_offset <= record.offset < bound:
                        yield self._consumed(log.name.partition, record, magic)

    def _consumed(self, partition: int, record: Record, magic: int) -> ConsumedRecord:
        return ConsumedRecord(
            topic=self.topic,
            partition=partition,
            offset=record.offset,
            timestamp_ms=record.timestamp,
            key=record.key,
            value=record.value,
            headers=tuple((key.decode(errors="surrogateescape"), value) for key, value in record.headers),
            rules=self.rules,
            flagged=magic >= 2 and bool(record.attributes & TOMBSTONE_FLAG),
            magic=magic,
        )


def _parts(reader: SegmentReader, segment: Segment, bound: int, *, may_be_torn: bool) -> Iterator[_BatchRun]:
    """The segment's batches below ``bound``; if it may be torn, damage at or above ``bound`` ends it."""
    position, end = 0, segment.base
    try:
        for part in reader.chunks(segment, _scan):
            yield part
            position, end = position + part.consumed, _end(part)
            if end >= bound:
                return
    except CorruptionError as error:
        if not may_be_torn:
            raise
        # The damaged piece returned nothing, so read it again up to the damage.
        for part in reader.chunks(replace(segment, size_bytes=error.position), _scan, start=position):
            yield part
            end = _end(part)
        if end < bound < MAX_OFFSET:
            raise
        return
    if may_be_torn and position < segment.size_bytes and bound < MAX_OFFSET:
        where = f"{reader.path}/{file_name(segment.base, SEGMENT_SUFFIX)}"
        raise CorruptionError(
            f"nothing but zeros although the log was known up to offset {bound}", where=where, position=position
        )


def _end(part: _BatchRun) -> int:
    return int(part.chunk.last_offset[-1]) + 1


def _scan(data: NDArray[np.uint8], position: int) -> _BatchRun:
    return _BatchRun(_kernel.scan_headers(data, position), data, position)


def _visible(part: _BatchRun, aborted: AbortedTransactions, where: str, bound: int) -> Iterator[tuple[Record, int]]:
    """The records of data batches below ``bound`` that are not aborted, each with its batch's magic."""
    batches = part.chunk
    is_legacy = batches.magic < 2
    transactional = ((batches.attributes & TRANSACTIONAL) != 0) & ~is_legacy
    control = ((batches.attributes & CONTROL) != 0) & ~is_legacy
    gone = aborted.covers(batches.producer_id, batches.base_offset, batches.last_offset) & transactional
    # The frame of a v0 or v1 wrapper has its last offset, so a row below the bound has all its records below it.
    for row in np.flatnonzero(~control & ~gone).tolist():
        if not is_legacy[row] and batches.base_offset[row] >= bound:
            return
        start = int(batches.position[row])
        data = part.data[start - part.position :][: int(batches.size[row])].tobytes()
        magic = int(batches.magic[row])
        if magic < 2:
            message = parse_message(data, where=where, position=start)
            found = records_of_message(message, limit_bytes=batch_bytes_of_objects(), where=where, position=start)
        else:
            found = records_of(data, limit_bytes=batch_bytes_of_objects(), where=where, position=start)
        yield from ((record, magic) for record in found)
