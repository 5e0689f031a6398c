"""POSIX record locks on a whole file, owned by its open file description where the kernel knows that (S-10, S-12)."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import Final

_FLOCK: Final = "hhqqi4x"  # struct flock of 64-bit Linux: type, whence, start, len, pid


def set_lock(descriptor: int, command: int, kind: int) -> None:
    """Lock or unlock the whole file; raises OSError (EAGAIN or EACCES if another process holds it).

    Open file description locks (``F_OFD_SETLK``) exclude Java's locks, and survive our own opens and closes.
    """
    fcntl.fcntl(descriptor, command, struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0))


def query_holder(descriptor: int) -> int | None:
    """The process that holds the file's lock, without taking it: 0 or less if its id is unknown, None if it is free.

    Raises:
        OSError: the lock cannot be queried.
    """
    request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, request))
    return int(answer[4]) if answer[0] != fcntl.F_UNLCK else None
