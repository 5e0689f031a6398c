"""Reading blocks of a file into reused memory; for uncached files directly from the disk, ahead of the caller.

A direct read leaves the page cache as it is, and takes less CPU than one through it. But the kernel does not read ahead
then, so a thread does.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.closeable import Closeable
from cleanerd.errors import system_error
from cleanerd.fsio.background import Background
from cleanerd.segments.same_file import changed

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIRECT_ALIGNMENT = 4096
"""Direct I/O begins and ends at multiples of this in file and memory. No disk has larger logical blocks."""

BLOCKS_AHEAD: Final = 2
"""With them the disk has the next read before the thread gets the interpreter's lock again."""


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


def read_into(memory: NDArray[np.uint8], descriptor: int, where: str, start: int, wanted: int) -> None:
    """Read ``wanted`` bytes from file position ``start`` on into ``memory``. Direct reads need both aligned.

    Raises:
        CleanerdError: they cannot be read, or the file is shorter.
    """
    whole_blocks = memory[: _whole_blocks(wanted)].data
    done = 0
    while done < wanted:
        try:
            count = os.preadv(descriptor, [whole_blocks[done:]], start + done)
        except OSError as error:
            if error.errno == errno.EINVAL and set_direct(descriptor, wanted=False):
                continue
            raise system_error("cannot be read", where, error) from error
        if count == 0:
            raise changed(
                f"it became shorter: it ends at {start + done}, before the listed byte {start + wanted}", where
            )
        done += count


class Buffer:
    """A buffer for up to ``chunk_bytes`` from any file position, as large as the largest read so far.

    To map memory for ``chunk_bytes`` costs more than to read a small segment.
    """

    def __init__(self, chunk_bytes: int, largest_batch_bytes: int | None = None) -> None:
        self.chunk_bytes = chunk_bytes
        self.largest_batch_bytes = largest_batch_bytes
        self._memory = np.empty(0, np.uint8)

    def read(self, descriptor: int, where: str, position: int, wanted: int) -> NDArray[np.uint8]:
        """The ``wanted`` bytes from ``position`` on; the next read overwrites them.

        Raises:
            CleanerdError: as :func:`read_into`.
        """
        lead = position % DIRECT_ALIGNMENT
        if len(self._memory) < _whole_blocks(lead + wanted):
            self._memory = _allocate(_whole_blocks(wanted) + DIRECT_ALIGNMENT)
        read_into(self._memory, descriptor, where, position - lead, lead + wanted)
        return self._memory[lead : lead + wanted]


class ReadAhead(Closeable):
    """Reads a file from one position to its end in blocks, some of them ahead by a thread.

    The unused rest of a block is copied in front of the next one, so that every piece is contiguous. Close it before
    the file, whose descriptor another file may get.
    """

    def __init__(self, descriptor: int, where: str, start: int, end: int, block_bytes: int) -> None:
        """Allocate the memory.

        Raises:
            OSError: there is not enough.
        """
        self._descriptor = descriptor
        self._where = where
        self._end = end
        self.block_bytes = max(_whole_blocks(block_bytes), DIRECT_ALIGNMENT)
        self._unread = start - start % DIRECT_ALIGNMENT
        self._memory = np.empty(0, np.uint8)
        self._from, self._to = self._unread, self._unread  # the file positions of the current block
        self._free = [_allocate(2 * self.block_bytes, huge_from=self.block_bytes) for _ in range(BLOCKS_AHEAD + 1)]
        self._coming: deque[tuple[NDArray[np.uint8], int]] = deque()
        self._thread = Background()

    def read_on(self) -> None:
        """Have the thread read the next blocks.

        Raises:
            RuntimeError: the system allows no more threads.
        """
        while self._unread < self._end and len(self._coming) < BLOCKS_AHEAD:
            memory, start = self._free.pop(), self._unread
            wanted = min(self.block_bytes, self._end - start)
            self._thread.submit(read_into, memory[self.block_bytes :], self._descriptor, self._where, start, wanted)
            self._coming.append((memory, start))
            self._unread += wanted

    def close(self) -> None:
        """Wait for the read that is under way."""
        self._thread.close()

    def read(self, position: int, wanted: int) -> NDArray[np.uint8]:
        """The bytes from ``position`` on, as many as requested, but at most a block.

        Positions must not go back. A later read overwrites the bytes.

        Raises:
            CleanerdError: as :func:`read_into`.
        """
        wanted = min(wanted, self.block_bytes)
        while self._to - position < wanted and self._coming:
            self._next_block(position)
        first = self._index(position)
        return self._memory[first : first + min(wanted, self._to - position)]

    def _index(self, position: int) -> int:
        """Where the byte at this file position is in the current memory."""
        return self.block_bytes + position - self._from

    def _next_block(self, position: int) -> None:
        self._thread.result()
        memory, start = self._coming.popleft()
        rest = self._memory[self._index(position) : self._index(self._to)]
        memory[self.block_bytes - len(rest) : self.block_bytes] = rest
        if len(self._memory):
            self._free.append(self._memory)
        self._memory, self._from, self._to = memory, start, min(start + self.block_bytes, self._end)
        self.read_on()


def _allocate(size: int, *, huge_from: int = 0) -> NDArray[np.uint8]:
    memory = mmap.mmap(-1, size)
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE, huge_from)  # fewer page faults for each copy into it
    return np.frombuffer(memory, dtype=np.uint8)


def _whole_blocks(size: int) -> int:
    return -(-size // DIRECT_ALIGNMENT) * DIRECT_ALIGNMENT
