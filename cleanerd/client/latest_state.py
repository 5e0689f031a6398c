"""The latest state of a topic under its strategy: the records that a cleaning would retain (R280-14).

A plain consumer of the dirty section uses the highest offset of a key. Under a versioned strategy that can be a
superseded record. This view compares as the cleaner does: ``(has a version, version, offset)``, the highest wins;
tombstones by the topic's mode; records without a key, aborted data and offsets below the log start are ignored (U-2).

No reader of a versioned topic has a stronger guarantee (U-4): it remembers every tombstone that it has seen, so that a
late older write does not bring the key back. A reader that starts after the tombstone was removed has never seen it,
and accepts that write. ``tombstone.guard=forever`` removes the difference.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cleanerd.closeable import Closeable

if TYPE_CHECKING:
    from cleanerd.client.record import ConsumedRecord
    from cleanerd.policy.version import Rank


@dataclass(frozen=True, slots=True)
class ReadingStart:
    """A partition at the start of a reading. ``again``: earlier records are void and are repeated."""

    log_start_offset: int
    again: bool


class TopicSource(Protocol):
    """The source of records: a broker or log directories. Records of a partition come in log order."""

    def begin(self) -> Mapping[int, ReadingStart]:
        """Fix the end of the next reading at the current end. Returns it by partition; new ones may appear."""

    def reread(self, partition: int) -> None:
        """Make the next :meth:`records` repeat this partition from its log start."""

    def records(self, timeout_s: float) -> Iterator[ConsumedRecord]:
        """Committed records that were not read yet, up to the end that :meth:`begin` fixed."""

    def close(self) -> None:
        """Close connections and files."""


class LatestPartition(Mapping[bytes, "ConsumedRecord"]):
    """The live keys of one partition with their winners. ``winners`` includes tombstones."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self._winners: dict[bytes, tuple[Rank, ConsumedRecord]] = {}

    def take(self, record: ConsumedRecord) -> bool:
        """Add a record; returns whether it wins its key now. The order of calls does not matter."""
        if record.key is None or record.offset < self.log_start_offset:
            return False
        candidate = record.rank
        held = self._winners.get(record.key)
        if held is not None and held[0] >= candidate:
            return False
        self._winners[record.key] = (candidate, record)
        return True

    def move_log_start(self, log_start_offset: int) -> bool:
        """Remove records below the new log start (U-2). True: one was retained, and its successor is unknown."""
        moved = log_start_offset > self.log_start_offset
        self.log_start_offset = log_start_offset
        return moved and any(record.offset < log_start_offset for _, record in self._winners.values())

    def forget(self) -> None:
        """Drop all winners: the partition is read again from its beginning."""
        self._winners.clear()

    def winner(self, key: bytes) -> ConsumedRecord | None:
        """The winner of ``key``, which may be a tombstone."""
        held = self._winners.get(key)
        return None if held is None else held[1]

    def winners(self) -> list[ConsumedRecord]:
        """All winners, tombstones included, by offset: the records that a cleaning of the whole log would leave."""
        return sorted((record for _, record in self._winners.values()), key=lambda record: record.offset)

    def __getitem__(self, key: bytes) -> ConsumedRecord:
        record = self.winner(key)
        if record is None or record.is_tombstone():
            raise KeyError(key)
        return record

    def __iter__(self) -> Iterator[bytes]:
        return (key for key, (_, record) in self._winners.items() if not record.is_tombstone())

    def __len__(self) -> int:
        return sum(1 for _ in self)


class LatestState(Closeable, Mapping[bytes, "ConsumedRecord"]):
    """The live keys of a topic with their winners, as of the last :meth:`update`.

    ``source`` is a :class:`~cleanerd.client.broker_topic.BrokerTopic`, a
    :class:`~cleanerd.client.log_dir_topic.LogDirTopic` or a :class:`~cleanerd.client.flag_topic.FlagTopic`. All winners
    are in memory.

    Partitions are compacted one by one, so a key in several (because partitions were added) has a retained record in
    each of :attr:`partitions`. This returns the one with the highest version, then the newest timestamp.
    """

    def __init__(self, source: TopicSource) -> None:
        self.partitions: dict[int, LatestPartition] = {}
        self._source = source

    def update(self, timeout_s: float = 60.0) -> list[ConsumedRecord]:
        """Read to the topic's current end; returns the records that became winners, tombstones included.

        If the log start has passed a winner, or the log was truncated, that partition is read again from its beginning.

        Raises:
            ClientError: the broker refused, or the end was not reached in time; the next call continues from there.
            CleanerdError: a file cannot be read, or is damaged.
        """
        for number, beginning in self._source.begin().items():
            partition = self.partitions.setdefault(number, LatestPartition())
            must_read_again = partition.move_log_start(beginning.log_start_offset)
            if beginning.again or must_read_again:
                partition.forget()
            if must_read_again and not beginning.again:
                self._source.reread(number)
        return [record for record in self._source.records(timeout_s) if self.partitions[record.partition].take(record)]

    def follow(self, *, pause_s: float = 1.0, timeout_s: float = 60.0) -> Iterator[ConsumedRecord]:
        """Every record that becomes a winner from now on, tombstones included; never ends.

        Reads again ``pause_s`` after it found nothing new. Raises as :meth:`update`.
        """
        while True:
            won = self.update(timeout_s)
            yield from won
            if not won:
                time.sleep(pause_s)

    def winners(self) -> list[ConsumedRecord]:
        """All winners, tombstones included, by partition and offset."""
        return [record for _, partition in sorted(self.partitions.items()) for record in partition.winners()]

    def winner(self, key: bytes) -> ConsumedRecord | None:
        """The winner of ``key``, which may be a tombstone."""
        found = [record for partition in self.partitions.values() if (record := partition.winner(key)) is not None]
        return max(found, key=lambda record: (record.rank[:2], record.timestamp_ms), default=None)

    def __getitem__(self, key: bytes) -> ConsumedRecord:
        record = self.winner(key)
        if record is None or record.is_tombstone():
            raise KeyError(key)
        return record

    def __iter__(self) -> Iterator[bytes]:
        keys = dict.fromkeys(key for partition in self.partitions.values() for key in partition)
        return (key for key in keys if len(self.partitions) == 1 or key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        record = self.winner(key) if isinstance(key, bytes) else None
        return record is not None and not record.is_tombstone()

    def close(self) -> None:
        """Close the source; the records read so far remain."""
        self._source.close()
