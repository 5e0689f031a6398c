"""One directory descriptor, and the only code that changes files below it (S-23).

Each change of a file is a :class:`FileOperation` and passes through :meth:`PartitionFiles.perform`. A test that
overrides this one method can record a swap, fail its i-th step, or stop after it.

Names are relative to the directory and may lead through ``.kstage``; links are not followed (U-33). The path that
opened the directory is used for messages only: if the broker renames a partition directory meanwhile, the descriptor
stays on it, and no new directory is created in its place (H-18).
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from cleanerd.broker.claim import Claim, is_claimed
from cleanerd.cleaner.stage import copy_owner, require_owner
from cleanerd.closeable import Closeable
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.fsio.safe_open import (
    HostileNameError,
    OpenParent,
    close_quietly,
    create,
    new_directory,
    open_directory,
    open_named,
    open_to_read,
    open_to_write,
    open_trusted_directory,
    read_whole,
    write_all,
)
from cleanerd.fsio.small_file import ignore_owner_errors, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.broker.lock_file import FileOwner

HERE: Final = "."

# The errors of a rename onto a directory, for a file that could be renamed.
_COULD_BE_RENAMED: Final = frozenset({errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST})


@dataclass(frozen=True, slots=True)
class FileOperation:
    """One change. ``target`` belongs to ``rename``; ``data`` to ``append`` and ``write``; ``owner`` to ``write``.

    ``link`` gives the file ``target`` in ``directory`` (a descriptor) the additional name ``name`` here; ``origin`` is
    its path, for messages.

    ``append`` creates a missing file, ``write`` replaces its contents. Contents are on the disk after ``fsync``, names
    after ``fsync_directory`` of their directory.
    """

    kind: Literal["rename", "unlink", "rmdir", "append", "write", "fsync", "fsync_directory", "link", "mkdir"]
    name: str
    target: str = ""
    data: bytes = b""
    owner: FileOwner | None = None
    directory: int = -1
    origin: str = ""


class PartitionFiles(Closeable):
    """The files of one partition directory (or log directory), by one descriptor.

    Every method raises :class:`CleanerdError` with the file's path when the system refuses, and ValueError for a name
    that leads out of the directory.
    """

    def __init__(self, path: Path, *, trusted: bool = False) -> None:
        """Open ``path``. ``trusted``: the operator named it, so links in it are followed.

        Raises:
            CleanerdError: it is not a directory, or we may not open it.
        """
        self.path = path
        self._claim: Claim | None = None
        try:
            self._fd = open_trusted_directory(path) if trusted else open_named(path)
        except OSError as error:
            raise unreadable("cannot be opened", path, error) from error

    def close(self) -> None:
        """Release the claim and close the descriptor; a second call does nothing."""
        if self._claim is not None:
            self._claim.release()
            self._claim = None
        if self._fd >= 0:
            close_quietly(self._fd)
            self._fd = -1

    def claim(self) -> None:
        """Keep other cleanerds out of this directory until it is closed; the broker ignores the claim.

        Raises:
            LogDirBusyError: another process has it.
            CleanerdError: see :meth:`Claim.acquire`.
        """
        if self._claim is None:
            self._claim = Claim.acquire(self._fd, self.path)

    def keeps_others_out(self) -> bool:
        """Whether we have the claim and it works: some file systems have no such locks."""
        return self._claim is not None and is_claimed(self._fd)

    def forget_old_claim(self) -> None:
        """Remove the claim of a killed process; a held claim stays."""
        if self._claim is None:
            with suppress(CleanerdError):
                Claim.acquire(self._fd, self.path).release()

    def where(self, name: str) -> str:
        return str(self.path if name == HERE else self.path / name)

    # -- reading ------------------------------------------------------------------------------------------------------

    def open(self, name: str) -> int:
        """A descriptor to read the plain file ``name``; the caller closes it."""
        try:
            return open_to_read(_checked(name), dir_fd=self._fd)
        except OSError as error:
            raise self._failure("cannot be opened", name, error) from error

    def read(self, name: str) -> bytes | None:
        """The content of the plain file ``name``; None if it does not exist."""
        try:
            return read_whole(_checked(name), dir_fd=self._fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failure("cannot be read", name, error) from error

    def stat(self, name: str) -> os.stat_result | None:
        """The ``stat`` of ``name`` itself, even of a symbolic link; None if it does not exist."""
        try:
            if "/" not in _checked(name):
                return os.stat(name, dir_fd=self._fd, follow_symlinks=False)
            with OpenParent(name, self._fd) as (place, last):
                return os.stat(last, dir_fd=place, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failure("cannot be read", name, error) from error

    def require_renamable(self, name: str, directory: str) -> None:
        """Refuse a file that the system would not let us rename; ``directory``: a name in this directory.

        A rename onto a directory always fails, but the system reports that only after it has checked whether the file
        may be renamed: it knows immutable files, sticky directories and security modules.

        Raises:
            CleanerdError: it cannot be renamed.
        """
        try:
            os.rename(_checked(name), _checked(directory), src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except OSError as error:
            if error.errno not in _COULD_BE_RENAMED:
                raise self._failure("cannot be renamed", name, error) from error

    def is_directory(self, name: str) -> bool:
        """Whether ``name`` is a directory and not a link to one."""
        status = self.stat(name)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def names(self, directory: str = HERE) -> frozenset[str]:
        """Names in ``directory``; empty if it is missing or not a directory."""
        try:
            descriptor = open_directory(_checked(directory), dir_fd=self._fd)
        except (FileNotFoundError, NotADirectoryError, HostileNameError):
            return frozenset()
        except OSError as error:
            raise self._failure("cannot be listed", directory, error) from error
        try:
            return frozenset(os.listdir(descriptor))
        except OSError as error:
            raise self._failure("cannot be listed", directory, error) from error
        finally:
            close_quietly(descriptor)

    # -- changing -----------------------------------------------------------------------------------------------------

    def rename(self, source: str, target: str) -> None:
        """Move ``source`` to ``target``, which is replaced."""
        self.perform(FileOperation("rename", source, target=target))

    def unlink(self, name: str) -> None:
        self.perform(FileOperation("unlink", name))

    def rmdir(self, name: str) -> None:
        """Remove the empty directory ``name``."""
        self.perform(FileOperation("rmdir", name))

    def mkdir(self, name: str) -> None:
        """Create the directory ``name``, with this one's owner if this process may set it."""
        self.perform(FileOperation("mkdir", name))

    def link_from(self, other: PartitionFiles, source: str, name: str) -> None:
        """Give ``source``, a file of ``other`` on the same file system, the additional name ``name`` here."""
        self.perform(FileOperation("link", name, target=source, directory=other._fd, origin=other.where(source)))

    def append(self, name: str, data: bytes) -> None:
        self.perform(FileOperation("append", name, data=data))

    def write(self, name: str, data: bytes, owner: FileOwner) -> None:
        """Make ``data`` the contents of ``name``, owned by ``owner``."""
        self.perform(FileOperation("write", name, data=data, owner=owner))

    def fsync(self, name: str) -> None:
        self.perform(FileOperation("fsync", name))

    def fsync_directory(self, directory: str = HERE) -> None:
        """Flush the names in ``directory``."""
        self.perform(FileOperation("fsync_directory", directory))

    def perform(self, operation: FileOperation) -> None:
        """Carry out one change. This is the only place that changes a file."""
        _checked(operation.name)
        try:
            self._system_call(operation)
        except OSError as error:
            what = f"cannot {_OPERATION_TEXTS[operation.kind]}" + (
                f" to {operation.origin}" if operation.origin else ""
            )
            raise self._failure(what, operation.name, error) from error

    def _system_call(self, operation: FileOperation) -> None:
        name = operation.name
        match operation.kind:
            case "fsync_directory" if name == HERE:
                os.fsync(self._fd)
            case "fsync_directory":
                _sync(open_directory(name, dir_fd=self._fd))
            case "fsync":
                _sync(open_to_read(name, dir_fd=self._fd))
            case _ if "/" in name:
                with self._place(name) as (place, last):
                    self._change_name(operation, place, last)
            case _:
                self._change_name(operation, self._fd, name)

    def _change_name(self, operation: FileOperation, place: int, name: str) -> None:
        match operation.kind:
            case "mkdir":
                self._make(name, place)
            case "append":
                _append(operation, place, name)
            case "write":
                # A new file replaces the old one, because that may be open elsewhere.
                _write_and_sync(create(name, dir_fd=place), operation)
            case "rename" if "/" in _checked(operation.target):
                with self._place(operation.target) as (there, target):
                    os.rename(name, target, src_dir_fd=place, dst_dir_fd=there)
            case "rename":
                os.rename(name, operation.target, src_dir_fd=place, dst_dir_fd=self._fd)
            case "unlink":
                os.unlink(name, dir_fd=place)
            case "rmdir":
                os.rmdir(name, dir_fd=place)
            case "link":
                with OpenParent(_checked(operation.target), operation.directory) as (there, source):
                    os.link(source, name, src_dir_fd=there, dst_dir_fd=place, follow_symlinks=False)

    @contextmanager
    def _place(self, name: str) -> Iterator[tuple[int, str]]:
        """As :class:`OpenParent`, for a change in a directory below: another user's directory must not be changed.

        Its owner could move a directory that they cannot empty themselves to a place that cleanerd cleans up.
        """
        with OpenParent(name, self._fd) as (place, last):
            self._require_owner(place, name)
            yield place, last

    def _require_owner(self, place: int, name: str) -> None:
        try:
            require_owner(self._fd, place, name)
        except HostileNameError as error:
            hint = "check it, then remove it"
            message = f"its directory does not belong to cleanerd: {error.strerror}"
            raise RefusedError(message, where=self.where(name), hint=hint) from error

    def _make(self, name: str, place: int) -> None:
        descriptor = new_directory(name, dir_fd=place, mode=os.fstat(self._fd).st_mode & 0o755)
        try:
            copy_owner(self._fd, descriptor)
        finally:
            close_quietly(descriptor)

    def _failure(self, what: str, name: str, error: OSError) -> CleanerdError:
        return unreadable(what, self.where(name), error)


_OPERATION_TEXTS: Final = {
    "rename": "be renamed",
    "unlink": "be removed",
    "rmdir": "be removed",
    "append": "be written",
    "write": "be written",
    "fsync": "be flushed to disk",
    "fsync_directory": "be flushed to disk",
    "link": "be linked",
    "mkdir": "be made",
}


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        close_quietly(descriptor)


def _append(operation: FileOperation, place: int, name: str) -> None:
    try:
        descriptor = open_to_write(name, dir_fd=place, flags=os.O_APPEND)
    except FileNotFoundError:
        descriptor = create(name, dir_fd=place, mode=0o644)
    _write_and_sync(descriptor, operation)


def _write_and_sync(descriptor: int, operation: FileOperation) -> None:
    """Write the operation's bytes, flush them, and close the file."""
    try:
        if operation.owner is not None:
            set_owner(descriptor, operation.owner)
        write_all(descriptor, operation.data)
    finally:
        close_quietly(descriptor)


def set_owner(descriptor: int, owner: FileOwner) -> None:
    """Set owner and mode of an open file, if this process may: only root can change owners."""
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (owner.uid, owner.gid):
        with ignore_owner_errors():
            os.fchown(descriptor, owner.uid, owner.gid)
    if status.st_mode & 0o7777 != owner.mode:
        os.fchmod(descriptor, owner.mode)


def _checked(name: str) -> str:
    """``name``, unless it leads out of the directory, as an absolute path would.

    Raises:
        ValueError: it does.
    """
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name!r} leads out of the directory")
    return name
