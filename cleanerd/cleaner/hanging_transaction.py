"""The open transaction that limits a cleaning: its producer, its age, and how to end it (OP-14)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd.config.topic_config import CONNECT
from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.index import read_offset_index
from cleanerd.format.names import INDEX_SUFFIX, TopicPartition, file_name
from cleanerd.humanize import human_ms
from cleanerd.segments.same_file import read_companion
from cleanerd.state.cleaner_checkpoint import last_below

if TYPE_CHECKING:
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.reading import SegmentReader
    from cleanerd.segments.segment import Segment

HANGS_MS: Final = 900_000
"""The default of ``transaction.max.timeout.ms``: an older transaction was not ended when it timed out."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction, by its first batch in the log; ``since_ms``: the batch's time.

    ``connect``: see :func:`abort_command`.
    """

    name: TopicPartition
    producer_id: int
    epoch: int
    first_offset: int
    since_ms: int
    connect: str = CONNECT

    def describe(self, now_ms: int) -> str:
        """Producer, first offset and start of the transaction."""
        age = human_ms(max(0, now_ms - self.since_ms))
        return (
            f"a transaction of producer {self.producer_id} (epoch {self.epoch}) is open since offset "
            f"{self.first_offset}, for {age}"
        )

    @property
    def remedy(self) -> str:
        """When the transaction ends by itself, and the command that ends it."""
        return (
            "when the transaction is committed, aborted or timed out; if its producer no longer runs: "
            f"{self.abort_command}"
        )

    @property
    def abort_command(self) -> str:
        return abort_command(self.name, f"--start-offset {self.first_offset}", self.connect)

    def hangs(self, now_ms: int) -> bool:
        """Whether its coordinator would have ended it by now."""
        return now_ms - self.since_ms > HANGS_MS

    def to_json(self) -> dict[str, Any]:
        return {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "start_offset": self.first_offset,
            "abort_command": self.abort_command,
        }


def abort_command(name: TopicPartition, which: str, connect: str = CONNECT) -> str:
    """The command with which the broker writes an ABORT marker.

    ``which``: its options for the transaction. ``connect``: the options of Kafka's tools to reach the broker, in shell
    syntax.
    """
    topic = shlex.quote(name.topic)
    return f"kafka-transactions.sh {connect} abort --topic {topic} --partition {name.partition} {which}"


def open_transaction(
    log: PartitionLog, reader: SegmentReader, offset: int, *, connect: str = CONNECT
) -> OpenTransaction | None:
    """The transaction that begins at ``offset``, from the batch in the log; None if the log has none there.

    Reads from the last index entry below ``offset``. With a wrong index the result is None.
    """
    segment = last_below(log, offset + 1)
    if segment is None:
        return None
    try:
        for batches in reader.headers(segment, start=_position(log, segment, offset)):
            wanted = (batches.base_offset <= offset) & (offset <= batches.last_offset)
            rows = np.flatnonzero(wanted & (batches.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL))
            if len(rows):
                row = rows[0]
                return OpenTransaction(
                    log.name,
                    int(batches.producer_id[row]),
                    int(batches.producer_epoch[row]),
                    offset,
                    int(batches.max_timestamp[row]),
                    connect,
                )
            if len(batches) and int(batches.base_offset[-1]) > offset:
                return None
    except CleanerdError:
        return None  # the cleaning reports the log's damage; this only names a producer
    return None


def _position(log: PartitionLog, segment: Segment, offset: int) -> int:
    """The position of a batch at or below ``offset``, from the index; otherwise 0."""
    data = read_companion(log.path, segment, INDEX_SUFFIX)  # raises CleanerdError
    try:
        entries = read_offset_index(data or b"", f"{log.path}/{file_name(segment.base, INDEX_SUFFIX)}")
    except CorruptionError:
        return 0
    before = entries[entries["relative_offset"] <= offset - segment.base]
    # The last entry may point at the end of a batch that begins before ``offset``; the entry before it is safe.
    position = int(before["position"][-2]) if len(before) > 1 else 0
    return position if 0 <= position < segment.size_bytes else 0
