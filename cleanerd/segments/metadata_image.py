"""The state of a cluster that its metadata records describe: topics, settings, brokers and replicas (U-23, U-71)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from cleanerd.format.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    OtherRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
    UnregisterBrokerRecord,
    record_name,
)
from cleanerd.policy.replicas import UNKNOWN_MS, ReplicaFacts, Replicas

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping

_OF_PARTITIONS: Final = (3, 5)
"""API keys of the records with a partition's replicas."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The last start of a broker. ``features``: (lowest, highest) level that its version supports."""

    broker_id: int
    incarnation_id: uuid.UUID
    broker_epoch: int
    features: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The cluster's topics and log settings at one offset of the metadata log.

    Contains only settings on the allow-list (U-24). ``topic_configs`` and ``broker_configs`` lack topics and brokers
    without any. ``as_of``: the first offset that is not in it; ``as_of_ms``: the time of its last batch (-1: none).
    ``replicas``: those of all partitions (U-71). ``newest_topics``, ``newest_configs``: the topics at the end of the
    log and their settings, which may be uncommitted; their replicas are in ``replicas``, too.
    ``younger``: the same with metadata that is too young to be trusted; None if it was not requested, or does not
    exist.
    """

    topics: Mapping[str, uuid.UUID]
    topic_configs: Mapping[str, Mapping[str, str]]
    broker_default_configs: Mapping[str, str]
    broker_configs: Mapping[int, Mapping[str, str]]
    features: Mapping[str, int]
    brokers: Mapping[int, BrokerRegistration]
    as_of: int
    as_of_ms: int
    younger: ClusterMetadata | None = None
    replicas: ReplicaFacts = field(default=ReplicaFacts({}), compare=False)
    newest_topics: Mapping[str, uuid.UUID] = field(default_factory=dict, compare=False)
    newest_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict, compare=False)


@dataclass(slots=True)
class ReplicaHistory:
    """Which replicas were in the ISR while the log is read; records after :meth:`end` may be uncommitted.

    ``young``: the replicas and the last ISR that these records assign. A partition with a single replica waits for no
    other, unless these records may add one.
    """

    topics: dict[uuid.UUID, dict[int, Replicas]] = field(default_factory=dict)
    young: dict[tuple[uuid.UUID, int], tuple[frozenset[int], frozenset[int] | None]] = field(default_factory=dict)
    as_of_ms: int = UNKNOWN_MS
    newest_ms: int = UNKNOWN_MS
    unread: str = ""
    ended: bool = False

    def copy(self) -> ReplicaHistory:
        """A copy that changes on its own."""
        topics = {topic_id: dict(partitions) for topic_id, partitions in self.topics.items()}
        return replace(self, topics=topics, young=dict(self.young))

    def end(self) -> None:
        """Later records may be uncommitted."""
        self.ended = True

    def apply(self, record: MetadataRecord, at_ms: int) -> None:
        """Apply a change at the time ``at_ms``."""
        if isinstance(record, OtherRecord) and record.api_key in _OF_PARTITIONS:
            self.unread = f"{record_name(record)} version {record.version} is not known: update cleanerd"
        if self.ended:
            if isinstance(record, PartitionRecord | PartitionChangeRecord):
                place = record.topic_id, record.partition
                assigned = frozenset((*(record.replicas or ()), *(record.adding_replicas or ())))
                before_assigned, before_isr = self.young.get(place, (frozenset(), None))
                isr = before_isr if record.isr is None else frozenset(record.isr)
                self.young[place] = (before_assigned | assigned, isr)
            return
        match record:
            case PartitionRecord():
                partitions = self.topics.setdefault(record.topic_id, {})
                assigned = frozenset((*record.replicas, *record.adding_replicas))
                before = partitions.get(record.partition, Replicas(frozenset(), frozenset()))
                partitions[record.partition] = before.changed(assigned, frozenset(record.isr), at_ms)
            case PartitionChangeRecord():
                self._change(record, at_ms)
            case RemoveTopicRecord():
                self.topics.pop(record.topic_id, None)
            case _:
                pass

    def _change(self, record: PartitionChangeRecord, at_ms: int) -> None:
        before = self.topics.get(record.topic_id, {}).get(record.partition)
        if before is None:
            return
        assigned, isr = before.assigned, before.isr
        if record.replicas is not None:
            assigned = frozenset(record.replicas)
        if record.adding_replicas is not None:
            assigned |= frozenset(record.adding_replicas)
        if record.isr is not None:
            isr = frozenset(record.isr)
        self.topics[record.topic_id][record.partition] = before.changed(assigned, isr, at_ms)

    def passed(self, at_ms: int, *, is_complete: bool = True) -> None:
        """Note that a batch of ``at_ms`` was read; ``is_complete``: all changes up to it were applied.

        After a time that decreases, later times are ignored. The end of the log shows that as well.
        """
        if at_ms < self.as_of_ms:
            for partitions in self.topics.values():
                for number, each in partitions.items():
                    if each.full_until_ms > at_ms:
                        partitions[number] = replace(each, full_until_ms=at_ms)
            self.as_of_ms = at_ms
        elif is_complete and not self.ended:
            self.as_of_ms = at_ms

    def finish(self) -> ReplicaFacts:
        """The result, as a frozen value."""
        for (topic_id, number), (assigned, isr) in self.young.items():
            before = self.topics.get(topic_id, {}).get(number)
            if before is None and len(assigned) == 1:
                self.topics.setdefault(topic_id, {})[number] = Replicas(assigned, frozenset())
            elif before is not None:
                if before.is_alone and assigned - before.assigned:
                    before = before.changed(before.assigned | assigned, before.isr, self.as_of_ms)
                self.topics[topic_id][number] = replace(before, newest_isr=isr, joining=assigned - before.assigned)
        # A snapshot may be newer than the remaining log.
        return ReplicaFacts(self.topics, self.as_of_ms, max(self.newest_ms, self.as_of_ms), self.unread)


@dataclass(slots=True)
class MetadataImage:
    """The state while records are applied, by topic id: a re-created topic has its old name but a new id."""

    names: dict[uuid.UUID, str] = field(default_factory=dict)
    topic_ids: dict[str, uuid.UUID] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    as_of: int = 0
    as_of_ms: int = -1
    replicas: ReplicaHistory = field(default_factory=ReplicaHistory)

    def copy(self) -> MetadataImage:
        """A copy that changes on its own."""
        return replace(
            self,
            names=dict(self.names),
            topic_ids=dict(self.topic_ids),
            configs={place: dict(values) for place, values in self.configs.items()},
            features=dict(self.features),
            brokers=dict(self.brokers),
            replicas=self.replicas.copy(),
        )

    def apply(self, record: MetadataRecord, at_ms: int) -> None:
        """Change the state by a record of ``at_ms``, as a broker does."""
        self.replicas.apply(record, at_ms)
        match record:
            case TopicRecord():
                self.names[record.topic_id] = record.name
                self.topic_ids[record.name] = record.topic_id
            case RemoveTopicRecord():
                self._remove_topic(record.topic_id)
            case ConfigRecord():
                self._configure(record)
            case FeatureLevelRecord():
                self.features[record.name] = record.level
                if record.level == 0:
                    del self.features[record.name]
            case RegisterBrokerRecord():
                self.brokers[record.broker_id] = BrokerRegistration(
                    record.broker_id, record.incarnation_id, record.broker_epoch, record.features
                )
            case UnregisterBrokerRecord():
                self.brokers.pop(record.broker_id, None)
            case _:
                pass

    def _remove_topic(self, topic_id: uuid.UUID) -> None:
        name = self.names.pop(topic_id, None)
        if name is not None and self.topic_ids.get(name) == topic_id:
            del self.topic_ids[name]
            self.configs.pop((ResourceType.TOPIC, name), None)

    def _configure(self, record: ConfigRecord) -> None:
        if record.hidden:
            return
        place = (record.resource_type, record.resource_name)
        if record.value is not None:
            self.configs.setdefault(place, {})[record.key] = record.value
        elif place in self.configs:
            self.configs[place].pop(record.key, None)
            if not self.configs[place]:
                del self.configs[place]

    def finish(self, margin_ms: int) -> ClusterMetadata:
        """The state as a frozen value; ``margin_ms``: how long the end of the log may be uncommitted."""
        brokers = {name: values for (kind, name), values in self.configs.items() if kind == ResourceType.BROKER}
        return ClusterMetadata(
            topics=self.topic_ids,
            topic_configs={name: values for (kind, name), values in self.configs.items() if kind == ResourceType.TOPIC},
            broker_default_configs=brokers.pop("", {}),
            broker_configs={int(name): values for name, values in brokers.items() if name.isascii() and name.isdigit()},
            features=self.features,
            brokers=self.brokers,
            as_of=self.as_of,
            as_of_ms=self.as_of_ms,
            replicas=replace(self.replicas.finish(), margin_ms=margin_ms),
        )
