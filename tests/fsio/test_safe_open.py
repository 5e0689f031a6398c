"""U-33: a planted file, link or device is reported and left alone."""

from __future__ import annotations

import os
import socket
import tracemalloc
from typing import TYPE_CHECKING, Final

import pytest

from cleanerd.errors import CleanerdError
from cleanerd.fsio.plain_file import read_plain_at
from cleanerd.fsio.safe_open import (
    HostileNameError,
    create,
    make_directory,
    open_directory,
    open_to_read,
    open_to_write,
    open_trusted_directory,
    plain_name,
    read_whole,
)
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch
from tests.support.now_open import open_descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLANTS: Final = ("link", "dangling", "fifo", "socket", "directory", "hard link", "loop")


def plant(path: Path, what: str, victim: Path) -> None:
    """Put ``what`` at ``path``; ``victim`` is a file of another user on the same file system."""
    match what:
        case "link":
            path.symlink_to(victim)
        case "dangling":
            path.symlink_to(victim.with_name("not-there"))
        case "loop":
            path.symlink_to(path.name)
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(path))
        case "directory":
            path.mkdir()
        case "hard link":
            path.hardlink_to(victim)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that must not change."""
    path = tmp_path / "victim"
    path.write_bytes(b"secret")
    return path


@pytest.fixture
def place(tmp_path: Path) -> Iterator[int]:
    """An open directory ``d``."""
    (tmp_path / "d").mkdir()
    descriptor = open_trusted_directory(tmp_path / "d")
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("what", PLANTS)
def test_planted_entries_are_not_opened(tmp_path: Path, victim: Path, place: int, what: str) -> None:
    """U-33: neither for reading nor for writing, and at once: a pipe would block indefinitely."""
    plant(tmp_path / "d" / "name", what, victim)
    for opens in (
        lambda: open_to_read("name", dir_fd=place, one_name=True),
        lambda: open_to_write("name", dir_fd=place, flags=os.O_APPEND),
        lambda: read_whole("name", dir_fd=place, one_name=True),
    ):
        with pytest.raises(HostileNameError) as caught:
            opens()
        assert caught.value.strerror is not None
        assert caught.value.strerror.startswith(("it is", "it has 2 names", "Is a directory"))
    if what != "directory":
        with pytest.raises(OSError, match="it is"):
            open_directory("name", dir_fd=place)
    assert victim.read_bytes() == b"secret"


@pytest.mark.parametrize("what", PLANTS)
def test_planted_entries_are_not_replaced_by_a_new_file(tmp_path: Path, victim: Path, place: int, what: str) -> None:
    """U-33: a planted entry at the name of a new file is reported, and neither written nor removed."""
    plant(tmp_path / "d" / "name", what, victim)
    before = victim.stat()
    with pytest.raises(HostileNameError, match=r"it is|it has|Is a"):
        create("name", dir_fd=place)
    assert os.path.lexists(tmp_path / "d" / "name")
    after = victim.stat()
    assert (victim.read_bytes(), after.st_mode, after.st_mtime_ns) == (b"secret", before.st_mode, before.st_mtime_ns)


def test_a_killed_runs_file_is_replaced(tmp_path: Path, place: int) -> None:
    """The old file is not written: a process that has it open keeps its content."""
    (tmp_path / "d" / "name").write_bytes(b"left")
    with open(tmp_path / "d" / "name", "rb") as left:
        descriptor = create("name", dir_fd=place)
        os.write(descriptor, b"ours")
        os.close(descriptor)
        assert left.read() == b"left"
    assert (tmp_path / "d" / "name").read_bytes() == b"ours"


def test_a_directory_is_not_reached_through_a_link(tmp_path: Path, place: int) -> None:
    """O_NOFOLLOW checks only the last part of a path: each part is opened separately."""
    (tmp_path / "elsewhere" / "plan").mkdir(parents=True)
    (tmp_path / "d" / "stage").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HostileNameError, match="symbolic link"):
        open_directory("stage/plan", dir_fd=place)
    with pytest.raises(HostileNameError, match="symbolic link"):
        make_directory("stage", dir_fd=place, mode=0o755)
    (tmp_path / "d" / "stage").unlink()
    os.close(make_directory("stage", dir_fd=place, mode=0o751))
    assert (tmp_path / "d" / "stage").stat().st_mode & 0o777 == 0o751
    os.close(open_directory("stage", dir_fd=place))


def test_the_operators_own_link_is_followed(tmp_path: Path) -> None:
    """A log directory may be a link to a disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "disk")
    descriptor = open_trusted_directory(tmp_path / "logs")
    os.close(create("a", dir_fd=descriptor))
    os.close(descriptor)
    assert (tmp_path / "disk" / "a").exists()


def test_a_small_file_has_a_limit(tmp_path: Path, place: int) -> None:
    """A sparse file of any size costs its owner nothing."""
    (tmp_path / "d" / "small").write_bytes(b"12345")
    assert read_whole("small", dir_fd=place, max_bytes=5) == b"12345"
    with pytest.raises(HostileNameError, match="larger than 4 bytes"):
        read_whole("small", dir_fd=place, max_bytes=4)


@pytest.mark.parametrize("read", ["as root", "as its owner could"])
def test_a_large_file_is_refused_unread(tmp_path: Path, place: int, read: str) -> None:
    """U-35: a file refused by its size uses no memory; otherwise reading 3 GB of zeros would take all of it."""
    with (tmp_path / "d" / "small").open("wb") as file:
        file.truncate(3 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(HostileNameError, match="larger than"):
            read_whole("small", dir_fd=place) if read == "as root" else read_plain_at("small", place)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_files_read_by_every_scan_have_a_small_limit(tmp_path: Path) -> None:
    """U-35: also a partition's or log directory's own file below the limit of indexes and snapshots."""
    batch = keyed_batch(0, [("k", "v")])
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: batch, 1: b""})})
    log_dir = read_log_dir(path)
    for name, limit in (("leader-epoch-checkpoint", 16 << 20), ("partition.metadata", 64 << 10)):
        with (path / "orders-0" / name).open("wb") as file:
            file.truncate(100 << 20)
        with pytest.raises(CleanerdError, match=f"larger than {limit} bytes"):
            read_partition(log_dir, log_dir.partitions[0])
        (path / "orders-0" / name).unlink()
    for name, limit in (("cleaner-offset-checkpoint", 16 << 20), ("meta.properties", 64 << 10)):
        with (path / name).open("wb") as file:
            file.truncate(100 << 20)
        with pytest.raises(CleanerdError, match=f"larger than {limit} bytes"):
            read_log_dir(path)


def test_no_descriptor_is_left(tmp_path: Path, victim: Path, place: int) -> None:
    """The refused file was closed: the daemon meets it at every scan."""
    for number, what in enumerate(PLANTS):
        plant(tmp_path / "d" / str(number), what, victim)
    before = open_descriptors()
    for number in range(len(PLANTS)):
        for opens in (open_to_read, open_directory):
            try:
                os.close(opens(str(number), dir_fd=place))
            except OSError:
                continue
    assert open_descriptors() <= before


def test_a_recorded_name_is_plain() -> None:
    """U-33: a name in a record is inside the record's directory."""
    assert plain_name("00000000000000000000.log") == "00000000000000000000.log"
    for name in ("", ".", "..", "a/b", "/etc", "../x", "a\0b"):
        with pytest.raises(ValueError, match="not a plain name"):
            plain_name(name)
