"""Several threads read one partition: parts of a segment go out to workers, what they made of them comes back in order.

The kernel works without the interpreter's lock, so workers read, unpack and hash (or rewrite) side by side; whoever
iterates is the one owner of everything that has an order: the offset map, the output file (kernel.md section 5).
"""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np

from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.index import OFFSET_ENTRY, read_offset_index
from cleanerd.format.names import INDEX_SUFFIX, file_name
from cleanerd.log.read import Consumed, SegmentReader
from cleanerd.log.small_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from concurrent.futures import Future
    from types import TracebackType

    from numpy.typing import NDArray

    from cleanerd.log.segment import Segment

T = TypeVar("T", bound=Consumed)
AHEAD = 2
"""Parts that may wait for their turn besides those being worked on: what bounds the memory."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a segment that begins at a batch: file positions ``start`` to ``end``."""

    start: int
    end: int


class ReaderPool:
    """Readers of one partition directory, one a worker. With one worker there are no threads at all."""

    def __init__(self, path: str, *, workers: int, chunk_bytes: int) -> None:
        self.path = path
        self.workers = workers
        self.chunk_bytes = chunk_bytes
        self.reader = SegmentReader.open(path, chunk_bytes=chunk_bytes)
        self._executor = ThreadPoolExecutor(workers, "cleanerd-reader") if workers > 1 else None
        self._idle: queue.SimpleQueue[SegmentReader] = queue.SimpleQueue()
        for _ in range(workers if workers > 1 else 0):
            self._idle.put(SegmentReader.open(path, chunk_bytes=chunk_bytes))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
        with contextlib.suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()
        self.reader.close()

    def parts(self, segment: Segment) -> list[Part]:
        """Cut a segment at batches, by its offset index: about a chunk each. One part when there is no usable index.

        The index is only believed as far as it goes: see ``guessed`` of :meth:`chunks`.
        """
        points = [0]
        if self._executor is not None:
            for position in index_entries(self.path, segment)["position"].tolist():
                if position - points[-1] >= self.chunk_bytes and position < segment.size_bytes:
                    points.append(position)
        return [Part(start, end) for start, end in pairwise([*points, segment.size_bytes])]

    def chunks(
        self,
        segment: Segment,
        parts: Sequence[Part],
        call_of: Callable[[int], Callable[[NDArray[np.uint8], int], T]],
        *,
        guessed: bool = False,
    ) -> Iterator[T]:
        """What ``call_of(number of the part)`` returns for the chunks of each part, all in file order.

        ``guessed``: an index says where the parts begin, and it may be wrong. Then the segment is read on in one go
        from the last good place; calls must not mind that.

        Raises:
            CorruptionError, CleanerdError: as ``SegmentReader.chunks``.
        """
        if self._executor is None or len(parts) < 2:
            for number, part in enumerate(parts):
                yield from self.reader.chunks(_until(segment, part.end), call_of(number), start=part.start)
            return
        with contextlib.closing(self._in_order(self._executor, segment, parts, call_of)) as results:
            for number, part in enumerate(parts):
                try:
                    chunks = next(results)
                except CorruptionError:
                    if not guessed:
                        raise
                    yield from self.reader.chunks(segment, call_of(number), start=part.start)
                    return
                yield from chunks

    def _in_order(
        self,
        executor: ThreadPoolExecutor,
        segment: Segment,
        parts: Sequence[Part],
        call_of: Callable[[int], Callable[[NDArray[np.uint8], int], T]],
    ) -> Generator[list[T], None, None]:
        waiting: deque[Future[list[T]]] = deque()
        numbers = iter(range(len(parts)))
        try:
            while True:
                for number in numbers:
                    waiting.append(executor.submit(self._work, segment, parts[number], call_of(number)))
                    if len(waiting) >= self.workers + AHEAD:
                        break
                if not waiting:
                    return
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _work(self, segment: Segment, part: Part, call: Callable[[NDArray[np.uint8], int], T]) -> list[T]:
        reader = self._idle.get()
        try:
            return list(reader.chunks(_until(segment, part.end), call, start=part.start))
        finally:
            self._idle.put(reader)


def index_entries(path: str, segment: Segment) -> NDArray[np.void]:
    """[n] ``OFFSET_ENTRY``: a segment's offset index as it stands on disk; none when it cannot be used."""
    name = Path(path) / file_name(segment.base, INDEX_SUFFIX)
    try:
        return read_offset_index(read_small_file(name) or b"", str(name))
    except CleanerdError:
        return np.zeros(0, OFFSET_ENTRY)


def _until(segment: Segment, end: int) -> Segment:
    return segment if end == segment.size_bytes else replace(segment, size_bytes=end)
