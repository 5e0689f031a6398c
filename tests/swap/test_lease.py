"""The lease check: does any process have the segment open for writing (S-14, VERIFY-17)?"""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.broker.lease import LeaseResult, probe_lease
from cleanerd.errors import CleanerdError
from tests.swap.lock_holders import java_lock, python

if TYPE_CHECKING:
    from pathlib import Path

OPENED = "import sys; file = open(sys.argv[1], sys.argv[2]); print('open', flush=True); sys.stdin.read()"
MAPPED = """
import mmap, sys
file = open(sys.argv[1], "r+b")
mapping = mmap.mmap(file.fileno(), 0)
file.close()
print("mapped", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"data")
    return path


def test_a_file_without_a_writer_is_free(log: Path) -> None:
    """S-14: the lease is released: the next writer does not wait for it."""
    assert probe_lease(log) is LeaseResult.FREE
    begun = time.monotonic()
    log.open("r+b").close()
    assert time.monotonic() - begun < 40  # a lease that is not released blocks it for lease-break-time, 45 s
    assert probe_lease(log) is LeaseResult.FREE


def test_relative_to_a_directory(log: Path) -> None:
    """S-23."""
    directory = os.open(log.parent, os.O_RDONLY)
    try:
        assert probe_lease(log.name, dir_fd=directory) is LeaseResult.FREE
    finally:
        os.close(directory)


@pytest.mark.parametrize("mode", ["r+b", "ab"])
def test_a_writer_in_another_process_is_noticed(log: Path, mode: str) -> None:
    """S-14."""
    with python(OPENED, log, mode):
        assert probe_lease(log) is LeaseResult.OPENED
    assert probe_lease(log) is LeaseResult.FREE


def test_a_writable_mapping_alone_is_noticed(log: Path) -> None:
    """S-14: the descriptor is closed, only the mapping is left."""
    with python(MAPPED, log):
        assert probe_lease(log) is LeaseResult.OPENED


def test_a_reader_is_not_a_broker(log: Path) -> None:
    """A backup that reads the segment does not block cleanerd."""
    with python(OPENED, log, "rb"):
        assert probe_lease(log) is LeaseResult.FREE


@pytest.mark.slow
def test_a_jvm_with_the_segment_open_is_noticed(log: Path) -> None:
    """S-14: also if its `.lock` is free, as after a failed log directory or a deleted lock file."""
    with java_lock(log.parent / ".lock", log) as answer:
        assert answer == "locked"
        (log.parent / ".lock").unlink()
        assert probe_lease(log) is LeaseResult.OPENED


def test_a_new_file_under_the_old_path_is_another_inode(log: Path) -> None:
    """S-14: a lease belongs to the inode."""
    with python(OPENED, log, "r+b"):
        os.rename(log, log.with_suffix(".old"))
        log.write_bytes(b"")
        assert probe_lease(log) is LeaseResult.FREE


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (errno.EAGAIN, LeaseResult.OPENED),
        (errno.EACCES, LeaseResult.UNAVAILABLE),
        (errno.EINVAL, LeaseResult.UNAVAILABLE),
        (errno.ENOSYS, LeaseResult.UNAVAILABLE),
    ],
)
def test_only_eagain_means_that_the_file_is_open(
    log: Path, monkeypatch: pytest.MonkeyPatch, number: int, answer: LeaseResult
) -> None:
    """S-14: only EAGAIN means that a process has it open."""
    real = fcntl.fcntl

    def refusing(descriptor: int, command: int, argument: Any = 0) -> Any:
        if command == fcntl.F_SETLEASE:
            raise OSError(number, os.strerror(number))
        return real(descriptor, command, argument)

    # the kernel's error depends on file system and user
    monkeypatch.setattr(fcntl, "fcntl", refusing)
    assert probe_lease(log) is answer


def test_a_missing_file_and_a_link_are_errors(tmp_path: Path, log: Path) -> None:
    """The check applies to no other file."""
    with pytest.raises(CleanerdError, match="cannot be opened"):
        probe_lease(tmp_path / "missing.log")
    (tmp_path / "link.log").symlink_to(log)
    with pytest.raises(CleanerdError, match="cannot be opened"):
        probe_lease(tmp_path / "link.log")


@pytest.mark.slow
def test_a_concurrent_open_neither_waits_nor_kills_cleanerd(log: Path) -> None:
    """VERIFY-17: breaking a lease makes the kernel send a signal, which by default ends the process."""
    program = """
import sys, time
from cleanerd.broker.lease import probe_lease
until = time.monotonic() + 1.5
count = 0
while time.monotonic() < until or count <= 100:
    probe_lease(sys.argv[1])
    count += 1
print(count)
"""
    probing = subprocess.Popen([sys.executable, "-c", program, str(log)], stdout=subprocess.PIPE, text=True)
    longest = 0.0
    while probing.poll() is None:
        begun = time.monotonic()
        log.open("r+b").close()
        longest = max(longest, time.monotonic() - begun)
    assert probing.returncode == 0
    assert probing.stdout is not None
    assert int(probing.stdout.read()) > 100
    probing.stdout.close()
    assert longest < 40  # and no process waits until the kernel breaks the lease
