"""A place that no system call reaches: a directory or an object in a store, as a path.

Names, parents and joins work as with any path, so that code that lists and reads logs does not differ. Opening, listing
and measuring go through this module; a store implements them (``spark/stores.py``, as the core needs no library for
it).
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
"""Some entries of an index."""


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A store's description of a name. Times have no fractions of a second: some stores have none.

    The fields of ``os.stat_result`` that distinguish files; a store has no inodes.
    """

    is_dir: bool
    st_size: int
    st_mtime_ns: int
    st_ino: int = 0

    @classmethod
    def of(cls, size_bytes: int, written_ns: int, *, is_dir: bool = False) -> Self:
        """With the whole seconds of the time."""
        return cls(is_dir, size_bytes, written_ns // _SECOND_NS * _SECOND_NS)


class RemotePath(PosixPath):
    """A path whose text is a URL. ``listed``: its description in the listing that it came from, if any."""

    listed: StoreEntry | None = None

    def __str__(self) -> str:
        return super().__str__().replace(":/", SEPARATOR, 1)

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is not a file of this machine")

    def absolute(self) -> Self:
        """A URL is whole already."""
        return self

    def resolve(self, strict: bool = False) -> Self:  # noqa: ARG002, FBT001, FBT002 - as its base has it
        return self

    @abstractmethod
    def children(self) -> list[RemotePath]:
        """The entries directly in it, ``listed``, sorted by name; without those whose names are not valid in a path.

        Raises:
            CleanerdError: it cannot be listed.
        """

    def dirs(self) -> list[RemotePath]:
        """The directories among its children; raises as they do."""
        return [each for each in self.children() if each.listed is not None and each.listed.is_dir]

    @abstractmethod
    def files_below(self, *, complete: bool = False) -> list[RemotePath]:
        """All files anywhere below it, ``listed``, sorted.

        Raises:
            ConfigError: with ``complete``, a name that is not valid in a path, so that it cannot be read.
            CleanerdError: it cannot be listed.
        """

    @abstractmethod
    def status(self) -> StoreEntry | None:
        """The entry there now; None if it does not exist.

        Raises:
            CleanerdError: the store does not answer.
        """

    @abstractmethod
    def opened(self, upto: int = 0) -> Ranges:
        """The file, to be read up to the byte ``upto``: later bytes are not fetched ahead.

        Raises:
            SegmentChangedError: it is shorter.
            CleanerdError: it is gone, or cannot be read.
        """

    def small(self, *, has_room: bool = False) -> bytes | None:
        """All of a small file, None when there is none; ``has_room`` as of :func:`safe_open.read_and_close`.

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
            # Its size was read before its bytes: a part of a longer checkpoint may be a valid checkpoint.
            file.require_unchanged()
            return data

    def witness(self, base: int, *, sealed: bool) -> Segment:
        """The segment ``base`` as it was listed, or as it is now.

        Raises:
            CleanerdError: it is gone.
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
    """An open file in a store. ``listed``: as it was when opened; ``tag``: the store's identifier of its bytes."""

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
        """Refuse what was read when another object has the name now.

        Raises:
            SegmentChangedError: the object was replaced, or is gone.
        """

    def readable(self) -> bool:
        """It is, from everywhere."""
        return True

    def seekable(self) -> bool:
        """It is: a range begins anywhere."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Where to read next."""
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.listed.st_size}[whence]
        self._at = begin + offset
        return self._at

    def tell(self) -> int:
        """Where is read next."""
        return self._at

    def readinto(self, room: WriteableBuffer) -> int:
        """As for any file; raises as :meth:`read_into`."""
        count = self.read_into(room, self._at)
        self._at += count
        return count

    def only_zeros(self, start: int, end: int) -> bool:
        """Whether it holds nothing but zeros there; raises as :meth:`read_into`."""
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
    """An index without the room behind its entries, of which no more is fetched than they take, and ROOM_BYTES.

    Only where the file ends with zeros is there any. Else it is fetched at once.
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
    """A URL as it may be shown: whatever may be a secret in it is left out."""
    scheme, _, rest = text.partition(SEPARATOR)
    host, slash, path = rest.partition("/")
    shown = host.rpartition("@")[2] + slash + re.split(r"[?#]", path)[0]
    return f"{scheme}{SEPARATOR}{shown}"
