"""One segment of a partition, and its identity, to detect later changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import os


class StatResult(Protocol):
    """The fields that distinguish files, from ``os.stat_result`` or from a store."""

    @property
    def st_ino(self) -> int:
        """The inode, 0 in a store."""

    @property
    def st_size(self) -> int: ...

    @property
    def st_mtime_ns(self) -> int: ...


@dataclass(frozen=True, slots=True)
class BatchWitness:
    """Identifies a batch in its segment: the offset in its frame and its stored CRC."""

    offset: int
    crc: int


@dataclass(frozen=True, slots=True)
class Witness:
    """A segment's identity when it was read (S-29, U-3).

    ``first_batch`` and ``last_batch`` are None for an empty segment. ``dev`` is not compared, see ``Segment.change``.
    """

    base: int
    dev: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    first_batch: BatchWitness | None
    last_batch: BatchWitness | None


@dataclass(frozen=True, slots=True)
class Segment:
    """A ``.log`` file and the files beside it.

    ``suffixes`` are those of ``.index``, ``.timeindex``, ``.txnindex`` and ``.snapshot`` that exist for ``base``.
    ``is_active``: a broker appends to it, and may have preallocated space after its last batch: zeros there are its
    end. ``sealed_bytes``: the size of a file without further appends, -1 for others. ``size_bytes``: how much of it is
    read, which can be less.
    """

    base: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    dev: int
    inode: int
    uid: int
    gid: int
    mode: int
    suffixes: frozenset[str]
    is_active: bool = False
    sealed_bytes: int = -1

    @classmethod
    def from_stat(
        cls,
        base: int,
        stat: os.stat_result,
        suffixes: frozenset[str],
        *,
        is_active: bool = False,
        sealed: bool = False,
    ) -> Segment:
        """The segment ``base`` whose ``.log`` has this ``stat``; ``sealed``: a later segment exists."""
        return cls(
            base=base,
            size_bytes=stat.st_size,
            mtime_ns=stat.st_mtime_ns,
            ctime_ns=stat.st_ctime_ns,
            dev=stat.st_dev,
            inode=stat.st_ino,
            uid=stat.st_uid,
            gid=stat.st_gid,
            mode=stat.st_mode & 0o7777,
            suffixes=suffixes,
            is_active=is_active,
            sealed_bytes=stat.st_size if sealed else -1,
        )

    def change(self, found: StatResult) -> str:
        """What changed in the file since it was listed, by its ``stat`` now; empty if nothing did (D-06).

        The device number is ignored: it differs between hosts that share a file system, and may change at a reboot. So
        is ctime: a backup's hard link changes it. A new file with a reused inode has another size or time, and a sealed
        file that was cut and written again has another time.
        """
        if found.st_ino != self.inode:
            return "another file has its name now"
        if found.st_size < self.size_bytes:
            return f"it became shorter: {self.size_bytes} bytes were listed, it ends at {found.st_size}"
        if self.sealed_bytes >= 0 and (found.st_size, found.st_mtime_ns) != (self.sealed_bytes, self.mtime_ns):
            return "it was written to although it is not the active segment"
        return ""

    def witness(self, first_batch: BatchWitness | None, last_batch: BatchWitness | None) -> Witness:
        """The witness of this segment, from its first and last batch."""
        return Witness(
            base=self.base,
            dev=self.dev,
            inode=self.inode,
            size=self.size_bytes,
            mtime_ns=self.mtime_ns,
            ctime_ns=self.ctime_ns,
            first_batch=first_batch,
            last_batch=last_batch,
        )
