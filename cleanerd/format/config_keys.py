"""Which configuration keys of a cluster may be read, shown or logged (U-24).

The metadata log holds every dynamic setting, with credentials. Only keys about logs and their cleaning are shown; all
others are hidden.
"""

from __future__ import annotations

from typing import Final

READABLE_TOPIC_KEYS: Final = frozenset(
    {
        "cleanerd.tombstone.replicated",
        "cleanup.policy",
        "confluent.tier.enable",
        "compaction.strategy",
        "compaction.strategy.header",
        "compaction.strategy.header.encoding",
        "compaction.winner.retention",
        "compression.type",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "index.interval.bytes",
        "internal.segment.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "preallocate",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "tombstone.guard",
        "tombstone.header",
        "tombstone.mode",
    }
)

READABLE_BROKER_KEYS: Final = frozenset(
    {
        "compression.type",
        "confluent.tier.enable",
        "internal.log.segment.bytes",
        "log.cleaner.backoff.ms",
        "log.cleaner.compaction.strategy",
        "log.cleaner.compaction.strategy.header",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.enable",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleaner.threads",
        "log.cleanup.policy",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.message.timestamp.type",
        "log.preallocate",
        "log.retention.bytes",
        "log.retention.check.interval.ms",
        "log.retention.hours",
        "log.retention.minutes",
        "log.retention.ms",
        "log.roll.hours",
        "log.roll.jitter.hours",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "log.segment.bytes",
        "log.segment.delete.delay.ms",
        "message.max.bytes",
        "producer.id.expiration.ms",
    }
)

ALLOWED_KEYS: Final = READABLE_TOPIC_KEYS | READABLE_BROKER_KEYS
"""The keys that may be shown."""

HIDDEN: Final = "<hidden>"
"""Replaces a hidden value."""
