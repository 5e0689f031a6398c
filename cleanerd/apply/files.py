"""The seam: one directory descriptor, and the only code that changes what lies under it (S-23).

Everything that `apply` does to files is an :class:`Operation` and goes through :meth:`PartitionFiles.perform`. A test
that overrides this one method can record a swap, fail its i-th step, or stop after it; nothing can be changed behind
its back.

Names are relative to the directory and may lead through ``.kstage``. The path with which the directory was opened is
used for messages only: a partition directory that the broker renames away meanwhile stays the same one, and none is
created in its place (H-18).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

from cleanerd.errors import CleanerdError, LogDirBusyError
from cleanerd.log.small_file import if_it_may_be_given, unreadable

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

HERE: Final = "."

_BASE_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | _BASE_FLAGS
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | _BASE_FLAGS


@dataclass(frozen=True, slots=True)
class Owner:
    """Who owns a new file, and its mode."""

    uid: int
    gid: int
    mode: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One change. ``target`` belongs to ``rename``; ``data`` to ``append`` and ``write``; ``owner`` to ``write``.

    ``link`` gives the file ``target``, which lies in ``directory`` (a descriptor), the further name ``name`` here.

    ``append`` creates the file if need be, ``write`` replaces its contents; neither is on the disk before ``fsync``,
    and no name is before ``fsync_directory`` of the directory it stands in.
    """

    kind: Literal["rename", "unlink", "rmdir", "append", "write", "fsync", "fsync_directory", "link", "mkdir"]
    name: str
    target: str = ""
    data: bytes = b""
    owner: Owner | None = None
    directory: int = -1


class PartitionFiles:
    """The files of one partition directory (or log directory), by one descriptor.

    Every method raises :class:`CleanerdError` with the file's path when the system refuses, and ValueError for a name
    that leads out of the directory.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``.

        Raises:
            CleanerdError: it is no directory, or not ours to open.
        """
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable("cannot be opened", path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def claim(self) -> None:
        """Keep other cleanerds out of this directory until it is closed; the broker takes no notice.

        ``.lock`` keeps a broker out, and ``cleanerd stage`` works beside one: so it does not hold that.

        Raises:
            LogDirBusyError: another one has it.
        """
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                return  # no such locks on this file system
            raise LogDirBusyError(
                "another cleanerd works on this partition", where=str(self.path), hint="wait until it is done"
            ) from error

    def where(self, name: str) -> str:
        """The path of ``name``, for people."""
        return str(self.path if name == HERE else self.path / name)

    # -- looking ------------------------------------------------------------------------------------------------------

    def open(self, name: str) -> int:
        """A descriptor to read ``name`` with; symbolic links are not followed. The caller closes it."""
        try:
            return os.open(_checked(name), _READ, dir_fd=self._fd)
        except OSError as error:
            raise self._failure("cannot be opened", name, error) from error

    def read(self, name: str) -> bytes | None:
        """All of ``name``; None when there is no such file."""
        try:
            with open(os.open(_checked(name), _READ, dir_fd=self._fd), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failure("cannot be read", name, error) from error

    def stat(self, name: str) -> os.stat_result | None:
        """What stands at ``name`` itself, a symbolic link included; None when nothing does."""
        try:
            return os.stat(_checked(name), dir_fd=self._fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failure("cannot be looked at", name, error) from error

    def is_directory(self, name: str) -> bool:
        """Whether ``name`` is a directory and not a link to one."""
        status = self.stat(name)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def names(self, directory: str = HERE) -> frozenset[str]:
        """Names in ``directory``; none when it is missing or no directory."""
        try:
            descriptor = os.open(_checked(directory), _DIRECTORY, dir_fd=self._fd)
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
        except OSError as error:
            raise self._failure("cannot be listed", directory, error) from error
        try:
            return frozenset(os.listdir(descriptor))
        except OSError as error:
            raise self._failure("cannot be listed", directory, error) from error
        finally:
            os.close(descriptor)

    # -- changing -----------------------------------------------------------------------------------------------------

    def rename(self, source: str, target: str) -> None:
        """Move ``source`` to ``target``, in the place of what stands there."""
        self.perform(Operation("rename", source, target=target))

    def unlink(self, name: str) -> None:
        """Remove the file ``name``."""
        self.perform(Operation("unlink", name))

    def rmdir(self, name: str) -> None:
        """Remove the empty directory ``name``."""
        self.perform(Operation("rmdir", name))

    def mkdir(self, name: str) -> None:
        """Make the directory ``name``, owned as this one is as far as this process may."""
        self.perform(Operation("mkdir", name))

    def link_from(self, other: PartitionFiles, source: str, name: str) -> None:
        """Give ``source``, a file of ``other`` on the same file system, the further name ``name`` here."""
        self.perform(Operation("link", name, target=source, directory=other._fd))

    def append(self, name: str, data: bytes) -> None:
        """Add ``data`` at the end of ``name``, which comes into being if need be."""
        self.perform(Operation("append", name, data=data))

    def write(self, name: str, data: bytes, owner: Owner) -> None:
        """Make ``data`` the contents of ``name``, owned by ``owner``."""
        self.perform(Operation("write", name, data=data, owner=owner))

    def fsync(self, name: str) -> None:
        """Barrier for the contents of the file ``name``."""
        self.perform(Operation("fsync", name))

    def fsync_directory(self, directory: str = HERE) -> None:
        """Barrier for the names in ``directory``."""
        self.perform(Operation("fsync_directory", directory))

    def perform(self, operation: Operation) -> None:
        """Do it. The one place in `apply` that changes a file."""
        _checked(operation.name)
        try:
            self._system_call(operation)
        except OSError as error:
            raise self._failure(f"cannot {_VERBS[operation.kind]}", operation.name, error) from error

    def _system_call(self, operation: Operation) -> None:
        name = operation.name
        match operation.kind:
            case "rename":
                os.rename(name, _checked(operation.target), src_dir_fd=self._fd, dst_dir_fd=self._fd)
            case "unlink":
                os.unlink(name, dir_fd=self._fd)
            case "rmdir":
                os.rmdir(name, dir_fd=self._fd)
            case "mkdir":
                self._make(name)
            case "link":
                source = _checked(operation.target)
                os.link(source, name, src_dir_fd=operation.directory, dst_dir_fd=self._fd, follow_symlinks=False)
            case "append":
                self._put(operation, os.O_APPEND)
            case "write":
                self._put(operation, os.O_TRUNC)
            case "fsync":
                self._sync(name, _READ)
            case "fsync_directory":
                self._sync(name, _DIRECTORY)

    def _make(self, name: str) -> None:
        owner = os.fstat(self._fd)
        os.mkdir(name, 0o755, dir_fd=self._fd)
        status = os.stat(name, dir_fd=self._fd)
        if (status.st_uid, status.st_gid) != (owner.st_uid, owner.st_gid):
            with if_it_may_be_given():
                os.chown(name, owner.st_uid, owner.st_gid, dir_fd=self._fd)

    def _put(self, operation: Operation, flag: int) -> None:
        descriptor = os.open(operation.name, os.O_WRONLY | os.O_CREAT | flag | _BASE_FLAGS, 0o644, dir_fd=self._fd)
        with open(descriptor, "wb", buffering=0) as file:
            if operation.owner is not None:
                give(descriptor, operation.owner)
            rest = memoryview(operation.data)
            while rest:
                rest = rest[file.write(rest) :]

    def _sync(self, name: str, flags: int) -> None:
        descriptor = os.open(name, flags, dir_fd=self._fd)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _failure(self, what: str, name: str, error: OSError) -> CleanerdError:
        return unreadable(what, self.where(name), error)


_VERBS: Final = {
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


def give(descriptor: int, owner: Owner) -> None:
    """Set owner and mode of an open file, as far as this process may: only root can give files away."""
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (owner.uid, owner.gid):
        with if_it_may_be_given():
            os.fchown(descriptor, owner.uid, owner.gid)
    if status.st_mode & 0o7777 != owner.mode:
        os.fchmod(descriptor, owner.mode)


def _checked(name: str) -> str:
    """``name``, unless it leads out of the directory: an absolute path would go past the descriptor.

    Raises:
        ValueError: it does.
    """
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name!r} leads out of the directory")
    return name
