"""The log directory's lock against other processes, also a JVM (S-10 .. S-13, S-15)."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.errors import CleanerdError, LogDirBusyError
from cleanerd.swap import lock as lock_module
from cleanerd.swap.lock import LogDirLock
from tests.support.patience import PATIENCE_SECONDS
from tests.support.root import needs_root
from tests.swap.lock_holders import java_lock, python, record_lock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".lock"


def take(log_dir: Path, wait_seconds: float = 0.0, **limits: float) -> LogDirLock:
    return LogDirLock.acquire(log_dir, wait_seconds, settle_seconds=0.0, **limits)


def test_a_record_lock_of_another_process_excludes_cleanerd(tmp_path: Path, path: Path) -> None:
    """S-10: a broker's lock is a POSIX record lock; the message names its holder."""
    path.touch()
    with record_lock(path) as answer:
        assert answer == "locked"
        with pytest.raises(LogDirBusyError, match=r"held by process \d+") as caught:
            take(tmp_path)
        assert caught.value.exit_code == 4
    take(tmp_path).release()


def test_cleanerds_lock_excludes_another_process(tmp_path: Path, path: Path) -> None:
    """S-10: `flock` would not."""
    with take(tmp_path), record_lock(path) as answer:
        assert answer == "busy"
    with record_lock(path) as answer:
        assert answer == "locked"


@pytest.mark.slow
def test_java_and_cleanerd_exclude_each_other(tmp_path: Path, path: Path) -> None:
    """S-10, X-21 with the call that brokers use: the second process does not continue."""
    with java_lock(path) as answer:
        assert answer == "locked"
        with pytest.raises(LogDirBusyError):
            take(tmp_path)
    with take(tmp_path), java_lock(path) as answer:
        assert answer == "busy"


def test_opening_the_file_again_does_not_drop_the_lock(tmp_path: Path, path: Path) -> None:
    """S-10: a record lock (`lockf`) is gone as soon as the process closes any descriptor of the file."""
    with take(tmp_path):
        os.close(os.open(path, os.O_RDWR))
        with pytest.raises(LogDirBusyError):
            take(tmp_path)
        with record_lock(path) as answer:
            assert answer == "busy"


def test_a_kernel_without_ofd_locks_gets_a_record_lock_and_one_open(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-10: the fallback; then `.lock` is never opened twice."""
    real = fcntl.fcntl

    def without_ofd(descriptor: int, command: int, argument: Any = 0) -> Any:
        if command == fcntl.F_OFD_SETLK:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, command, argument)

    # An old kernel, which no test can have.
    monkeypatch.setattr(fcntl, "fcntl", without_ofd)
    with take(tmp_path) as held:
        assert held.is_record_lock
        with pytest.raises(LogDirBusyError, match=str(os.getpid())):
            take(tmp_path)
        with record_lock(path) as answer:
            assert answer == "busy"
        held.check()
    with record_lock(path) as answer:
        assert answer == "locked"


@needs_root
@pytest.mark.parametrize("model", ["recovery-point-offset-checkpoint", "meta.properties", None])
def test_a_created_lock_has_the_directorys_owner(tmp_path: Path, path: Path, model: str | None) -> None:
    """S-11: a `.lock` of root would stop a broker that runs as another user."""
    if model is None:
        os.chown(tmp_path, 1234, 2345)
    else:
        (tmp_path / model).touch(0o600)
        os.chown(tmp_path / model, 1234, 2345)
        (tmp_path / model).chmod(0o640)
    take(tmp_path).release()
    status = path.stat()
    assert (status.st_uid, status.st_gid) == (1234, 2345)
    assert status.st_mode & 0o777 == (0o644 if model is None else 0o640)


@needs_root
def test_an_existing_lock_is_left_as_it_is(tmp_path: Path, path: Path) -> None:
    """S-11, S-15: cleanerd changes neither its owner nor its existence."""
    path.touch()
    path.chmod(0o600)
    os.chown(path, 77, 78)
    inode = path.stat().st_ino
    take(tmp_path).release()
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777, status.st_ino) == (77, 78, 0o600, inode)


def test_a_symbolic_link_is_refused_as_lock(tmp_path: Path, path: Path) -> None:
    """A link could make cleanerd create a file anywhere and change its owner."""
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CleanerdError, match="cannot be opened"):
        take(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """S-12: when cleanerd dies, a living child must not keep the broker from starting."""
    program = """
import os, sys, time
from pathlib import Path
from cleanerd.swap.lock import LogDirLock
lock = LogDirLock.acquire(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    time.sleep(600)
    os._exit(0)
print(child, flush=True)
os._exit(0)  # without unlocking, like a killed process
"""
    done = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert done.stdout is not None
    child = int(done.stdout.readline())
    done.wait(timeout=PATIENCE_SECONDS)
    try:
        take(tmp_path, wait_seconds=PATIENCE_SECONDS, max_wait_seconds=PATIENCE_SECONDS).release()
        os.kill(child, 0)
    finally:
        os.kill(child, 9)
        done.stdout.close()


def test_a_lock_won_on_a_removed_file_is_not_enough(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-13: a stopping broker unlocks and *then* removes the file: a lock taken in between protects nothing."""
    real = lock_module._try_lock
    removed: list[int] = []

    def remove_after_first(descriptor: int, log_dir: Path) -> tuple[int, int | None]:
        answer = real(descriptor, log_dir)
        if not removed:
            removed.append(os.fstat(descriptor).st_ino)
            path.unlink()
        return answer

    # the moment between the lock and the check of its path, which no other process can hit reliably
    monkeypatch.setattr(lock_module, "_try_lock", remove_after_first)
    with pytest.raises(LogDirBusyError, match="removed and created"):
        take(tmp_path)
    removed.clear()
    with take(tmp_path, wait_seconds=2.0), record_lock(path) as answer:
        assert answer == "busy"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_lock_that_was_removed_or_replaced_is_noticed_before_a_commit(
    tmp_path: Path, path: Path, *, replaced: bool
) -> None:
    """S-13, S-33: checked once more while it is held."""
    with take(tmp_path) as held:
        held.check()
        path.unlink()
        if replaced:
            path.touch()
        with pytest.raises(LogDirBusyError, match="removed or replaced"):
            held.check()


@pytest.mark.slow
def test_the_first_check_waits_until_the_lock_has_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-13: the second comparison comes at least a second after the first; later ones cost nothing."""
    assert lock_module.SETTLE_SECONDS >= 1.0
    begun = time.monotonic()
    with LogDirLock.acquire(tmp_path, settle_seconds=1.5) as held:
        held.check()
        assert time.monotonic() - begun >= 1.5
        slept: list[float] = []
        # a second check that waits would show in the time only on an idle machine
        monkeypatch.setattr(lock_module.time, "sleep", slept.append)
        held.check()
        assert sum(slept) == 0


def test_a_released_lock_allows_no_commit(tmp_path: Path) -> None:
    """S-33: a bug in cleanerd must not look like a held lock."""
    held = take(tmp_path)
    held.release()
    held.release()
    with pytest.raises(LogDirBusyError):
        held.check()


def test_waiting_is_bounded(tmp_path: Path, path: Path) -> None:
    """S-15: no longer than requested, and never longer than a few seconds."""
    assert lock_module.MAX_WAIT_SECONDS <= 10
    path.touch()
    with record_lock(path):
        begun = time.monotonic()
        with pytest.raises(LogDirBusyError):
            take(tmp_path, wait_seconds=100.0, max_wait_seconds=0.3)
        assert 0.3 <= time.monotonic() - begun < 100


def test_a_lock_that_is_released_in_time_is_taken(tmp_path: Path, path: Path) -> None:
    """S-15: waiting helps while a broker is stopping."""
    path.touch()
    program = """
import fcntl, sys, time
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(0.5)
fcntl.lockf(file, fcntl.LOCK_UN)
sys.stdin.read()
"""
    with python(program, path):
        take(tmp_path, wait_seconds=PATIENCE_SECONDS, max_wait_seconds=PATIENCE_SECONDS).release()


def test_two_directories_at_once(tmp_path: Path) -> None:
    """A broker has one lock per log directory."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with ExitStack() as stack:
        for name in ("a", "b"):
            stack.enter_context(take(tmp_path / name))


def test_a_path_that_is_not_a_directory(tmp_path: Path) -> None:
    """An error with the path, not a traceback."""
    with pytest.raises(CleanerdError, match="cannot be opened") as caught:
        take(tmp_path / "missing")
    assert str(tmp_path) in str(caught.value.where)
