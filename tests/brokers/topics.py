"""The topics of the lifecycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.brokers.ledger import Partition
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
RATIO: Final = "min.cleanable.dirty.ratio"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its settings beyond the common ones, and whether (and how fast) tombstones expire."""

    name: str
    partitions: int = 1
    config: tuple[tuple[str, str], ...] = ()
    segment_bytes: int = 4096
    compacted: bool = True
    tombstones_expire: bool = False

    @property
    def names(self) -> tuple[Partition, ...]:
        return tuple(Partition(self.name, number) for number in range(self.partitions))


KEYLESS: Final = Topic("keyless", config=(("cleanup.policy", "delete"),))
"""Compacted topics refuse records without a key, so it becomes compacted after the writes."""
MIXED: Final = Topic("mixed", partitions=2)
"""Partition 0 has batches of every codec, partition 1 those that kafka-python reads without further libraries."""
DELETED: Final = Topic("deleted", config=(("delete.retention.ms", "0"),), tombstones_expire=True)
WIPED: Final = Topic("wiped", segment_bytes=2048)
"""Dozens of segments without a retained record (D-02)."""
IDLE: Final = Topic("idle")
"""Has a producer's last batch, fully superseded by another producer (C-39.1)."""
TRANSACTIONAL: Final = Topic("transactional")
PLAIN: Final = Topic("plain", config=(("cleanup.policy", "delete"),), compacted=False)
BY_CODEC: Final = {codec: Topic(f"codec-{codec}") for codec in CODECS}
ORDINARY: Final = (
    *BY_CODEC.values(),
    Topic("both", config=(("cleanup.policy", "compact,delete"),)),
    Topic("appended", config=(("message.timestamp.type", "LogAppendTime"),)),
    DELETED,
)
"""Topics with the same mixture of records, from one producer each."""
TOPICS: Final = (*ORDINARY, MIXED, KEYLESS, WIPED, IDLE, TRANSACTIONAL, PLAIN)
PARTITIONS: Final = tuple(partition for topic in TOPICS for partition in topic.names)
CLEANED: Final = tuple(partition for topic in TOPICS for partition in topic.names if topic.compacted)
"""Partitions that are compacted."""
READ_BY_BOTH: Final = tuple(
    partition
    for partition in PARTITIONS
    if partition not in {*(BY_CODEC[codec].names[0] for codec in ("snappy", "lz4", "zstd")), MIXED.names[0]}
)
"""Topics for kafka-python: it needs a library for each of the other codecs."""
TOPIC_OF: Final[Mapping[Partition, Topic]] = {partition: topic for topic in TOPICS for partition in topic.names}


def create(bootstrap: str, release: str) -> None:
    """Create all topics, with small segments and dense indexes; the broker's own cleaner skips them (U-8)."""
    # 4.x refuses segment.bytes below 1 MiB and has an internal key instead; 3.9 is the reverse.
    segment_key = "segment.bytes" if release.startswith("3.") else "internal.segment.bytes"
    wanted = [
        NewTopic(
            topic.name,
            topic.partitions,
            1,
            config={
                "cleanup.policy": "compact",
                RATIO: "1",
                segment_key: str(topic.segment_bytes),
                "index.interval.bytes": "256",
                "segment.index.bytes": "65536",
                "file.delete.delay.ms": "500",
                **dict(topic.config),
            },
        )
        for topic in TOPICS
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics(wanted).values():
        created.result(PATIENCE_SECONDS)


def alter(bootstrap: str, topic: str, key: str, value: str) -> None:
    """Set one key of a topic, keep the others."""
    change = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(PATIENCE_SECONDS)
