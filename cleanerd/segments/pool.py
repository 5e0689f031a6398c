"""Several threads read one partition: workers take parts of a segment, and their results return in order.

The kernel works without the interpreter's lock, so workers read, decompress and hash (or rewrite) in parallel. Only the
iterating thread uses ordered resources: the offset map, the output file. While no result is ready, it works on a part
too, so that no thread is idle.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import numpy as np

from cleanerd.errors import BatchTooLargeError, CleanerdError, CorruptionError
from cleanerd.format.index import OFFSET_ENTRY, read_offset_index
from cleanerd.format.names import INDEX_SUFFIX, file_name
from cleanerd.segments.chunks import CountedChunk
from cleanerd.segments.reading import Reading, SegmentReader
from cleanerd.segments.same_file import read_companion

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from cleanerd.segments.segment import Segment

AHEAD = 2
"""Parts that may wait for their turn, besides those in progress; with CHUNKS_AHEAD this limits the memory."""

LEAST_HANDED_OVER_BYTES = 32 * 1024
"""A smaller part takes longer to hand over to a worker than to read."""

CHUNKS_AHEAD = 2
"""Chunks read ahead of a part.

A part seldom has more, unless its batches decompress to very much; then its rest is read in its turn.
"""


T = TypeVar("T", bound=CountedChunk)


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """A part of a segment that begins at a batch: file positions ``start`` to ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SegmentRange(Generic[T]):
    """A segment or a range of it: its parts, and how each part is read.

    ``guessed``: the parts begin where an index says, which may be wrong. Then the segment is read serially from the
    last valid position; the results must allow that.
    """

    segment: Segment
    parts: Sequence[SegmentPart]
    reading_of: Callable[[int], Reading[T]]
    guessed: bool = False


class PartReader:
    """Readers of one directory, one for each thread; the first belongs to the iterating thread.

    One reader needs no threads.

    The caller closes the readers and the threads.
    """

    def __init__(self, readers: Sequence[SegmentReader], executor: ThreadPoolExecutor | None = None) -> None:
        self.reader = readers[0]
        self.path = readers[0].path
        self.chunk_bytes = readers[0].chunk_bytes
        self.workers = len(readers)
        self._executor = executor
        self._parts_are_too_large = False
        self._idle: queue.SimpleQueue[SegmentReader] = queue.SimpleQueue()
        for reader in readers[1:]:
            self._idle.put(reader)

    def chunks(
        self,
        segment: Segment,
        parts: Sequence[SegmentPart],
        reading_of: Callable[[int], Reading[T]],
        *,
        guessed: bool = False,
    ) -> Iterator[T]:
        """The chunks that ``reading_of(number of the part)`` makes of each part, all in file order.

        ``guessed``: see :class:`SegmentRange`.

        Raises:
            CorruptionError, CleanerdError: as ``SegmentReader.chunks``.
        """
        stretch = SegmentRange(segment, parts, reading_of, guessed)
        if len(parts) < 2:
            return self._read_serially(stretch)  # no other segment could be read meanwhile
        return self._read_in_parts(stretch)

    def _read_in_parts(self, stretch: SegmentRange[T]) -> Iterator[T]:
        with contextlib.closing(self.segments([stretch])) as segments:
            for chunks in segments:
                yield from chunks

    def segments(self, stretches: Iterable[SegmentRange[T]]) -> Generator[Iterator[T], None, None]:
        """The chunks of each range, in file order; consume them before those of the next range.

        Workers begin the next segment while the last parts of a segment are consumed. The chunks raise as
        :meth:`chunks` does.
        """
        if self._executor is None:
            for stretch in stretches:
                yield self._read_serially(stretch)
            return
        started: deque[SegmentRange[T]] = deque()
        with contextlib.closing(self._in_order(self._executor, _jobs(stretches, started))) as results:
            for first in results:
                yield self._yield_results(started.popleft(), itertools.chain([first], results))

    def _read_serially(self, stretch: SegmentRange[T]) -> Iterator[T]:
        if len(stretch.parts) == 1:
            return self._read_part(stretch, 0)
        return itertools.chain.from_iterable(self._read_part(stretch, number) for number in range(len(stretch.parts)))

    def _read_part(self, stretch: SegmentRange[T], number: int) -> Iterator[T]:
        part = stretch.parts[number]
        return stretch.reading_of(number)(self.reader, _until(stretch.segment, part.end), part.start)

    def _yield_results(
        self, stretch: SegmentRange[T], results: Iterator[tuple[_PartTask[T], Future[list[T]]]]
    ) -> Iterator[T]:
        segment, parts = stretch.segment, stretch.parts
        for number, (part, (job, future)) in enumerate(zip(parts, results, strict=False)):
            position = part.start
            try:
                chunks = future.result()
                read = sum(chunk.consumed for chunk in chunks)
                self._parts_are_too_large |= len(parts) > 1 and read < part.end - part.start
                for chunk in itertools.chain(chunks, _read_rest(job.reading, self.reader, segment, part, chunks)):
                    yield chunk
                    position += chunk.consumed
            except (CorruptionError, BatchTooLargeError):
                if not stretch.guessed:
                    raise
                yield from job.reading(self.reader, segment, position)
                # The results of the other parts are useless.
                deque(itertools.islice(results, len(parts) - number - 1), maxlen=0)
                return

    def shared_out(
        self, positions: NDArray[np.int64], end: int, least_bytes: int, most_bytes: int, bytes_behind: int = 0
    ) -> list[SegmentPart]:
        """Parts that begin at 0 or at some of the ascending ``positions``, at most ``most_bytes`` each if possible.

        A part has a fixed cost, so the first ones are large. The last ones are small, about ``least_bytes``, so that
        threads finish at about the same time. Parts are the last ones if ``bytes_behind`` this end does not follow
        without a break. All parts become small after one was too large for a worker, because its batches decompress to
        very much.
        """
        if self._executor is None:
            return [SegmentPart(0, end)]
        most_bytes = least_bytes if self._parts_are_too_large else most_bytes
        parts: list[SegmentPart] = []
        start = 0
        while start < end or not parts:
            share = (end - start + bytes_behind) // self.workers
            after = _border(positions, start, min(max(share, least_bytes), most_bytes), end)
            parts.append(SegmentPart(start, after))
            start = after
        return parts

    def _in_order(
        self, executor: ThreadPoolExecutor, jobs: Iterator[_PartTask[T]]
    ) -> Generator[tuple[_PartTask[T], Future[list[T]]], None, None]:
        """Each job with its finished result, in order."""
        waiting: deque[tuple[_PartTask[T], Future[list[T]]]] = deque()
        try:
            while True:
                for job in jobs:
                    # A job without a worker is run by the owner, in its turn.
                    future: Future[list[T]] = Future()
                    waiting.append((job, future))
                    if job.part.end - job.part.start >= LEAST_HANDED_OVER_BYTES:
                        with contextlib.suppress(RuntimeError):  # the limit of threads is reached
                            executor.submit(self._work, job, future)
                    if len(waiting) >= self.workers + AHEAD:
                        break
                if not waiting:
                    return
                while not waiting[0][1].done() and (row := _not_begun(waiting)) is not None:
                    job = waiting[row][0]
                    waiting[row] = (job, job.done_by(self.reader))
                waiting[0][1].exception()  # waits for the result
                yield waiting.popleft()
        finally:
            for _, future in waiting:
                future.cancel()

    def _work(self, job: _PartTask[T], future: Future[list[T]]) -> None:
        if not future.set_running_or_notify_cancel():
            return  # the owner has run it, or its result is not needed any more
        reader = self._idle.get()
        try:
            job.do(reader, future, BaseException)
        finally:
            self._idle.put(reader)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No worker reads during the block. Waits for jobs whose results were not consumed."""
        idle: list[SegmentReader] = []
        try:
            while len(idle) < self.workers - 1:
                idle.append(self._idle.get())
            yield
        finally:
            for reader in idle:
                self._idle.put(reader)


class ReaderPool(PartReader):
    """Readers and threads for one partition directory."""

    def __init__(self, path: str, *, workers: int, chunk_bytes: int, largest_batch_bytes: int | None = None) -> None:
        with contextlib.ExitStack() as opened:
            self._readers = [
                opened.enter_context(
                    SegmentReader.open(path, chunk_bytes=chunk_bytes, largest_batch_bytes=largest_batch_bytes)
                )
                for _ in range(workers)
            ]
            self._opened = opened.pop_all()
        super().__init__(self._readers, ThreadPoolExecutor(workers - 1, "cleanerd-reader") if workers > 1 else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
        self._opened.close()

    @contextlib.contextmanager
    def for_directory(self, path: str, directory: int) -> Iterator[PartReader]:
        """Use the same threads for another directory, open as ``directory``, and bypass the page cache.

        Buffers are shared, so do not read here during the block.
        """
        with self.paused(), contextlib.ExitStack() as opened:
            readers = [opened.enter_context(reader.for_directory(path, directory)) for reader in self._readers]
            beside = PartReader(readers, self._executor)
            try:
                yield beside
            finally:
                with beside.paused():
                    opened.close()

    def parts(self, segment: Segment, most_bytes: int, bytes_behind: int = 0) -> list[SegmentPart]:
        """Cut a segment at batches, by its offset index: see :meth:`shared_out`.

        Without a usable index there is one part.

        The index may be wrong: see ``guessed`` of :meth:`chunks`. see ``guessed`` of :meth:`chunks`.
        """
        if self.workers == 1:
            return [SegmentPart(0, segment.size_bytes)]
        positions = index_entries(self.path, segment)["position"].astype(np.int64)
        return self.shared_out(positions, segment.size_bytes, self.chunk_bytes, most_bytes, bytes_behind)


def _jobs(stretches: Iterable[SegmentRange[T]], started: deque[SegmentRange[T]]) -> Iterator[_PartTask[T]]:
    """All parts; a range with parts is added to ``started`` before its first part."""
    for stretch in stretches:
        if stretch.parts:
            started.append(stretch)
        for number, part in enumerate(stretch.parts):
            yield _PartTask(stretch.segment, part, stretch.reading_of(number))


@dataclass(frozen=True, slots=True)
class _PartTask(Generic[T]):
    """A part, and how it is read."""

    segment: Segment
    part: SegmentPart
    reading: Reading[T]

    def run(self, reader: SegmentReader) -> list[T]:
        """Read the first chunks; later ones would only wait."""
        started: list[T] = []
        left_bytes = self.part.end - self.part.start
        with contextlib.closing(_read(self.reading, reader, self.segment, self.part, self.part.start)) as chunks:
            # Read to the end if possible, because the file is checked there.
            for chunk in chunks:
                started.append(chunk)
                left_bytes -= chunk.consumed
                if left_bytes and len(started) == CHUNKS_AHEAD:
                    break
        return started

    def done_by(self, reader: SegmentReader) -> Future[list[T]]:
        """Run it now; an error is raised when this part's turn comes."""
        future: Future[list[T]] = Future()
        self.do(reader, future, Exception)
        return future

    def do(self, reader: SegmentReader, future: Future[list[T]], kept: type[BaseException]) -> None:
        """Run it for ``future``, which also receives errors of the class ``kept``."""
        try:
            future.set_result(self.run(reader))
        except kept as error:
            future.set_exception(error)


def _border(positions: NDArray[np.int64], start: int, most_bytes: int, end: int) -> int:
    """The end of a part from ``start`` on: the last position within ``most_bytes``, else the next one."""
    if end - start <= most_bytes:
        return end
    row = int(np.searchsorted(positions, start + most_bytes, side="right")) - 1
    if row < 0 or positions[row] <= start:
        row += 1
    return min(int(positions[row]), end) if row < len(positions) else end


def parts_between(positions: Sequence[int], end: int, least_bytes: int) -> list[SegmentPart]:
    """Parts of at least ``least_bytes``, except the last one, that begin at some of the ascending ``positions``."""
    points = [0]
    for position in positions:
        if position - points[-1] >= least_bytes and position < end:
            points.append(position)
    return [SegmentPart(start, after) for start, after in pairwise([*points, end])]


def _not_begun(waiting: Sequence[tuple[_PartTask[T], Future[list[T]]]]) -> int | None:
    """The index of the first job that no thread has begun; afterwards no thread will begin one."""
    return next((row for row, (_, future) in enumerate(waiting) if not future.done() and future.cancel()), None)


def index_entries(path: str, segment: Segment) -> NDArray[np.void]:
    """[n] ``OFFSET_ENTRY``: a segment's offset index on disk; empty if it cannot be used."""
    name = Path(path) / file_name(segment.base, INDEX_SUFFIX)
    try:
        return read_offset_index(read_companion(Path(path), segment, INDEX_SUFFIX) or b"", str(name))
    except CleanerdError:
        return np.zeros(0, OFFSET_ENTRY)


def _read(
    reading: Reading[T], reader: SegmentReader, segment: Segment, part: SegmentPart, start: int
) -> Generator[T, None, None]:
    yield from reading(reader, _until(segment, part.end), start)


def _read_rest(
    reading: Reading[T], reader: SegmentReader, segment: Segment, part: SegmentPart, started: Sequence[T]
) -> Iterator[T]:
    start = part.start + sum(chunk.consumed for chunk in started)
    if start < part.end:
        yield from _read(reading, reader, segment, part, start)


def _until(segment: Segment, end: int) -> Segment:
    """The segment up to ``end``.

    Preallocated space follows all written data, so zeros before ``end`` are damage.
    """
    return segment if end == segment.size_bytes else replace(segment, size_bytes=end, is_active=False)
