"""A small file in a log directory, locked while a cleanerd process works on that directory.

Brokers ignore these files, because Kafka's loader skips plain files in a log directory. There are two of them: one for
the daemon, one for the command that holds Kafka's own lock; both may run at once. The file names the process; only the
lock proves it. Its mode is 0600, so that no other user can lock it and block a cleaning. It is removed when the work
ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cleanerd.errors import LogDirBusyError
from cleanerd.fsio.record_lock import query_holder, set_lock
from cleanerd.fsio.safe_open import (
    ClosedOnError,
    close_quietly,
    open_to_read,
    open_to_write,
    open_trusted_directory,
)
from cleanerd.fsio.small_file import ignore_owner_errors
from cleanerd.fsio.state_files import DAMAGE

DAEMON_FILE: Final = ".cleanerd-daemon.lock"
COMMAND_LOCK_FILE: Final = ".cleanerd-verb.lock"

_MODE: Final = 0o600
_MAX_BYTES: Final = 4096
_TRIES: Final = 8
_COMMANDS: Final = frozenset({"run", "clean", "apply", "undo"})


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that a file names; ``pid``: 0 if the file does not have it."""

    name: str
    pid: int
    host: str

    def __str__(self) -> str:
        where = "" if self.host in {"", socket.gethostname()} else f" on {self.host}"
        return f"{self.name} (process {self.pid}{where})" if self.pid else self.name


class HeldFile:
    """One of these files, locked. Call ``forget`` before the process forks."""

    def __init__(self, directory: int, name: str, descriptor: int) -> None:
        """Called by :meth:`take` only."""
        self._directory = directory
        self._name = name
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, log_dir: Path, name: str) -> HeldFile:
        """Lock ``name`` in ``log_dir``.

        Raises:
            LogDirBusyError: another process holds it; the message names it.
            OSError: it cannot be created or locked: the file system is read-only, or has no locks.
        """
        directory = open_trusted_directory(log_dir)
        try:
            return cls(directory, name, _locked(name, directory, log_dir))
        except BaseException:
            close_quietly(directory)
            raise

    def is_in_place(self, log_dir: Path | None = None) -> bool:
        """Whether the name still refers to the held file. If it was removed, another process can lock a new one.

        ``log_dir``: the path to check, where another directory may be mounted since.
        """
        if log_dir is not None and not _leads_to(log_dir, self._directory):
            return False
        return _is_there(self._name, self._directory, self._descriptor)

    def release(self) -> None:
        """Release and remove it; a second call does nothing."""
        if self._descriptor < 0:
            return
        try:
            if self.is_in_place():
                os.unlink(self._name, dir_fd=self._directory)
        except OSError:
            pass  # without its lock the file has no meaning
        self.forget()

    def forget(self) -> None:
        """Close this process's copy of the descriptor."""
        if self._descriptor >= 0:
            close_quietly(self._descriptor)
            close_quietly(self._directory)
            self._descriptor = self._directory = -1


def holder_of(log_dir: Path, name: str) -> Holder | None:
    """Who holds ``name`` now, without locking it; None if it is not locked, or if that cannot be checked."""
    try:
        directory = open_trusted_directory(log_dir)
    except OSError:
        return None
    try:
        descriptor = open_to_read(name, dir_fd=directory)
    except OSError:
        return None
    finally:
        close_quietly(directory)
    try:
        return None if query_holder(descriptor) is None else _read(descriptor)
    except OSError:
        return None
    finally:
        close_quietly(descriptor)


def _locked(name: str, directory: int, log_dir: Path) -> int:
    for _ in range(_TRIES):
        descriptor = _open(name, directory)
        try:
            _lock(descriptor, log_dir)
            if _is_there(name, directory, descriptor):
                _write_holder(descriptor)
                return descriptor
        except BaseException:
            close_quietly(descriptor)
            raise
        close_quietly(descriptor)  # the other process has just removed it
    raise _restless(name)


def _open(name: str, directory: int) -> int:
    for _ in range(_TRIES):
        try:
            return open_to_write(name, dir_fd=directory)
        except FileNotFoundError:
            pass
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, _MODE, dir_fd=directory)
        except FileExistsError:
            continue
        # The next process to lock it may run as the broker's user, as the daemon does, and not as root.
        with ClosedOnError(descriptor), ignore_owner_errors():
            owner = os.fstat(directory)
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        return descriptor
    raise _restless(name)


def _restless(name: str) -> OSError:
    return OSError(errno.EAGAIN, "something creates and removes it again and again", name)


def _lock(descriptor: int, log_dir: Path) -> None:
    try:
        set_lock(descriptor, fcntl.F_OFD_SETLK, fcntl.F_WRLCK)
    except OSError as error:
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            raise
        raise LogDirBusyError(
            f"{_read(descriptor)} works on this directory",
            where=str(log_dir),
            hint="stop the other one first; it may use another state directory and another control socket",
        ) from error
    if os.fstat(descriptor).st_mode & 0o077:
        with ignore_owner_errors():
            os.fchmod(descriptor, _MODE)


def _is_there(name: str, directory: int, descriptor: int) -> bool:
    held = os.fstat(descriptor)
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return held.st_nlink >= 1 and (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)


def _leads_to(log_dir: Path, directory: int) -> bool:
    try:
        return os.path.samestat(os.stat(log_dir), os.fstat(directory))
    except OSError:
        return False


def _write_holder(descriptor: int) -> None:
    command = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in _COMMANDS else ""
    document = {
        "name": f"cleanerd {command}".strip(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since_ms": time.time_ns() // 1_000_000,
    }
    # The lock decides: on a full disk the file may be empty.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(document).encode() + b"\n", 0)


def _read(descriptor: int) -> Holder:
    try:
        document = json.loads(os.pread(descriptor, _MAX_BYTES, 0))
        return Holder(str(document["name"])[:60], int(document["pid"]), str(document["host"])[:253])
    except (OSError, *DAMAGE):
        return Holder("another cleanerd", 0, "")
