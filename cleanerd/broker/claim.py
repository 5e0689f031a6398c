"""One cleanerd per partition: a lock on ``.kstage/lock``, a file that only its owner can open (S-23, U-33).

``.lock`` of the log directory excludes a broker. ``cleanerd stage`` runs beside one, so it does not take that lock. A
lock on the directory itself could be taken by every user who may list it, and would stop all cleaning. Releasing the
claim removes the file, and ``.kstage`` if it is empty. So a claim is valid only if the names still refer to the locked
files: another process may have removed them.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from cleanerd.cleaner.manifest import STAGING
from cleanerd.cleaner.stage import open_staging
from cleanerd.errors import CleanerdError, LogDirBusyError, RefusedError, system_error
from cleanerd.fsio.safe_open import ClosedOnError, HostileNameError, close_quietly, open_to_write
from cleanerd.fsio.small_file import ignore_owner_errors

CLAIM: Final = "lock"
"""Below :data:`STAGING`; belongs to no plan."""

_TRIES: Final = 50


class Claim:
    """A claimed partition, until :meth:`release`."""

    def __init__(self, partition: int, staging: int, lock: int) -> None:
        """Called by :meth:`acquire` only. The caller closes the partition's descriptor, the claim closes the others."""
        self._partition = partition
        self._staging = staging
        self._lock = lock

    @classmethod
    def acquire(cls, partition: int, path: Path) -> Claim:
        """Claim the partition open as ``partition``, at ``path``.

        Raises:
            LogDirBusyError: another cleanerd works on it. NoSpaceError, CleanerdError: ``.kstage`` or the lock cannot
            be created, or another file has its name.
        """
        where = f"{path}/{STAGING}"
        for _ in range(_TRIES):
            try:
                claim = cls._try(partition)
            except FileNotFoundError:
                continue  # another process just released it
            except HostileNameError as error:
                hint = "cleanerd keeps its own files there: remove it"
                raise CleanerdError(f"cannot be used: {error.strerror}", where=where, hint=hint) from error
            except BlockingIOError as error:
                raise refused_claim(path) from error
            except OSError as error:
                raise system_error("cannot be made", where, error) from error
            if claim is not None:
                return claim
        raise refused_claim(path)

    @classmethod
    def _try(cls, partition: int) -> Claim | None:
        staging = open_staging(partition)
        try:
            lock = _open_lock(partition, staging)
            try:
                _flock(lock)
                if _is_at(lock, CLAIM, staging) and _is_at(staging, STAGING, partition):
                    return cls(partition, staging, lock)
            except BaseException:
                close_quietly(lock)
                raise
            close_quietly(lock)
        except BaseException:
            close_quietly(staging)
            raise
        close_quietly(staging)
        return None

    def release(self) -> None:
        """Release the claim and remove its files. Does not raise."""
        with suppress(OSError):
            if _is_at(self._lock, CLAIM, self._staging):
                os.unlink(CLAIM, dir_fd=self._staging)
                if _is_at(self._staging, STAGING, self._partition):
                    os.rmdir(STAGING, dir_fd=self._partition)  # fails if it has other files
        close_quietly(self._lock)
        close_quietly(self._staging)


def is_claimed(partition: int) -> bool:
    """Whether a process has claimed the partition open as ``partition``; False if that is unknown."""
    try:
        lock = open_to_write(f"{STAGING}/{CLAIM}", dir_fd=partition)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        close_quietly(lock)
    return False


def _open_lock(partition: int, staging: int) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = os.open(CLAIM, flags, 0o600, dir_fd=staging)
    except FileExistsError:
        return open_to_write(CLAIM, dir_fd=staging)
    # A run as root must leave files that the broker's user can lock.
    with ClosedOnError(lock), ignore_owner_errors():
        owner = os.fstat(partition)
        os.fchown(lock, owner.st_uid, owner.st_gid)
    return lock


def _flock(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            raise BlockingIOError(*error.args) from error
        # this file system has no such locks


def _is_at(descriptor: int, name: str, directory: int) -> bool:
    """Whether ``name`` still refers to the file open as ``descriptor``."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def refused_claim(path: Path) -> LogDirBusyError:
    """The refusal of a partition that another process is cleaning."""
    return LogDirBusyError("another cleanerd works on this partition", where=str(path), hint="wait until it is done")


def strange_staging(where: str) -> RefusedError:
    """The refusal of a partition with an unexpected file under the name of cleanerd's own directory."""
    message = f"{STAGING} is not a directory: cleanerd cannot stage here"
    return RefusedError(message, where=where, hint="remove it, or move it away")
