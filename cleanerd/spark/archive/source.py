"""Lists an archive's source directory, and copies it to this machine's disk.

The archive's owner chooses the names. A local file is read by descriptor without following links (U-33); from a store
only plain names below the listed directory are used.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CleanerdError, ConfigError, NoSpaceError, as_cleanerd_error
from cleanerd.fsio.plain_file import open_plain_at
from cleanerd.fsio.safe_open import close_quietly, open_named, plain_name, raw_file
from cleanerd.humanize import human_bytes
from cleanerd.segments.remote import RemotePath
from cleanerd.segments.same_file import changed

PIECE_BYTES: Final = 4 << 20
"""Bytes of one read."""

AT_ONCE: Final = 4
"""Files of a partition that are fetched or sent at once: most are small, and a store answers slowly."""

_LONGEST_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as it was listed."""

    name: str
    size_bytes: int
    written_ns: int


@dataclass(frozen=True, slots=True)
class DirectoryContents:
    """A directory as it was listed: files by name, and the names of directories in it."""

    place: Path
    files: tuple[ListedFile, ...]
    directories: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of all its files together."""
        return sum(each.size_bytes for each in self.files)

    @property
    def digest(self) -> str:
        """A digest that is equal if two listings have the same files with the same sizes and times."""
        text = "\n".join(f"{each.name}/{each.size_bytes}/{each.written_ns}" for each in self.files)
        return hashlib.sha256(os.fsencode(text)).hexdigest()


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file that was read completely.

    ``tag``: the store's identifier of its content, if any; CRC-32C of the content.
    """

    name: str
    size_bytes: int
    written_ns: int
    crc32c: int
    tag: str = ""

    def to_json(self) -> dict[str, object]:
        """As in the manifest."""
        document: dict[str, object] = {
            "name": self.name,
            "size_bytes": self.size_bytes,
            "modified_ms": self.written_ns // 1_000_000,
            "crc32c": f"{self.crc32c:08x}",
        }
        return {**document, "etag": self.tag} if self.tag else document


def contents_of(place: Path) -> DirectoryContents:
    """List a directory below a log directory.

    Raises:
        CleanerdError: it cannot be listed, or has a name that brokers do not use.
    """
    files, directories = _in_store(place) if isinstance(place, RemotePath) else _list_local(place)
    for each in files:
        _require_plain(each.name, place)
    twice = {each.name for each in files}.intersection(directories)
    if twice:
        raise CleanerdError(f"both a file and a directory are called {min(twice)[:60]!r}", where=str(place))
    return DirectoryContents(place, tuple(sorted(files, key=lambda each: each.name)), tuple(sorted(directories)))


def fetch(contents: DirectoryContents, into: Path) -> list[CopiedFile]:
    """Copy the listed files into the new directory ``into``, with their times; refused when one is not as listed.

    Raises:
        SegmentChangedError: the source changed since it was listed.
        NoSpaceError: this machine's disk is full. CleanerdError: a file cannot be read, or we may not read it.
    """
    into.mkdir()
    if isinstance(contents.place, RemotePath):
        copied = _each(contents.files, lambda each: _from_store(contents.place / each.name, each, into))
    else:
        copied = _copy_local(contents, into)
    require_listed(contents_of(contents.place), contents.digest)
    # so that a listing of a just changed directory need not wait until later changes are visible
    os.utime(into, ns=(0, 0))
    return copied


def require_listed(contents: DirectoryContents, digest: str) -> None:
    """Check that the directory is unchanged since another process listed it.

    Raises:
        SegmentChangedError: it has changed.
    """
    if contents.digest != digest:
        raise changed("files came, went or were written to", str(contents.place))


def require_space(place: Path, needed_bytes: int) -> None:
    """Check that ``place`` has that much space.

    Raises:
        NoSpaceError: it has not.
    """
    status = os.statvfs(place)
    free = status.f_bavail * status.f_frsize
    if free < needed_bytes:
        raise _no_space(place, f"a copy takes {human_bytes(needed_bytes)}, and {human_bytes(free)} are free")


def _no_space(place: Path, why: str) -> NoSpaceError:
    hint = "make room, run fewer tasks at once, or name another disk: TMPDIR, spark.local.dir"
    return NoSpaceError(why, where=str(place), hint=hint)


def _each(files: Sequence[ListedFile], copy: Any) -> list[CopiedFile]:
    """Copy several at once; no copy is begun after a failure."""
    if len(files) < 2:
        return [copy(each) for each in files]
    pool = ThreadPoolExecutor(AT_ONCE, "cleanerd-fetch")
    try:
        waiting = [pool.submit(copy, each) for each in sorted(files, key=lambda each: -each.size_bytes)]
        copied: list[CopiedFile] = [future.result() for future in waiting]
    finally:
        pool.shutdown(cancel_futures=True)
    return sorted(copied, key=lambda each: each.name)


def _in_store(place: RemotePath) -> tuple[list[ListedFile], list[str]]:
    files, directories = [], []
    for child in place.children():
        found = child.listed
        if found is None:
            continue
        if found.is_dir:
            directories.append(child.name)
        else:
            files.append(ListedFile(child.name, found.st_size, found.st_mtime_ns))
    return files, directories


def _list_local(place: Path) -> tuple[list[ListedFile], list[str]]:
    files, directories = [], []
    try:
        directory = open_named(place)
        try:
            for name in os.listdir(directory):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    directories.append(name)
                else:  # opening reports other kinds of files
                    files.append(ListedFile(name, status.st_size, status.st_mtime_ns))
        finally:
            close_quietly(directory)
    except FileNotFoundError as error:
        raise changed("it is gone", str(place)) from error
    except OSError as error:
        raise as_cleanerd_error(error, str(place)) from error
    return files, directories


def _from_store(path: Path, listed: ListedFile, into: Path) -> CopiedFile:
    assert isinstance(path, RemotePath)  # noqa: S101 - the caller's promise
    with path.opened(listed.size_bytes) as file:
        # Listings and answers round times differently, but have the same size.
        if file.listed.st_size != listed.size_bytes:
            message = f"{listed.size_bytes} bytes were listed, {file.listed.st_size} are there"
            raise changed(message, str(path))
        with _Copy(into, listed) as copy:
            while copy.size_bytes < listed.size_bytes:
                room = copy.buffer(listed.size_bytes - copy.size_bytes)
                copy.write(room[: file.read_into(room, copy.size_bytes)])
        file.require_unchanged()
        return copy.copied(file.tag)


def _copy_local(contents: DirectoryContents, into: Path) -> list[CopiedFile]:
    try:
        directory = open_named(contents.place)
    except OSError as error:
        raise as_cleanerd_error(error, str(contents.place)) from error
    try:
        return [_copy_local_file(directory, listed, contents.place, into) for listed in contents.files]
    finally:
        close_quietly(directory)


def _copy_local_file(directory: int, listed: ListedFile, place: Path, into: Path) -> CopiedFile:
    where = str(place / listed.name)
    try:
        with raw_file(open_plain_at(listed.name, directory), "rb") as file, _Copy(into, listed) as copy:
            before = os.fstat(file.fileno())
            while (room := copy.buffer(PIECE_BYTES)) and (count := file.readinto(room)):
                copy.write(room[:count])
            after = os.fstat(file.fileno())
    except FileNotFoundError as error:
        raise changed("it is gone", where) from error
    except OSError as error:
        raise CleanerdError(f"cannot be read: {error.strerror}", where=where) from error
    states = [(each.st_size, each.st_mtime_ns) for each in (before, after)]
    if states != [(listed.size_bytes, listed.written_ns)] * 2 or copy.size_bytes != listed.size_bytes:
        raise changed("it was written to during the copy", where)
    return copy.copied("")


class _Copy:
    """A new file with its checksum; at the end of the block it gets the source's time."""

    _rooms = threading.local()

    def __init__(self, into: Path, listed: ListedFile) -> None:
        self._path = into / listed.name
        self._listed = listed
        self.size_bytes = 0
        self._crc = 0

    def buffer(self, count: int) -> memoryview:
        """This thread's buffer to read into."""
        if not hasattr(self._rooms, "piece"):
            self._rooms.piece = np.empty(PIECE_BYTES, np.uint8)
        return memoryview(self._rooms.piece)[: min(count, PIECE_BYTES)]

    def write(self, data: memoryview) -> None:
        """Write the next bytes.

        Raises:
            NoSpaceError: the disk is full.
        """
        self._crc = _kernel.crc32c(np.frombuffer(data, np.uint8), self._crc)
        try:
            self._file.write(data)
        except OSError as error:
            raise _failed(self._path, error) from error
        self.size_bytes += len(data)

    def copied(self, tag: str) -> CopiedFile:
        return CopiedFile(self._path.name, self.size_bytes, self._listed.written_ns, self._crc, tag)

    def __enter__(self) -> Self:
        try:
            self._file = self._path.open("xb")
        except OSError as error:
            raise _failed(self._path, error) from error
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self._file.close()
            os.utime(self._path, ns=(self._listed.written_ns, self._listed.written_ns))
        except OSError as problem:
            if kind is None:
                raise _failed(self._path, problem) from problem


def _failed(path: Path, error: OSError) -> CleanerdError:
    failure = as_cleanerd_error(error, str(path))
    if isinstance(failure, NoSpaceError):
        return _no_space(path.parent, f"the disk became full: {error.strerror}")
    return failure


def _require_plain(name: str, place: Path) -> None:
    try:
        plain_name(name)
        fits = len(os.fsencode(name)) <= _LONGEST_NAME and name.isprintable()
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(f"a file in it is called {name[:60]!r}, which no file of a broker is", where=str(place))
