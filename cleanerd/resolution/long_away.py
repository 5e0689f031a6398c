"""Replicas of this broker that missed tombstones or transaction markers (U-76), and whether to replace them (U-77).

A replica that was out of the ISR for longer than ``delete.retention.ms`` keeps old values, or aborted records. When it
returns, the other replicas may have removed the tombstone or marker. This also happens with Kafka's own cleaner.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.humanize import human_ms
from cleanerd.policy.replicas import UNKNOWN_MS
from cleanerd.segments.cleanable_range import log_end_offset
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.segments.reading import SegmentReader

if TYPE_CHECKING:
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.segments.log_dir import LogDir


@dataclass(frozen=True, slots=True)
class LongAway:
    """A replica of this broker that was out of the ISR for longer than its topic's ``retention_ms``.

    ``since_ms``: when it was last certainly in the ISR with all records; -1: unknown. ``lost``: the log's end and the
    high watermark above it, if it lost committed records. ``is_held``: only cleanerd cleans the topic, so cleanerd on
    the other brokers keeps tombstones for this replica.
    """

    name: TopicPartition
    since_ms: int
    retention_ms: int
    lost: tuple[int, int] | None = None
    is_held: bool = False

    def describe(self, now_ms: int) -> str:
        """For example ``its replica was away for 3 days, longer than delete.retention.ms (1 day)``."""
        away = f"for {human_ms(now_ms - self.since_ms)}" if self.since_ms >= 0 else "for an unknown time"
        message = f"its replica was away {away}, delete.retention.ms is {human_ms(self.retention_ms)}"
        if self.lost is None:
            return message
        end, high_watermark = self.lost
        return f"{message}; its log ends at offset {end}, below its high watermark {high_watermark}: records were lost"


def long_away(log_dir: LogDir, facts: BrokerFacts, now_ms: int, *, running: bool = False) -> list[LongAway]:
    """The partitions of ``log_dir`` that missed tombstones or markers, from this host's facts (U-76).

    Compacted topics with more than one replica, of any cleaner. ``running``: a broker runs here, so that a replica in
    the ISR is not away. Unreadable partitions are left out: other checks report them.
    """
    found = []
    for name in log_dir.partitions:
        with suppress(CleanerdError, OSError):
            away = _judged(log_dir, facts, name, now_ms, running=running)
            if away is not None:
                found.append(away)
    return found


def _judged(
    log_dir: LogDir, facts: BrokerFacts, name: TopicPartition, now_ms: int, *, running: bool
) -> LongAway | None:
    replicas = facts.replicas_of(name.topic)
    if replicas is None or facts.node_id is None:
        return None
    since_ms = replicas.last_in_isr_ms(name.partition, facts.node_id)
    config = facts.topic_config(name.topic)
    if since_ms is None or not config.is_compacted:
        return None
    shown = replicas.partitions.get(name.partition)
    if running and (shown is None or facts.node_id in shown.last_isr):
        return None
    log = read_partition(log_dir, name)
    if log.topic_id is not None and log.topic_id != facts.topic_id(name.topic):
        return None  # the broker deletes it
    lost = None if running else _lost(log, may_be_torn=not log_dir.clean_shutdown)
    if lost is not None:
        since_ms = min(since_ms, _last_write_ms(log))
    if now_ms - since_ms <= config.delete_retention_ms:
        return None
    held = config.is_kept_away and config.cleanerd_tombstone_replicated != "ignore"
    return LongAway(name, since_ms, config.delete_retention_ms, lost, held)


def _lost(log: PartitionLog, *, may_be_torn: bool) -> tuple[int, int] | None:
    """The log's end and its high watermark, if that is higher: after a power failure, or in an old copy."""
    with SegmentReader.open(str(log.path), chunk_bytes=64 * 1024) as reader:
        end = log_end_offset(log, reader, may_be_torn=may_be_torn)
    return (end, log.high_watermark) if end < log.high_watermark else None


def _last_write_ms(log: PartitionLog) -> int:
    """The time of the last batch; -1 if no batch of the last segments has one."""
    for segment in reversed(log.segments):
        with SegmentReader.open(str(log.path), chunk_bytes=256 * 1024) as reader:
            times = [int(each.max_timestamp[-1]) for each in reader.headers_until_damage(segment) if len(each)]
        if times:
            return max(times[-1], UNKNOWN_MS)
    return UNKNOWN_MS


def require_replaceable(facts: BrokerFacts, name: TopicPartition) -> None:
    """Refuse to replace a replica that may be the only complete one, according to this host's metadata log (U-77).

    Raises:
        RefusedError: it is the only replica, this broker was in the ISR, maybe as its leader, or the facts are unknown.
    """
    replicas, broker = facts.replicas_of(name.topic), facts.node_id
    if replicas is None or broker is None:
        why = "no metadata log here shows its replicas"
    else:
        why = replicas.why_needed(name.partition, broker)
    if why:
        raise RefusedError(
            f"its replica here may be the only complete one: {why}",
            where=str(name),
            hint="let cleanerd read the current leader from the cluster: --set bootstrap.servers=HOST:PORT",
        )
