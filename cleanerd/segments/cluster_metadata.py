"""The cluster's topics and settings, from the KRaft metadata log on this disk (U-23, U-24)."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.batch import BatchHeader, parse_header
from cleanerd.format.control import ControlType, read_control
from cleanerd.format.index import read_offset_index
from cleanerd.format.metadata import read_metadata_record
from cleanerd.format.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
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
from cleanerd.format.names import (
    INDEX_SUFFIX,
    MAX_OFFSET,
    SEGMENT_SUFFIX,
    file_name,
    parse_checkpoint_name,
    parse_file_name,
)
from cleanerd.format.record import Record, records_of
from cleanerd.fsio.plain_file import open_place, read_plain
from cleanerd.fsio.safe_open import close_quietly
from cleanerd.policy.replicas import MARGIN_MS, UNKNOWN_MS, ReplicaFacts, Replicas
from cleanerd.segments.batch_file import StoredBatch, read_batches

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Brokers write metadata batches of 8 MiB at most. Larger ones than this are refused, compressed or decompressed."""

_ATTEMPTS: Final = 3
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


def read_cluster_metadata(
    directory: Path, *, only_before_ms: int | None, younger: bool = False, margin_ms: int = MARGIN_MS
) -> ClusterMetadata:
    """Newest complete snapshot in ``__cluster_metadata-0`` plus the log after it (U-23).

    The log's high watermark is not on disk, so its tail may never have been committed. ``only_before_ms`` stops at the
    first batch of the log that is not older than that (on-start); None reads everything (offline). Snapshots contain
    committed records only. A transaction of metadata records takes effect at its end. ``younger``: later metadata
    becomes a second result. It is read as far as possible, because a running broker may be writing it. ``margin_ms``:
    how long the end of the log may be uncommitted, for the replicas (U-71).

    Raises:
        CorruptionError: damaged files, a gap between snapshot and log or in the log, transaction records out of order.
        UnsupportedLogError: a newer version of a record that matters.
        CleanerdError: the directory is missing or cannot be read.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _read(directory, only_before_ms, younger=younger, margin_ms=margin_ms)
        except FileNotFoundError as error:
            # A running broker deletes snapshots and segments that a newer snapshot covers, so try again.
            if attempt == _ATTEMPTS - 1 or not directory.is_dir():
                raise _unreadable(directory, error) from error
        except OSError as error:
            raise _unreadable(directory, error) from error
    raise AssertionError


def _unreadable(directory: Path, error: OSError) -> CleanerdError:
    return CleanerdError(
        f"the metadata log cannot be read: {error.strerror}",
        where=str(error.filename or directory),
        hint="run cleanerd as the broker's user"
        if isinstance(error, PermissionError)
        else "only brokers in KRaft mode have one, in metadata.log.dir or the first of log.dirs",
    )


def _read(directory: Path, only_before_ms: int | None, *, younger: bool, margin_ms: int) -> ClusterMetadata:
    names = _names_in(directory)
    image = _Image(margin_ms=margin_ms)
    start = _replay_snapshot(directory, names, image)
    image.as_of = start
    history = image.replicas
    history.passed(image.as_of_ms)
    bases = sorted(
        parsed[0] for name in names if (parsed := parse_file_name(name)) is not None and parsed[1] == SEGMENT_SUFFIX
    )
    first = max((base for base in bases if base <= start), default=None)
    if first is None:
        if bases:
            raise CorruptionError(
                f"the log starts at offset {bases[0]}, the newest complete snapshot ends at {start}",
                where=str(directory),
            )
        return image.finish()
    history.newest_ms = _newest_ms(directory, bases[-1])
    # Use the log's time and not the clock: its end may be uncommitted even after the broker stopped.
    settled_ms = history.newest_ms - margin_ms
    believed: ClusterMetadata | None = None
    transaction: list[MetadataRecord] | None = None
    try:
        for batch in _after(directory, [base for base in bases if base >= first], start):
            if believed is None and only_before_ms is not None and batch.header.max_timestamp >= only_before_ms:
                history.end()
                believed = copy.deepcopy(image).finish()
            if batch.header.max_timestamp > settled_ms:
                history.end()
            transaction = _replay(batch, start, transaction, image)
            image.as_of = batch.header.last_offset + 1 if transaction is None else image.as_of
            image.as_of_ms = batch.header.max_timestamp if transaction is None else image.as_of_ms
            history.passed(batch.header.max_timestamp, is_complete=transaction is None)
    except (CleanerdError, OSError):
        if believed is None:
            raise
    found = image.finish()
    # Replicas that the end of the log adds are waited for, even if they are very new.
    if believed is None:
        return found
    newer = found if younger else None
    return replace(
        believed,
        replicas=found.replicas,
        newest_topics=found.topics,
        newest_configs=found.topic_configs,
        younger=newer,
    )


def _after(directory: Path, bases: list[int], start: int) -> Iterator[_MetadataBatch]:
    """The batches of the segments ``bases`` that reach offset ``start`` or a higher one, in order.

    This log is not compacted, so a gap means lost settings.
    """
    end = start
    for base in bases:
        path = directory / file_name(base, SEGMENT_SUFFIX)
        position = _position_of(directory, base, start) if base < start else 0
        for batch in _batches(path, position, is_last=base == bases[-1]):
            if batch.header.last_offset < start:
                continue
            if batch.header.base_offset > end:
                raise batch.stored.error(f"the batch begins at offset {batch.header.base_offset}: {end} is missing")
            end = batch.header.last_offset + 1
            yield batch


def _names_in(directory: Path) -> list[str]:
    place = open_place(directory)
    try:
        return os.listdir(place)
    finally:
        close_quietly(place)


def _replay(
    batch: _MetadataBatch, start: int, transaction: list[MetadataRecord] | None, image: _Image
) -> list[MetadataRecord] | None:
    """Apply a batch's records from offset ``start`` on; returns the records of a transaction left open."""
    if batch.header.is_control:
        return transaction
    for record in batch.records():
        if record.offset < start:
            continue
        decoded = batch.decode(record)
        match decoded:
            case BeginTransactionRecord():
                if transaction is not None:
                    raise batch.stored.error(f"offset {record.offset} begins a transaction inside a transaction")
                transaction = []
            case EndTransactionRecord() | AbortTransactionRecord():
                if transaction is None:
                    raise batch.stored.error(f"offset {record.offset} ends a transaction that never began")
                if isinstance(decoded, EndTransactionRecord):
                    for buffered in transaction:
                        image.apply(buffered, batch.header.max_timestamp)
                transaction = None
            case _ if transaction is None:
                image.apply(decoded, batch.header.max_timestamp)
            case _:
                transaction.append(decoded)
    return transaction


def _replay_snapshot(directory: Path, names: list[str], image: _Image) -> int:
    """Load the newest complete snapshot into ``image``; returns its end offset, 0 without a snapshot."""
    snapshots = sorted(
        ((parsed, name) for name in names if (parsed := parse_checkpoint_name(name)) is not None), reverse=True
    )
    for (end, _epoch), name in snapshots:
        path = directory / name
        if not _has_footer(path):
            continue
        for batch in _batches(path, 0, is_last=False):
            if batch.header.is_control:
                _note_snapshot_time(batch, image)
                continue
            for record in batch.records():
                image.apply(batch.decode(record), image.as_of_ms)
        return end
    return 0


def _note_snapshot_time(batch: _MetadataBatch, image: _Image) -> None:
    for record in batch.records():
        control = read_control(record, where=batch.stored.where, position=batch.stored.position)
        if control.type is ControlType.SNAPSHOT_HEADER:
            moment = control.fields["last_contained_log_timestamp"]
            image.as_of_ms = moment if isinstance(moment, int) else -1


def _has_footer(path: Path) -> bool:
    """Whether the last batch of a snapshot is its footer; otherwise the snapshot is incomplete."""
    last = None
    for batch in _batches(path, 0, is_last=True):
        last = batch
    if last is None or not last.header.is_control:
        return False
    controls = [
        read_control(record, where=last.stored.where, position=last.stored.position) for record in last.records()
    ]
    return bool(controls) and controls[-1].type is ControlType.SNAPSHOT_FOOTER


@dataclass(frozen=True, slots=True)
class _MetadataBatch:
    """A batch of the metadata log."""

    stored: StoredBatch
    header: BatchHeader

    def records(self) -> list[Record]:
        """Its records, after a check of the CRC."""
        stored = self.stored
        return records_of(stored.data, limit_bytes=MAX_BATCH_BYTES, where=stored.where, position=stored.position)

    def decode(self, record: Record) -> MetadataRecord:
        """Decode the metadata in one record."""
        return read_metadata_record(record.value, where=self.stored.where, position=self.stored.position)


def _batches(path: Path, position: int, *, is_last: bool) -> Iterator[_MetadataBatch]:
    for stored in read_batches(path, start=position, cut_tail_ends=is_last, limit_bytes=MAX_BATCH_BYTES):
        yield _MetadataBatch(stored, parse_header(stored.data, where=stored.where, origin=stored.position))


def _position_of(directory: Path, base: int, offset: int) -> int:
    """A position in the segment ``base`` from which a scan reaches ``offset``; 0 if the index does not help."""
    path = directory / file_name(base, INDEX_SUFFIX)
    try:
        entries = read_offset_index(read_plain(path, has_room=True), str(path))
    except (OSError, CorruptionError):
        return 0
    below = entries[entries["relative_offset"] < offset - base]
    return int(below["position"][-1]) if below.size else 0


def _newest_ms(directory: Path, base: int) -> int:
    """The time of the last batch of the segment ``base``; -1 if it has none."""
    path, newest_ms = directory / file_name(base, SEGMENT_SUFFIX), UNKNOWN_MS
    for batch in _batches(path, _position_of(directory, base, MAX_OFFSET), is_last=True):
        newest_ms = batch.header.max_timestamp
    return newest_ms


@dataclass(slots=True)
class _ReplicaHistory:
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

    def __deepcopy__(self, _memo: object) -> _ReplicaHistory:
        return self  # a single object for all readings: it has ended by then

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
class _Image:
    """The state while records are applied, by topic id: a re-created topic has its old name but a new id."""

    names: dict[uuid.UUID, str] = field(default_factory=dict)
    topic_ids: dict[str, uuid.UUID] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    as_of: int = 0
    as_of_ms: int = -1
    replicas: _ReplicaHistory = field(default_factory=_ReplicaHistory)
    margin_ms: int = MARGIN_MS

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

    def finish(self) -> ClusterMetadata:
        """The state as a frozen value."""
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
            replicas=replace(self.replicas.finish(), margin_ms=self.margin_ms),
        )
