"""Where a cleaned archive is written: a directory here or a prefix in a store, the same for both.

Each run writes below a directory of its own, ``run-ID``, so that other runs and their leftovers cannot be mixed up with
it. A file gets its name only when it is complete: locally and in HDFS by a rename, in a store because an object appears
with its last byte. Leftovers of a failed attempt are in no manifest. The manifest is written last, and only if it does
not exist.

An output that overlaps its sources, even under other names, is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import ConfigError, MachineError, RefusedError, SegmentChangedError, system_error
from cleanerd.fsio.safe_open import (
    close_quietly,
    create,
    make_directory,
    open_directory,
    open_trusted_directory,
    raw_file,
    write_all,
)
from cleanerd.spark.archive.source import PIECE_BYTES
from cleanerd.spark.store_clients import account_of
from cleanerd.spark.store_tries import tried
from cleanerd.spark.stores import StorePath


def require_no_overlap(target: Path, sources: Sequence[Path]) -> None:
    """Refuse an output inside or around a source.

    Raises:
        ConfigError: it overlaps.
    """
    for source in sources:
        if _overlap(target, source):
            raise ConfigError(
                f"is inside the source {source}, is it, or is around it",
                where=str(target),
                hint="name a place beside it",
            )


def _overlap(one: Path, other: Path) -> bool:
    if isinstance(one, StorePath) != isinstance(other, StorePath):
        return False
    if isinstance(one, StorePath):
        pairs = zip(_in_one_spelling(one), _in_one_spelling(other), strict=False)
        return all(first == second for first, second in pairs)
    return _is_within(one, other) or _is_within(other, one)


def _in_one_spelling(path: Path) -> tuple[str, ...]:
    scheme, host, *rest = path.parts
    if scheme.startswith("abfs"):  # the same account has an address in each of Microsoft's two protocols
        return ("abfs:", f"{host.partition('@')[0]}@{account_of(host, str(path))[0]}", *rest)
    return ({"viewfs:": "hdfs:"}.get(scheme, scheme), host, *rest)


def _is_within(one: Path, other: Path) -> bool:
    """Whether ``one`` is ``other`` or below it, under any names."""
    real = Path(os.path.realpath(one))
    if real.is_relative_to(os.path.realpath(other)):
        return True
    with contextlib.suppress(OSError):  # a mount may show the same directory twice
        found = os.stat(other)
        for place in (real, *real.parents):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(place), found):
                    return True
    return False


MANIFEST: Final = "cleanerd-archive.json"
RUN: Final = "run-"

_DIRECTORY_MODE: Final = 0o750
_FILE_MODE: Final = 0o640


def new_run() -> str:
    """A name for a run's own directory."""
    return f"{RUN}{time.strftime('%Y%m%dt%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file of the archive."""

    name: str
    size_bytes: int
    modified_ms: int
    crc32c: int

    def to_json(self) -> dict[str, object]:
        """As in the manifest."""
        return {
            "name": self.name,
            "size_bytes": self.size_bytes,
            "modified_ms": self.modified_ms,
            "crc32c": f"{self.crc32c:08x}",
        }


class ArchiveTarget(ABC):
    """A place for archives. Names are relative to it, for example ``run-1/data/orders-0/file``."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @abstractmethod
    def names(self) -> list[str]:
        """The names in it; empty if it does not exist yet.

        Raises:
            CleanerdError: it cannot be listed.
        """

    @abstractmethod
    def sizes_below(self, name: str) -> dict[str, int]:
        """The sizes of all files below the directory ``name``, by relative name; raises as :meth:`names`."""

    @abstractmethod
    def put(self, name: str, pieces: Callable[[], Iterator[bytes]], *, modified_ns: int) -> None:
        """Write a file, replacing one of an earlier attempt of this run.

        ``pieces`` starts from the first bytes at each call, so that failed requests are repeated.

        Raises:
            CleanerdError: it cannot be written.
        """

    @abstractmethod
    def flush(self, name: str) -> None:
        """Flush the files in the directory ``name`` to the disk; raises CleanerdError."""

    @abstractmethod
    def put_new(self, name: str, data: bytes) -> None:
        """Write a new file.

        Raises:
            RefusedError: another run's file exists.
            CleanerdError: it cannot be written.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, or a directory with its content; a missing name is not an error. Raises CleanerdError."""

    def put_file(self, name: str, path: Path) -> ArchivedFile:
        """Write a copy of the file ``path``; raises as :meth:`put`."""
        status = path.stat()
        crc, size = 0, 0
        for piece in _pieces(path):
            crc, size = _kernel.crc32c(np.frombuffer(piece, np.uint8), crc), size + len(piece)
        self.put(name, lambda: _pieces(path), modified_ns=status.st_mtime_ns)
        return ArchivedFile(path.name, size, status.st_mtime_ns // 1_000_000, crc)

    def put_bytes(self, name: str, data: bytes) -> ArchivedFile:
        """Write a small file; raises as :meth:`put`."""
        now_ns = time.time_ns()
        self.put(name, lambda: iter((data,)), modified_ns=now_ns)
        crc = _kernel.crc32c(np.frombuffer(data, np.uint8))
        return ArchivedFile(name.rpartition("/")[2], len(data), now_ns // 1_000_000, crc)


def target_of(place: Path) -> ArchiveTarget:
    """The target at ``place``, here or in a store."""
    return _InStore(place) if isinstance(place, StorePath) else _Here(place)


def check_new(target: ArchiveTarget) -> list[str]:
    """Names of unfinished earlier runs; checks that an archive may be written here.

    Raises:
        ConfigError: there is an archive already, or files that are not cleanerd's.
        CleanerdError: it cannot be listed.
    """
    names = target.names()
    if MANIFEST in names:
        raise ConfigError(
            f"has an archive already ({MANIFEST})", where=str(target.place), hint="name a new place: it replaces none"
        )
    foreign = [name for name in names if not name.startswith((RUN, f".{MANIFEST}."))]
    if foreign:
        raise ConfigError(
            f"has files that do not belong to an archive ({foreign[0][:60]})",
            where=str(target.place),
            hint="name a new place",
        )
    return sorted(name for name in names if name.startswith(RUN) and target.sizes_below(name))


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


class _InStore(ArchiveTarget):
    """A prefix in an object store."""

    place: StorePath

    def names(self) -> list[str]:
        return [] if self.place.status() is None else [each.name for each in self.place.children()]

    def sizes_below(self, name: str) -> dict[str, int]:
        place = self._at(name)
        if place.status() is None:
            return {}
        above = len(place.parts)
        files = place.files_below()
        return {"/".join(each.parts[above:]): each.listed.st_size for each in files if each.listed is not None}

    def put(self, name: str, pieces: Callable[[], Iterator[bytes]], *, modified_ns: int) -> None:
        """As an object, which appears when its last byte has arrived."""
        del modified_ns  # a store sets its own time
        path = self._at(name)
        if path.parts[0] in ("hdfs:", "viewfs:"):
            size = self._moved(name, pieces)
        else:
            size = tried(path, "cannot be written", lambda: self._sent(path, pieces()))
        there = path.status()
        if there is None or there.st_size != size:
            raise MachineError("is not there as it was written", where=str(path))

    def put_new(self, name: str, data: bytes) -> None:
        """Only if it does not exist yet. A run that finds another run's object afterwards has failed."""
        path = self._at(name)
        if path.status() is None:
            self.put(name, lambda: iter((data,)), modified_ns=0)
        with path.opened() as file:
            if file.readall() != data:
                raise _not_first(path)

    def _moved(self, name: str, pieces: Callable[[], Iterator[bytes]]) -> int:
        """In HDFS a file has its name from its first byte on, so use a rename; returns the number of bytes.

        A second attempt, which may be killed at any moment, keeps an existing file, which is complete and equal.
        pyarrow's rename would remove it first.
        """
        above, slash, last = name.rpartition("/")
        temporary = f"{above}{slash}.{last}.{secrets.token_hex(4)}.tmp"
        source, path = self._at(temporary), self._at(name)
        try:
            size = tried(source, "cannot be written", lambda: self._sent(source, pieces()))
            there = path.status()
            if there is None or there.st_size != size:
                tried(path, "cannot be written", lambda: self._renamed(source, path))
        finally:
            with contextlib.suppress(Exception):
                self.remove(temporary)
        return size

    @staticmethod
    def _renamed(temporary: StorePath, path: StorePath) -> None:
        try:
            path.writing_system.move(temporary.inner, path.inner)
        except OSError:
            # It may have succeeded without an answer; a later check finds out.
            if path.status() is None:
                raise

    def flush(self, name: str) -> None:
        """Does nothing: sent data is durable."""

    def remove(self, name: str) -> None:
        """Remove all objects below it."""
        path = self._at(name)
        found = path.status()
        if found is None:
            return
        system = path.writing_system
        call = system.delete_dir if found.is_dir else system.delete_file
        try:
            tried(path, "cannot be removed", lambda: call(path.inner))
        except SegmentChangedError:  # from Google's library: its last request is for the directory's own object
            if path.status() is not None:
                raise

    def _at(self, name: str) -> StorePath:
        path = self.place / name
        assert isinstance(path, StorePath)  # noqa: S101 - it is one of its kind
        return path

    @staticmethod
    def _sent(path: StorePath, pieces: Iterator[bytes]) -> int:
        size = 0
        with path.writing_system.open_output_stream(path.inner, compression=None) as stream:
            for piece in pieces:
                stream.write(piece)
                size += len(piece)
        return size


class _Here(ArchiveTarget):
    """A local directory, or one that all executors see under the same path."""

    def names(self) -> list[str]:
        try:
            return os.listdir(self.place)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise system_error("cannot be listed", str(self.place), error) from error

    def sizes_below(self, name: str) -> dict[str, int]:
        """From the directory; links are listed as links."""
        top = self.place / name
        found = {}
        for directory, _, names in os.walk(top):
            for each in names:
                path = Path(directory, each)
                with contextlib.suppress(FileNotFoundError):
                    found[str(path.relative_to(top))] = path.lstat().st_size
        return found

    def put(self, name: str, pieces: Callable[[], Iterator[bytes]], *, modified_ns: int) -> None:
        """Under a temporary name, then by a rename."""
        above, _, last = name.rpartition("/")
        with self._writing(name), self._directory(above) as directory:
            temporary = self._write(directory, last, pieces(), modified_ns)
            os.rename(temporary, last, src_dir_fd=directory, dst_dir_fd=directory)

    def put_new(self, name: str, data: bytes) -> None:
        """By a hard link to a flushed file, which only one process can create."""
        with self._writing(name), self._directory("") as directory:
            temporary = self._write(directory, name, iter((data,)), time.time_ns())
            try:
                os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
            except FileExistsError:
                raise _not_first(self.place / name) from None
            except OSError as error:
                if error.errno not in {errno.EPERM, errno.EOPNOTSUPP}:
                    raise
                # A file system without hard links: another run may write between this check and the rename.
                if name in os.listdir(directory):
                    raise _not_first(self.place / name) from None
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=directory)
            os.fsync(directory)

    def flush(self, name: str) -> None:
        """Fsync the directory and those above it, up to the place."""
        with self._writing(name):
            parts = name.split("/")
            for count in range(len(parts) + 1):
                with self._directory("/".join(parts[:count])) as directory:
                    os.fsync(directory)

    def remove(self, name: str) -> None:
        """With its content; a link is removed, not its target."""
        path = self.place / name
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise system_error("cannot be removed", str(path), error) from error

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise system_error("cannot be written", str(self.place / name), error) from error

    @contextlib.contextmanager
    def _directory(self, name: str) -> Iterator[int]:
        """A descriptor of a directory below the place; missing directories are created."""
        os.makedirs(self.place, exist_ok=True)
        place = open_trusted_directory(self.place)
        try:
            made = ""
            for part in filter(None, name.split("/")):
                made = f"{made}/{part}" if made else part
                close_quietly(make_directory(made, dir_fd=place, mode=_DIRECTORY_MODE))
            inner = open_directory(name, dir_fd=place) if name else os.dup(place)
        finally:
            close_quietly(place)
        try:
            yield inner
        finally:
            close_quietly(inner)

    @staticmethod
    def _write(directory: int, name: str, pieces: Iterator[bytes], modified_ns: int) -> str:
        """The temporary name of a flushed file."""
        temporary = f".{name}.{secrets.token_hex(4)}.tmp"
        try:
            with raw_file(create(temporary, dir_fd=directory, mode=_FILE_MODE), "wb") as file:
                for piece in pieces:
                    write_all(file.fileno(), piece)
                os.utime(file.fileno(), ns=(modified_ns, modified_ns))
                os.fsync(file.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise
        return temporary


def _not_first(path: Path) -> RefusedError:
    return RefusedError(
        "another run wrote its archive here at the same time", where=str(path), hint="give each run its own output"
    )
