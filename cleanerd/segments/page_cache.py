"""Leave the page cache as it is: drop pages of segments that were not cached before a cleaning.

A cleaning reads whole logs; a broker serves its consumers from the cache. Segments that were not cached before the
cleaning are dropped from it afterwards; the others stay. A large log would evict the broker's pages, so its uncached
segments are read directly from the disk.
"""

from __future__ import annotations

import errno
import os
import random
from typing import TYPE_CHECKING, Final

from cleanerd.format.names import SEGMENT_SUFFIX, file_name
from cleanerd.fsio.plain_file import open_plain
from cleanerd.fsio.safe_open import close_quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from cleanerd.segments.segment import Segment

SMALL_BYTES: Final = 16 * 1024
"""Smaller logs stay in the cache: checking it costs more than their pages are worth."""

_SAMPLES: Final = 8
_PAGE: Final = 4096


def cold_segments(
    path: Path, segments: Iterable[Segment], is_cold: Callable[[Path, Segment], bool] | None = None
) -> list[Segment]:
    """The segments with less than half in the cache, by a few samples; all of them if the kernel does not report it.

    Empty for a small log. ``is_cold`` decides for one segment; None: by samples.
    """
    segments = list(segments)
    if sum(segment.size_bytes for segment in segments) < SMALL_BYTES:
        return []
    return [segment for segment in segments if (is_cold or _is_cold)(path, segment)]


def drop(path: Path, segments: Iterable[Segment]) -> None:
    """Drop the pages of these segments, as far as the files still exist. Does not raise."""
    for segment in segments:
        descriptor = _open(path, segment)
        if descriptor < 0:
            continue
        try:
            if os.fstat(descriptor).st_ino == segment.inode:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:
            continue  # it is only advice to the kernel
        finally:
            close_quietly(descriptor)


def _is_cold(path: Path, segment: Segment) -> bool:
    descriptor = _open(path, segment)
    if descriptor < 0:
        return False
    try:
        return is_cold_from(descriptor, 0, segment.size_bytes)
    finally:
        close_quietly(descriptor)


def is_cold_from(descriptor: int, start: int, end: int) -> bool:
    """Whether less than half of this part of a file is cached."""
    first, pages = start // _PAGE, max(1, (end - start) // _PAGE)
    # The query may make the kernel read ahead there, and an estimate reads at even distances: other places each time.
    places = {first + int(pages * (sample + random.random()) / _SAMPLES) for sample in range(_SAMPLES)}  # noqa: S311
    try:
        cached = sum(_is_cached(descriptor, page * _PAGE) for page in places)
    except OSError as error:
        return error.errno in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
    return 2 * cached < len(places)


def _is_cached(descriptor: int, position: int) -> bool:
    """Whether the page cache has the byte. The query does not wait for it."""
    try:
        os.preadv(descriptor, [bytearray(1)], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True


def _open(path: Path, segment: Segment) -> int:
    try:
        return open_plain(path / file_name(segment.base, SEGMENT_SUFFIX))
    except OSError:
        return -1
