"""Inspection of directories: a partition (or a staged plan), a log directory, the metadata log."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.batch import CODEC_MASK, CODEC_NAMES, HAS_DELETE_HORIZON
from cleanerd.format.checkpoint import read_epoch_checkpoint
from cleanerd.format.index import read_offset_index, read_time_index, read_txn_index
from cleanerd.format.meta import read_partition_metadata
from cleanerd.format.names import (
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIMEINDEX_SUFFIX,
    TXNINDEX_SUFFIX,
    file_name,
    parse_file_name,
    parse_topic_partition_dir,
    uuid_to_base64,
)
from cleanerd.fsio.plain_file import read_plain
from cleanerd.humanize import human_bytes
from cleanerd.inspection.report import (
    Inspection,
    ReportTable,
    Row,
    RowSelection,
    TableColumn,
    moment,
    number,
    text_column,
    text_of,
)
from cleanerd.inspection.segment import zero_tail
from cleanerd.segments.cluster_metadata import read_cluster_metadata
from cleanerd.segments.log_dir import METADATA_TOPIC, LogDir, read_log_dir
from cleanerd.segments.partition import LEADER_EPOCHS, PARTITION_METADATA, read_partition
from cleanerd.segments.reading import SegmentReader
from cleanerd.segments.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from cleanerd._kernel import Batches
    from cleanerd.format.names import TopicPartition
    from cleanerd.segments.metadata_image import ClusterMetadata


def _size(row: Row) -> str:
    size = row["size_bytes"]
    return human_bytes(size) if isinstance(size, int) else "-"


SEGMENT_COLUMNS: Final = (
    number("base offset", "base_offset"),
    TableColumn("size", _size, right=True),
    number("batches", "batches"),
    number("records", "records"),
    number("last offset", "last_offset"),
    text_column("codecs", "codecs"),
    text_column("magic", "magic"),
    moment("smallest time", "min_timestamp"),
    moment("largest time", "max_timestamp"),
    number("index", "offset_index_entries"),
    number("time", "time_index_entries"),
    number("aborted", "aborted_transactions"),
    TableColumn("damage", lambda row: text_of(row.get("error"))),
)
PARTITION_COLUMNS: Final = (
    text_column("partition", "name"),
    number("segments", "segments"),
    TableColumn("size", _size, right=True),
    number("log start", "log_start_offset"),
    number("cleaner checkpoint", "cleaner_checkpoint"),
    number("recovery point", "recovery_point"),
    number("high watermark", "high_watermark"),
    text_column("topic id", "topic_id"),
    TableColumn("damage", lambda row: text_of(row.get("error"))),
)
TOPIC_COLUMNS: Final = (
    text_column("topic", "topic"),
    text_column("topic id", "topic_id"),
    text_column("settings", "configs"),
)


def inspect_partition(path: Path, selection: RowSelection) -> Inspection:
    """A row per segment, from its batch headers and indexes; damage in one segment does not hide the others."""
    name = parse_topic_partition_dir(path.resolve().name)
    found = Inspection(str(path), "partition" if name is not None else "directory of segments")
    files = {entry: parsed for entry in sorted(os.listdir(path)) if (parsed := parse_file_name(entry)) is not None}
    _partition_facts(path, name, files, found)
    table = ReportTable("segments", SEGMENT_COLUMNS, selection.limit)
    found.tables.append(table)
    bases = sorted(base for base, suffix in files.values() if suffix == SEGMENT_SUFFIX)
    with SegmentReader.open(str(path)) as reader:
        for at, base in enumerate(bases):
            end = bases[at + 1] - 1 if at + 1 < len(bases) else base
            if selection.is_past(base) or (at + 1 < len(bases) and not selection.includes(base, end)):
                continue
            if table.is_full:
                table.omitted += 1
                continue
            row, error = _segment_row(reader, path, base)
            table.add(row)
            found.error = found.error or error
    return found


def _partition_facts(
    path: Path, name: TopicPartition | None, files: dict[str, tuple[int, str]], found: Inspection
) -> None:
    if name is not None:
        found.facts["topic"], found.facts["partition"] = name.topic, name.partition
    try:
        if (path / PARTITION_METADATA).exists():
            data = read_plain(path / PARTITION_METADATA)
            found.facts["topic_id"] = uuid_to_base64(read_partition_metadata(data, str(path / PARTITION_METADATA)))
        if (path / LEADER_EPOCHS).exists():
            epochs = read_epoch_checkpoint(read_plain(path / LEADER_EPOCHS), str(path / LEADER_EPOCHS))
            found.facts["leader_epochs"] = [f"{each.epoch} from {each.start_offset}" for each in epochs]
        found.facts |= _offsets(path, name)
    except CorruptionError as error:
        found.error = error
    found.facts["producer_snapshots"] = [base for base, suffix in files.values() if suffix == SNAPSHOT_SUFFIX]
    plain = {SEGMENT_SUFFIX, INDEX_SUFFIX, TIMEINDEX_SUFFIX, TXNINDEX_SUFFIX, SNAPSHOT_SUFFIX}
    found.facts["pending_files"] = [entry for entry, (_, suffix) in files.items() if suffix not in plain]


def _offsets(path: Path, name: TopicPartition | None) -> dict[str, object]:
    """The partition's offsets in the checkpoints of its log directory, if it is in one."""
    parent = path.resolve().parent
    if name is None or not (parent / "meta.properties").exists():
        return {}
    log_dir = read_log_dir(parent)
    return {
        "log_start_offset": log_dir.log_start_offsets.get(name),
        "cleaner_checkpoint": log_dir.cleaner_offsets.get(name),
        "recovery_point": log_dir.recovery_points.get(name),
        "high_watermark": log_dir.high_watermarks.get(name),
    }


@dataclass(slots=True)
class _Sums:
    """Sums over the batch headers of a segment."""

    batches: int = 0
    records: int = 0
    last_offset: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int = -1
    codecs: set[int] = field(default_factory=set)
    magics: set[int] = field(default_factory=set)
    end: int = 0

    def add(self, batches: Batches) -> None:
        if not len(batches):
            return
        modern = batches.magic == 2
        self.batches += len(batches)
        # The header of a v0 or v1 wrapper does not have its number of messages: each counts as one.
        self.records += int(batches.first_record[-1]) + int((~modern).sum())
        self.last_offset = int(batches.last_offset[-1])
        # The horizon replaces the first timestamp.
        known = batches.base_timestamp[modern & (batches.attributes & HAS_DELETE_HORIZON == 0)]
        known = known[known >= 0]
        if known.size:
            smallest = int(known.min())
            self.min_timestamp = smallest if self.min_timestamp is None else min(self.min_timestamp, smallest)
        self.max_timestamp = max(self.max_timestamp, int(batches.max_timestamp.max()))
        self.codecs |= set(np.unique(batches.attributes & CODEC_MASK).tolist())
        self.magics |= set(np.unique(batches.magic).tolist())
        self.end = int(batches.position[-1]) + int(batches.size[-1])

    def row(self) -> dict[str, object]:
        return {
            "batches": self.batches,
            "records": self.records,
            "last_offset": self.last_offset,
            "codecs": [CODEC_NAMES[codec] if codec < len(CODEC_NAMES) else str(codec) for codec in sorted(self.codecs)],
            "magic": sorted(self.magics),
            "min_timestamp": self.min_timestamp,
            "max_timestamp": self.max_timestamp,
        }


def _segment_row(reader: SegmentReader, path: Path, base: int) -> tuple[dict[str, object], CleanerdError | None]:
    segment = Segment.from_stat(base, os.stat(path / file_name(base, SEGMENT_SUFFIX)), frozenset())
    sums = _Sums()
    error: CleanerdError | None = None
    row: dict[str, object] = {"base_offset": base, "size_bytes": segment.size_bytes}
    try:
        error = _scan(reader, segment, sums)
    except CleanerdError as caught:
        error = caught
    if isinstance(error, CorruptionError) and error.position >= 0 and _is_zero_tail(path, base, error.position):
        row["zero_tail_bytes"] = segment.size_bytes - error.position
        error = None
    row |= sums.row()
    readers: tuple[tuple[str, str, Callable[[bytes, str], NDArray[np.void]]], ...] = (
        ("offset_index_entries", INDEX_SUFFIX, read_offset_index),
        ("time_index_entries", TIMEINDEX_SUFFIX, read_time_index),
        ("aborted_transactions", TXNINDEX_SUFFIX, read_txn_index),
    )
    for key, suffix, read in readers:
        try:
            file = path / file_name(base, suffix)
            row[key] = len(read(read_plain(file), str(file)))
        except FileNotFoundError:
            row[key] = None
        except CorruptionError as caught:
            row[key] = None
            error = error or caught
    if error is not None:
        row["error"] = str(error)
    return row, error


def _scan(reader: SegmentReader, segment: Segment, sums: _Sums) -> CorruptionError | None:
    """Sum up the headers before the first damage, which is returned."""
    try:
        for batches in reader.headers(segment):
            sums.add(batches)
    except CorruptionError as error:
        if error.position < sums.end:
            return error
        # A chunk with damage in it yields nothing, so read it again up to the damage.
        for batches in reader.headers(dataclasses.replace(segment, size_bytes=error.position), start=sums.end):
            sums.add(batches)
        return error
    return None


def _is_zero_tail(path: Path, base: int, position: int) -> bool:
    """Whether the rest of the segment is preallocated zeros, which are not damage (F-1)."""
    try:
        zero_tail(path / file_name(base, SEGMENT_SUFFIX), position)
    except CorruptionError:
        return False
    return True


def inspect_log_dir(path: Path, selection: RowSelection) -> Inspection:
    """A row per partition; other directories by name only."""
    log_dir = read_log_dir(path)
    directory_id = log_dir.meta.directory_id
    found = Inspection(
        str(path),
        "log directory",
        {
            "cluster_id": log_dir.meta.cluster_id,
            "node_id": log_dir.meta.node_id,
            "directory_id": None if directory_id is None else uuid_to_base64(directory_id),
            "clean_shutdown": log_dir.clean_shutdown,
            "has_high_watermarks": log_dir.has_high_watermarks,
            "partitions_in_all": len(log_dir.partitions),
            "other_directories": _other_directories(path, log_dir),
        },
    )
    table = ReportTable("partitions", PARTITION_COLUMNS, selection.limit)
    found.tables.append(table)
    for name in log_dir.partitions:
        if table.is_full:
            table.omitted += 1
            continue
        row, error = _partition_row(log_dir, name)
        table.add(row)
        found.error = found.error or error
    return found


def _other_directories(path: Path, log_dir: LogDir) -> list[str]:
    known = {str(name) for name in log_dir.partitions}
    with os.scandir(path) as entries:
        return sorted(
            entry.name for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name not in known
        )


def _partition_row(log_dir: LogDir, name: TopicPartition) -> tuple[dict[str, object], CleanerdError | None]:
    row: dict[str, object] = {
        "name": str(name),
        "topic": name.topic,
        "partition": name.partition,
        "segments": None,
        "size_bytes": None,
        "log_start_offset": None,
        "cleaner_checkpoint": log_dir.cleaner_offsets.get(name),
        "recovery_point": log_dir.recovery_points.get(name),
        "high_watermark": log_dir.high_watermarks.get(name),
        "topic_id": None,
    }
    try:
        partition = read_partition(log_dir, name)
    except CleanerdError as error:
        return {**row, "error": str(error)}, error
    row |= {
        "segments": len(partition.segments),
        "size_bytes": sum(segment.size_bytes for segment in partition.segments),
        "log_start_offset": partition.log_start_offset,
        "topic_id": None if partition.topic_id is None else uuid_to_base64(partition.topic_id),
    }
    return row, None


def inspect_metadata_directory(path: Path, selection: RowSelection) -> Inspection:
    """The cluster's topics and log settings, from the newest snapshot and the log after it (U-23, U-24)."""
    metadata = read_cluster_metadata(path, only_before_ms=None)
    table = ReportTable("topics", TOPIC_COLUMNS, selection.limit)
    for topic, topic_id in sorted(metadata.topics.items()):
        configs = dict(sorted(metadata.topic_configs.get(topic, {}).items()))
        table.add({"topic": topic, "topic_id": uuid_to_base64(topic_id), "configs": configs})
    return Inspection(str(path), "cluster metadata", _metadata_facts(metadata), [table])


def _metadata_facts(metadata: ClusterMetadata) -> dict[str, object]:
    return {
        "as_of_offset": metadata.as_of,
        "as_of_ms": metadata.as_of_ms,
        "features": dict(sorted(metadata.features.items())),
        "brokers": sorted(metadata.brokers),
        "broker_default_configs": dict(metadata.broker_default_configs),
        "broker_configs": {str(broker): dict(values) for broker, values in sorted(metadata.broker_configs.items())},
    }


def is_metadata_directory(path: Path) -> bool:
    """Whether ``path`` is the directory of the KRaft metadata log."""
    return path.resolve().name == f"{METADATA_TOPIC}-0"
