"""Paths in an object store: a directory or an object that system calls do not reach.

Names, parents and joins work as with any path, so code that lists and reads logs is the same. Opening, listing and
``stat`` use this module. ``spark/stores.py`` implements a store, so that the core needs no library for it.
"""

from __future__ import annotations

import io
import re
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import PosixPath
from typing import TYPE_CHECKING, Any, Final, Self

from cleanerd.errors import SegmentChangedError
from cleanerd.fsio.safe_open import MAX_SMALL_FILE_BYTES, ROOM_BYTES, too_large

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from cleanerd.segments.segment import Segment

SEPARATOR: Final = "://"
_SECOND_NS: Final = 1_000_000_000
_END_BYTES: Final = 96
"""The size of several index entries."""


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A store's description of a name.

    Times are whole seconds, because some stores have no fractions. It has the fields of ``os.stat_result`` that
    distinguish files; a store has no inodes.
    """

    is_dir: bool
    st_size: int
    st_mtime_ns: int
    st_ino: int = 0

    @classmethod
    def of(cls, size_bytes: int, written_ns: int, *, is_dir: bool = False) -> Self:
        """With the time in whole seconds."""
        return cls(is_dir, size_bytes, written_ns // _SECOND_NS * _SECOND_NS)


class RemotePath(PosixPath):
    """A path whose text is a URL. ``listed``: its description in the listing that it came from, if any."""

    listed: StoreEntry | None = None

    def __str__(self) -> str:
        return super().__str__().replace(":/", SEPARATOR, 1)

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is not a file of this machine")

    def absolute(self) -> Self:
        """This path, because a URL is always absolute."""
        return self

    def resolve(self, strict: bool = False) -> Self:  # noqa: ARG002, FBT001, FBT002 - as its base has it
        return self

    @abstractmethod
    def children(self) -> list[RemotePath]:
        """Its direct entries, ``listed``, sorted by name; without names that are not valid in a path.

        Raises:
            CleanerdError: it cannot be listed.
        """

    def dirs(self) -> list[RemotePath]:
        """The directories among its children; raises as :meth:`children` does."""
        return [each for each in self.children() if each.listed is not None and each.listed.is_dir]

    @abstractmethod
    def files_below(self, *, complete: bool = False) -> list[RemotePath]:
        """All files below it at any depth, ``listed``, sorted.

        Raises:
            ConfigError: with ``complete``, for a name that is not valid in a path and cannot be read.
            CleanerdError: it cannot be listed.
        """

    @abstractmethod
    def status(self) -> StoreEntry | None:
        """Its entry now; None if it does not exist.

        Raises:
            CleanerdError: the store does not answer.
        """

    @abstractmethod
    def opened(self, upto: int = 0) -> Ranges:
        """The file, to be read up to the byte ``upto``: later bytes are not fetched ahead.

        Raises:
            SegmentChangedError: it is shorter.
            CleanerdError: it does not exist, or cannot be read.
        """

    def small(self, *, has_room: bool = False) -> bytes | None:
        """The content of a small file; None: it does not exist. ``has_room``: see :func:`safe_open.read_and_close`.

        Raises:
            OSError: it is too large.
            SegmentChangedError: another object took its name meanwhile.
            CleanerdError: it cannot be read.
        """
        try:
            file = self.opened()
        except SegmentChangedError:
            if self.status() is None:
                return None
            raise
        with file:
            if file.listed.st_size > MAX_SMALL_FILE_BYTES:
                raise too_large(str(self), MAX_SMALL_FILE_BYTES)
            data = _entries(file) if has_room and file.listed.st_size > ROOM_BYTES else file.readall()
            # The size was read before the content: part of a longer checkpoint may be a valid checkpoint.
            file.require_unchanged()
            return data

    def witness(self, base: int, *, sealed: bool) -> Segment:
        """The segment ``base`` as listed, or as it is now.

        Raises:
            CleanerdError: it does not exist.
        """
        from cleanerd.segments.segment import Segment  # noqa: PLC0415 - which knows nothing of us

        found = self.listed
        if found is None:
            with self.opened() as file:
                found = file.listed
        size, written = found.st_size, found.st_mtime_ns
        return Segment(
            base=base, size_bytes=size, mtime_ns=written, ctime_ns=0, dev=0, inode=0, uid=0, gid=0, mode=0,
            suffixes=frozenset(), is_active=not sealed, sealed_bytes=size if sealed else -1,
        )  # fmt: skip


class Ranges(io.RawIOBase):
    """An open file in a store.

    ``listed``: its entry when it was opened; ``tag``: the store's identifier of its content.
    """

    listed: StoreEntry
    tag: str = ""

    def __init__(self) -> None:
        super().__init__()
        self._at = 0

    @abstractmethod
    def read_into(self, room: WriteableBuffer, position: int) -> int:
        """Fill ``room`` from ``position`` on; fewer bytes only at the end of the file.

        Raises:
            CleanerdError: it cannot be read.
        """

    @abstractmethod
    def require_unchanged(self) -> None:
        """Check that the name still has the object that was read.

        Raises:
            SegmentChangedError: the object was replaced, or does not exist.
        """

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read."""
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.listed.st_size}[whence]
        self._at = begin + offset
        return self._at

    def tell(self) -> int:
        """The position of the next read."""
        return self._at

    def readinto(self, room: WriteableBuffer) -> int:
        """Read into a buffer; raises as :meth:`read_into`."""
        count = self.read_into(room, self._at)
        self._at += count
        return count

    def only_zeros(self, start: int, end: int) -> bool:
        """Whether the range has only zeros; raises as :meth:`read_into`."""
        piece: Any = bytearray(1 << 20)
        while start < min(end, self.listed.st_size):
            room = memoryview(piece)[: min(len(piece), end - start)]
            count = self.read_into(room, start)
            if any(room[:count]):
                return False
            if not count:
                break
            start += count
        return True


def _entries(file: Ranges) -> bytes:
    """An index without its preallocated end, fetching only the entries and ROOM_BYTES.

    If the file does not end with zeros, it is fetched at once.
    """
    size = file.listed.st_size
    count = ROOM_BYTES if file.only_zeros(size - _END_BYTES, size) else size
    data = bytearray()
    while len(data) < size:
        part = bytearray(min(count, size - len(data)))
        file.read_into(part, len(data))
        for start in range(0, len(part) - ROOM_BYTES + 1, ROOM_BYTES):
            if not any(part[start : start + ROOM_BYTES]):
                return bytes(data + part[:start])
        data += part
        count = len(data)
    return bytes(data)


def shown_url(text: str) -> str:
    """A URL as it may be shown: parts that may be secret are left out."""
    scheme, _, rest = text.partition(SEPARATOR)
    host, slash, path = rest.partition("/")
    shown = host.rpartition("@")[2] + slash + re.split(r"[?#]", path)[0]
    return f"{scheme}{SEPARATOR}{shown}"
