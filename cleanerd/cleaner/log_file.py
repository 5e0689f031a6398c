"""A staged ``.log`` while it is written, past the page cache.

Direct writes cost a tenth of the CPU time of buffered ones and leave the broker's page cache alone. They also put the
segment on the disk before it is read back for verification. If a file system has no direct I/O, the bytes pass through
the cache.
"""

from __future__ import annotations

import errno
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.errors import CleanerdError, system_error
from cleanerd.fsio.safe_open import close_quietly
from cleanerd.segments.reading import DIRECT_ALIGNMENT, set_direct

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

BUFFER_BYTES: Final = 4 * 1024 * 1024


class WriteBuffer:
    """Aligned memory for direct writes, used by all files of a staging directory in turn.

    ``behind``: a thread writes one half while the other is filled. Otherwise rewriting threads would wait for the disk.
    """

    def __init__(self, *, behind: bool = False) -> None:
        self._memories: list[mmap.mmap] = []
        self._halves = 2 if behind else 1
        self._number = 0
        self._writer = ThreadPoolExecutor(1, "cleanerd-writer") if behind else None
        self._pending: Future[None] | None = None

    def memory(self) -> mmap.mmap:
        """``BUFFER_BYTES`` of page-aligned memory to fill, allocated at the first call."""
        row = self._number % self._halves
        if row == len(self._memories):
            self._memories.append(mmap.mmap(-1, BUFFER_BYTES))
        return self._memories[row]

    def write(self, call: Callable[[memoryview, int], None], count: int) -> None:
        """``call(memory, count)`` now or in the thread; afterwards :attr:`memory` is the other half.

        Raises:
            CleanerdError: what this call or the one before raised.
        """
        memory = memoryview(self.memory())
        if self._writer is None:
            call(memory, count)
            return
        self.wait_for_writes()
        try:
            self._pending = self._writer.submit(call, memory, count)
        except RuntimeError:  # no more threads are allowed; the submitted work was not run
            self._writer = None
            call(memory, count)
            return
        self._number += 1

    def wait_for_writes(self) -> None:
        """Wait until everything is written.

        Raises:
            CleanerdError: what the last call raised.
        """
        if self._pending is not None:
            self._pending.exception()  # waits for the write; after a signal, closing the file waits again
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """End the thread after its write. Does not raise."""
        if self._writer is not None:
            self._writer.shutdown()


class LogFile:
    """A staged ``.log``. ``descriptor`` is a new file's, opened for writing; :meth:`close` closes it.

    ``direct``: write past the page cache, if the file system can.
    """

    def __init__(self, descriptor: int, where: str, buffer: WriteBuffer, *, direct: bool = True) -> None:
        self._descriptor = descriptor
        self._where = where
        self._buffer = buffer
        self._bytes = np.frombuffer(buffer.memory(), dtype=np.uint8)
        self._filled = 0
        self._direct = direct and set_direct(descriptor, wanted=True)

    def lead(self) -> NDArray[np.uint8] | None:
        """The last bytes written so far, less than a block, which have to precede the next ones.

        None if the bytes pass through the cache: then the next ones may be anywhere in memory.

        Raises:
            CleanerdError: no space, or the disk failed.
        """
        whole = self._filled - self._filled % DIRECT_ALIGNMENT
        if whole:
            rest = self._bytes[whole : self._filled].copy()
            self._put(whole)
            self._keep(rest)
        return self._bytes[: self._filled] if self._direct else None

    def write(self, block: NDArray[np.uint8], lead_bytes: int = 0) -> None:
        """Append ``block`` without its first ``lead_bytes``.

        If these are the :meth:`lead` and the block begins at a page, whole blocks are written without a copy.

        Raises:
            CleanerdError: no space, or the disk failed.
        """
        whole = len(block) - len(block) % DIRECT_ALIGNMENT
        if self._direct and whole and lead_bytes == self._filled and block.ctypes.data % DIRECT_ALIGNMENT == 0:
            self._buffer.wait_for_writes()
            self._put_from(block.data, whole)
            self._keep(block[whole:])
        else:
            self._collect(block[lead_bytes:])

    def finish(self) -> None:
        """Write everything; call it last. The file's owner flushes it.

        Raises:
            CleanerdError: no space, or the disk failed.
        """
        self._put(self._filled)
        self._buffer.wait_for_writes()

    def close(self) -> None:
        """Close the descriptor and drop bytes that are not written yet."""
        with suppress(CleanerdError):
            self._buffer.wait_for_writes()
        close_quietly(self._descriptor)

    def _collect(self, data: NDArray[np.uint8]) -> None:
        done = 0
        while done < len(data):
            count = min(len(data) - done, BUFFER_BYTES - self._filled)
            self._bytes[self._filled : self._filled + count] = data[done : done + count]
            self._filled += count
            done += count
            if self._filled == BUFFER_BYTES:
                self._put(BUFFER_BYTES)

    def _keep(self, rest: NDArray[np.uint8]) -> None:
        self._filled = len(rest)
        self._bytes[: self._filled] = rest

    def _put(self, count: int) -> None:
        """Write ``count`` bytes from the beginning of the buffer, which empties it."""
        self._buffer.write(self._put_from, count)
        self._bytes = np.frombuffer(self._buffer.memory(), dtype=np.uint8)
        self._filled = 0

    def _put_from(self, memory: memoryview, count: int) -> None:
        try:
            done = 0
            while done < count:
                # Direct writes take whole blocks; only the file's end can be shorter.
                end = count - count % DIRECT_ALIGNMENT if self._direct else count
                if done == end:
                    self._to_cache()
                    continue
                done += self._write(memory[done:end])
        except OSError as error:
            raise system_error("cannot be written", self._where, error) from error

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self._descriptor, data)
        except OSError as error:
            # A file system may accept the flag but refuse the write, or stop at an unaligned byte when the disk is
            # full.
            if not self._direct or error.errno != errno.EINVAL:
                raise
            self._to_cache()
            return 0

    def _to_cache(self) -> None:
        set_direct(self._descriptor, wanted=False)
        self._direct = False
