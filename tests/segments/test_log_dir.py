"""The facts in the files of a log directory and a partition directory (F-5, F-9, F-11, S-21, C-86)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import CleanerdError, ConfigError, CorruptionError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import LogDirMemory, read_log_dir
from cleanerd.segments.partition import PartitionLog, read_partition
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    DIRECTORY_ID,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Partition,
    Producer,
    make_log_dir,
    write_checkpoint,
)
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = TopicPartition("orders", 0)
DATA = keyed_batch(0, [("a", "1"), ("b", "2")])


def read(path: Path, partition: Partition, *, clean_shutdown: bool = True) -> PartitionLog:
    return read_partition(
        read_log_dir(make_log_dir(path, {"orders-0": partition}, clean_shutdown=clean_shutdown)), ORDERS
    )


def test_partitions(tmp_path: Path) -> None:
    """S-21: without the metadata log, partitions being moved or deleted, files and links."""
    path = make_log_dir(tmp_path / "logs", {name: Partition({0: DATA}) for name in ("b-1", "a.b-10", "a.b-2")})
    for name in (
        "__cluster_metadata-0",
        "a-0.0123456789abcdef0123456789abcdef-delete",
        "a-1.x-future",
        "b-2-stray",
        "x",
    ):
        (path / name).mkdir()
    (path / "file-0").write_text("")
    (path / "link-0").symlink_to(path / "b-1")
    found = read_log_dir(path)
    assert [str(name) for name in found.partitions] == ["a.b-2", "a.b-10", "b-1"]
    assert (found.meta.node_id, found.meta.directory_id) == (1, DIRECTORY_ID)


def test_unchanged_files_are_not_parsed_again(tmp_path: Path) -> None:
    """A daemon reads every directory every few seconds: the same bytes and names give the same objects."""
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: b""}, high_watermark=7)})
    memory = LogDirMemory()
    first, second = read_log_dir(path, memory), read_log_dir(path, memory)
    assert second.high_watermarks is first.high_watermarks
    assert second.partitions is first.partitions
    write_checkpoint(path / HIGH_WATERMARKS, {"t-0": 8})
    (path / "t-1").mkdir()
    third = read_log_dir(path, memory)
    assert third == read_log_dir(path)
    assert third.high_watermarks == {TopicPartition("t", 0): 8}
    assert [str(name) for name in third.partitions] == ["t-0", "t-1"]
    assert first.high_watermarks == {TopicPartition("t", 0): 7}, "objects returned earlier do not change"
    (path / HIGH_WATERMARKS).unlink()
    (path / "t-1").rmdir()
    fourth = read_log_dir(path, memory)
    assert (fourth.high_watermarks, fourth.has_high_watermarks) == ({}, False)
    assert fourth.partitions == first.partitions


def test_clean_shutdown(tmp_path: Path) -> None:
    """S-27: the clean shutdown file of a broker."""
    assert read_log_dir(make_log_dir(tmp_path / "a", {})).clean_shutdown
    assert not read_log_dir(make_log_dir(tmp_path / "b", {}, clean_shutdown=False)).clean_shutdown


def test_missing_checkpoints(tmp_path: Path) -> None:
    """C-86: the high watermark is unknown, which differs from 0."""
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: DATA})})
    assert read_log_dir(path).has_high_watermarks
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_STARTS, CLEANER_CHECKPOINT):
        (path / name).unlink()
    found = read_log_dir(path)
    assert not found.has_high_watermarks
    log = read_partition(found, ORDERS)
    assert (log.high_watermark, log.recovery_point, log.log_start_offset, log.cleaner_offset) == (0, 0, 0, None)


CHECKPOINTS = (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_STARTS, CLEANER_CHECKPOINT)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, content) for name in CHECKPOINTS for content in (b"7\n0\n", b"0\n2\norders 0 5\n", b"\xff\xfe\x00")),
        ("meta.properties", b"version=7\n"),
        ("meta.properties", b"version=1\nnode.id=1\n"),
        ("meta.properties", b"version=1\ncluster.id=x\nnode.id=one\n"),
    ],
)
def test_damaged_file(tmp_path: Path, name: str, content: bytes) -> None:
    """F-11: no guesses; the error names the file."""
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: DATA})})
    (path / name).write_bytes(content)
    with pytest.raises(CorruptionError) as raised:
        read_log_dir(path)
    assert raised.value.where == str(path / name)


def test_a_missing_log_directory(tmp_path: Path) -> None:
    """The error names the wrong directory argument."""
    (tmp_path / "file").write_text("")
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: DATA})})
    for wrong, message in (
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / "file", "not a directory"),
        (path / "orders-0", "meta.properties"),
    ):
        with pytest.raises(ConfigError, match=message) as raised:
            read_log_dir(wrong)
        assert raised.value.where == str(wrong)


def test_directory_that_cannot_be_read(tmp_path: Path) -> None:
    """An expected error, so that the command's other directories are still cleaned."""
    wrong = tmp_path / ("x" * 300)
    with pytest.raises(CleanerdError, match="cannot be read") as raised:
        read_log_dir(wrong)
    assert raised.value.where == str(wrong)


def test_segments(tmp_path: Path) -> None:
    """F-5: by base offset, not by file time; companions by name; orphans do not count."""
    partition = Partition(
        {30: b"", 4: DATA, 2**40: DATA},
        snapshots={30: [Producer(1, 1, 1)], 9: [Producer(1, 1, 1)]},
        topic_id=uuid.UUID(int=3),
        epochs=((0, 4), (2, 30)),
    )
    log = read(tmp_path / "logs", partition)
    for name in (f"{50:020d}.index", f"{4:020d}.txnindex", f"{4:020d}.log.deleted", "notes.log", "4.log"):
        (log.path / name).write_bytes(b"")
    log = read_partition(read_log_dir(tmp_path / "logs"), ORDERS)
    assert [segment.base for segment in log.segments] == [4, 30, 2**40]
    assert log.active.base == 2**40
    assert (log.end_of(0), log.end_of(1)) == (30, 2**40)
    assert log.segments[0].suffixes == {".index", ".timeindex", ".txnindex"}
    assert log.segments[1].suffixes == {".index", ".timeindex", ".snapshot"}
    assert log.snapshots == (9, 30)
    assert log.topic_id == uuid.UUID(int=3)
    assert log.unfinished == ()
    assert log.segments[0].size_bytes == len(DATA)


def test_leader_epochs(tmp_path: Path) -> None:
    """F-9: the epoch that wrote an offset; -1 before the first known one."""
    log = read(tmp_path / "logs", Partition({0: DATA}, epochs=((1, 5), (4, 9))))
    assert [log.leader_epoch_at(offset) for offset in (0, 4, 5, 8, 9, 100)] == [-1, -1, 1, 1, 4, 4]


@pytest.mark.parametrize(("checkpoint", "expected"), [(None, 4), (0, 4), (4, 4), (6, 6)])
def test_log_start(tmp_path: Path, checkpoint: int | None, expected: int) -> None:
    """C-86: the larger of the checkpoint and the first base."""
    assert read(tmp_path / "logs", Partition({4: DATA}, log_start_offset=checkpoint)).log_start_offset == expected


def test_unfinished(tmp_path: Path) -> None:
    """S-21: an interrupted swap of another process."""
    log = read(tmp_path / "logs", Partition({0: DATA}))
    for name in (f"{0:020d}.log.swap", f"{0:020d}.index.cleaned"):
        (log.path / name).write_bytes(b"")
    assert read_partition(read_log_dir(tmp_path / "logs"), ORDERS).unfinished == (
        f"{0:020d}.index.cleaned",
        f"{0:020d}.log.swap",
    )


def test_no_segment(tmp_path: Path) -> None:
    """A directory without a segment, and a missing one."""
    log = read(tmp_path / "logs", Partition({0: DATA}))
    (log.path / f"{0:020d}.log").unlink()
    with pytest.raises(CorruptionError, match="no segment"):
        read_partition(read_log_dir(tmp_path / "logs"), ORDERS)
    found = read_log_dir(tmp_path / "logs")
    for entry in log.path.iterdir():
        entry.unlink()
    log.path.rmdir()
    with pytest.raises(CleanerdError, match="cannot be listed"):
        read_partition(found, ORDERS)


def test_segment_that_is_not_a_file(tmp_path: Path) -> None:
    """A link or a directory with a segment's name is ignored."""
    log = read(tmp_path / "logs", Partition({0: DATA, 2: b""}))
    (log.path / f"{0:020d}.log").rename(tmp_path / "elsewhere")
    (log.path / f"{0:020d}.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptionError, match="not a plain file"):
        read_partition(read_log_dir(tmp_path / "logs"), ORDERS)


@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint"])
def test_damaged_small_file(tmp_path: Path, name: str) -> None:
    """F-5, F-9: the error names the file."""
    log = read(tmp_path / "logs", Partition({0: DATA}))
    (log.path / name).write_bytes(b"version: 7\n")
    with pytest.raises(CorruptionError) as raised:
        read_partition(read_log_dir(tmp_path / "logs"), ORDERS)
    assert raised.value.where == str(log.path / name)
    (log.path / name).unlink()
    assert read_partition(read_log_dir(tmp_path / "logs"), ORDERS).segments


def test_linked_partition_is_named_and_not_followed(tmp_path: Path) -> None:
    """A link may lead out of the scope of ``.lock``; a broker follows it, so it is reported."""
    log_dir = make_log_dir(tmp_path / "d", {"orders-0": Partition({0: b""})})
    (log_dir / "orders-1").symlink_to(log_dir / "orders-0", target_is_directory=True)
    found = read_log_dir(log_dir)
    assert [str(name) for name in found.partitions] == ["orders-0"]
    assert [str(name) for name in found.linked] == ["orders-1"]
