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
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeAlias, TypeVar

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

R = TypeVar("R")
Reading: TypeAlias = "Callable[[SegmentReader, Segment, int], Iterator[R]]"
"""How a segment is read, from a file position on."""

DEFAULT_CHUNK_BYTES = 4 * 1024 * 1024
PIECE_BYTES = 512 * 1024
"""What is read at once of a chunk that is gathered: the kernel finds it in the CPU's cache."""

BATCHES_A_PIECE = 16
"""At least about so many: the batch that a piece cuts is read twice."""

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
S_co = TypeVar("S_co", covariant=True)


class Gathering(Protocol[S_co]):
    """What becomes of a chunk, fed piece by piece (``ChunkDecoder``, ``ChunkRewriter``)."""

    def feed(self, data: NDArray[np.uint8], position: int) -> tuple[int, int]:
        """Use the whole batches of ``data``; returns their bytes, and the size of the next if it did not fit."""

    @property
    def full(self) -> bool:
        """It takes no more."""

    def finish(self) -> S_co:
        """The chunk."""


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
        return self._read(segment, lambda _: _Whole(call), start, self._chunk_bytes, self._chunk_bytes)

    def gathered(
        self,
        segment: Segment,
        begin: Callable[[int], Gathering[S_co]],
        *,
        start: int = 0,
        chunk_bytes: int | None = None,
    ) -> Generator[S_co, None, None]:
        """Feed the segment to ``begin(bytes that are expected)`` piece by piece, chunk after chunk; yields the chunks.

        ``chunk_bytes`` is how much goes into a chunk where that is not what is read at once otherwise.

        Raises:
            CorruptionError, CleanerdError: as :meth:`chunks`.
        """
        piece_bytes = min(PIECE_BYTES, self._chunk_bytes)
        return self._read(segment, begin, start, piece_bytes, chunk_bytes or self._chunk_bytes)

    @contextlib.contextmanager
    def _opened(self, segment: Segment) -> Iterator[tuple[int, str]]:
        name = file_name(segment.base, SEGMENT_SUFFIX)
        where = f"{self.path}/{name}"
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory)
        except OSError as error:
            raise unreadable("cannot be opened", where, error) from error
        if self._direct:
            set_direct(descriptor, wanted=True)
        try:
            yield descriptor, where
        finally:
            os.close(descriptor)
            if self._buffer.chunk_bytes > self._chunk_bytes:
                self._buffer = _Buffer(self._chunk_bytes)

    def _read(
        self,
        segment: Segment,
        begin: Callable[[int], Gathering[S_co]],
        start: int,
        piece_bytes: int,
        chunk_bytes: int,
    ) -> Generator[S_co, None, None]:
        size = segment.size_bytes
        position = start
        with self._opened(segment) as (descriptor, where):
            while position < size:
                end = min(position + chunk_bytes, size)
                gathering = begin(end - position)
                while not gathering.full:
                    data = self._fill(descriptor, where, position, size, piece_bytes)
                    try:
                        consumed, needed = gathering.feed(data, position)
                    except _kernel.CorruptLogError as error:
                        raise corruption(error, where) from error
                    if consumed == 0 and not gathering.full:
                        if len(data) == size - position or needed > size - position:
                            raise _cut_off(where, position, size - position, needed)
                        piece_bytes = max(needed, 2 * piece_bytes)
                        continue
                    position += consumed
                    # What is left of a chunk and less than half a piece is left to the next one.
                    if position == size or (end < size and position + piece_bytes // 2 >= end):
                        break
                    piece_bytes = max(piece_bytes, min(BATCHES_A_PIECE * needed, self._chunk_bytes))
                yield gathering.finish()

    def _fill(self, descriptor: int, where: str, position: int, size: int, piece_bytes: int) -> NDArray[np.uint8]:
        """The bytes from ``position`` on, as many as asked for. Reads begin at a block's start: direct I/O wants it."""
        if piece_bytes > self._buffer.chunk_bytes:
            self._buffer = _Buffer(piece_bytes)
        start = position - position % DIRECT_ALIGNMENT
        wanted = min(position + piece_bytes, size) - start
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


class _Whole(Generic[T]):
    """A chunk that one call makes of one piece; it is finished when it is full, not before."""

    def __init__(self, call: Callable[[NDArray[np.uint8], int], T]) -> None:
        self._call = call
        self._result: list[T] = []

    def feed(self, data: NDArray[np.uint8], position: int) -> tuple[int, int]:
        result = self._call(data, position)
        if result.consumed:
            self._result.append(result)
        return result.consumed, result.needed

    @property
    def full(self) -> bool:
        return bool(self._result)

    def finish(self) -> T:
        return self._result[0]


def whole(call: Callable[[NDArray[np.uint8], int], T]) -> Reading[T]:
    """A way to read: chunk by chunk, each by one ``call(data, position)``."""
    return lambda reader, segment, start: reader.chunks(segment, call, start=start)


def gathered(begin: Callable[[int], Gathering[S_co]], *, chunk_bytes: int | None = None) -> Reading[S_co]:
    """A way to read: chunk by chunk, each gathered from pieces; see ``SegmentReader.gathered``."""
    return lambda reader, segment, start: reader.gathered(segment, begin, start=start, chunk_bytes=chunk_bytes)


def _cut_off(where: str, position: int, left_bytes: int, needed_bytes: int) -> CorruptionError:
    of_batch = f" of a batch of {needed_bytes}" if needed_bytes else ""
    return CorruptionError(
        f"ends inside a batch: {left_bytes} bytes are left{of_batch}", where=where, position=position
    )


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
