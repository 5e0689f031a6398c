"""The result of a produced record (R192-6)."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message


@dataclass(frozen=True, slots=True)
class Delivery:
    """The broker's answer for one record. ``error`` is None when it is in the log.

    It may be in the log although offset and timestamp are unknown: after a retry the broker can answer that it has the
    batch already, without its place (duplicate sequence), and with ``acks=0`` it does not answer at all. So check
    ``has_offset`` and ``has_timestamp`` first.
    """

    topic: str
    partition: int
    key: bytes | None
    error: KafkaError | None
    offset: int | None
    timestamp_ms: int | None

    @property
    def has_offset(self) -> bool:
        return self.offset is not None

    @property
    def has_timestamp(self) -> bool:
        """Whether the timestamp in the log is known."""
        return self.timestamp_ms is not None


class Deliveries:
    """Turns librdkafka's delivery reports into :class:`Delivery`, in their order.

    ``acknowledged``: False with ``acks=0``.

    librdkafka counts the offsets of a batch up from the answer's base offset, even if that is -1 because of a duplicate
    sequence. Its reports then have none, 0, 1, 2 .. instead of the real offsets (seen with 2.16). Such a run can be
    recognised: it begins with a report without offset. A real offset after n duplicates in the same partition is n or
    higher, never n - 1 as in the run.
    """

    def __init__(self, *, acknowledged: bool) -> None:
        self._acknowledged = acknowledged
        self._next_invented: dict[tuple[str, int], int] = {}

    def of(self, error: KafkaError | None, message: Message) -> Delivery:
        """Convert one report. Those of a partition must come in librdkafka's order, from one polling thread."""
        topic, partition, offset = message.topic() or "", message.partition(), message.offset()
        partition = -1 if partition is None else partition
        where = (topic, partition)
        if error is not None:
            self._next_invented.pop(where, None)
            offset = None
        elif offset is None:
            self._next_invented[where] = 0
        elif self._next_invented.get(where) == offset:
            self._next_invented[where] = offset + 1
            offset = None
        else:
            self._next_invented.pop(where, None)
        if not self._acknowledged:
            offset = None
        kind, timestamp_ms = message.timestamp()
        has_timestamp = offset is not None and kind != TIMESTAMP_NOT_AVAILABLE
        key = message.key()
        return Delivery(
            topic=topic,
            partition=partition,
            key=key.encode() if isinstance(key, str) else key,
            error=error,
            offset=offset,
            timestamp_ms=timestamp_ms if has_timestamp else None,
        )
