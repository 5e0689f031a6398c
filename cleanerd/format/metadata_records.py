"""The records of the KRaft metadata log that matter to a cleaner, and how each is laid out.

All are flexible messages: compact strings and arrays (length + 1 as an unsigned varint, 0 is null), tagged fields at
the end of every structure. The layouts were checked against records that 3.9.2 and 4.3.1 wrote, those of partitions
against the classes of 3.3.2 and 4.4.0.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.format.config_keys import ALLOWED_KEYS, HIDDEN
from cleanerd.format.control import skip_tagged_fields

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Mapping

    from cleanerd.format.reader import ByteReader


class ResourceType(enum.IntEnum):
    """The subject of a ConfigRecord."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic was created."""

    name: str
    topic_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic was deleted, its configuration with it."""

    topic_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A dynamic setting.

    ``value`` None removes the setting. The value of a key outside the allow-list is ``<hidden>`` (U-24).

    ``resource_type`` is a ResourceType or a number that this version does not know. A broker's name is its id, or empty
    for the default of all brokers.
    """

    resource_type: int
    resource_name: str
    key: str
    value: str | None

    @property
    def hidden(self) -> bool:
        """Whether the key is outside the allow-list."""
        return self.key not in ALLOWED_KEYS


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """A cluster feature, such as ``metadata.version``, has this level now; 0 removes the feature."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord:
    """A broker process registered. ``features``: (lowest, highest) supported level, by name."""

    broker_id: int
    incarnation_id: uuid.UUID
    broker_epoch: int
    features: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRecord:
    """A broker was removed from the cluster."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition was created, or its state in a snapshot."""

    topic_id: uuid.UUID
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """A partition's changes; None: unchanged."""

    topic_id: uuid.UUID
    partition: int
    replicas: tuple[int, ...] | None = None
    isr: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class BeginTransactionRecord:
    """The following records take effect only when the transaction has ended (KIP-868)."""


@dataclass(frozen=True, slots=True)
class EndTransactionRecord:
    """The transaction's records take effect."""


@dataclass(frozen=True, slots=True)
class AbortTransactionRecord:
    """The transaction's records are discarded."""


@dataclass(frozen=True, slots=True)
class OtherRecord:
    """A record that does not concern logs. It is not decoded, and may contain secrets."""

    api_key: int
    version: int


MetadataRecord = (
    TopicRecord
    | RemoveTopicRecord
    | ConfigRecord
    | FeatureLevelRecord
    | RegisterBrokerRecord
    | UnregisterBrokerRecord
    | PartitionRecord
    | PartitionChangeRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | OtherRecord
)

RECORD_NAMES: Final = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}
"""Names of record types by api key, to be shown."""


def record_name(record: MetadataRecord) -> str:
    """Kafka's name of the record's type, or ``api key 99``."""
    if isinstance(record, OtherRecord):
        return RECORD_NAMES.get(record.api_key, f"api key {record.api_key}")
    return type(record).__name__


def _topic(reader: ByteReader, _version: int) -> TopicRecord:
    return TopicRecord(_string(reader), reader.uuid())


def _remove_topic(reader: ByteReader, _version: int) -> RemoveTopicRecord:
    return RemoveTopicRecord(reader.uuid())


def _config(reader: ByteReader, _version: int) -> ConfigRecord:
    resource_type = reader.int8()
    resource_name, key = _string(reader), _string(reader)
    value = _nullable_string(reader)
    if value is not None and key not in ALLOWED_KEYS:
        value = HIDDEN
    return ConfigRecord(resource_type, resource_name, key, value)


def _feature_level(reader: ByteReader, _version: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(_string(reader), reader.int16())


def _register_broker(reader: ByteReader, version: int) -> RegisterBrokerRecord:
    broker_id = reader.int32()
    if version >= 2:
        reader.int8()  # is migrating from ZooKeeper
    incarnation_id = reader.uuid()
    broker_epoch = reader.int64()
    for _ in range(_count(reader)):  # end points
        _string(reader)
        _string(reader)
        reader.raw(4)  # port, security protocol
        skip_tagged_fields(reader)
    features = {}
    for _ in range(_count(reader)):
        name = _string(reader)
        features[name] = (reader.int16(), reader.int16())
        skip_tagged_fields(reader)
    _nullable_string(reader)  # rack
    reader.int8()  # fenced
    if version >= 1:
        reader.int8()  # in controlled shutdown
    return RegisterBrokerRecord(broker_id, incarnation_id, broker_epoch, features)


def _unregister_broker(reader: ByteReader, _version: int) -> UnregisterBrokerRecord:
    return UnregisterBrokerRecord(reader.int32(), reader.int64())


def _partition(reader: ByteReader, version: int) -> PartitionRecord:
    partition, topic_id = reader.int32(), reader.uuid()
    replicas, isr = _ids(reader), _ids(reader)
    _ids(reader)  # removing replicas
    adding = _ids(reader)
    reader.raw(12)  # leader, leader epoch, partition epoch
    if version >= 1:
        reader.raw(16 * _count(reader))  # directories
    return PartitionRecord(topic_id, partition, replicas, isr, adding)


_CHANGES: Final = {0: "isr", 2: "replicas", 4: "adding_replicas"}
"""The tagged fields of a PartitionChangeRecord that are read. A null array has no meaning there."""


def _partition_change(reader: ByteReader, _version: int) -> PartitionChangeRecord:
    partition, topic_id = reader.int32(), reader.uuid()
    changes = {}
    for _ in range(reader.unsigned_varint()):
        name = _CHANGES.get(reader.unsigned_varint())
        field = reader.slice(reader.unsigned_varint())
        if name is not None:
            changes[name] = _nullable_ids(field)
            if field.left:
                field.fail(f"{field.left} bytes left at the end of {name}")
    return PartitionChangeRecord(topic_id, partition, **changes)


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """How to read a record type, and the highest version that was checked.

    ``reads_tags``: it also reads the tagged fields at the end.
    """

    read: Callable[[ByteReader, int], MetadataRecord]
    highest_version: int
    essential: bool = True
    """Whether a newer version must be refused; otherwise it is skipped because the record is only informative."""
    reads_tags: bool = False


LAYOUTS: Final = {
    0: RecordLayout(_register_broker, 4, essential=False),
    1: RecordLayout(_unregister_broker, 0, essential=False),
    2: RecordLayout(_topic, 0),
    # Newer versions are skipped: then the replicas are unknown, and tombstones wait.
    3: RecordLayout(_partition, 2, essential=False),
    4: RecordLayout(_config, 0),
    5: RecordLayout(_partition_change, 2, essential=False, reads_tags=True),
    9: RecordLayout(_remove_topic, 0),
    12: RecordLayout(_feature_level, 0),
    # The names and reasons of transactions are tagged fields, which are skipped.
    23: RecordLayout(lambda _reader, _version: BeginTransactionRecord(), 0),
    24: RecordLayout(lambda _reader, _version: EndTransactionRecord(), 0),
    25: RecordLayout(lambda _reader, _version: AbortTransactionRecord(), 0),
}
"""The layout by api key."""


def _count(reader: ByteReader) -> int:
    """Length of a compact array or string that cannot be null."""
    start = reader.at
    count = reader.unsigned_varint() - 1
    if not 0 <= count <= reader.left:
        reader.fail(f"length {count} with {reader.left} bytes left", at=start)
    return count


def _ids(reader: ByteReader) -> tuple[int, ...]:
    """A compact array of broker ids."""
    ids = _nullable_ids(reader)
    return () if ids is None else ids


def _nullable_ids(reader: ByteReader) -> tuple[int, ...] | None:
    count = reader.unsigned_varint() - 1
    data = reader.raw(4 * max(count, 0))
    return None if count < 0 else struct.unpack(f">{count}i", data)


def _string(reader: ByteReader) -> str:
    return _text(reader, _count(reader))


def _nullable_string(reader: ByteReader) -> str | None:
    size = reader.unsigned_varint() - 1
    return None if size < 0 else _text(reader, size)


def _text(reader: ByteReader, size: int) -> str:
    start = reader.at
    try:
        return reader.raw(size).decode("utf-8")
    except UnicodeDecodeError:
        reader.fail("a string is not UTF-8", at=start)
