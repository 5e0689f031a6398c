"""Staged segments with direct I/O: every byte arrives, whatever the file system supports."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.cleaner.log_file import BUFFER_BYTES, LogFile, WriteBuffer
from cleanerd.errors import CleanerdError
from tests.support.patience import PATIENCE_SECONDS
from tests.support.system_calls import system_call
from tests.support.thread_limits import no_background_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

BLOCK = 4096


@pytest.fixture(params=["disk", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system with direct I/O, if the machine has one, and one in memory."""
    if request.param == "disk":
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)


def _open(path: Path, buffer: WriteBuffer | None = None) -> LogFile:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    return LogFile(descriptor, str(path), buffer or WriteBuffer())


def _bytes(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, size=count, dtype=np.uint8)


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [0],
        [1],
        [BLOCK - 1, 1],
        [BLOCK + 1],
        [BUFFER_BYTES],
        [BUFFER_BYTES - 1, 2],
        [10, BUFFER_BYTES, 3],
        [2 * BUFFER_BYTES + 5 * BLOCK + 7],
        [BUFFER_BYTES, 0, BLOCK],
    ],
    ids=str,
)
def test_every_byte_arrives(directory: Path, pieces: list[int]) -> None:
    content = [_bytes(count) for count in pieces]
    output = _open(directory / "f")
    for piece in content:
        output.write(piece)
    output.finish()
    output.close()
    assert (directory / "f").read_bytes() == b"".join(piece.tobytes() for piece in content)


def _in_a_page(lead: np.ndarray, data: np.ndarray, *, shift: int) -> np.ndarray:
    """``lead`` and ``data`` in one array that begins ``shift`` bytes behind a page's start."""
    memory = np.zeros(2 * BLOCK + shift + len(lead) + len(data), np.uint8)
    start = -memory.ctypes.data % BLOCK + shift
    block = memory[start : start + len(lead) + len(data)]
    block[: len(lead)] = lead
    block[len(lead) :] = data
    return block


@pytest.mark.long
@given(data=st.data())
def test_blocks_with_and_without_their_lead(data: st.DataObject) -> None:
    """For any requested lead, position and length of blocks: every byte arrives, in order."""
    steps = data.draw(
        st.lists(
            st.tuples(st.integers(0, 3 * BLOCK), st.sampled_from(["plain", "lead", "elsewhere"])),
            min_size=1,
            max_size=8,
        )
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "f"
        output = _open(path)
        content = b""
        for count, how in steps:
            piece = _bytes(count)
            lead = output.lead() if how != "plain" else None
            if lead is None:
                output.write(piece)
            else:
                assert len(lead) < BLOCK
                shift = 0 if how == "lead" else 8
                output.write(_in_a_page(lead, piece, shift=shift), len(lead))
            content += piece.tobytes()
        output.finish()
        output.close()
        assert path.read_bytes() == content


@pytest.mark.parametrize("size", [3 * BLOCK + 5, BUFFER_BYTES + 5])
def test_files_share_a_buffer_one_after_the_other(directory: Path, size: int) -> None:
    """A long file before a short one: no byte of it may appear there, whether a thread wrote the first or not."""
    buffer = WriteBuffer()
    for name, count in (("a", size), ("b", BLOCK + 1)):
        output = _open(directory / name, buffer)
        output.write(_bytes(count))
        output.finish()
        output.close()
        assert (directory / name).read_bytes() == _bytes(count).tobytes()
    buffer.close()


def test_blocks_written_behind(directory: Path) -> None:
    """Blocks at a page's start, between data that pass through the buffer: in the file as they came."""
    buffer = WriteBuffer()
    output = _open(directory / "a", buffer)
    content = b""
    for count in (5, 3 * BUFFER_BYTES + 17, BUFFER_BYTES, 1, 2 * BUFFER_BYTES):
        lead, piece = output.lead(), _bytes(count)
        if lead is None or count == BUFFER_BYTES:
            output.write(piece)
        else:
            output.write(_in_a_page(lead, piece, shift=0), len(lead))
        content += piece.tobytes()
    output.finish()
    output.close()
    buffer.close()
    assert (directory / "a").read_bytes() == content


def assert_written_behind(directory: Path) -> None:
    """Data that fill several buffers, in pieces of an odd size, are in the file as they came."""
    buffer = WriteBuffer()
    content = _bytes(5 * BUFFER_BYTES + 1234)
    output = _open(directory / "a", buffer)
    for start in range(0, len(content), 1_000_003):
        output.write(content[start : start + 1_000_003])
    output.finish()
    output.close()
    buffer.close()
    assert (directory / "a").read_bytes() == content.tobytes()


def test_written_behind(directory: Path) -> None:
    """Several full buffers, written by a thread: the halves are not mixed up, for pieces of any size."""
    assert_written_behind(directory)


def writing_by(write: Callable[[int, memoryview], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on ``write`` is the system call."""
    system_call(monkeypatch, "write", write)  # no disk is full, slow or cut short on demand


@pytest.mark.parametrize("shift", [0, 8], ids=["block", "buffer"])
def test_a_failure_behind_is_reported(directory: Path, monkeypatch: pytest.MonkeyPatch, shift: int) -> None:
    """No space for the thread: the writer learns of it, at the next full buffer or at the end."""

    def full(_: int, __: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    writing_by(full, monkeypatch)
    buffer = WriteBuffer()
    output = _open(directory / "a", buffer)
    output.write(_in_a_page(_bytes(0), _bytes(BUFFER_BYTES), shift=shift))
    with pytest.raises(CleanerdError, match="cannot be written: No space left"):
        output.finish()
    output.close()
    buffer.close()


class _SignalledError(Exception):
    """Raised by a signal's handler."""


def test_a_signal_while_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread still writes: its descriptor, which another file would get next, is not closed before it has ended."""
    write, go_on = os.write, threading.Event()
    done: list[int] = []

    def slow(descriptor: int, data: memoryview) -> int:
        assert go_on.wait(PATIENCE_SECONDS)
        done.append(write(descriptor, data))
        return done[-1]

    def signalled(_number: int, _frame: FrameType | None) -> None:
        threading.Timer(0.2, go_on.set).start()
        raise _SignalledError

    def signal_when_waiting(main: int) -> None:
        calls = [""]
        while calls[0] != "result" or "finish" not in calls:
            time.sleep(0.01)
            calls = [each.f_code.co_name for each, _ in traceback.walk_stack(sys._current_frames()[main])]
        signal.pthread_kill(main, signal.SIGALRM)

    buffer = WriteBuffer()
    output = _open(tmp_path / "a", buffer)
    writing_by(slow, monkeypatch)
    before = signal.signal(signal.SIGALRM, signalled)
    try:
        output.write(_in_a_page(_bytes(0), _bytes(BUFFER_BYTES), shift=8))
        threading.Thread(target=signal_when_waiting, args=[threading.get_ident()]).start()
        with pytest.raises(_SignalledError):
            output.finish()
        output.close()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert done == [BUFFER_BYTES]
    buffer.close()


def test_behind_without_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a limit of threads: everything is written nevertheless, once."""
    no_background_threads(monkeypatch)
    assert_written_behind(tmp_path)


def _is_direct(descriptor: int) -> bool:
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)


def test_writes_cut_short_and_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A direct write that ends at an odd byte: the next one would be refused, so the rest uses the cache."""
    real = os.write
    calls: list[bool] = []

    def write(descriptor: int, data: memoryview) -> int:
        direct = _is_direct(descriptor)
        calls.append(direct)
        if len(calls) == 1:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT)
            count = real(descriptor, data[:1000])
            fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_DIRECT)
            return count
        if direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, data)

    output = _open(tmp_path / "f")
    writing_by(write, monkeypatch)
    output.write(_bytes(5 * BLOCK))
    output.finish()
    output.close()
    assert (tmp_path / "f").read_bytes() == _bytes(5 * BLOCK).tobytes()
    assert calls == [True, True, False]


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO, errno.EINVAL])
def test_read_errors_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_number: int) -> None:
    """Also EINVAL when direct I/O is not the cause."""

    def write(_descriptor: int, _data: memoryview) -> int:
        raise OSError(error_number, os.strerror(error_number))

    output = _open(tmp_path / "f")
    writing_by(write, monkeypatch)
    output.write(_bytes(10))
    with pytest.raises(CleanerdError, match=os.strerror(error_number)):
        output.finish()
    output.close()


def test_direct_io_if_it_is_supported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-30: whole blocks directly, only the file's end through the cache."""
    real = os.write
    seen: list[tuple[bool, int]] = []

    def write(descriptor: int, data: memoryview) -> int:
        seen.append((_is_direct(descriptor), len(data)))
        return real(descriptor, data)

    output = _open(tmp_path / "f")
    if not output._direct:
        pytest.skip("the temporary directory's file system has no direct I/O")
    writing_by(write, monkeypatch)
    output.write(_bytes(BUFFER_BYTES + BLOCK + 7))
    output.finish()
    output.close()
    direct = [size for is_direct, size in seen if is_direct]  # in one piece if the first was not read in time
    assert (sum(direct), [size % BLOCK for size in direct]) == (BUFFER_BYTES + BLOCK, [0] * len(direct))
    assert seen[len(direct) :] == [(False, 7)]
