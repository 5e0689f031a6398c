"""Kafka's checkpoint files; the cleaner's is written for the broker after the last group (S-50, F-11, U-10).

A damaged file takes the broker's whole log directory offline (H-23), and a lost line makes it clean a partition again
from its start. So the lines of other partitions are kept, and the file is replaced atomically, as the broker does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.broker.lock_file import FileOwner, owner_for_new_file
from cleanerd.errors import system_error
from cleanerd.format.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from cleanerd.segments.log_dir import CHECKPOINTS
from cleanerd.swap.files import PartitionFiles

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cleanerd.format.names import TopicPartition

CHECKPOINT: Final = "cleaner-offset-checkpoint"


def write_cleaner_checkpoint(log_dir: Path, partition: TopicPartition, offset: int) -> None:
    """Set the first dirty offset of one partition; as :func:`merge_cleaner_checkpoint`."""
    merge_cleaner_checkpoint(log_dir, {partition: offset})


def merge_cleaner_checkpoint(log_dir: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Set the first dirty offsets of some partitions and keep the others; a missing file is created.

    Call it with ``log_dir`` locked, after the cleaned data is on the disk. On the disk when this returns.

    Raises:
        CorruptionError: the existing file is damaged; it is not changed.
        CleanerdError: it cannot be read or written; it has its old or its new content.
    """
    with PartitionFiles(log_dir, trusted=True) as files:
        merge_into(files, offsets)


def merge_into(files: PartitionFiles, offsets: Mapping[TopicPartition, int]) -> None:
    """As :func:`merge_cleaner_checkpoint`, in an open log directory."""
    data = files.read(CHECKPOINT)
    entries = read_offset_checkpoint(data or b"", files.where(CHECKPOINT))
    merged = {**entries, **offsets}
    if data is None or merged != entries:
        _replace(files, CHECKPOINT, merged)
        files.fsync_directory()


def remove_from_checkpoints(log_dir: Path, partition: TopicPartition) -> None:
    """Remove the partition's line from all checkpoint files, as a broker does that deletes a log (U-77).

    Call it with ``log_dir`` locked. On the disk when this returns.

    Raises:
        CorruptionError: a file is damaged; all stay unchanged.
        CleanerdError: one cannot be read or written; some may have lost the line already.
    """
    with PartitionFiles(log_dir, trusted=True) as files:
        texts = {name: files.read(name) for name in CHECKPOINTS}
        found = {name: read_offset_checkpoint(text or b"", files.where(name)) for name, text in texts.items()}
        for name, entries in found.items():
            if entries.pop(partition, None) is not None:
                _replace(files, name, entries)
        files.fsync_directory()


def _replace(files: PartitionFiles, name: str, entries: Mapping[TopicPartition, int]) -> None:
    temporary = f"{name}.tmp"
    files.write(temporary, write_offset_checkpoint(entries), _owner(files, name))
    files.fsync(temporary)
    files.rename(temporary, name)


def _owner(files: PartitionFiles, name: str) -> FileOwner:
    """The owner of the replaced file, else that of its neighbours."""
    status = files.stat(name)
    if status is not None:
        return FileOwner(status.st_uid, status.st_gid, status.st_mode & 0o777)
    try:
        return owner_for_new_file(files.path)
    except OSError as error:
        raise system_error("cannot be read", str(files.path), error) from error
