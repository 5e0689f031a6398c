"""Keeps directories below the state directory open, because thousands of small partitions use them often.

``safe_open`` opens a path name by name, with two calls for each and one to close it. For a held directory one call
checks each name: if these are still directories, not links, and the last is the held one, nothing has to be opened.
"""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import dataclass
from typing import Final

from cleanerd.fsio import safe_open
from cleanerd.fsio.safe_open import close_quietly

MOST_HELD: Final = 32
"""Limit of descriptors: two per log directory, for more log directories than a broker has disks."""


@dataclass(slots=True, eq=False)
class _Held:
    """An open directory with ``users``. The last of them closes it once it is ``outdated``."""

    descriptor: int
    status: os.stat_result
    users: int = 0
    outdated: bool = False


_lock: Final = threading.Lock()
_held: Final[dict[str, _Held]] = {}


class HeldDirectory:
    """The directory ``name``, which may be ``a/b``, below ``root``: its descriptor, for the block.

    Callers share the descriptor. To list it, use ``safe_open.names_in(".", ...)``: two listings of one descriptor would
    each see a part of the names. Links are followed only on the way to ``root``. Raises OSError as ``open_directory``
    does.
    """

    __slots__ = ("_held", "_name", "_root")

    def __init__(self, root: str, name: str) -> None:
        self._root = root
        self._name = name

    def __enter__(self) -> int:
        path = f"{self._root}/{self._name}"
        with _lock:
            held = _held.get(path)
            if held is not None:
                held.users += 1
        if held is not None and not _leads_to(self._root, self._name, held.status):
            _leave(held, path, outdated=True)
            held = None
        self._held = held or _opened(path, self._root, self._name)
        return self._held.descriptor

    def __exit__(self, *_error: object) -> None:
        _leave(self._held, f"{self._root}/{self._name}")


def close_all() -> None:
    """Close all unused ones; a block that uses one closes it at its end."""
    with _lock:
        for path in list(_held):
            _close(path)


def _leads_to(root: str, name: str, status: os.stat_result) -> bool:
    """Whether the name still is that directory, without links: opening a link would be refused."""
    path, found = root, None
    try:
        for each in name.split("/"):
            path = f"{path}/{each}"
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode):
                return False
    except OSError:
        return False  # opening it reports the error
    return found is not None and os.path.samestat(found, status)


def _opened(path: str, root: str, name: str) -> _Held:
    above = safe_open.open_trusted_directory(root)
    try:
        descriptor = safe_open.open_directory(name, dir_fd=above)
    finally:
        close_quietly(above)
    with safe_open.ClosedOnError(descriptor):
        found = _Held(descriptor, os.fstat(descriptor), users=1)
    with _lock:
        found.outdated = path in _held  # another thread was faster: this one is for this block only
        if not found.outdated:
            _held[path] = found
            for old in list(_held)[:-MOST_HELD]:
                _close(old)
    return found


def _leave(held: _Held, path: str, *, outdated: bool = False) -> None:
    with _lock:
        if outdated and _held.get(path) is held:
            _close(path)
        held.users -= 1
        last = held.outdated and held.users == 0
    if last:
        close_quietly(held.descriptor)


def _close(path: str) -> None:
    """Close a directory that is not held any more; the caller has the lock."""
    held = _held.pop(path)
    held.outdated = True
    if held.users == 0:
        close_quietly(held.descriptor)
