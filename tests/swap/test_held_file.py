"""The files that show which cleanerd works on a log directory: one holder, no other users, no effect on the broker."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.lock_file import broker_runs, is_held, worker_of
from cleanerd.broker.mode import choose_mode
from cleanerd.errors import LogDirBusyError
from cleanerd.fsio.held_file import COMMAND_LOCK_FILE, DAEMON_FILE, HeldFile, holder_of
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.swap.lock import LogDirLock
from tests.support.log_dirs import make_log_dir
from tests.support.other_process import other_process
from tests.swap.live_round import held
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path

OTHER_USER = 65_534


def test_one_at_a_time(tmp_path: Path) -> None:
    """U-39: the second process reports the first one; when that ends or is killed, the file is free."""
    with other_process(tmp_path, "hold = HeldFile.acquire(path, DAEMON_FILE)") as pid:
        with pytest.raises(LogDirBusyError, match=rf"cleanerd clean \(process {pid}\) works on this directory"):
            HeldFile.acquire(tmp_path, DAEMON_FILE)
        assert str(holder_of(tmp_path, DAEMON_FILE)) == f"cleanerd clean (process {pid})"
        HeldFile.acquire(tmp_path, COMMAND_LOCK_FILE).release()
        os.kill(pid, 9)
    assert holder_of(tmp_path, DAEMON_FILE) is None
    assert (tmp_path / DAEMON_FILE).exists(), "the killed process left the file, which does not matter"
    again = HeldFile.acquire(tmp_path, DAEMON_FILE)
    assert json.loads((tmp_path / DAEMON_FILE).read_text())["pid"] == os.getpid()
    again.release()
    again.release()
    assert list(tmp_path.iterdir()) == []


def test_other_users_cannot_open_it(tmp_path: Path) -> None:
    """U-39: a process that could open it could hold it, and stop every cleaning on the host."""
    os.chown(tmp_path, 1000, 1000)
    tmp_path.chmod(0o755)
    hold = HeldFile.acquire(tmp_path, DAEMON_FILE)
    status = (tmp_path / DAEMON_FILE).stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert (status.st_uid, status.st_gid) == (1000, 1000), "the daemon, which does not run as root, uses it later"
    hold.release()
    (tmp_path / DAEMON_FILE).touch()
    (tmp_path / DAEMON_FILE).chmod(0o666)
    hold = HeldFile.acquire(tmp_path, DAEMON_FILE)
    assert stat.S_IMODE((tmp_path / DAEMON_FILE).stat().st_mode) == 0o600
    hold.release()


@pytest.mark.parametrize("planted", ["link", "pipe", "directory", "second name", "socket"])
def test_a_planted_lock_file_is_not_touched(tmp_path: Path, planted: str) -> None:
    """U-33: cleanerd does not lock it, and the target of a link is unchanged."""
    victim, log_dir = tmp_path / "victim", tmp_path / "logs"
    victim.write_text("mine")
    log_dir.mkdir()
    name = log_dir / DAEMON_FILE
    if planted == "link":
        name.symlink_to(victim)
    elif planted == "second name":
        name.hardlink_to(victim)
    elif planted == "directory":
        name.mkdir()
    elif planted == "socket":
        import socket  # noqa: PLC0415

        socket.socket(socket.AF_UNIX).bind(str(name))
    else:
        os.mkfifo(name)
    before = victim.stat()
    with pytest.raises(OSError, match=r"."):
        HeldFile.acquire(log_dir, DAEMON_FILE)
    assert holder_of(log_dir, DAEMON_FILE) is None
    assert (victim.read_text(), victim.stat().st_mode, victim.stat().st_uid) == ("mine", before.st_mode, before.st_uid)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', "[" * 4000, '{"name": 1, "pid": 1e999, "host": 0}'])
def test_a_file_without_a_valid_holder(tmp_path: Path, text: str) -> None:
    """Only the lock shows a running holder; the content may be anything."""
    hold = HeldFile.acquire(tmp_path, DAEMON_FILE)
    (tmp_path / DAEMON_FILE).write_text(text)
    assert str(holder_of(tmp_path, DAEMON_FILE)) == "another cleanerd"
    with pytest.raises(LogDirBusyError, match="another cleanerd works"):
        HeldFile.acquire(tmp_path, DAEMON_FILE)
    hold.release()


def test_a_removed_file(tmp_path: Path) -> None:
    """The removal is noticed, and another process's new file stays."""
    hold = HeldFile.acquire(tmp_path, DAEMON_FILE)
    (tmp_path / DAEMON_FILE).unlink()
    assert not hold.is_in_place()
    other = HeldFile.acquire(tmp_path, DAEMON_FILE)
    hold.release()
    assert other.is_in_place()
    other.release()


def test_a_command_that_holds_kafkas_lock_is_not_a_broker(tmp_path: Path) -> None:
    """U-39: the holder of ``.lock`` is distinguished by mode, refusal and ``explain``."""
    path = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    with other_process(path, "lock = LogDirLock.acquire(path)") as pid:
        assert is_held(path)
        assert not broker_runs(path)
        assert str(worker_of(path)) == f"cleanerd clean (process {pid})"
        choice = choose_mode(read_log_dir(path), [], None)
        assert (choice.mode, choice.worked_on) == ("offline", True)
        assert choice.reason == f"no broker runs on it; cleanerd clean (process {pid}) is running there"
        with pytest.raises(LogDirBusyError, match=rf"is held by cleanerd clean \(process {pid}\).*wait until it ends"):
            LogDirLock.acquire(path)
        os.kill(pid, 9)
    with held(path):
        assert broker_runs(path), "a killed process's file does not count"
        assert choose_mode(read_log_dir(path), [], None).reason.startswith("a broker runs on it")
        with pytest.raises(LogDirBusyError, match="stop the broker first"):
            LogDirLock.acquire(path)


def test_the_commands_file_is_removed_with_the_lock(tmp_path: Path) -> None:
    """A cleaned log directory has no leftover of it."""
    with LogDirLock.acquire(tmp_path, settle_seconds=0):
        assert worker_of(tmp_path) is not None
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([COMMAND_LOCK_FILE, ".lock"])
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_the_lock_holds_if_the_file_cannot_be_written(tmp_path: Path) -> None:
    """A planted name costs the message, not the cleaning."""
    (tmp_path / COMMAND_LOCK_FILE).mkdir()
    with LogDirLock.acquire(tmp_path, settle_seconds=0) as lock:
        lock.check()
        assert is_held(tmp_path)
        assert worker_of(tmp_path) is None
