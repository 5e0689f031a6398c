"""Reading what lies below a log directory: nothing that its owner could not have read himself (U-33).

Whoever owns a log directory may plant a link, a pipe or a hard link to somebody else's file in it, and cleanerd may run
as root. A link or a pipe is refused by ``safe_open``. A second name alone is no reason to refuse a file: backups give
segments one, and ``--keep-replaced`` does. So what counts is who may read it: the directory's owner, because it is his
(or he is root), because everybody may, or by the group that file and directory share. Where others may write to the
directory too, a file of its owner proves nothing unless that is its only name, nor does any in a directory that root
shares with a group. What this lets through may be shown, in messages too.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from cleanerd.fsio.safe_open import (
    MAX_SMALL_FILE_BYTES,
    HostileNameError,
    close_quietly,
    closed_on_error,
    opened_to_read,
    read_and_close,
)

if TYPE_CHECKING:
    from pathlib import Path

LOG_DIR_FILES: Final = frozenset({
    ".kafka_cleanshutdown", ".lock", "cleaner-offset-checkpoint", "log-start-offset-checkpoint", "meta.properties",
    "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
})  # fmt: skip
"""Files of a log directory itself. Its path is the operator's own, links included; all others lie in a directory below
it, whose name its owner gives."""


def open_place(path: Path | str) -> int:
    """A descriptor of a partition's directory, itself and not what a link leads to."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)


def open_plain_at(name: str, dir_fd: int) -> int:
    """A descriptor to read the file ``name`` in the directory ``dir_fd`` with; raises OSError, see ``safe_open``."""
    return opened_plain_at(name, dir_fd)[0]


def opened_plain_at(name: str, dir_fd: int) -> tuple[int, os.stat_result]:
    """The same, with what the file was when it was opened."""
    descriptor, status = opened_to_read(name, dir_fd=dir_fd)
    if not status.st_mode & stat.S_IROTH:
        with closed_on_error(descriptor):
            _require_readable(status, os.fstat(dir_fd), name)
    return descriptor, status


def open_plain(path: Path | str) -> int:
    """The same by path: of a file of a log directory, or in a directory below one. The last directory counts."""
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
    """All of the file ``name``, at most ``max_bytes``; raises OSError, also for one that is larger."""
    return read_and_close(*opened_plain_at(name, dir_fd), name, max_bytes)


def read_plain(path: Path | str, *, max_bytes: int = MAX_SMALL_FILE_BYTES, has_room: bool = False) -> bytes:
    """The same by path, see :func:`open_plain`; ``has_room`` as of :func:`read_and_close`."""
    return read_and_close(*_opened_plain(path), str(path), max_bytes, has_room=has_room)


def _require_readable(file: os.stat_result, directory: os.stat_result, name: str) -> None:
    """Raise :class:`HostileNameError` unless the directory's owner may read the file, which not everybody may."""
    if file.st_mode & stat.S_IRGRP and file.st_gid == directory.st_gid:
        return
    others_write = bool(directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    if not others_write and directory.st_uid in {0, file.st_uid}:
        return
    # Kubernetes gives a volume to root and a group, and a broker may keep its files from that group (umask 077).
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
