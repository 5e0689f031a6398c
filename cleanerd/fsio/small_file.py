"""Reads the small files beside the segments: checkpoints, indexes, snapshots, identities."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cleanerd.errors import CleanerdError, kind_of
from cleanerd.fsio.plain_file import read_plain, read_plain_at
from cleanerd.fsio.safe_open import MAX_SMALL_FILE_BYTES
from cleanerd.humanize import user_name

_OWNER_ERRNOS: Final = frozenset({errno.EPERM, errno.EACCES, errno.EINVAL})


def read_small_file(path: Path | str, *, max_bytes: int = MAX_SMALL_FILE_BYTES, has_room: bool = False) -> bytes | None:
    """The content of ``path``, a file of a log directory or of a directory below one; None if it does not exist.

    ``has_room``: without the zeros behind the entries of an index (:func:`safe_open.read_and_close`).

    Raises:
        CleanerdError: it cannot be read, is larger than ``max_bytes``, is not a plain file (a pipe would block us while
            the directory is locked), or belongs to another user (``plain_file``).
    """
    try:
        return read_plain(path, max_bytes=max_bytes, has_room=has_room)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable("cannot be read", path, error) from error


def read_small_file_at(
    name: str, directory: int, where: Path | str, *, max_bytes: int = MAX_SMALL_FILE_BYTES
) -> bytes | None:
    """The same for a file in the directory open as ``directory``; ``where`` is for messages."""
    try:
        return read_plain_at(name, directory, max_bytes=max_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable("cannot be read", where, error) from error


def unreadable(what: str, path: Path | str, error: OSError) -> CleanerdError:
    """The system's error, with a fix if one is known."""
    hint = _permission_hint(path) if isinstance(error, PermissionError) else None
    return kind_of(error)(f"{what}: {error.strerror}", where=str(path), hint=hint)


def _permission_hint(path: Path | str) -> str:
    """The fix for a missing permission: run as another user, or change the file's owner if only that differs."""
    with contextlib.suppress(OSError):
        own, around = os.lstat(path), os.lstat(os.path.dirname(path))
        if stat.S_ISREG(own.st_mode) and own.st_uid != around.st_uid:
            whose = f"{user_name(own.st_uid)}, its directory to {user_name(around.st_uid)}"
            return f"it belongs to {whose}: chown it to the broker's user"
        if stat.S_ISREG(own.st_mode) and own.st_uid == os.geteuid():
            return f"its mode is {stat.filemode(own.st_mode)}: chmod it for the broker's user"
    return "run cleanerd as the broker's user"


@contextlib.contextmanager
def ignore_owner_errors() -> Iterator[None]:
    """Ignore errors of changing an owner in the block.

    Only root can change a file's owner, and only to a user that has a number in this user namespace
    (``PrivateUsers=yes``, containers); otherwise the result is EINVAL.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _OWNER_ERRNOS:
            raise
