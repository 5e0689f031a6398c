"""The cluster's topics and settings, from the KRaft metadata log on this disk (U-23, U-24)."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.batch import BatchHeader, parse_header
from cleanerd.format.control import ControlType, read_control
from cleanerd.format.index import read_offset_index
from cleanerd.format.metadata import read_metadata_record
from cleanerd.format.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
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
from cleanerd.policy.replicas import MARGIN_MS, UNKNOWN_MS
from cleanerd.segments.batch_file import StoredBatch, read_batches
from cleanerd.segments.metadata_image import ClusterMetadata, MetadataImage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Brokers write metadata batches of 8 MiB at most. Larger ones than this are refused, compressed or decompressed."""

_ATTEMPTS: Final = 3


def read_cluster_metadata(
    directory: Path, *, only_before_ms: int | None, younger: bool = False, margin_ms: int = MARGIN_MS
) -> ClusterMetadata:
    """One reading of the :class:`MetadataLog` in ``directory``."""
    return MetadataLog(directory).read(only_before_ms=only_before_ms, younger=younger, margin_ms=margin_ms)


class MetadataLog:
    """The metadata log in a directory ``__cluster_metadata-0``: its newest complete snapshot and what follows (U-23).

    A further reading goes on where the settled part of the last one ended, unless a settled snapshot ends later. Not
    thread-safe.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._settled: _Replay | None = None

    def read(self, *, only_before_ms: int | None, younger: bool = False, margin_ms: int = MARGIN_MS) -> ClusterMetadata:
        """The cluster's current metadata.

        The log's high watermark is not on disk, so its tail may never have been committed. ``only_before_ms`` stops at
        the first batch of the log that is not older than that (on-start); None reads everything (offline). Snapshots
        contain committed records only. A transaction of metadata records takes effect at its end. ``younger``: later
        metadata becomes a second result. It is read as far as possible, because a running broker may be writing it.
        ``margin_ms``: how long the end of the log may be uncommitted, for the replicas (U-71).

        Raises:
            CorruptionError: damaged files, a gap between snapshot and log or in the log, transaction records out of
                order.
            UnsupportedLogError: a newer version of a record that matters.
            CleanerdError: the directory is missing or cannot be read.
        """
        for attempt in range(_ATTEMPTS):
            known, self._settled = self._settled, None
            try:
                return self._read(known, only_before_ms, younger=younger, margin_ms=margin_ms)
            except CorruptionError:
                if known is None:  # otherwise an index may be damaged that a reading from the snapshot does not use
                    raise
            except FileNotFoundError as error:
                # A running broker deletes snapshots and segments that a newer snapshot covers, so try again.
                if attempt == _ATTEMPTS - 1 or not self.directory.is_dir():
                    raise _unreadable(self.directory, error) from error
            except OSError as error:
                raise _unreadable(self.directory, error) from error
        raise AssertionError

    def _read(
        self, known: _Replay | None, only_before_ms: int | None, *, younger: bool, margin_ms: int
    ) -> ClusterMetadata:
        names = _names_in(self.directory)
        bases = sorted(
            parsed[0] for name in names if (parsed := parse_file_name(name)) is not None and parsed[1] == SEGMENT_SUFFIX
        )
        newest_ms = _newest_ms(self.directory, bases)
        # Use the log's time and not the clock: its end may be uncommitted even after the broker stopped.
        settled_ms = newest_ms - margin_ms
        limit_ms = settled_ms if only_before_ms is None else min(settled_ms, only_before_ms - 1)
        if known is None or not known.serves(self.directory, names, bases, limit_ms):
            known = _Replay.of_snapshot(self.directory, names)
        batches = _after(self.directory, bases, known.end)
        young = known.advance(batches, limit_ms)
        rest = known.copy()
        image, history = rest.image, rest.image.replicas
        history.newest_ms = newest_ms
        believed: ClusterMetadata | None = None
        try:
            for batch in () if young is None else itertools.chain((young,), batches):
                if believed is None and only_before_ms is not None and batch.header.max_timestamp >= only_before_ms:
                    history.end()
                    believed = image.copy().finish(margin_ms)
                if batch.header.max_timestamp > settled_ms:
                    history.end()
                rest.apply(batch)
        except (CleanerdError, OSError):
            if believed is None:
                raise
        self._settled = known if known.last is not None else None
        found = image.finish(margin_ms)
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


def _unreadable(directory: Path, error: OSError) -> CleanerdError:
    return CleanerdError(
        f"the metadata log cannot be read: {error.strerror}",
        where=str(error.filename or directory),
        hint="run cleanerd as the broker's user"
        if isinstance(error, PermissionError)
        else "only brokers in KRaft mode have one, in metadata.log.dir or the first of log.dirs",
    )


@dataclass(slots=True)
class _Replay:
    """The metadata up to the offset ``end``, from a snapshot that ends at ``start`` and the batches after it.

    ``last``: the header of the last one, and ``newest_ms`` the latest time of any. ``transaction``: the records of one
    that is still open.
    """

    image: MetadataImage
    start: int
    end: int
    last: BatchHeader | None = None
    newest_ms: int = UNKNOWN_MS
    transaction: list[MetadataRecord] | None = None

    @classmethod
    def of_snapshot(cls, directory: Path, names: list[str]) -> _Replay:
        """The newest complete snapshot; without one, nothing."""
        image = MetadataImage()
        image.as_of = start = _replay_snapshot(directory, names, image)
        image.replicas.passed(image.as_of_ms)
        return cls(image, start, start)

    def copy(self) -> _Replay:
        """A copy that changes on its own."""
        transaction = None if self.transaction is None else list(self.transaction)
        return replace(self, image=self.image.copy(), transaction=transaction)

    def serves(self, directory: Path, names: list[str], bases: list[int], limit_ms: int) -> bool:
        """Whether a reading of what is not younger than ``limit_ms`` can go on from here.

        A batch with a time in the future ends the settled part for long. A snapshot that ends behind it counts as soon
        as it is old enough.
        """
        later = [name for name in names if (parsed := parse_checkpoint_name(name)) is not None and parsed[0] > self.end]
        if self.newest_ms > limit_ms or any(_snapshot_ms(directory / name) <= limit_ms for name in later):
            return False
        return self._is_part_of(directory, bases)

    def _is_part_of(self, directory: Path, bases: list[int]) -> bool:
        """Whether the log still has the last batch: then it is the same up to there, because leaders only append.

        An end that was never committed is replaced by batches of another leader's epoch, which is in their headers.
        """
        first = max((base for base in bases if base < self.end), default=None)
        if first is None:
            return False
        position = _position_of(directory, first, self.end - 1)
        for batch in _batches(directory / file_name(first, SEGMENT_SUFFIX), position, is_last=first == bases[-1]):
            if batch.header.last_offset >= self.end - 1:
                return batch.header == self.last
        return False

    def advance(self, batches: Iterator[_MetadataBatch], limit_ms: int) -> _MetadataBatch | None:
        """Apply the batches before the first one that is younger than ``limit_ms``; returns that one."""
        for batch in batches:
            if batch.header.max_timestamp > limit_ms:
                return batch
            self.apply(batch)
        return None

    def apply(self, batch: _MetadataBatch) -> None:
        """Apply the next batch."""
        at_ms = batch.header.max_timestamp
        self.transaction = _replay(batch, self.start, self.transaction, self.image)
        if self.transaction is None:
            self.image.as_of = batch.header.last_offset + 1
            self.image.as_of_ms = at_ms
        self.image.replicas.passed(at_ms, is_complete=self.transaction is None)
        self.last, self.end = batch.header, batch.header.last_offset + 1
        self.newest_ms = max(self.newest_ms, at_ms)


def _after(directory: Path, bases: list[int], start: int) -> Iterator[_MetadataBatch]:
    """The batches of the segments ``bases`` that reach offset ``start`` or a higher one, in order.

    This log is not compacted, so a gap means lost settings.
    """
    first = max((base for base in bases if base <= start), default=None)
    if first is None and bases:
        raise CorruptionError(
            f"the log starts at offset {bases[0]}, the newest complete snapshot ends at {start}", where=str(directory)
        )
    end = start
    for base in bases if first is None else bases[bases.index(first) :]:
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
    batch: _MetadataBatch, start: int, transaction: list[MetadataRecord] | None, image: MetadataImage
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


def _replay_snapshot(directory: Path, names: list[str], image: MetadataImage) -> int:
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


def _snapshot_ms(path: Path) -> int:
    """The time of the last batch that a snapshot contains; -1 if it is unknown."""
    image = MetadataImage()
    for batch in itertools.islice(_batches(path, 0, is_last=True), 1):
        _note_snapshot_time(batch, image)
    return image.as_of_ms


def _note_snapshot_time(batch: _MetadataBatch, image: MetadataImage) -> None:
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


def _newest_ms(directory: Path, bases: list[int]) -> int:
    """The time of the log's last batch; -1 if it has none. The active segment may be empty."""
    newest_ms = UNKNOWN_MS
    for base in reversed(bases):
        path = directory / file_name(base, SEGMENT_SUFFIX)
        for batch in _batches(path, _position_of(directory, base, MAX_OFFSET), is_last=True):
            newest_ms = batch.header.max_timestamp
        if newest_ms != UNKNOWN_MS:
            break
    return newest_ms
