"""Whole log directories for tests: the files of a stopped broker, made from the bytes of batches.

A few lines of this module compute the index entries (F-6/7.1), so that they check the kernel's and are not checked by
it. ``tests/support/logs.py`` makes the batches.
"""

from __future__ import annotations

import os
import struct
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cleanerd.format.batch import parse_header
from cleanerd.format.index import TXN_ENTRY
from cleanerd.format.names import uuid_to_base64
from cleanerd.format.record import Record, records_of
from cleanerd.format.snapshot import SNAPSHOT_ENTRY, write_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cleanerd.format.batch import BatchHeader

DIRECTORY_ID = uuid.UUID(int=0xD17EC7)
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


@dataclass(frozen=True, slots=True)
class Producer:
    """One entry of a producer snapshot. ``last_offset`` -1: only markers are known; ``open_from`` -1: none open."""

    producer_id: int
    last_offset: int
    timestamp_ms: int
    epoch: int = 0
    last_sequence: int = 0
    open_from: int = -1


@dataclass(frozen=True, slots=True)
class Partition:
    """The contents of a partition directory. The segment with the highest base is the active one.

    ``aborted``: entries of the transaction indexes by segment: producer id, first, last and last stable offset. Fields
    with None follow from the batches: high watermark and recovery point are the log end offset, there is no entry in
    the cleaner's checkpoint and none for the log start offset.
    """

    segments: Mapping[int, bytes]
    snapshots: Mapping[int, Sequence[Producer]] = field(default_factory=dict)
    high_watermark: int | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    cleaner_offset: int | None = None
    aborted: Mapping[int, Sequence[tuple[int, int, int, int]]] = field(default_factory=dict)
    epochs: Sequence[tuple[int, int]] = ((0, 0),)
    topic_id: uuid.UUID | None = field(default_factory=uuid.uuid4)
    indexes: bool = True
    index_interval_bytes: int = 4096
    mtime_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch of a segment, decoded in plain Python."""

    header: BatchHeader
    records: tuple[Record, ...]
    data: bytes
    position: int


def make_log_dir(path: Path, partitions: Mapping[str, Partition], *, clean_shutdown: bool = True) -> Path:
    """A log directory of a broker that was stopped, with ``partitions`` by directory name ("orders-0")."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "meta.properties").write_text(
        f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\ndirectory.id={uuid_to_base64(DIRECTORY_ID)}\n"
    )
    if clean_shutdown:
        (path / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":7}')
    ends = {name: write_partition(path / name, partition) for name, partition in partitions.items()}
    files = {
        HIGH_WATERMARKS: {n: ends[n] if p.high_watermark is None else p.high_watermark for n, p in partitions.items()},
        RECOVERY_POINTS: {n: ends[n] if p.recovery_point is None else p.recovery_point for n, p in partitions.items()},
        LOG_STARTS: {n: p.log_start_offset for n, p in partitions.items() if p.log_start_offset is not None},
        CLEANER_CHECKPOINT: {n: p.cleaner_offset for n, p in partitions.items() if p.cleaner_offset is not None},
    }
    for name, offsets in files.items():
        write_checkpoint(path / name, offsets)
    return path


def with_directory_id(path: Path, directory_id: uuid.UUID) -> Path:
    """Give a log directory another id: every one that :func:`make_log_dir` makes has the same."""
    meta = path / "meta.properties"
    meta.write_text(meta.read_text().replace(uuid_to_base64(DIRECTORY_ID), uuid_to_base64(directory_id)))
    return path


def write_checkpoint(path: Path, offsets: Mapping[str, int]) -> None:
    """A checkpoint file with one line per partition directory name (F-11)."""
    lines = ["0", str(len(offsets))]
    for name, offset in offsets.items():
        topic, _, number = name.rpartition("-")
        lines.append(f"{topic} {number} {offset}")
    path.write_text("".join(f"{line}\n" for line in lines))


def read_checkpoint(path: Path) -> dict[str, int]:
    """The lines of a checkpoint file by partition directory name."""
    rows = [line.split() for line in path.read_text().splitlines()[2:]]
    return {f"{topic}-{number}": int(offset) for topic, number, offset in rows}


def write_partition(path: Path, partition: Partition) -> int:
    """Make a partition directory; returns the log end offset."""
    path.mkdir(parents=True)
    if partition.topic_id is not None:
        text = f"version: 0\ntopic_id: {uuid_to_base64(partition.topic_id)}"
        (path / "partition.metadata").write_text(text)
    epochs = "".join(f"{epoch} {start}\n" for epoch, start in partition.epochs)
    (path / "leader-epoch-checkpoint").write_text(f"0\n{len(partition.epochs)}\n{epochs}")
    for offset, producers in partition.snapshots.items():
        (path / f"{offset:020d}.snapshot").write_bytes(snapshot_bytes(producers))
    for base, entries in partition.aborted.items():
        write_aborted(path, base, entries)
    end = max(partition.segments)
    for base, data in partition.segments.items():
        write_segment(path, base, data, indexes=partition.indexes, interval_bytes=partition.index_interval_bytes)
        if partition.mtime_ms is not None:
            set_mtime(path / f"{base:020d}.log", partition.mtime_ms)
        for batch_end, _, _ in frames(data):
            end = max(end, batch_end + 1)
    return end


def write_segment(path: Path, base: int, data: bytes, *, indexes: bool = True, interval_bytes: int = 4096) -> None:
    """The files of one segment."""
    (path / f"{base:020d}.log").write_bytes(data)
    if indexes:
        offset_index, time_index = index_bytes(base, data, interval_bytes)
        (path / f"{base:020d}.index").write_bytes(offset_index)
        (path / f"{base:020d}.timeindex").write_bytes(time_index)


def write_aborted(path: Path, base: int, entries: Sequence[tuple[int, int, int, int]]) -> None:
    """The transaction index of a segment: (producer id, first, last, last stable offset) per entry."""
    rows = np.array([(0, 0, *entry) for entry in entries], dtype=TXN_ENTRY)
    (path / f"{base:020d}.txnindex").write_bytes(rows.tobytes())


def index_bytes(base: int, data: bytes, interval_bytes: int = 4096) -> tuple[bytes, bytes]:
    """``.index`` and ``.timeindex`` of a segment, entries per batch; the time index ends with the largest timestamp."""
    offsets, times = bytearray(), bytearray()
    largest, largest_at, written, since, position = -1, base, -1, 0, 0
    for last_offset, max_timestamp, size in frames(data):
        if max_timestamp > largest:
            largest, largest_at = max_timestamp, last_offset
        if since > interval_bytes and 0 <= last_offset - base < 2**31:
            offsets += struct.pack(">ii", last_offset - base, position)
            if largest > written:
                times += struct.pack(">qi", largest, largest_at - base)
                written = largest
            since = 0
        since += size
        position += size
    if largest > written and 0 <= largest_at - base < 2**31:
        times += struct.pack(">qi", largest, largest_at - base)
    return bytes(offsets), bytes(times)


def frames(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(last offset, largest timestamp, size) of the whole batches of any magic at the start of ``data``."""
    position = 0
    while len(data) - position > 16:
        offset, length = struct.unpack_from(">qi", data, position)
        is_v2 = data[position + 16] == 2
        if length < (49 if is_v2 else 14) or position + 12 + length > len(data):
            return
        if is_v2:
            (delta,) = struct.unpack_from(">i", data, position + 23)
            (timestamp,) = struct.unpack_from(">q", data, position + 35)
        else:
            delta, timestamp = 0, -1
        yield offset + delta, timestamp, 12 + length
        position += 12 + length


def snapshot_bytes(producers: Sequence[Producer]) -> bytes:
    """A producer snapshot (F-10)."""
    rows = [
        (p.producer_id, p.epoch, p.last_sequence, p.last_offset, 0, p.timestamp_ms, -1, p.open_from) for p in producers
    ]
    return write_snapshot(np.array(rows, dtype=SNAPSHOT_ENTRY))


def set_mtime(path: Path, mtime_ms: int) -> None:
    """Set the modification time, as for a file that was written long ago."""
    os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))


def batches_of(data: bytes) -> list[StoredBatch]:
    """All v2 batches of a segment, checksums verified."""
    batches = []
    position = 0
    while position < len(data):
        header = parse_header(data, position)
        batch = data[position : position + header.size_bytes]
        batches.append(StoredBatch(header, tuple(records_of(batch, limit_bytes=1 << 30)), batch, position))
        position += header.size_bytes
    return batches


def read_segments(path: Path) -> dict[int, list[StoredBatch]]:
    """The segments of a partition directory by base offset, in order."""
    logs = sorted(path.glob("*.log"))
    return {int(log.stem): batches_of(log.read_bytes()) for log in logs}


def tree(path: Path, *, without: Sequence[str] = (".lock",)) -> dict[str, tuple[object, ...]]:
    """Everything under ``path`` except the names in ``without``: mode, owner, inode, modification time, and the bytes.

    A directory's own time is left out, because a staging directory changes it.
    """
    found: dict[str, tuple[object, ...]] = {}
    for entry in sorted(path.rglob("*")):
        if entry.name in without:
            continue
        status = entry.lstat()
        facts: tuple[object, ...] = (status.st_mode, status.st_uid, status.st_gid, status.st_ino)
        if entry.is_file() and not entry.is_symlink():
            facts += (status.st_mtime_ns, entry.read_bytes())
        found[str(entry.relative_to(path))] = facts
    return found
