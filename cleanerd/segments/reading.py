"""Reading segments chunk by chunk through the kernel.

A chunk is whole batches, read into one reused buffer by ``preadv``. Segments are not memory-mapped: truncating a mapped
file kills the process, while a short read is an error.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import mmap
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from cleanerd import _kernel
from cleanerd.closeable import Closeable
from cleanerd.errors import BatchTooLargeError, CleanerdError, CorruptionError, system_error
from cleanerd.format.names import SEGMENT_SUFFIX, file_name
from cleanerd.fsio.plain_file import open_place, opened_plain_at
from cleanerd.fsio.safe_open import close_quietly, opened_file
from cleanerd.fsio.small_file import unreadable
from cleanerd.host.memory import batch_bytes
from cleanerd.segments.chunks import Consumed, CountedChunk
from cleanerd.segments.kernel_errors import KERNEL_ERRORS, kernel_error
from cleanerd.segments.page_cache import DropBehind
from cleanerd.segments.preallocated import only_zeros
from cleanerd.segments.same_file import changed, require_unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from numpy.typing import NDArray

    from cleanerd.segments.segment import Segment

R = TypeVar("R")
Reading: TypeAlias = "Callable[[SegmentReader, Segment, int], Iterator[R]]"
"""Reads a segment from a file position on."""

DEFAULT_CHUNK_BYTES = 4 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
"""Bytes of one read for a gathered chunk; small, so that the kernel finds them in the CPU's cache."""

BATCHES_A_PIECE = 16
"""Minimum of batches per read, about: the batch that a read cuts is read twice."""

DIRECT_ALIGNMENT = 4096
"""Direct I/O begins and ends at multiples of this in file and memory. No disk has larger logical blocks."""


C = TypeVar("C", bound=CountedChunk)
T = TypeVar("T", bound=Consumed)
S_co = TypeVar("S_co", bound=CountedChunk, covariant=True)


class ChunkBuilder(Protocol[S_co]):
    """Builds a chunk from pieces (``ChunkDecoder``, ``ChunkRewriter``)."""

    def feed(self, data: NDArray[np.uint8], position: int) -> tuple[int, int]:
        """Use the whole batches of ``data``; returns their bytes, and the size of the next if it did not fit."""

    @property
    def full(self) -> bool:
        """Whether it takes no more data."""

    def finish(self) -> S_co:
        """The chunk from all parts."""


class SegmentReader(Closeable):
    """Reads the segments of one partition through its directory descriptor.

    Not thread-safe: the buffer is reused, so the next read overwrites the arrays of a kernel call.
    """

    def __init__(self, path: str, directory: int | None, buffer: _Buffer, *, direct: bool = False) -> None:
        self.path = path
        self._direct = direct
        self._directory = directory
        self._buffer = buffer
        self._drop_behind = DropBehind()
        self.chunk_bytes = buffer.chunk_bytes

    @classmethod
    def open(
        cls,
        path: str,
        *,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        largest_batch_bytes: int | None = None,
        at_once: bool = True,
    ) -> SegmentReader:
        """A reader of the partition directory ``path``.

        ``largest_batch_bytes``: larger batches are not read; None: limited by the memory. ``at_once``: open it now, not
        when a file is read: beside a broker, a survey usually reads none.

        Raises:
            CleanerdError: it cannot be opened.
        """
        directory = _open_directory(path) if at_once else None
        return cls(path, directory, _Buffer(chunk_bytes, largest_batch_bytes))

    def for_directory(self, path: str, directory: int) -> SegmentReader:
        """A reader of another directory, open as ``directory`` (duplicated), that shares this one's buffer.

        It bypasses the page cache if the file system allows that: it reads from the disk and evicts nothing.
        """
        return SegmentReader(path, os.dup(directory), self._buffer, direct=True)

    @property
    def directory(self) -> int:
        """The partition directory's descriptor.

        Raises:
            CleanerdError: it cannot be opened.
        """
        if self._directory is None:
            self._directory = _open_directory(self.path)
        return self._directory

    def close(self) -> None:
        """Close the directory descriptor; reading afterwards is an error."""
        if self._directory is not None and self._directory >= 0:
            close_quietly(self._directory)
        self._directory = -1

    def headers(self, segment: Segment, *, start: int = 0) -> Iterator[_kernel.Batches]:
        """The batch headers of a segment from file position ``start`` on, a chunk at a time.

        Raises:
            CorruptionError: see ``scan_headers``; also a segment that ends inside a batch (C-57).
        """
        return self.chunks(segment, _kernel.scan_headers, start=start)

    def checked_headers(self, segment: Segment) -> Iterator[_kernel.Batches]:
        """As :meth:`headers`, for the whole segment; a wrong CRC is damage too."""
        return self.chunks(segment, _checked_headers)

    def headers_until_damage(self, segment: Segment, *, start: int = 0) -> Iterator[_kernel.Batches]:
        """As :meth:`headers`, but the first damage (CRCs included) is the end, as in a broker's recovery.

        Raises:
            CleanerdError: the file is gone, cannot be read, or is shorter than before.
        """
        return until_damage(by_chunk(_checked_headers))(self, segment, start)

    def chunks(
        self, segment: Segment, call: Callable[[NDArray[np.uint8], int], T], *, start: int = 0
    ) -> Generator[T, None, None]:
        """Feed the segment to ``call(data, position)`` until its end; yields what the call returns.

        Only the listed ``segment.size_bytes`` are read. Preallocated zeros at the active segment's end are left out.

        Raises:
            CorruptionError: the call found damage, or the segment ends inside a batch.
            CleanerdError: the file is gone, cannot be read, or is shorter than before.
        """
        size, whole_chunk = self.chunk_bytes, functools.partial(_Whole, call)
        read = functools.partial(self._read, begin=whole_chunk, piece_bytes=size, chunk_bytes=size)
        return self._without_preallocated(segment, start, read)

    def gathered(
        self,
        segment: Segment,
        begin: Callable[[int], ChunkBuilder[S_co]],
        *,
        start: int = 0,
        chunk_bytes: int | None = None,
    ) -> Generator[S_co, None, None]:
        """Feed the segment to ``begin(expected bytes)`` piece by piece, chunk after chunk; yields the chunks.

        ``chunk_bytes``: the size of a chunk, if it differs from that of a read.

        Raises:
            CorruptionError, CleanerdError: as :meth:`chunks`.
        """
        piece, chunk = min(PIECE_BYTES, self.chunk_bytes), chunk_bytes or self.chunk_bytes
        read = functools.partial(self._read, begin=begin, piece_bytes=piece, chunk_bytes=chunk)
        return self._without_preallocated(segment, start, read)

    @contextlib.contextmanager
    def _opened(self, segment: Segment) -> Iterator[tuple[int, str]]:
        name = file_name(segment.base, SEGMENT_SUFFIX)
        where = f"{self.path}/{name}"
        directory = self.directory
        try:
            # This is cleanerd's own file in a staging directory, which the broker does not use yet.
            opened = opened_file if self._direct else opened_plain_at
            descriptor, status = opened(name, dir_fd=directory)
        except FileNotFoundError as error:
            raise changed("it is gone", where) from error
        except OSError as error:
            raise unreadable("cannot be opened", where, error) from error
        try:
            require_unchanged(status, segment, where)
            if self._direct:
                set_direct(descriptor, wanted=True)
            try:
                yield descriptor, where
            except (BatchTooLargeError, CorruptionError, *KERNEL_ERRORS) as error:
                if not isinstance(error, MemoryError):
                    # a file that was cut and written to at the same time is not damaged
                    require_unchanged(os.fstat(descriptor), segment, where)
                if isinstance(error, CleanerdError):
                    raise
                raise kernel_error(error, where) from error
            require_unchanged(os.fstat(descriptor), segment, where)
        except OSError as error:
            raise unreadable("cannot be read", where, error) from error
        finally:
            close_quietly(descriptor)
            if self._buffer.chunk_bytes > self.chunk_bytes:
                self._buffer = _Buffer(self.chunk_bytes, self._buffer.largest_batch_bytes)

    def _without_preallocated(
        self, segment: Segment, start: int, listed: Callable[[Segment, int], Iterator[C]]
    ) -> Generator[C, None, None]:
        """The whole segment except the preallocated space after the last batch of an active one."""
        failed_at = -1
        while start < segment.size_bytes:
            try:
                for chunk in listed(segment, start):
                    yield chunk
                    start += chunk.consumed
            except CorruptionError as error:
                is_room = error.position >= 0 and self._is_preallocated(segment, error.position)
                if not segment.is_active or error.position < 0:
                    if is_room:
                        raise self._zeros(segment, error) from error
                    raise
                if is_room:
                    segment = replace(segment, size_bytes=error.position)
                elif error.position <= failed_at:
                    raise
                # Otherwise read again: the broker may have written to the preallocated space.
                failed_at = error.position

    def _zeros(self, segment: Segment, error: CorruptionError) -> CorruptionError:
        """The error for zeros in a closed segment, which a broker treats as damage too."""
        return CorruptionError(
            f"{segment.size_bytes - error.position} zero bytes to the end of a closed segment: room that a broker set "
            "aside and did not give back, or records that the disk lost",
            where=error.where,
            position=error.position,
            hint="copy the partition from a replica without them; where each has them, stop the broker, cut the file "
            f"to {error.position} bytes and delete its index files, which the broker makes again",
        )

    def _is_preallocated(self, segment: Segment, position: int) -> bool:
        with self._opened(segment) as (descriptor, where):
            set_direct(descriptor, wanted=False)  # damage begins anywhere, and direct reads begin at a block
            try:
                return only_zeros(descriptor, position, segment.size_bytes)
            except OSError as error:
                raise unreadable("cannot be read", where, error) from error

    def _read(
        self,
        segment: Segment,
        start: int,
        *,
        begin: Callable[[int], ChunkBuilder[S_co]],
        piece_bytes: int,
        chunk_bytes: int,
    ) -> Generator[S_co, None, None]:
        size = segment.size_bytes
        position = start
        with self._opened(segment) as (descriptor, where):
            while position < size:
                began = position
                end = min(position + chunk_bytes, size)
                gathering = begin(end - position)
                while not gathering.full:
                    data = self._fill(descriptor, where, position, size, piece_bytes)
                    consumed, needed = gathering.feed(data, position)
                    if consumed == 0 and not gathering.full:
                        if len(data) == size - position or needed > size - position:
                            raise _cut_off(where, position, size - position, needed)
                        self._require_buffer(needed, where, position)
                        piece_bytes = max(needed, 2 * piece_bytes)
                        continue
                    position += consumed
                    # If the rest of a chunk is less than half a piece, it is read with the next one.
                    if position == size or (end < size and position + piece_bytes // 2 >= end):
                        break
                    piece_bytes = max(piece_bytes, min(BATCHES_A_PIECE * needed, self.chunk_bytes))
                if not self._direct:
                    self._drop_behind.passed(descriptor, segment, began, position)
                yield gathering.finish()

    def _require_buffer(self, needed: int, where: str, position: int) -> None:
        """Enlarge the buffer for a whole batch; its frame may have a wrong size."""
        most = self._buffer.largest_batch_bytes or batch_bytes()
        if needed > max(most, self.chunk_bytes):
            raise BatchTooLargeError(
                f"a batch of {needed} bytes is more than the {most} that may be read at once",
                where=where,
                position=position,
            )

    def _fill(self, descriptor: int, where: str, position: int, size: int, piece_bytes: int) -> NDArray[np.uint8]:
        """The bytes from ``position`` on, as many as requested.

        Reads begin at the start of a block, which direct I/O needs.
        """
        if piece_bytes > self._buffer.chunk_bytes:
            self._buffer = _Buffer(piece_bytes, self._buffer.largest_batch_bytes)
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
                raise system_error("cannot be read", where, error) from error
            if count == 0:
                raise changed(f"it became shorter: {size} bytes were listed, it ends at {start + done}", where)
            done += count
        return self._buffer.memory[position - start : wanted]


def _open_directory(path: str) -> int:
    try:
        return open_place(path)
    except OSError as error:
        raise unreadable("cannot be opened", path, error) from error


class _Whole(Generic[T]):
    """A chunk from one call; it stays unfinished until it is full."""

    def __init__(self, call: Callable[[NDArray[np.uint8], int], T], _expected_bytes: int) -> None:
        self._call = call
        self._result: list[T] = []
        self.full = False

    def feed(self, data: NDArray[np.uint8], position: int) -> tuple[int, int]:
        result = self._call(data, position)
        if result.consumed:
            self._result.append(result)
            self.full = True
        return result.consumed, result.needed

    def finish(self) -> T:
        return self._result[0]


def by_chunk(call: Callable[[NDArray[np.uint8], int], T]) -> Reading[T]:
    """A :data:`Reading` chunk by chunk, each by one ``call(data, position)``."""
    return lambda reader, segment, start: reader.chunks(segment, call, start=start)


def gathered(begin: Callable[[int], ChunkBuilder[S_co]], *, chunk_bytes: int | None = None) -> Reading[S_co]:
    """A :data:`Reading` chunk by chunk, each gathered from pieces; see ``SegmentReader.gathered``."""
    return lambda reader, segment, start: reader.gathered(segment, begin, start=start, chunk_bytes=chunk_bytes)


def until_damage(reading: Reading[C]) -> Reading[C]:
    """The same :data:`Reading`, except that the first damage is the end, as in the broker's recovery after a crash."""

    def read(reader: SegmentReader, segment: Segment, start: int) -> Iterator[C]:
        try:
            for chunk in reading(reader, segment, start):
                yield chunk
                start += chunk.consumed
        except CorruptionError as error:
            # Read the data before the damage, which had no result so far.
            yield from reading(reader, replace(segment, size_bytes=error.position), start)

    return read


def _cut_off(where: str, position: int, left_bytes: int, needed_bytes: int) -> CorruptionError:
    of_batch = f" of a batch of {needed_bytes}" if needed_bytes else ""
    return CorruptionError(
        f"ends inside a batch: {left_bytes} bytes are left{of_batch}", where=where, position=position
    )


def set_direct(descriptor: int, *, wanted: bool) -> bool:
    """Switch direct I/O on or off; returns whether that changed anything. Some file systems do not support it."""
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
    """A buffer for ``chunk_bytes`` from any file position, in whole pages as direct reads need.

    It is allocated at the first read: a scan reads nothing from most partitions.
    """

    def __init__(self, chunk_bytes: int, largest_batch_bytes: int | None = None) -> None:
        self.chunk_bytes = chunk_bytes
        self.largest_batch_bytes = largest_batch_bytes

    @functools.cached_property
    def memory(self) -> NDArray[np.uint8]:
        room = _whole_blocks(self.chunk_bytes) + DIRECT_ALIGNMENT
        memory = mmap.mmap(-1, room)
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)  # fewer page faults for each copy into the buffer
        return np.frombuffer(memory, dtype=np.uint8)


def _whole_blocks(size: int) -> int:
    return -(-size // DIRECT_ALIGNMENT) * DIRECT_ALIGNMENT


def _checked_headers(data: NDArray[np.uint8], position: int) -> _kernel.Batches:
    return _kernel.scan_headers(data, position, verify_crc=True)
