"""Opening files below a directory of another user, where any name may be hostile (U-33).

The owner of a log directory may plant a link, a pipe or a hard link in it at any moment, and cleanerd may run as root.
So a directory is opened once, by the operator's path, and everything below it by descriptor, one plain name at a time,
even for a path ``a/b``. Links are followed in the operator's path only: in all of it by :func:`open_trusted_directory`,
in all but its last name where ``dir_fd`` is None.

Every function raises OSError with the reason in ``strerror``; :class:`HostileNameError` if the name exists and is not
of the required kind.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

MAX_SMALL_FILE_BYTES: Final = 256 * 1024 * 1024
"""The limit for files that are read completely; a sparse one of a terabyte would fill the memory."""

MAX_MANIFEST_BYTES: Final = 32 * 1024 * 1024
"""Limit for manifests of staged cleanings, which take nine times as much memory: 97,000 segments (U-35)."""

MAX_KEPT_BYTES: Final = 2 * MAX_MANIFEST_BYTES
"""Limit for the description of replaced segments: as many as a manifest can name, with longer lines."""

MAX_FACTS_BYTES: Final = 16 * 1024 * 1024
"""Limit for files that every scan reads: checkpoints, leader epochs, partition states."""

MAX_IDENTITY_BYTES: Final = 64 * 1024
"""Limit for small files that identify a directory; a parsed line takes thirty times as much memory."""

_BASE: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_TRIES: Final = 8
_PART_BYTES: Final = 1 << 20
_PROBE_BYTES: Final = 4096

ROOM_BYTES: Final = 96 * 1024
"""This many zeros cannot be entries of an index: a multiple of both kinds' sizes, and of a page."""
_ZEROS: Final = bytes(ROOM_BYTES)


class HostileNameError(OSError):
    """The name exists, but is not a file or directory that cleanerd may open."""


class ConcurrentlyCreatedError(HostileNameError, FileExistsError):
    """Another process created a directory of this name, or moved one there.

    The caller treats it as a directory that existed before.
    """


def open_trusted_directory(path: Path | str) -> int:
    """A descriptor of a directory that the operator named; links in its path are followed."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def open_named(path: Path | str) -> int:
    """A descriptor of a directory whose last name may be hostile: a partition's in the operator's log directory."""
    above, _, last = os.fspath(path).rstrip("/").rpartition("/")
    # Search permission is enough; read permission may be missing.
    place = os.open(above or ("/" if os.path.isabs(path) else "."), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_directory(last or ".", dir_fd=place)
    finally:
        close_quietly(place)


def open_directory(name: str, *, dir_fd: int) -> int:
    """A descriptor of the directory ``name`` below ``dir_fd``; links are refused in every part of the name."""
    *above, last = name.split("/")
    place = dir_fd
    try:
        for part in (*above, last):
            try:
                found = os.open(part, os.O_RDONLY | os.O_DIRECTORY | _BASE, dir_fd=place)
            except NotADirectoryError as error:
                raise _planted(part, place, "it is not a directory") from error
            if place != dir_fd:
                close_quietly(place)
            place = found
    except BaseException:
        if place != dir_fd:
            close_quietly(place)
        raise
    return place


def open_to_read(name: str, *, dir_fd: int | None = None, one_name: bool = False) -> int:
    """A descriptor to read the plain file ``name`` itself, not a link's target.

    ``one_name``: refuse a file that has a second name (a hard link). Segments may have one, from backups.
    """
    return opened_file(name, dir_fd=dir_fd, one_name=one_name)[0]


def opened_file(
    name: str, *, dir_fd: int | None = None, one_name: bool = False, flags: int = os.O_RDONLY
) -> tuple[int, os.stat_result]:
    """As :func:`open_to_read`, with the file's ``stat`` at opening, which saves a call for thousands of small files."""
    if dir_fd is not None and "/" in name:
        with OpenParent(name, dir_fd) as (place, last):
            return opened_file(last, dir_fd=place, one_name=one_name, flags=flags)
    try:
        descriptor = os.open(name, flags | _BASE, dir_fd=dir_fd)
    except OSError as error:
        # A link, a pipe without a reader, a socket, a directory.
        if error.errno in {errno.ELOOP, errno.ENXIO, errno.EISDIR}:
            raise _planted(name, dir_fd, error.strerror) from error
        raise
    # Without a context manager, because thousands of small files are opened.
    # O_NONBLOCK stays set: it only affects pipes.
    try:
        status = os.fstat(descriptor)
        _require_plain(status, name, one_name=one_name)
    except BaseException:
        close_quietly(descriptor)
        raise
    return descriptor, status


def open_to_write(name: str, *, dir_fd: int, flags: int = 0) -> int:
    """A descriptor to write to an existing plain file with a single name, without truncating it.

    ``flags``: further ones, such as ``O_APPEND``.
    """
    return opened_file(name, dir_fd=dir_fd, one_name=True, flags=os.O_RDWR | flags)[0]


def create(name: str, *, dir_fd: int, mode: int = 0o600) -> int:
    """A descriptor, to read and write, of a new file.

    Removes an existing plain file of a killed run; refuses anything else.
    """
    if "/" in name:
        with OpenParent(name, dir_fd) as (place, last):
            return create(last, dir_fd=place, mode=mode)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for _ in range(_TRIES):
        try:
            return os.open(name, flags, mode, dir_fd=dir_fd)
        except FileExistsError:
            with suppress(FileNotFoundError):
                _require_plain(os.stat(name, dir_fd=dir_fd, follow_symlinks=False), name, one_name=True)
                os.unlink(name, dir_fd=dir_fd)
    raise HostileNameError(errno.EEXIST, "something creates that name again and again", name)


def make_directory(name: str, *, dir_fd: int, mode: int) -> int:
    """A descriptor of the directory ``name``; if missing it is created with ``mode``, whatever the umask."""
    if "/" in name:
        with OpenParent(name, dir_fd) as (place, last):
            return make_directory(last, dir_fd=place, mode=mode)
    for _ in range(_TRIES):
        try:
            return open_directory(name, dir_fd=dir_fd)
        except FileNotFoundError:
            with suppress(FileExistsError):
                return new_directory(name, dir_fd=dir_fd, mode=mode)
    raise HostileNameError(errno.EEXIST, "something creates that name again and again", name)


def new_directory(name: str, *, dir_fd: int, mode: int) -> int:
    """A descriptor of a new directory; FileExistsError if it existed.

    :class:`ConcurrentlyCreatedError` if others changed its owner or contents before this function checked it.
    """
    if "/" in name:
        with OpenParent(name, dir_fd) as (place, last):
            return new_directory(last, dir_fd=place, mode=mode)
    os.mkdir(name, 0o700, dir_fd=dir_fd)
    descriptor = open_directory(name, dir_fd=dir_fd)
    with ClosedOnError(descriptor):
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise ConcurrentlyCreatedError(errno.EEXIST, "something else created it meanwhile", name)
        if _others_may_write(os.fstat(dir_fd)) and os.listdir(descriptor):
            raise ConcurrentlyCreatedError(errno.EEXIST, "another directory took its place", name)
        if status.st_mode & 0o777 != mode:
            os.fchmod(descriptor, mode)
    return descriptor


def _others_may_write(directory: os.stat_result) -> bool:
    """Whether a user other than this one and root may replace a name in the directory.

    With an access list, the group bits of the mode are the most that any user in the list may do.
    """
    return directory.st_uid not in {0, os.geteuid()} or bool(directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def require_at(descriptor: int, name: str, *, dir_fd: int) -> os.stat_result:
    """The status of the file open as ``descriptor``.

    Raises:
        HostileNameError: ``name`` is not that file any more, or not its only name.
    """
    if "/" in name:
        with OpenParent(name, dir_fd) as (place, last):
            return require_at(descriptor, last, dir_fd=place)
    found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if not os.path.samestat(found, os.fstat(descriptor)):
        raise HostileNameError(errno.ESTALE, "another file took its place", name)
    _require_plain(found, name, one_name=True)
    return found


def read_whole(
    name: str, *, dir_fd: int | None = None, max_bytes: int = MAX_SMALL_FILE_BYTES, one_name: bool = False
) -> bytes:
    """The content of the plain file ``name``, at most ``max_bytes``; see :func:`open_to_read`."""
    return read_and_close(*opened_file(name, dir_fd=dir_fd, one_name=one_name), name, max_bytes)


def read_and_close(
    descriptor: int, status: os.stat_result, name: str, max_bytes: int, *, has_room: bool = False
) -> bytes:
    """The content of the open file with ``status``, at most ``max_bytes``; ``name`` is for errors. Always closes it.

    ``has_room``: the file may be preallocated, as a broker's index has 10 MiB for some entries. Then reading stops at
    the first ``ROOM_BYTES`` of zeros, counted from the beginning; they are left out.
    """
    try:
        data = bytearray()
        if status.st_size > max_bytes:  # before any of it is read
            raise too_large(name, max_bytes)
        wanted = status.st_size + 1
        most = ROOM_BYTES if has_room else max_bytes + 1
        while len(data) <= max_bytes and (
            part := os.read(descriptor, min(wanted, max_bytes + 1 - len(data), most - len(data) % most))
        ):
            data += part
            if has_room and len(data) % ROOM_BYTES == 0 and data.endswith(_ZEROS):
                del data[-ROOM_BYTES:]
                break
            if len(data) == status.st_size and len(part) < wanted:
                break  # as large as it was when it was opened, and the system has no more
            # The file is rarely larger than its stated size, and a buffer of a megabyte costs more than a small file.
            wanted = max(wanted - len(part), min(len(data), _PART_BYTES), _PROBE_BYTES)
    finally:
        close_quietly(descriptor)
    if len(data) > max_bytes:
        raise too_large(name, max_bytes)
    return bytes(data)


def close_quietly(descriptor: int) -> None:
    """``os.close`` without errors: the descriptor is closed even after a disk error, so it must not be closed again.

    Data was flushed before, if that matters, and a disk error appeared there. An error here would hide the caller's,
    and prevent the caller from closing other descriptors.

    Raises:
        OSError: EBADF, which is a bug.
    """
    try:
        os.close(descriptor)
    except OSError as error:
        if error.errno == errno.EBADF:
            raise


class _QuietFile(FileIO):
    """A file whose close does not fail, for the reasons of :func:`close_quietly`."""

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class ClosedOnError:
    """Closes ``descriptor`` if the block fails, before another object owns it."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            close_quietly(self._descriptor)


def raw_file(descriptor: int, mode: Literal["rb", "wb"]) -> FileIO:
    """An unbuffered file that owns the descriptor, which is closed even after a disk error.

    ``open`` checks the descriptor, and leaves it open if it fails.
    """
    with ClosedOnError(descriptor):
        return _QuietFile(descriptor, mode)


def read_at(descriptor: int, count: int, position: int) -> bytes:
    """Repeat ``os.pread`` until there are ``count`` bytes or the file ends, since a call may return fewer.

    Raises OSError.
    """
    data = os.pread(descriptor, count, position)
    while data and len(data) < count and (more := os.pread(descriptor, count - len(data), position + len(data))):
        data += more
    return data


def write_all(descriptor: int, data: memoryview | bytes) -> None:
    """Repeat ``os.write`` until everything is written; raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def too_large(name: str, max_bytes: int) -> HostileNameError:
    """The error for a file that is larger than ``max_bytes``."""
    return HostileNameError(errno.EFBIG, f"it is larger than {max_bytes} bytes", name)


def names_in(name: str, dir_fd: int) -> list[str]:
    """The names in the directory ``name``."""
    directory = open_directory(name, dir_fd=dir_fd)
    try:
        return os.listdir(directory)
    finally:
        close_quietly(directory)


class OpenParent:
    """The directory of ``name``, open in the block, and its last part; no link on the way is followed."""

    __slots__ = ("_dir_fd", "_name", "_place")

    def __init__(self, name: str, dir_fd: int) -> None:
        self._name = name
        self._dir_fd = dir_fd
        self._place = -1

    def __enter__(self) -> tuple[int, str]:
        above, slash, last = self._name.rpartition("/")
        if not slash:
            return self._dir_fd, last
        self._place = open_directory(above, dir_fd=self._dir_fd)
        return self._place, last

    def __exit__(self, *_error: object) -> None:
        if self._place >= 0:
            close_quietly(self._place)


def plain_name(name: str) -> str:
    """``name``, taken from a stored record, if it stays in that record's directory.

    Raises:
        ValueError: it leads elsewhere.
    """
    if not name or "/" in name or "\0" in name or name in {".", ".."}:
        raise ValueError(f"{name[:60]!r} is not a plain name")
    return name


def _require_plain(status: os.stat_result, name: str, *, one_name: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise HostileNameError(errno.EINVAL, _kind(status), name)
    if one_name and status.st_nlink > 1:  # 0: it was removed since it was opened
        raise HostileNameError(errno.EMLINK, f"it has {status.st_nlink} names (hard links)", name)


def _planted(name: str, dir_fd: int | None, otherwise: str | None) -> OSError:
    """The error that describes what exists at ``name``."""
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        return error
    message = otherwise if stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode) else _kind(status)
    return HostileNameError(errno.EINVAL, message or _kind(status), name)


def _kind(status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return "it is a symbolic link"
    return "Is a directory" if stat.S_ISDIR(status.st_mode) else "it is not a plain file"
