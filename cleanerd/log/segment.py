"""One segment of a partition as found on disk, and the proof that it is still the same one later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os


@dataclass(frozen=True, slots=True)
class BatchWitness:
    """What identifies a batch in its segment: the offset in its frame and its stored CRC."""

    offset: int
    crc: int


@dataclass(frozen=True, slots=True)
class Witness:
    """A segment as it was when it was read (segment-swap 8.4 step 2; U-3).

    ``first_batch`` and ``last_batch`` are None for an empty segment.
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
    """A ``.log`` file and what stands beside it.

    ``suffixes`` are those of ``.index``, ``.timeindex``, ``.txnindex`` and ``.snapshot`` that exist for ``base``.
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

    @classmethod
    def from_stat(cls, base: int, stat: os.stat_result, suffixes: frozenset[str]) -> Segment:
        """The segment ``base`` whose ``.log`` has this ``stat``."""
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
        )

    def witness(self, first_batch: BatchWitness | None, last_batch: BatchWitness | None) -> Witness:
        """The witness of this segment, once its first and last batch are known."""
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
