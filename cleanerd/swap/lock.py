"""The log directory's ``.lock``, held the way a broker holds it (S-10 .. S-16).

The lock alone proves nothing: a broker of 3.8 or later removes the file *after* it has unlocked it. So a lock can be
acquired on an inode without a path while the next broker locks a new file. Therefore the inode is compared with the
path when the lock is acquired, a while later, and before every commit. The lease probe is an additional check.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import weakref
from pathlib import Path
from typing import Final, Self

from cleanerd.broker.lock_file import LOCK_FILE, held_by, owner_for_new_file
from cleanerd.errors import CleanerdError, LogDirBusyError
from cleanerd.fsio.held_file import COMMAND_LOCK_FILE, HeldFile, holder_of
from cleanerd.fsio.record_lock import query_holder, set_lock
from cleanerd.fsio.safe_open import ClosedOnError, close_quietly
from cleanerd.fsio.small_file import unreadable
from cleanerd.swap.files import set_owner

MAX_WAIT_SECONDS: Final = 10.0
"""S-15: the longest wait for a held lock, whatever the caller requests."""
SETTLE_SECONDS: Final = 1.0
"""S-13: how long after acquiring the lock the inode is compared again, at the earliest."""

_RETRY_SECONDS: Final = 0.1

# S-12: a forked child inherits the open file with the lock, and must not keep it after this process ends.
_open_locks: weakref.WeakSet[LogDirLock] = weakref.WeakSet()


class LogDirLock:
    """A held lock of one log directory; a context manager that releases it. Never deletes the file (S-15)."""

    def __init__(self, log_dir: Path, descriptor: int, command: int, settle_seconds: float) -> None:
        """Called by :meth:`acquire` only."""
        self.log_dir = log_dir
        self._descriptor = descriptor
        self._command = command
        self._settled_at = time.monotonic() + settle_seconds
        self._holder_file = _write_holder(log_dir)
        _open_locks.add(self)

    @classmethod
    def acquire(
        cls,
        log_dir: Path,
        wait_seconds: float = 0.0,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        max_wait_seconds: float = MAX_WAIT_SECONDS,
    ) -> LogDirLock:
        """Lock ``log_dir`` as a broker would, waiting at most ``wait_seconds`` and ``max_wait_seconds``.

        Raises:
            LogDirBusyError: another process holds it, or the file is replaced again and again.
            CleanerdError: ``.lock`` cannot be opened or created.
        """
        deadline = time.monotonic() + min(wait_seconds, max_wait_seconds)
        while True:
            _refuse_second_record_lock(log_dir)
            descriptor = _open(log_dir)
            try:
                command, holder = _try_lock(descriptor, log_dir)
                if holder is None and _is_at_path(descriptor, log_dir):
                    return cls(log_dir, descriptor, command, settle_seconds)
            except BaseException:
                close_quietly(descriptor)
                raise
            close_quietly(descriptor)
            if time.monotonic() >= deadline:
                raise _busy(log_dir, holder)
            time.sleep(_RETRY_SECONDS)

    def check(self) -> None:
        """Compare inode and path again (S-13, S-33); call it before every commit.

        The first call waits until a second has passed since the lock was acquired: a broker that was stopping removes
        the file within that time.

        Raises:
            LogDirBusyError: a broker would find another lock. Do not change anything any more.
        """
        if self._descriptor < 0:
            raise LogDirBusyError("the lock was given back", where=str(self.log_dir / LOCK_FILE))
        time.sleep(max(0.0, self._settled_at - time.monotonic()))
        if not _is_at_path(self._descriptor, self.log_dir):
            raise LogDirBusyError(
                "was removed or replaced while cleanerd held it",
                where=str(self.log_dir / LOCK_FILE),
                hint="a broker was stopping or starting; clean when it is down",
            )

    def release(self) -> None:
        """Release the lock, in forked children too; a second call does nothing."""
        if self._descriptor >= 0:
            if self._holder_file is not None:
                self._holder_file.release()
            # Closing the file releases it too, unless a forked child has it; the work is done and must not fail here.
            with contextlib.suppress(OSError):
                set_lock(self._descriptor, self._command, fcntl.F_UNLCK)
            self.forget()

    @property
    def is_record_lock(self) -> bool:
        """Whether it is a record lock, which any close of ``.lock`` in this process would drop (S-10)."""
        return self._descriptor >= 0 and self._command == fcntl.F_SETLK

    def forget(self) -> None:
        """Close this process's copy of the lock without unlocking those of others."""
        if self._descriptor >= 0:
            close_quietly(self._descriptor)
            self._descriptor = -1
        if self._holder_file is not None:
            self._holder_file.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()


def _write_holder(log_dir: Path) -> HeldFile | None:
    """Write who holds ``.lock``, for other cleanerd processes; without it they assume a broker."""
    try:
        return HeldFile.acquire(log_dir, COMMAND_LOCK_FILE)
    except (OSError, LogDirBusyError):
        return None


def _forget_all() -> None:
    for lock in list(_open_locks):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)


def _open(log_dir: Path) -> int:
    """``.lock``, created with the owner and mode of its neighbours if it is missing (S-11)."""
    path = log_dir / LOCK_FILE
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        while True:
            try:
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                try:
                    return os.open(path, flags)
                except FileNotFoundError:  # a stopping broker removed it
                    continue
            with ClosedOnError(descriptor):
                set_owner(descriptor, owner_for_new_file(log_dir))
            return descriptor
    except OSError as error:
        raise unreadable("cannot be opened", path, error) from error


def _refuse_second_record_lock(log_dir: Path) -> None:
    """S-10: while a record lock is held, ``.lock`` must not be opened again.

    Raises:
        LogDirBusyError: this process holds such a lock on ``log_dir``.
    """
    for lock in list(_open_locks):
        if lock.is_record_lock and os.path.samefile(lock.log_dir, log_dir):
            raise _busy(log_dir, os.getpid())


def _try_lock(descriptor: int, log_dir: Path) -> tuple[int, int | None]:
    """Try to lock. Returns the lock family, and None if the lock was acquired, else its owner (0 or less: unknown)."""
    for command in (fcntl.F_OFD_SETLK, fcntl.F_SETLK):
        try:
            set_lock(descriptor, command, fcntl.F_WRLCK)
        except OSError as error:
            if error.errno in {errno.EAGAIN, errno.EACCES}:
                return command, _holder(descriptor)
            if error.errno == errno.EINVAL and command == fcntl.F_OFD_SETLK:
                continue
            raise CleanerdError(
                f"cannot be locked: {error.strerror}",
                where=str(log_dir / LOCK_FILE),
                hint="cleanerd needs a file system with POSIX record locks",
            ) from error
        return command, None
    raise AssertionError("unreachable")


def _holder(descriptor: int) -> int:
    try:
        return query_holder(descriptor) or 0
    except OSError:
        return 0


def _is_at_path(descriptor: int, log_dir: Path) -> bool:
    """Whether the path still refers to the locked inode.

    Raises:
        CleanerdError: that is unknown.
    """
    path = log_dir / LOCK_FILE
    try:
        held, found = os.fstat(descriptor), os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unreadable("cannot be read", path, error) from error
    return held.st_nlink >= 1 and (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)


def _busy(log_dir: Path, holder: int | None) -> LogDirBusyError:
    worker = holder_of(log_dir, COMMAND_LOCK_FILE)
    if worker is not None:
        return held_by(worker, log_dir)
    if holder is None:
        message = "is being removed and created again"
    elif holder > 0:
        message = f"is held by process {holder}"
    else:
        message = "is held by another process"
    return LogDirBusyError(
        message,
        where=str(log_dir / LOCK_FILE),
        hint="stop the broker first; beside it only stage and clean --live work; cleanerd never breaks a held lock",
    )
