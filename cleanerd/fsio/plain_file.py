"""Reading files below a log directory: only files that the directory's owner could have read himself (U-33).

The owner of a log directory may plant a link, a pipe or a hard link to another user's file, and cleanerd may run as
root. ``safe_open`` refuses links and pipes. Hard links are allowed: backups and ``--keep-replaced`` make them. So the
check is who may read the file: its owner is the directory's owner or root, everyone may read it, or file and directory
share a group that may. If others may write to the directory, its owner's file must have a single name. In a directory
that root shares with a group, no owner's file is accepted for the owner alone. The content of accepted files may appear
in messages.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from cleanerd.fsio.safe_open import (
    MAX_SMALL_FILE_BYTES,
    ClosedOnError,
    HostileNameError,
    close_quietly,
    opened_file,
    read_and_close,
)

LOG_DIR_FILES: Final = frozenset({
    ".kafka_cleanshutdown", ".lock", "cleaner-offset-checkpoint", "log-start-offset-checkpoint", "meta.properties",
    "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
})  # fmt: skip
"""Files of the log directory itself, whose path the operator chose, with links.

All other files are in a directory below it, whose name the owner chose.
"""


def open_place(path: Path | str) -> int:
    """A descriptor of a partition's directory itself, not of a link's target."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)


def open_plain_at(name: str, dir_fd: int) -> int:
    """A descriptor to read the file ``name`` in the directory ``dir_fd``; raises OSError, see ``safe_open``."""
    return opened_plain_at(name, dir_fd)[0]


def opened_plain_at(name: str, dir_fd: int) -> tuple[int, os.stat_result]:
    """As :func:`open_plain_at`, with the file's status when it was opened."""
    descriptor, status = opened_file(name, dir_fd=dir_fd)
    if not status.st_mode & stat.S_IROTH:
        with ClosedOnError(descriptor):
            _require_readable(status, os.fstat(dir_fd), name)
    return descriptor, status


def open_plain(path: Path | str) -> int:
    """As :func:`open_plain_at` by path, for a file of a log directory or of a directory below one."""
    return _opened_plain(path)[0]


def _opened_plain(path: Path | str) -> tuple[int, os.stat_result]:
    above, slash, name = os.fspath(path).rpartition("/")
    follow = 0 if name in LOG_DIR_FILES else os.O_NOFOLLOW
    directory = os.open((above or slash) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | follow)
    try:
        return opened_plain_at(name, directory)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        close_quietly(directory)


def read_plain_at(name: str, dir_fd: int, *, max_bytes: int = MAX_SMALL_FILE_BYTES) -> bytes:
    """The content of the file ``name``, at most ``max_bytes``; raises OSError, also if it is larger."""
    return read_and_close(*opened_plain_at(name, dir_fd), name, max_bytes)


def read_plain(path: Path | str, *, max_bytes: int = MAX_SMALL_FILE_BYTES, has_room: bool = False) -> bytes:
    """As :func:`read_plain_at` by path, see :func:`open_plain`; ``has_room`` as for :func:`read_and_close`."""
    return read_and_close(*_opened_plain(path), str(path), max_bytes, has_room=has_room)


def _require_readable(file: os.stat_result, directory: os.stat_result, name: str) -> None:
    """Raise :class:`HostileNameError` unless the directory's owner may read the file."""
    if file.st_mode & stat.S_IRGRP and file.st_gid == directory.st_gid:
        return
    others_write = bool(directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    if not others_write and directory.st_uid in {0, file.st_uid}:
        return
    # Kubernetes gives a volume to root and a group, and a broker may hide its files from that group (umask 077).
    shared = directory.st_uid == 0 or file.st_uid == os.geteuid() != 0
    if file.st_nlink == 1 and (file.st_uid == directory.st_uid or shared):
        return
    if file.st_nlink > 1 and (file.st_uid == directory.st_uid or shared):
        raise HostileNameError(
            errno.EMLINK,
            f"it has {file.st_nlink} names (hard links), and users other than {file.st_uid} may write to its directory",
            name,
        )
    raise HostileNameError(
        errno.EACCES,
        f"it belongs to user {file.st_uid}, and the owner of the directory (user {directory.st_uid}) may not read it",
        name,
    )
