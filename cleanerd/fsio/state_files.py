"""Files below the state directory: read, replaced, locked, whichever user owns the directory (U-33).

The operator names the state directory, which may be a link. Its contents belong to the broker's user, and must not
redirect a run as root. Every function except those for entries raises OSError.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cleanerd.fsio import safe_open
from cleanerd.fsio.held_directories import HeldDirectory
from cleanerd.fsio.safe_open import close_quietly
from cleanerd.fsio.small_file import ignore_owner_errors

FILE_MODE: Final = 0o640
DIRECTORY_MODE: Final = 0o750
DAMAGE: Final = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors of reading a JSON file that cleanerd did not write in this form, including int() of an infinity."""

DAMAGED: Final = ".damaged"
"""The suffix of a damaged file that was renamed."""

LOCK_WAIT_SECONDS: Final = 30.0
"""How long to wait for such a lock: cleanerd's processes hold one for moments only."""

_LOCK_MODE: Final = 0o600
_LOCK_RETRY_SECONDS: Final = 0.02


class NewerFormatError(ValueError):
    """A newer release wrote the file: it is valid, but this release cannot read it."""


def describe_damage(error: Exception) -> str:
    """The fault of the file in ``error``, one of :data:`DAMAGE`; completes "it is ..."."""
    return str(error) if isinstance(error, NewerFormatError) else f"damaged ({error})"


@dataclass(frozen=True, slots=True)
class UnreadableState:
    """An unreadable answer: its place and the reason; ``str`` returns both.

    ``failed``: the system refused to read it, which may be temporary; otherwise its content is invalid.
    """

    where: str
    why: str
    failed: bool = False

    @classmethod
    def refused(cls, where: Path | str, error: OSError) -> Self:
        """From the system's error when it was read."""
        return cls(str(where), f"cannot be read ({error.strerror})", failed=True)

    def __str__(self) -> str:
        return f"{self.where} {self.why}"

    @property
    def warning(self) -> str:
        """The warning of a caller that continues without it."""
        return f"{self.where}: {self.reason}; ignored"

    @property
    def reason(self) -> str:
        return self.why.removeprefix("is ")


def read_state_file(path: Path, root: Path | None = None, *, max_bytes: int = safe_open.MAX_SMALL_FILE_BYTES) -> bytes:
    """The content of ``path``, at most ``max_bytes``: a file below the state directory ``root`` (None: in it)."""
    with held(path.parent, root) as directory:
        return safe_open.read_whole(path.name, dir_fd=directory, max_bytes=max_bytes)


def write_state_file(path: Path, data: bytes, owner: os.stat_result, root: Path | None = None) -> None:
    """Replace ``path`` atomically (tmp, fsync, rename, fsync of the directory)."""
    temporary = f"{path.stem}.tmp"
    with held(path.parent, root) as directory:
        descriptor = safe_open.create(temporary, dir_fd=directory)
        try:
            _set_owner(descriptor, owner)
            os.fchmod(descriptor, FILE_MODE)
            safe_open.write_all(descriptor, data)
            os.fsync(descriptor)
            safe_open.require_at(descriptor, temporary, dir_fd=directory)
        finally:
            close_quietly(descriptor)
        os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)


def set_aside(path: Path, root: Path | None = None) -> Path:
    """Rename a damaged file to ``<name>.damaged``, and return that name."""
    aside = path.with_suffix(DAMAGED)
    with opened(path.parent, root) as directory:
        os.rename(path.name, aside.name, src_dir_fd=directory, dst_dir_fd=directory)
    return aside


def make_directory(path: Path, owner: os.stat_result, root: Path | None = None) -> None:
    """Create ``path`` and missing directories above it, with the owner of ``owner``.

    ``root``: the state directory above it; None if it is the state directory itself.
    """
    if root is None or path == root:
        if path.is_dir():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        above, name = safe_open.open_trusted_directory(path.parent), path.name
    else:
        above, name = safe_open.open_trusted_directory(root), str(path.relative_to(root))
    try:
        with safe_open.OpenParent(name, dir_fd=above) as (place, last):
            try:
                made = safe_open.new_directory(last, dir_fd=place, mode=DIRECTORY_MODE)
                with safe_open.ClosedOnError(made):
                    os.fsync(place)
            except FileExistsError:
                made = safe_open.open_directory(last, dir_fd=place)
        try:
            # Empty and ours: created now, or at the same moment by another process that has not changed its owner yet.
            found = os.fstat(made)
            strange = (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid)
            if strange and found.st_uid == os.geteuid() and not os.listdir(made):
                _set_owner(made, owner)
        finally:
            close_quietly(made)
    finally:
        close_quietly(above)


def owner_of(directory: Path) -> os.stat_result:
    """The owner of the state directory, or of the nearest existing directory above it."""
    for place in (directory, *directory.parents):
        if place.exists():
            return place.stat()
    raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(directory))


@contextmanager
def locked(
    path: Path, owner: os.stat_result, root: Path | None = None, *, wait_seconds: float = LOCK_WAIT_SECONDS
) -> Iterator[None]:
    """Hold the lock file ``path`` in the block; wait for a limited time, because its owner could hold it indefinitely.

    If this file system has no locks the block runs anyway, as with all of cleanerd's locks.
    """
    with opened(path.parent, root) as directory:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(path.name, flags, _LOCK_MODE, dir_fd=directory)
        except FileExistsError:
            descriptor = safe_open.open_to_write(path.name, dir_fd=directory)
        else:
            with safe_open.ClosedOnError(descriptor):
                _set_owner(descriptor, owner)
    try:
        _wait_for(descriptor, path.name, wait_seconds)
        yield
    finally:
        close_quietly(descriptor)


@contextmanager
def opened(directory: Path, root: Path | None = None) -> Iterator[int]:
    """The ``directory``, open in the block: the state directory ``root`` or one below it."""
    top = safe_open.open_trusted_directory(directory if root is None else root)
    try:
        if root is None or directory == root:
            yield top
            return
        below = safe_open.open_directory(_below(directory, root), dir_fd=top)
        try:
            yield below
        finally:
            close_quietly(below)
    finally:
        close_quietly(top)


def held(directory: Path, root: Path | None) -> AbstractContextManager[int]:
    """As :func:`opened`, for directories that are used often; see ``held_directories``, also for how to list one."""
    if root is None or directory == root:
        return opened(directory, root)
    return HeldDirectory(str(root), _below(directory, root))


def _below(directory: Path, root: Path) -> str:
    """relative_to() takes longer than reading the file."""
    return str(directory).removeprefix(f"{root}/")


def _wait_for(descriptor: int, name: str, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise
            if time.monotonic() >= deadline:
                message = f"another process has held {name} for {wait_seconds:.0f} seconds"
                raise OSError(errno.EBUSY, message, name) from error
            time.sleep(_LOCK_RETRY_SECONDS)
        else:
            return


def _set_owner(descriptor: int, owner: os.stat_result) -> None:
    """Give an open file the user and group of ``owner``. Only root can, so a failure is not an error."""
    with ignore_owner_errors():
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
