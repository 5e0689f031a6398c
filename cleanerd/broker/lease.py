"""The lease probe: whether any process has a segment open for writing (S-14).

A broker has every ``.log`` open for reading and writing. The kernel refuses a read lease on such an inode, in any
namespace and even without ``.lock``: a second, independent sign of a running broker.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import signal
from pathlib import Path
from typing import Final

from cleanerd.errors import LogDirBusyError
from cleanerd.fsio.safe_open import close_quietly
from cleanerd.fsio.small_file import unreadable

# Not in Python's fcntl; the value is the same on every Linux architecture.
_F_SETSIG: Final = 10


class LeaseResult(enum.Enum):
    """The result of the probe."""

    FREE = "free"
    """No process has the file open for writing."""
    OPENED = "opened"
    """A process has it open: abort."""
    UNAVAILABLE = "unavailable"
    """Unknown: the file is not ours and we lack CAP_LEASE, or the file system has no leases."""


def probe_lease(log_file: Path | str, *, dir_fd: int | None = None) -> LeaseResult:
    """Take a read lease on ``log_file`` and release it at once.

    Raises:
        CleanerdError: the file cannot be opened.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(log_file, flags, dir_fd=dir_fd)
    except BlockingIOError:  # another process is opening the file right now, which breaks a lease
        return LeaseResult.OPENED
    except OSError as error:
        raise unreadable("cannot be opened", log_file, error) from error
    try:
        return _try_lease(descriptor)
    finally:
        close_quietly(descriptor)


def require_unopened(log_file: Path | str, *, required: bool) -> None:
    """Check that no process has the segment open for writing; ``required``: also refuse if that is unknown.

    Raises:
        LogDirBusyError: a process has, or it is unknown and ``required``.
        CleanerdError: the file cannot be opened.
    """
    answer = probe_lease(log_file)
    if answer is LeaseResult.OPENED:
        raise LogDirBusyError(
            "another process has this segment open for writing",
            where=str(log_file),
            hint="a broker runs on this directory although its lock is free: stop it first",
        )
    if answer is LeaseResult.UNAVAILABLE and required:
        raise LogDirBusyError(
            "this file system cannot show whether another process has this segment open",
            where=str(log_file),
            hint="run as the files' owner, or set cleanerd.lease.probe=auto",
        )


def _try_lease(descriptor: int) -> LeaseResult:
    try:
        # If a broker opens the file in these microseconds, the kernel signals us. The default, SIGIO, would end a
        # process that does not handle it; SIGURG is ignored. The broker waits until the lease is released.
        fcntl.fcntl(descriptor, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return LeaseResult.OPENED if error.errno in {errno.EAGAIN, errno.EBUSY} else LeaseResult.UNAVAILABLE
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return LeaseResult.FREE
