"""The offset map in a file (``cleanerd.map.dir``, U-43), where the keys do not fit memory: the system may push it out.

A file takes the place of shards and of nothing else: whatever goes wrong with it, the keys are cut into shards, and the
result is the same. So every failure here is a :class:`MapFileError`, whose text is for the operator.

* The file has no name: nothing is left of it when the process is killed, and no other process opens it.
* All of its room is taken before it is used, so that a full disk or a quota is an error then. Where a file system does
  not keep that promise (copy on write), or the disk fails, the kernel says so (``MapLostError``) and no signal ends us.
* A page that could not be written is forgotten, and what is read in its place is older: keys would be missing from the
  map, and records would be lost. The system reports that once, at the next flush. So the file is cut to nothing and
  flushed before anything counts that the map said.
* A key lies anywhere in the map: where the pages do not stay in memory, nearly every record waits for the disk. Then it
  is slower than any number of passes, which shows at once (:class:`MapFilePace`).
"""

from __future__ import annotations

import errno
import os
import resource
import secrets
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd._kernel import MapLostError, OffsetMap
from cleanerd.fsio.mounts import IN_MEMORY, file_system_of
from cleanerd.fsio.safe_open import close_quietly, open_trusted_directory
from cleanerd.humanize import human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cleanerd._kernel import Chunk

MODE: Final = 0o600
RESERVE_PART: Final = 10
"""One part in so many of the disk stays free, where ``cleanerd.disk.reserve`` is not set."""

_NAMELESS: Final = os.O_TMPFILE | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC
_NOT_NAMELESS: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})
"""What file systems say that cannot make a file without a name. Where there is no directory the next call says so."""

_BLOCK_BYTES: Final = 512


class MapFileError(Exception):
    """The map cannot be on disk, or is lost; the text says why."""


def read_from_disks() -> int:
    """How many bytes this thread has waited for: logs, and pages of a map that come back."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock * _BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """When a file is too slow: after ``grace_seconds``, and as many passes as ``least_passes``.

    Chunks of less than ``least_bytes`` do not say how fast it can be. The file is to blame where this thread waits for
    ``read_back_times`` the bytes of the log; ``read_from_disks`` counts them.
    """

    grace_seconds: float = 5.0
    least_passes: int = 2
    least_bytes: int = 64 * 1024
    read_back_times: int = 4
    read_from_disks: Callable[[], int] = read_from_disks


PACE_LIMITS: Final = PaceLimits()


class MapFilePace:
    """How fast the log is read with the map in a file, against the ``passes`` that memory alone would take.

    In memory a pass is about twice as quick as the best pace that is seen with a file. So the file gets half of those
    passes at its best pace, but two at least, and some seconds. It is only to blame where this thread reads a good deal
    more from disks than the log: on a busy machine the best pace is a rare one.
    """

    def __init__(self, passes: int, limits: PaceLimits = PACE_LIMITS) -> None:
        self._passes = passes
        self._limits = limits
        self._seconds = 0.0
        self._bytes = 0
        self._best = float("inf")
        self._read_before = limits.read_from_disks()

    def of(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """The ``chunks``, timed: until one is there, and until the next one is asked for.

        Raises:
            MapFileError: the file is the slower way.
        """
        began = time.monotonic()
        for chunk in chunks:
            yield chunk
            ended = time.monotonic()
            self.count(chunk.consumed, ended - began)
            began = ended

    def count(self, done_bytes: int, seconds: float) -> None:
        """So many bytes of log took so long.

        Raises:
            MapFileError: the file is the slower way.
        """
        self._seconds += seconds
        self._bytes += done_bytes
        limits = self._limits
        if done_bytes >= limits.least_bytes:
            self._best = min(self._best, seconds / done_bytes)
        passes = max(self._passes / 2, limits.least_passes)
        too_slow = self._seconds > limits.grace_seconds + passes * self._best * self._bytes
        if too_slow and limits.read_from_disks() - self._read_before > limits.read_back_times * self._bytes:
            raise MapFileError(f"it was slower there than {self._passes} passes would be: too little memory is free")


class MapFile:
    """A file without a name, closed by :func:`opened`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def max_bytes(self, reserve_bytes: int | None) -> int:
        """How large it may become: what is free there less ``reserve_bytes``, by default a tenth of the disk."""
        disk = os.fstatvfs(self._descriptor)
        reserve = disk.f_blocks * disk.f_frsize // RESERVE_PART if reserve_bytes is None else reserve_bytes
        return max(disk.f_bavail * disk.f_frsize - reserve, 0)

    @contextmanager
    def offset_map(
        self, memory_bytes: int, *, load: float, versions: bool, reserve_bytes: int | None
    ) -> Iterator[OffsetMap]:
        """An empty map that is the file. What it said counts when the block has ended without an error.

        Raises:
            MapFileError: there is no room for it, or what was written to it may be lost.
        """
        try:
            os.ftruncate(self._descriptor, 0)
            room = self.max_bytes(reserve_bytes)
            if memory_bytes > room:
                raise MapFileError(f"{human_bytes(memory_bytes)} are needed and {human_bytes(room)} may be taken")
            os.posix_fallocate(self._descriptor, 0, memory_bytes)
            offset_map = OffsetMap.in_file(self._descriptor, memory_bytes, load=load, versions=versions)
        except OSError as error:
            raise self._failed(error) from error
        try:
            yield offset_map
        except MapLostError as error:
            raise self._failed(error) from error
        finally:
            with suppress(MapLostError):  # it was raised where it was met
                offset_map.close()
        try:
            os.ftruncate(self._descriptor, 0)
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> MapFileError:
        return MapFileError(error.strerror or str(error))


@contextmanager
def opened(place: str) -> Iterator[MapFile]:
    """A file in the directory ``place``, of which nothing is left afterwards.

    Raises:
        MapFileError: none can be made there, or it would take memory.
    """
    try:
        descriptor = _nameless(place)
    except OSError as error:
        raise MapFileError(error.strerror or str(error)) from error
    try:
        kind = file_system_of(descriptor)
        if kind in IN_MEMORY:
            raise MapFileError(f"{kind} is memory itself")
        yield MapFile(descriptor)
    finally:
        close_quietly(descriptor)


def _nameless(place: str) -> int:
    try:
        return os.open(place, _NAMELESS, MODE)
    except OSError as error:
        if error.errno not in _NOT_NAMELESS:
            raise
    directory = open_trusted_directory(place)
    try:
        name = f".cleanerd-map-{secrets.token_hex(8)}"
        descriptor = os.open(
            name, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR | os.O_CLOEXEC, MODE, dir_fd=directory
        )
        try:
            os.unlink(name, dir_fd=directory)
        except BaseException:
            close_quietly(descriptor)
            raise
        return descriptor
    finally:
        close_quietly(directory)
