"""Reading segments chunk by chunk through the kernel.

A chunk is whole batches, read into one reused buffer by ``preadv``. Segments are never mapped: a file that is cut
while it is mapped kills the process, a short read is an error that can be told.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.names import SEGMENT_SUFFIX, file_name
from cleanerd.log.small_file import unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from types import TracebackType

    from numpy.typing import NDArray

    from cleanerd.log.segment import Segment

DEFAULT_CHUNK_BYTES = 4 * 1024 * 1024
DIRECT_ALIGNMENT = 4096
"""Direct I/O begins and ends at multiples of this in file and memory; no less than a logical block of any disk."""


class Consumed(Protocol):
    """What every chunk call of the kernel returns at least."""

    @property
    def consumed(self) -> int:
        """Bytes of whole batches that were used."""

    @property
    def needed(self) -> int:
        """Size of the batch that did not fit, 0 when unknown."""


T = TypeVar("T", bound=Consumed)


class SegmentReader:
    """Reads the segments of one partition through its directory descriptor.

    Not for two threads at once: the buffer is reused, and the arrays a kernel call got are gone with the next read.
    """

    def __init__(self, path: str, directory: int, buffer: _Buffer, *, direct: bool = False) -> None:
        self.path = path
        self._direct = direct
        self._directory = directory
        self._buffer = buffer
        self._chunk_bytes = buffer.chunk_bytes

    @classmethod
    def open(cls, path: str, *, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> SegmentReader:
        """A reader of the partition directory ``path``.

        Raises:
            CleanerdError: it cannot be opened.
        """
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable("cannot be opened", path, error) from error
        return cls(path, directory, _Buffer(chunk_bytes))

    def beside(self, path: str, directory: int) -> SegmentReader:
        """A reader of another directory, open as ``directory`` (duplicated), that shares this one's buffer.

        It reads past the page cache where the file system can: what is on the disk, and nothing else is pushed out.
        """
        return SegmentReader(path, os.dup(directory), self._buffer, direct=True)

    @property
    def directory(self) -> int:
        """The partition directory's descriptor."""
        return self._directory

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the directory descriptor; reading on is an error."""
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1

    def headers(self, segment: Segment, *, start: int = 0) -> Iterator[_kernel.Batches]:
        """The batch headers of a segment from file position ``start`` on, a chunk at a time.

        Raises:
            CorruptionError: see ``scan_headers``; also a segment that ends inside a batch (C-57).
        """
        return self.chunks(segment, _kernel.scan_headers, start=start)

    def headers_until_damage(self, segment: Segment, *, start: int = 0) -> Iterator[_kernel.Batches]:
        """As :meth:`headers`, but the first damage is the end, as for the broker's recovery after a crash (CRCs count).

        Raises:
            CleanerdError: the file is gone or cannot be read, or has become shorter.
        """
        position = start
        try:
            for batches in self.chunks(segment, _checked_headers, start=start):
                position += batches.consumed
                yield batches
        except CorruptionError as error:
            # Its chunk gave nothing so far: what lies before the damage.
            yield from self.headers(replace(segment, size_bytes=error.position), start=position)

    def chunks(
        self, segment: Segment, call: Callable[[NDArray[np.uint8], int], T], *, start: int = 0
    ) -> Generator[T, None, None]:
        """Feed the segment to ``call(data, position)`` until its end; yields what the call returns.

        The bytes are those of ``segment.size_bytes`` as it was listed: what came later is not looked at.

        Raises:
            CorruptionError: the call found damage, or the segment ends inside a batch.
            CleanerdError: the file is gone or cannot be read, or has become shorter.
        """
        name = file_name(segment.base, SEGMENT_SUFFIX)
        where = f"{self.path}/{name}"
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory)
        except OSError as error:
            raise unreadable("cannot be opened", where, error) from error
        if self._direct:
            set_direct(descriptor, wanted=True)
        try:
            yield from self._chunks(descriptor, where, segment.size_bytes, call, start)
        finally:
            os.close(descriptor)
            if self._buffer.chunk_bytes > self._chunk_bytes:
                self._buffer = _Buffer(self._chunk_bytes)

    def _chunks(
        self, descriptor: int, where: str, size: int, call: Callable[[NDArray[np.uint8], int], T], start: int
    ) -> Iterator[T]:
        position = start
        while position < size:
            data = self._fill(descriptor, where, position, size)
            try:
                result = call(data, position)
            except _kernel.CorruptLogError as error:
                raise corruption(error, where) from error
            if result.consumed == 0:
                if len(data) == size - position or result.needed > size - position:
                    raise CorruptionError(
                        f"ends inside a batch: {size - position} bytes are left"
                        + (f" of a batch of {result.needed}" if result.needed else ""),
                        where=where,
                        position=position,
                    )
                self._buffer = _Buffer(max(result.needed, 2 * self._buffer.chunk_bytes))
                continue
            position += result.consumed
            yield result

    def _fill(self, descriptor: int, where: str, position: int, size: int) -> NDArray[np.uint8]:
        """The bytes from ``position`` on, as many as fit. Reading begins at a block's start: direct I/O wants it so."""
        start = position - position % DIRECT_ALIGNMENT
        wanted = min(position + self._buffer.chunk_bytes, size) - start
        whole_blocks = self._buffer.memory.data[: _whole_blocks(wanted)]
        done = 0
        while done < wanted:
            try:
                count = os.preadv(descriptor, [whole_blocks[done:]], start + done)
            except OSError as error:
                if error.errno == errno.EINVAL and set_direct(descriptor, wanted=False):
                    continue
                raise CleanerdError(f"cannot be read: {error.strerror}", where=where) from error
            if count == 0:
                raise CleanerdError(
                    f"became shorter while it was read: {size} bytes were listed, it ends at {start + done}",
                    where=where,
                )
            done += count
        return self._buffer.memory[position - start : wanted]


def set_direct(descriptor: int, *, wanted: bool) -> bool:
    """Switch direct I/O on or off; returns whether that changed anything. Not every file system has it."""
    before = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    after = before | os.O_DIRECT if wanted else before & ~os.O_DIRECT
    if before == after:
        return False
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, after)
    except OSError:
        return False
    return True


class _Buffer:
    """Room for ``chunk_bytes`` from anywhere in a file, in whole pages: direct reads go nowhere else."""

    def __init__(self, chunk_bytes: int) -> None:
        self.chunk_bytes = chunk_bytes
        room = _whole_blocks(chunk_bytes) + DIRECT_ALIGNMENT
        memory = mmap.mmap(-1, room)
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)  # fewer pages to look up for whoever copies into them, the disk included
        self.memory: NDArray[np.uint8] = np.frombuffer(memory, dtype=np.uint8)


def _whole_blocks(size: int) -> int:
    return -(-size // DIRECT_ALIGNMENT) * DIRECT_ALIGNMENT


def _checked_headers(data: NDArray[np.uint8], position: int) -> _kernel.Batches:
    return _kernel.scan_headers(data, position, verify_crc=True)


def corruption(error: _kernel.CorruptLogError, where: str) -> CorruptionError:
    """The kernel's finding as an error of ours, with the file it is about."""
    place = [f"batch at offset {error.base_offset}"] if error.base_offset >= 0 else []
    if error.record >= 0:
        place.append(f"record {error.record}")
    reason = f"{error.reason} ({', '.join(place)})" if place else error.reason
    return CorruptionError(reason, where=where, position=error.position)
